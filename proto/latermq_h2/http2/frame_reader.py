"""From bytes in pieces to whole frames, one after the other.

Bytes are kept only until the frame they belong to is whole; a frame that is too long is refused by
its head. After so many frames, and when whoever handles one holds the reader, what follows waits
for the next `feed`.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from latermq_h2.http2.frames import (
    CONTINUATION,
    HEAD,
    HEAD_BYTES,
    SETTINGS,
    STREAM_ID_MAX,
    ConnectionFault,
    ErrorCode,
)

# flags, stream id, payload, now
Handler: TypeAlias = Callable[[int, int, bytes, int], None]

PARTS_MAX: Final = 64  # each is an object of its own, however small


class FrameReader:
    """Reads the frames of one connection and hands each to the handler of its type.

    Args:
        handlers: by frame type.
        unknown: for the other types.
        preface: what comes before the first frame.
        turn_frames_max: handled in one `feed`; 0: as many as there are.
    """

    def __init__(
        self,
        handlers: tuple[Handler, ...],
        unknown: Handler,
        frame_bytes_max: int,
        preface: bytes,
        turn_frames_max: int,
    ) -> None:
        self.held = False
        self.block_of = 0  # the stream whose CONTINUATION must come next
        self._handlers: Final = handlers
        self._unknown: Final = unknown
        self._frame_bytes_max: Final = frame_bytes_max
        self._turn_frames_max: Final = turn_frames_max
        self._preface_left = preface
        self._first_frame = True
        self._parts: list[bytes] = []
        self._have = 0
        self._need = 0

    @property
    def waiting_bytes(self) -> int:
        """Count the bytes of input that is not handled yet."""
        return self._have

    def clear(self) -> None:
        """Keep nothing of what waits."""
        self._parts = []
        self._have = 0

    def feed(self, data: bytes, now_ms: int) -> None:
        """Handle frames that are whole, all unless it is held. Raises ConnectionFault."""
        self.held = False
        if self._parts:
            if data:
                self._keep(data)
            if self._have < self._need:
                return
            data = b"".join(self._parts)
            self._parts.clear()
            self._have = self._need = 0
        if self._preface_left:
            data = self._check_preface(data)
        position = 0
        stop = len(data)
        need = HEAD_BYTES
        unpack = HEAD.unpack_from
        handlers = self._handlers
        frames_left = self._turn_frames_max
        while stop - position >= HEAD_BYTES:
            head: tuple[int, int, int, int, int] = unpack(data, position)
            high, low, kind, flags, stream_id = head
            length = high << 8 | low
            if length > self._frame_bytes_max:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a frame longer than allowed")
            start = position + HEAD_BYTES
            end = start + length
            if end > stop:
                need = HEAD_BYTES + length
                break
            position = end
            if self.block_of or self._first_frame:
                self._check_order(kind, flags, stream_id & STREAM_ID_MAX)
            handler = handlers[kind] if kind <= CONTINUATION else self._unknown
            handler(flags, stream_id & STREAM_ID_MAX, data[start:end], now_ms)
            frames_left -= 1
            if self.held or not frames_left:
                self.held = True
                need = 0
                break
        if position < stop:
            self._parts.append(data[position:] if position else data)
            self._have = stop - position
            self._need = need

    def keep(self, data: bytes) -> None:
        """Keep input for the next `feed`, and be held until then."""
        self._keep(data)
        self.held = True

    def _keep(self, data: bytes) -> None:
        """Keep a piece of a frame; many small ones as one."""
        self._parts.append(data)
        self._have += len(data)
        if len(self._parts) >= PARTS_MAX:
            self._parts = [b"".join(self._parts)]

    def _check_preface(self, data: bytes) -> bytes:
        """Check the part of the preface in `data` and return the rest. Raises ConnectionFault."""
        left = self._preface_left
        count = min(len(left), len(data))
        if not left.startswith(data[:count]):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "not the preface of HTTP/2")
        self._preface_left = left[count:]
        return data[count:]

    def _check_order(self, kind: int, flags: int, stream_id: int) -> None:
        if self._first_frame:
            self._first_frame = False
            if kind != SETTINGS or flags & 1:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        if self.block_of and (kind != CONTINUATION or stream_id != self.block_of):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a frame inside a header block")
