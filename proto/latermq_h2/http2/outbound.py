"""What goes out: windows, the round of streams that have data, and the bytes ready to be written.

Frames that need no window are written where they are made. DATA that the windows, the frame size
or the bound on ready bytes do not let out waits in its stream; `fill` serves the streams that can
send in turn, a frame each, and looks at no other.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from latermq_h2.http2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_BYTES_DEFAULT,
    HEAD,
    HEADERS,
    WINDOW_DEFAULT,
    WINDOW_MAX,
    ConnectionFault,
    ErrorCode,
    head,
)
from latermq_h2.http2.limits import Limits
from latermq_h2.http2.stream import Stream

ENDING: Final = END_HEADERS | END_STREAM
VIEW_BYTES_MIN: Final = 8_192  # slices from here on are views, not copies
CHUNK_BYTES: Final = 256 << 10  # small pieces are joined to so much, larger ones are not copied


class Outbound:
    """Holds what one connection is to write, until windows and the socket take it.

    Args:
        finished: told when the last frame of a stream's output was written.
        roomy: told when a stream that wants room has it again.
    """

    def __init__(
        self,
        limits: Limits,
        finished: Callable[[Stream], None],
        roomy: Callable[[Stream], None],
    ) -> None:
        self.size = 0  # bytes ready to be written
        self.acks = 0  # answers among them
        self.queued_bytes = 0  # of all streams
        self.window = WINDOW_DEFAULT
        self.window_initial = WINDOW_DEFAULT
        self.frame_bytes_max = FRAME_BYTES_DEFAULT
        self.frames_sent = 0  # HEADERS and DATA
        self.taken = 0
        self.waiting: dict[int, Stream] = {}  # with output that is not out
        self._ready: deque[Stream] = deque()
        self._crowded: list[Stream] = []  # whose producers wait for the next `take`
        self._parts: list[bytes | memoryview] = []
        self._bytes_max = limits.output_bytes_max
        self._buffer_max = limits.stream_buffer_bytes_max
        self._finished = finished
        self._roomy = roomy

    def take(self) -> bytes:
        """Take all bytes that may be written now."""
        if self._ready:
            self._fill()
        if not self._parts:
            return b""
        data = b"".join(self._parts)
        self._parts.clear()
        self.taken += len(data)
        self.size = self.acks = 0
        if self._crowded:
            crowded, self._crowded = self._crowded, []
            for stream in crowded:
                self._roomy(stream)
        return data

    @property
    def congested(self) -> bool:
        """Tell whether more than the bound could be written, if only somebody took it."""
        if self.size > self._bytes_max:
            return True
        can_send = bool(self._ready) and self.window > 0
        return can_send and self.size + self.queued_bytes > self._bytes_max

    def put(self, data: bytes) -> None:
        """Append frames that need no window."""
        self._parts.append(data)
        self.size += len(data)

    def put_ack(self, data: bytes) -> None:
        self.acks += 1
        self.put(data)

    def send_whole(
        self, stream: Stream, block: bytes, body: Sequence[bytes], size: int, trailers: bytes
    ) -> None:
        """Send headers, a body of `size` bytes in pieces, trailers; b"": the body is the end."""
        if not self._fits(stream, size):
            self.headers(stream, block)
            if size <= CHUNK_BYTES:
                self.data(stream, b"".join(body))  # few large frames, however small the pieces are
            else:
                self._queue(stream, _chunks(body), size)
            self.end(stream, trailers)
            return
        stream.window -= size
        self.window -= size
        self.frames_sent += 1
        stream_id = stream.id
        block_bytes = len(block)
        pack = HEAD.pack
        parts = self._parts
        parts.append(pack(block_bytes >> 8, block_bytes & 255, HEADERS, END_HEADERS, stream_id))
        parts.append(block)
        parts.append(pack(size >> 8, size & 255, DATA, 0 if trailers else END_STREAM, stream_id))
        parts += body
        self.size += 18 + block_bytes + size
        if trailers:
            trailer_bytes = len(trailers)
            parts.append(pack(trailer_bytes >> 8, trailer_bytes & 255, HEADERS, ENDING, stream_id))
            parts.append(trailers)
            self.size += 9 + trailer_bytes
        stream.output_open = False
        self._finished(stream)

    def _fits(self, stream: Stream, size: int) -> bool:
        """Tell whether so much DATA may be sent at once, in one frame."""
        return (
            size <= stream.window
            and size <= self.window
            and size <= self.frame_bytes_max
            and self.size <= self._bytes_max
        )

    def headers(self, stream: Stream, block: bytes) -> None:
        self.frames_sent += 1
        self.put(head(HEADERS, END_HEADERS, stream.id, len(block)) + block)

    def data(self, stream: Stream, payload: bytes) -> None:
        """Send or queue; the stream's output is open."""
        size = len(payload)
        if stream.queue is None and self._fits(stream, size):
            self._write_data(stream, (payload,), size)
            return
        self._queue(stream, (payload,), size)

    def _queue(self, stream: Stream, pieces: Sequence[bytes], size: int) -> None:
        if stream.queue is None:
            stream.queue = deque()
            self.waiting[stream.id] = stream
        stream.queue += pieces
        stream.queued_bytes += size
        self.queued_bytes += size
        self._schedule(stream)

    def end(self, stream: Stream, trailers: bytes) -> None:
        """Send trailers after all that is queued; b"": END_STREAM without any."""
        if stream.queue is None:
            self._write_end(stream, trailers)
        else:
            stream.trailers = trailers

    def has_room(self, stream: Stream) -> bool:
        """Tell whether the stream's producer may go on."""
        return stream.queued_bytes <= self._buffer_max and self.size <= self._bytes_max

    def want_room(self, stream: Stream) -> None:
        """Tell `roomy` when the stream has room; it may have to ask again."""
        if stream.queued_bytes > self._buffer_max:
            stream.wants_room = True
        else:
            self._crowded.append(stream)

    def drop(self, stream: Stream) -> None:
        """Drop what a stream had queued: the stream is over."""
        stream.output_open = False
        stream.queue = None
        self.queued_bytes -= stream.queued_bytes
        stream.queued_bytes = 0
        stream.wants_room = False
        self.waiting.pop(stream.id, None)

    def grow(self, stream: Stream | None, bytes_count: int) -> bool:
        """Apply a WINDOW_UPDATE; False when the window would be too large."""
        if stream is None:
            self.window += bytes_count
            return self.window <= WINDOW_MAX
        stream.window += bytes_count
        if stream.queue is not None:
            self._schedule(stream)
        return stream.window <= WINDOW_MAX

    def set_initial_window(self, window: int, streams: Iterable[Stream]) -> bool:
        """Apply the peer's INITIAL_WINDOW_SIZE; False when a window would be too large."""
        delta = window - self.window_initial
        self.window_initial = window
        fits = True
        for stream in streams:
            fits = self.grow(stream, delta) and fits
        return fits

    def _schedule(self, stream: Stream) -> None:
        if not stream.ready and stream.window > 0:
            stream.ready = True
            self._ready.append(stream)

    def _fill(self) -> None:
        """Let streams send in turn until the bound, or until none can."""
        ready = self._ready
        while ready and self.size < self._bytes_max and self.window > 0:
            stream = ready.popleft()
            stream.ready = False
            if stream.queue is None or stream.window <= 0:
                continue
            self._send_one(stream, stream.queue)
            if stream.wants_room and stream.queued_bytes <= self._buffer_max:
                stream.wants_room = False
                self._roomy(stream)

    def _send_one(self, stream: Stream, queue: deque[bytes | memoryview]) -> None:
        """Send a DATA frame of a stream, small pieces merged, a large one cut."""
        room = min(stream.window, self.window, self.frame_bytes_max)
        pieces: list[bytes | memoryview] = []
        size = 0
        while queue and size < room:
            piece = queue.popleft()
            over = size + len(piece) - room
            if over > 0:
                cut = len(piece) - over
                view = memoryview(piece) if len(piece) >= VIEW_BYTES_MIN else piece
                queue.appendleft(view[cut:])
                piece = view[:cut]
            pieces.append(piece)
            size += len(piece)
        stream.queued_bytes -= size
        self.queued_bytes -= size
        self._write_data(stream, pieces, size)
        if queue:
            self._schedule(stream)
            return
        stream.queue = None
        del self.waiting[stream.id]
        if stream.trailers is not None:
            self._write_end(stream, stream.trailers)

    def _write_data(self, stream: Stream, pieces: Sequence[bytes | memoryview], size: int) -> None:
        stream.window -= size
        stream.sent += size
        self.window -= size
        self.frames_sent += 1
        self._parts.append(head(DATA, 0, stream.id, size))
        self._parts += pieces
        self.size += 9 + size

    def _write_end(self, stream: Stream, trailers: bytes) -> None:
        self.frames_sent += 1
        if trailers:
            self.put(head(HEADERS, ENDING, stream.id, len(trailers)) + trailers)
        else:
            self.put(head(DATA, END_STREAM, stream.id, 0))
        stream.output_open = False
        self._finished(stream)


def widen(outbound: Outbound, bytes_count: int) -> None:
    """Apply a connection's WINDOW_UPDATE. Raises ConnectionFault: of nothing, or too large."""
    if bytes_count == 0:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a WINDOW_UPDATE of 0")
    if not outbound.grow(None, bytes_count):
        raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "a window too large")


def _chunks(pieces: Sequence[bytes]) -> list[bytes]:
    """Join small pieces, copy no large one: what was written is freed while the rest waits."""
    chunks: list[bytes] = []
    small: list[bytes] = []
    size = 0
    for piece in pieces:
        large = len(piece) >= CHUNK_BYTES
        if not large:
            small.append(piece)
            size += len(piece)
        if small and (large or size >= CHUNK_BYTES):
            chunks.append(b"".join(small))
            small, size = [], 0
        if large:
            chunks.append(piece)
    if small:
        chunks.append(b"".join(small))
    return chunks
