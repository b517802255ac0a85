"""HEADERS and CONTINUATION: from frames to decoded blocks, each of them, whatever becomes of it."""

from typing import Final, TypeAlias

from latermq_h2.hpack.decoder import Decoded, Decoder, HpackError, TooManyFieldsError
from latermq_h2.http2.deadlines import Deadlines
from latermq_h2.http2.frames import (
    END_HEADERS,
    END_STREAM,
    PADDED,
    PRIORITIZED,
    STREAM_ID_MAX,
    ConnectionFault,
    ErrorCode,
    unpadded,
)
from latermq_h2.http2.limits import Limits

PRIORITY_BYTES: Final = 5
DEADLINE: Final = "header block"


# A block that is whole: its stream, whether END_STREAM was on its HEADERS, what it says.
Block: TypeAlias = tuple[int, bool, Decoded]


class HeaderBlocks:
    """Joins and decodes the header blocks of one connection."""

    def __init__(self, limits: Limits, deadlines: Deadlines) -> None:
        self.decoder = Decoder(limits.header_list_bytes_max, fields_max=limits.header_fields_max)
        self._limits = limits
        self._deadlines = deadlines
        self._stream_id = 0
        self._ended = False
        self._parts: list[bytes] = []
        self.waiting_bytes = 0  # of a block that is not whole

    def on_headers(self, flags: int, stream_id: int, payload: bytes, now_ms: int) -> Block | None:
        """Read a HEADERS frame; None: CONTINUATION must follow. Raises ConnectionFault."""
        if not stream_id & 1:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "HEADERS on a stream that is not yours")
        if flags & PADDED:
            payload = unpadded(payload)
        if flags & PRIORITIZED:
            if len(payload) < PRIORITY_BYTES:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "HEADERS without its priority")
            check_dependency(stream_id, payload)
            payload = payload[PRIORITY_BYTES:]
        ended = bool(flags & END_STREAM)
        if flags & END_HEADERS:
            return stream_id, ended, self._decode(payload)
        self._stream_id = stream_id
        self._ended = ended
        self._parts = [payload]
        self.waiting_bytes = len(payload)
        self._deadlines.set(DEADLINE, now_ms + self._limits.header_block_ms_max)
        return None

    def on_continuation(self, flags: int, stream_id: int, payload: bytes) -> Block | None:
        """Read a CONTINUATION; None: another must follow. Raises ConnectionFault."""
        if not self._parts or stream_id != self._stream_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        self._parts.append(payload)
        self.waiting_bytes += len(payload)
        if len(self._parts) - 1 > self._limits.continuations_max:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many CONTINUATION frames")
        if self.waiting_bytes > self._limits.header_block_bytes_max:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "a header block too large")
        if not flags & END_HEADERS:
            return None
        block = b"".join(self._parts)
        self._parts = []
        self.waiting_bytes = 0
        self._deadlines.clear(DEADLINE)
        return stream_id, self._ended, self._decode(block)

    def clear(self) -> None:
        """Keep nothing of a block that is not whole."""
        self._parts = []
        self.waiting_bytes = 0

    def _decode(self, block: bytes) -> Decoded:
        try:
            return self.decoder.decode(block)
        except TooManyFieldsError as many:  # one name would be one type to mypyc
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, str(many)) from None
        except HpackError as error:
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, str(error)) from None


def check_dependency(stream_id: int, priority: bytes) -> None:
    """Check a priority. Raises ConnectionFault: its stream depends on itself."""
    if int.from_bytes(priority[:4], "big") & STREAM_ID_MAX == stream_id:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a stream depends on itself")
