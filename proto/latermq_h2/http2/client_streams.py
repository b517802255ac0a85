"""The streams of one connection, the client's side: what each frame does to the one it names.

    open ──our END_STREAM──→ half-closed (local) ──the answer's END_STREAM──→ closed
      └── the answer's END_STREAM first: we reset what is left of the request ──→ closed
      └── RST_STREAM of either side, GOAWAY that leaves it out, a lost connection ──→ closed

Of an answer come first its head (after any 1xx), then DATA, then trailers; a head that ends the
stream is the whole answer. Streams that we reset are remembered for a while: what was on its way is
dropped, though counted and decoded.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from latermq_h2.hpack.fields import Field
from latermq_h2.http2 import frames
from latermq_h2.http2.control import Control
from latermq_h2.http2.frames import ConnectionFault, ErrorCode, four_bytes, unpadded
from latermq_h2.http2.header_blocks import Block
from latermq_h2.http2.inflow import Inflow
from latermq_h2.http2.limits import Limits
from latermq_h2.http2.outbound import Outbound, widen
from latermq_h2.http2.request import Malformed
from latermq_h2.http2.response import ABSENT, ResponseHead, answer_of
from latermq_h2.http2.stream import Muted, Stream

INFORMATIONAL: Final = range(100, 200)


class ClientStream(Stream):
    """A request and its answer; `headed`: the answer's head came."""

    __slots__ = ("headed",)

    def __init__(self, stream_id: int, window: int, room: int) -> None:
        super().__init__(stream_id, ABSENT, window, room)
        self.headed = False


class Answered(Protocol):
    """Who made the requests. A stream that ended or was reset is forgotten before it is told."""

    def headed(
        self, stream: ClientStream, head: ResponseHead, fields: list[Field], ended: bool
    ) -> None:
        """Take the head of the answer; `ended`: it is all of it."""

    def received(self, stream: ClientStream, data: bytes) -> None:
        """Take a piece of its body; give the bytes back with `consume`."""

    def ended(
        self, stream: ClientStream, trailers: ResponseHead | None, fields: list[Field]
    ) -> None:
        """Take the end of the answer: it is whole."""

    def reset(self, stream: ClientStream, code: int) -> None:
        """Give up a stream whose answer is not whole; REFUSED_STREAM: nobody looked at it."""

    def roomy(self, stream: Any) -> None:
        """Let who waited to send more go on."""


