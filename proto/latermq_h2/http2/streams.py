"""The streams of one connection: which are open, and what each frame does to the one it names.

A stream is idle (its id not used yet), open, half-closed (remote) when the request is whole,
closed. It is never half-closed (local) for long: an answer that is complete before the request is
followed by RST_STREAM(NO_ERROR).

Streams we reset or refused are remembered for a while as muted: what the peer sent before it knew
is dropped, though counted on the connection's window and decoded.
"""

from collections.abc import Callable
from typing import Final, Protocol

from latermq_h2.hpack.fields import Field
from latermq_h2.http2 import frames
from latermq_h2.http2.control import Control
from latermq_h2.http2.frames import ConnectionFault, ErrorCode, four_bytes, unpadded
from latermq_h2.http2.header_blocks import Block
from latermq_h2.http2.inflow import Inflow
from latermq_h2.http2.limits import (
    HEADER_WORK_PER_CALL,
    SMALL_DATA_BYTES,
    SMALL_DATA_PER_CALL,
    Budget,
    CallBudget,
    ServerLimits,
)
from latermq_h2.http2.outbound import Outbound, widen
from latermq_h2.http2.request import (
    OVERSIZED,
    Malformed,
    RequestHead,
    head_of,
    trailers_allowed,
)
from latermq_h2.http2.stream import Muted, Stream

GAPS_MAX: Final = 16  # ranges of ids the peer left out


class Sink(Protocol):
    """Who serves the requests. It may answer inside any of these."""

    def opened(self, stream: Stream, head: RequestHead, fields: list[Field], ended: bool) -> None:
        """Take a request; `ended`: no body. `head` is OVERSIZED when its list is too large."""

    def received(self, stream: Stream, data: bytes, ended: bool) -> None:
        """Take a piece of its body; give the bytes back with `consume`."""

    def reset(self, stream: Stream, code: int) -> None:
        """Give up a stream whose answer is not whole, reset by the peer, by us, or with all."""

    def roomy(self, stream: Stream) -> None:
        """Let who waited to send more go on."""

    def completed(self, stream: Stream) -> None:
        """Take note that the last frame of its answer is on its way."""