class ClientStreams:
    """Keeps the streams that one connection of a client opened.

    Args:
        open_streams: shared with who has to look at all of them.
        forgotten: told after each open stream that was forgotten.
    """

    def __init__(
        self,
        open_streams: dict[int, ClientStream],
        sink: Answered,
        limits: Limits,
        outbound: Outbound,
        control: Control,
        forgotten: Callable[[], None],
    ) -> None:
        self.last_id = -1
        self._open = open_streams
        self._sink = sink
        self._limits = limits
        self._outbound = outbound
        self._control = control
        self._forgotten = forgotten
        self._inflow = Inflow(limits, outbound)
        self.consume: Final = self._inflow.consume  # the sink has taken so many bytes of a body
        self._muted = Muted()

    def start(self) -> ClientStream:
        """Open a stream; there is an id left for it."""
        self.last_id += 2
        assert self.last_id <= frames.STREAM_ID_MAX
        stream = ClientStream(
            self.last_id, self._outbound.window_initial, self._limits.stream_window_bytes
        )
        self._open[stream.id] = stream
        return stream

    def reset(self, stream: ClientStream, code: ErrorCode) -> None:
        """End a stream with RST_STREAM; the sink is not told."""
        if stream.id in self._open:
            self._outbound.put(frames.rst_stream(stream.id, code))
            self._muted.add(stream.id)
            self._forget(stream)

    def refuse_after(self, last_id: int) -> None:
        """Reset the streams after `last_id`: the peer will not look at them."""
        for stream in [stream for stream in self._open.values() if stream.id > last_id]:
            self._forget(stream)
            self._muted.add(stream.id)
            self._sink.reset(stream, ErrorCode.REFUSED_STREAM)

    # --- frames -----------------------------------------------------------------------------

    def on_header_work(self, work: int, now_ms: int) -> None:
        """Count nothing: a server's answers are free."""

    def on_block(self, block: Block, now_ms: int) -> None:
        stream_id, ended, (fields, size, gist) = block
        stream = self._open.get(stream_id)
        if stream is None:
            self._on_stray(stream_id, "HEADERS")
            return
        head = answer_of(gist)
        if isinstance(head, Malformed) or size > self._limits.header_list_bytes_max:
            self._end_badly(stream, now_ms)
        elif stream.headed:
            if not ended or head.status != ABSENT or stream.content_left > 0:
                self._end_badly(stream, now_ms)
            else:
                self._answered(stream)
                self._sink.ended(stream, head, fields)
        elif head.status == ABSENT or (ended and head.status in INFORMATIONAL):
            self._end_badly(stream, now_ms)
        elif head.status in INFORMATIONAL:
            self._control.charge(now_ms, "informational answers")
        else:
            stream.headed = True
            stream.content_left = head.content_length
            if ended:
                self._answered(stream)
            self._sink.headed(stream, head, fields, ended)

    def on_data(self, flags: int, stream_id: int, payload: bytes, now_ms: int) -> None:
        length = len(payload)
        self._inflow.take(length)
        stream = self._open.get(stream_id)
        if stream is None:
            self._on_stray(stream_id, "DATA")
            return
        stream.room -= length
        if stream.room < 0 or not stream.headed:
            self._end_badly(stream, now_ms)
            return
        if flags & frames.PADDED:
            payload = unpadded(payload)
            self.consume(stream, length - len(payload))
        ended = flags & frames.END_STREAM
        if not payload and not ended:
            self._inflow.count_empty(stream)
            return
        stream.empty_data_run = 0
        if stream.content_left >= 0:
            stream.content_left -= len(payload)
            if stream.content_left < 0 or (ended and stream.content_left):
                self._end_badly(stream, now_ms)
                return
        if ended:
            self._answered(stream)
        self._sink.received(stream, payload)
        if ended:
            self._sink.ended(stream, None, [])

    def on_rst_stream(self, flags: int, stream_id: int, payload: bytes, now_ms: int) -> None:
        code = four_bytes(payload, "RST_STREAM")
        self._refuse_idle(stream_id, "RST_STREAM")
        stream = self._open.get(stream_id)
        if stream is None:
            self._control.charge(now_ms, "resets")
            return
        self._forget(stream)
        self._sink.reset(stream, code)

    def on_window_update(self, flags: int, stream_id: int, payload: bytes, now_ms: int) -> None:
        count = four_bytes(payload, "WINDOW_UPDATE") & frames.WINDOW_MAX
        if stream_id == 0:
            widen(self._outbound, count)
            return
        self._refuse_idle(stream_id, "WINDOW_UPDATE")
        stream = self._open.get(stream_id)
        if stream is None:
            return
        if count == 0 or not self._outbound.grow(stream, count):
            self._end_badly(stream, now_ms)

    def _on_stray(self, stream_id: int, what: str) -> None:
        """Drop a frame of no open stream. Raises ConnectionFault: it did not cross our reset."""
        self._refuse_idle(stream_id, what)
        if stream_id not in self._muted:
            raise ConnectionFault(ErrorCode.STREAM_CLOSED, f"{what} on a closed stream")

    def _refuse_idle(self, stream_id: int, what: str) -> None:
        if not stream_id & 1 or stream_id > self.last_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"{what} on an idle stream")

    def _end_badly(self, stream: ClientStream, now_ms: int) -> None:
        self._control.charge(now_ms, "errors")
        self.reset(stream, ErrorCode.PROTOCOL_ERROR)
        self._sink.reset(stream, ErrorCode.PROTOCOL_ERROR)

    def _answered(self, stream: ClientStream) -> None:
        self._control.budget.earn()
        if stream.output_open:
            self.reset(stream, ErrorCode.CANCEL)
        else:
            self._forget(stream)

    def _forget(self, stream: ClientStream) -> None:
        stream.input_open = False
        if stream.queue is not None or stream.output_open:
            self._outbound.drop(stream)
        del self._open[stream.id]
        self._forgotten()