class Streams:
    """Opens, feeds and ends the streams of one connection.

    Args:
        open_streams: shared with who has to look at all of them.
        emptied: told when the last open stream was forgotten.
    """

    def __init__(
        self,
        open_streams: dict[int, Stream],
        sink: Sink,
        limits: ServerLimits,
        outbound: Outbound,
        control: Control,
        emptied: Callable[[], None],
        now_ms: int,
    ) -> None:
        self.last_id = 0
        self.last_id_served = frames.STREAM_ID_MAX  # later ones are ignored
        self._is_announced = True  # to the peer; else it will be
        self.changes = 0  # streams opened and forgotten
        self._open = open_streams
        self._sink = sink
        self._limits = limits
        self._outbound = outbound
        self._control = control
        self._emptied = emptied
        self._resets = Budget(limits.resets_burst, limits.resets_per_s, now_ms)
        self._inflow = Inflow(limits, outbound)
        self.consume: Final = self._inflow.consume  # the sink has taken so many bytes of a body
        self._begun = 0  # calls
        self._small_data = CallBudget(
            limits.small_data_burst, limits.small_data_per_s, SMALL_DATA_PER_CALL, now_ms
        )
        self._header_work = CallBudget(
            limits.header_work_burst, limits.header_work_per_s, HEADER_WORK_PER_CALL, now_ms
        )
        self._window_updates_left = limits.window_updates_burst
        self._gaps: list[tuple[int, int]] = []
        self._muted = Muted()

    def serve_no_more(self, *, announced: bool) -> None:
        """Ignore streams that open from now on.

        Args:
            announced: a GOAWAY says so; else the peer does not know yet, and opens as many as ever.
        """
        self.last_id_served = self.last_id
        self._is_announced = announced

    def reset(self, stream: Stream, code: ErrorCode) -> None:
        """End a stream with RST_STREAM; the sink is not told."""
        if stream.input_open or stream.output_open:
            self._outbound.put(frames.rst_stream(stream.id, code))
            self._muted.add(stream.id)
            self._forget(stream)

    def output_finished(self, stream: Stream) -> None:
        """Forget a stream whose answer's last frame was written; tell the sink."""
        self._resets.earn()
        self._control.budget.earn()
        if stream.input_open:
            self._outbound.put(frames.rst_stream(stream.id, ErrorCode.NO_ERROR))
            self._muted.add(stream.id)
        self._forget(stream)
        self._sink.completed(stream)

    # --- frames -----------------------------------------------------------------------------

    def on_header_work(self, work: int, now_ms: int) -> None:
        if not self._header_work.take(now_ms, work, self._begun):
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many new header fields")

    def on_block(self, block: Block, now_ms: int) -> None:
        stream_id, ended, (fields, size, gist) = block
        if stream_id <= self.last_id:
            self._on_later_block(block, now_ms)
            return
        if stream_id > self.last_id_served:
            if self._is_announced:
                self._control.charge(now_ms, "requests after GOAWAY")
            else:
                self._begun += 1  # no more is asked of its frames than of a call that is served
            return
        if stream_id > self.last_id + 2:
            self._gaps.append((self.last_id, stream_id))
            del self._gaps[:-GAPS_MAX]
        self.last_id = stream_id
        if len(self._open) >= self._limits.streams_max:
            self._refuse(stream_id, ErrorCode.REFUSED_STREAM, now_ms)
            return
        if size > self._limits.header_list_bytes_max:
            head: RequestHead | Malformed = OVERSIZED
        else:
            head = head_of(gist)
        if isinstance(head, Malformed) or (ended and head.content_length > 0):
            self._refuse(stream_id, ErrorCode.PROTOCOL_ERROR, now_ms)
            return
        stream = Stream(
            stream_id,
            head.content_length,
            self._outbound.window_initial,
            self._limits.stream_window_bytes,
        )
        stream.begun_ms = now_ms
        stream.input_open = not ended
        self._open[stream_id] = stream
        self.changes += 1
        self._begun += 1
        self._window_updates_left += self._limits.window_updates_per_frame
        self._sink.opened(stream, head, fields, ended)

    def _on_later_block(self, block: Block, now_ms: int) -> None:
        """Take trailers; refuse HEADERS where none may be. Raises ConnectionFault."""
        stream_id, ended, (_, _, gist) = block
        stream = self._open.get(stream_id)
        if stream is None:
            if stream_id in self._muted:
                self._control.charge(now_ms, "HEADERS on closed streams")
                return
            if any(after < stream_id < before for after, before in self._gaps):
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a stream id that is not rising")
            raise ConnectionFault(ErrorCode.STREAM_CLOSED, "HEADERS on a closed stream")
        if not stream.input_open:
            raise ConnectionFault(ErrorCode.STREAM_CLOSED, "HEADERS after the end of a stream")
        if not ended or not trailers_allowed(gist) or stream.content_left > 0:
            self._end_badly(stream, ErrorCode.PROTOCOL_ERROR, now_ms)
            return
        stream.input_open = False
        self._sink.received(stream, b"", True)

    def on_data(self, flags: int, stream_id: int, payload: bytes, now_ms: int) -> None:
        length = len(payload)
        self._inflow.take(length)
        stream = self._open.get(stream_id)
        if stream is None:
            if length < SMALL_DATA_BYTES:
                self._charge_small(now_ms)
            self._on_stray_data(stream_id, now_ms)
            return
        stream.room -= length
        if not stream.input_open:
            self._end_badly(stream, ErrorCode.STREAM_CLOSED, now_ms)
            return
        if stream.room < 0:
            self._end_badly(stream, ErrorCode.FLOW_CONTROL_ERROR, now_ms)
            return
        if flags & frames.PADDED:
            payload = unpadded(payload)
            self.consume(stream, length - len(payload))
        ended = bool(flags & frames.END_STREAM)
        if ended or len(payload) >= SMALL_DATA_BYTES:
            stream.empty_data_run = 0
        elif payload:
            stream.empty_data_run = 0
            self._charge_small(now_ms)
        else:
            self._inflow.count_empty(stream)
        if stream.content_left >= 0:
            stream.content_left -= len(payload)
            if stream.content_left < 0 or (ended and stream.content_left):
                self._end_badly(stream, ErrorCode.PROTOCOL_ERROR, now_ms)
                return
        stream.input_open = not ended
        self._sink.received(stream, payload, ended)

    def _charge_small(self, now_ms: int) -> None:
        """Count a DATA frame that is mostly its head. Raises ConnectionFault."""
        if not self._small_data.take(now_ms, 1, self._begun):
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many small DATA frames")

    def _on_stray_data(self, stream_id: int, now_ms: int) -> None:
        """Drop or refuse DATA of a stream that is not open. Raises ConnectionFault: it is idle."""
        if stream_id == 0 or (stream_id > self.last_id and stream_id <= self.last_id_served):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "DATA on an idle stream")
        if stream_id not in self._muted and stream_id <= self.last_id_served:
            self._refuse(stream_id, ErrorCode.STREAM_CLOSED, now_ms)

    def on_rst_stream(self, flags: int, stream_id: int, payload: bytes, now_ms: int) -> None:
        code = four_bytes(payload, "RST_STREAM")
        self._refuse_idle(stream_id, "RST_STREAM")
        stream = self._open.get(stream_id)
        # Long polls end so: with their client, with its consumer, with a deadline.
        waited = stream is not None and now_ms - stream.begun_ms >= self._limits.resets_free_ms
        if not waited and not self._resets.spend(now_ms):
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many resets")
        if stream is not None:
            self._forget(stream)
            self._sink.reset(stream, code)

    def on_window_update(self, flags: int, stream_id: int, payload: bytes, now_ms: int) -> None:
        count = four_bytes(payload, "WINDOW_UPDATE") & frames.WINDOW_MAX
        limit = self._window_updates_left
        limit += self._limits.window_updates_per_frame * self._outbound.frames_sent
        if limit <= 0:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many window updates")
        self._window_updates_left -= 1
        if stream_id == 0:
            widen(self._outbound, count)
            return
        self._refuse_idle(stream_id, "WINDOW_UPDATE")
        stream = self._open.get(stream_id)
        if stream is None:
            return
        if count == 0:
            self._end_badly(stream, ErrorCode.PROTOCOL_ERROR, now_ms)
        elif not self._outbound.grow(stream, count):
            self._end_badly(stream, ErrorCode.FLOW_CONTROL_ERROR, now_ms)

    def _refuse_idle(self, stream_id: int, what: str) -> None:
        if stream_id == 0 or self.last_id < stream_id <= self.last_id_served:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"{what} on an idle stream")

    def _refuse(self, stream_id: int, code: ErrorCode, now_ms: int) -> None:
        """Send RST_STREAM for a stream nobody serves."""
        self._control.charge(now_ms, "errors")
        self._outbound.put(frames.rst_stream(stream_id, code))
        self._muted.add(stream_id)

    def _end_badly(self, stream: Stream, code: ErrorCode, now_ms: int) -> None:
        self._control.charge(now_ms, "errors")
        self.reset(stream, code)
        self._sink.reset(stream, code)

    def _forget(self, stream: Stream) -> None:
        stream.input_open = False
        self.changes += 1
        if stream.queue is not None or stream.output_open:
            self._outbound.drop(stream)
        del self._open[stream.id]
        if not self._open:
            self._emptied()
