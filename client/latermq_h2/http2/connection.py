"""The server's side of one HTTP/2 connection, without I/O.

    receive(bytes, now) → sink.opened, sink.received, sink.reset … → take() → bytes
    next_deadline() → on_timer(now)

    hello ──SETTINGS──→ open ──shut_down──→ going ──PING ack, 1 s──→ last calls ──no call──→ over
      └────────┴─────────────┴────────────────┴── fault: GOAWAY with its code, all reset ──→ over

This class owns that life and its deadlines; frames about streams are `Streams`, frames about the
connection `Control`, what goes out `Outbound`.
"""

from typing import Final

from latermq_h2.http2 import frames
from latermq_h2.http2.control import (
    HELLO,
    KEEPALIVE,
    KEEPALIVE_ACK,
    SETTINGS_ACK,
    SHUTDOWN_PING,
    Control,
)
from latermq_h2.http2.deadlines import Deadlines
from latermq_h2.http2.frame_reader import FrameReader
from latermq_h2.http2.frames import ConnectionFault, ErrorCode
from latermq_h2.http2.header_blocks import DEADLINE as HEADER_BLOCK
from latermq_h2.http2.header_blocks import HeaderBlocks
from latermq_h2.http2.limits import Keepalive, Limits
from latermq_h2.http2.outbound import Outbound
from latermq_h2.http2.stream import Stream
from latermq_h2.http2.streams import Sink, Streams

IDLE: Final = "idle"
STALL: Final = "stall"
AGE: Final = "age"
GOING: Final = "going"

GOING_MS_MAX: Final = 1_000  # for the answer to the ping between the two GOAWAY


class Connection:
    """One connection; `over` says that nothing more will come of it once `take` is empty.

    Args:
        age_ms_max: of this connection; 0: for ever.
    """

    def __init__(
        self, sink: Sink, limits: Limits, keepalive: Keepalive, now_ms: int, age_ms_max: int = 0
    ) -> None:
        self.over = False
        self.fault: ConnectionFault | None = None
        self.open: dict[int, Stream] = {}
        self._sink = sink
        self._limits = limits
        self._deadlines = Deadlines()
        self.outbound = Outbound(limits, self._output_finished, sink.roomy)
        self._control = Control(
            limits, keepalive, self.outbound, self._deadlines, self.open.values,
            self._last_calls, now_ms,
        )  # fmt: skip
        self.streams = Streams(
            self.open, sink, limits, self.outbound, self._control, self._emptied, now_ms
        )
        self._blocks = HeaderBlocks(limits, self._deadlines)
        streams, control = self.streams, self._control
        self._reader = FrameReader(
            (
                streams.on_data, self._on_headers, control.on_priority, streams.on_rst_stream,
                control.on_settings, control.on_push_promise, control.on_ping, self._on_goaway,
                streams.on_window_update, self._on_continuation,
            ),
            control.on_unknown,
            limits.frame_bytes_max,
        )  # fmt: skip
        self._heard_ms = self._timed_ms = now_ms
        self._changes_seen = -1
        self._sent_seen = 0
        self._going = False
        self._serves_last_calls = False
        if limits.idle_ms_max:
            self._deadlines.set(IDLE, now_ms + limits.idle_ms_max)
        if age_ms_max:
            self._deadlines.set(AGE, now_ms + age_ms_max)

    def receive(self, data: bytes, now_ms: int) -> None:
        """Handle input; b"" goes on with what a `hold` left over."""
        if self.over:
            return
        if data:
            self._heard_ms = now_ms
        try:
            self._reader.feed(data, now_ms)
        except ConnectionFault as fault:
            self.fail(fault)

    def hold(self) -> None:
        """Handle no more input in this `receive`."""
        self._reader.held = True

    @property
    def input_left(self) -> bool:
        """A `hold` left input to `receive`."""
        return self._reader.held and self._reader.waiting_bytes > 0 and not self.over

    @property
    def congested(self) -> bool:
        """Reading should pause until output was taken."""
        return self.outbound.congested or self.outbound.acks > self._limits.acks_pause

    def take(self) -> bytes:
        """Bytes to write, at most about `output_bytes_max`; b"" when there are none now."""
        return self.outbound.take()

    def next_deadline(self) -> int | None:
        """When to call `on_timer`; too early does no harm."""
        waits = self.outbound.waiting or self.outbound.size
        if waits and STALL not in self._deadlines and not self.over:
            since_ms = max(self._heard_ms, self._timed_ms)
            self._deadlines.set(STALL, since_ms + self._limits.stall_ms_max)
        return self._deadlines.next_ms

    def on_timer(self, now_ms: int) -> None:
        """Do what is due."""
        self._timed_ms = now_ms
        try:
            for name in self._deadlines.take_due(now_ms):
                if not self.over:
                    self._on_deadline(name, now_ms)
        except ConnectionFault as fault:
            self.fail(fault)

    def shut_down(self, now_ms: int) -> None:
        """Let calls finish, accept new ones until the peer knows, then be over."""
        if self._going or self.over:
            return
        self._going = True
        self.outbound.put(frames.goaway(frames.STREAM_ID_MAX, ErrorCode.NO_ERROR))
        self.outbound.put(frames.frame(frames.PING, 0, 0, SHUTDOWN_PING))
        self._deadlines.set(GOING, now_ms + GOING_MS_MAX)

    def fail(self, fault: ConnectionFault) -> None:
        """End it with a GOAWAY; every stream is reset."""
        if self.over:
            return
        self.fault = fault
        self.outbound.put(frames.goaway(self.streams.last_id, fault.code, fault.reason))
        self.lost(fault.code)

    def lost(self, code: int = ErrorCode.CANCEL) -> None:
        """The peer is gone, or will be: every stream is reset, nothing more is handled."""
        self.over = True
        self._deadlines.clear_all()
        streams = list(self.open.values())
        self.open.clear()
        for stream in streams:
            stream.input_open = False
            self.outbound.drop(stream)
            self._sink.reset(stream, code)

    def _on_headers(self, flags: int, stream_id: int, payload: bytes, now_ms: int) -> None:
        block = self._blocks.on_headers(flags, stream_id, payload, now_ms)
        if block is None:
            self._reader.block_of = stream_id
        else:
            self.streams.on_block(block, now_ms)

    def _on_continuation(self, flags: int, stream_id: int, payload: bytes, now_ms: int) -> None:
        block = self._blocks.on_continuation(flags, stream_id, payload)
        if block is not None:
            self._reader.block_of = 0
            self.streams.on_block(block, now_ms)

    def _on_goaway(self, flags: int, stream_id: int, payload: bytes, now_ms: int) -> None:
        """The peer opens no more streams; those that are open finish."""
        if stream_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "GOAWAY on a stream")
        if len(payload) < 8:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "GOAWAY is less than 8 bytes")
        self._control.charge(now_ms, "GOAWAY")
        self._going = True
        self._last_calls(now_ms)

    def _on_deadline(self, name: str, now_ms: int) -> None:
        if name == KEEPALIVE:
            self._control.keepalive_due(self._heard_ms, now_ms)
        elif name == KEEPALIVE_ACK:
            self._control.keepalive_ack_due(self._heard_ms, now_ms)
        elif name == IDLE:
            self._on_idle(now_ms)
        elif name == STALL:
            self._on_stall(now_ms)
        elif name == AGE:
            self.shut_down(now_ms)
        elif name == GOING:
            self._last_calls(now_ms)
        elif name == SETTINGS_ACK:
            raise ConnectionFault(ErrorCode.SETTINGS_TIMEOUT, "our SETTINGS were not acknowledged")
        elif name == HELLO:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "no SETTINGS in time")
        else:
            assert name == HEADER_BLOCK
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "a header block took too long")

    def _on_idle(self, now_ms: int) -> None:
        if self.open or self.streams.changes != self._changes_seen:
            self._changes_seen = self.streams.changes
            self._deadlines.set(IDLE, now_ms + self._limits.idle_ms_max)
        else:
            self.shut_down(now_ms)

    def _on_stall(self, now_ms: int) -> None:
        """Reset streams that sent nothing since the last look; end a connection that did not."""
        outbound = self.outbound
        if outbound.size and outbound.taken == self._sent_seen:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "nothing was read for too long")
        self._sent_seen = outbound.taken
        for stream in list(outbound.waiting.values()):
            if stream.marked == stream.sent:
                self.streams.reset(stream, ErrorCode.CANCEL)
                self._sink.reset(stream, ErrorCode.CANCEL)
            else:
                stream.marked = stream.sent
        if outbound.waiting or outbound.size:
            self._deadlines.set(STALL, now_ms + self._limits.stall_ms_max)

    def _output_finished(self, stream: Stream) -> None:
        self.streams.output_finished(stream)

    def _last_calls(self, now_ms: int) -> None:
        """The second GOAWAY: later streams are ignored."""
        if not self._going or self._serves_last_calls:
            return
        self._serves_last_calls = True
        self._deadlines.clear(GOING)
        self.streams.last_id_served = self.streams.last_id
        self.outbound.put(frames.goaway(self.streams.last_id, ErrorCode.NO_ERROR))
        self._emptied()

    def _emptied(self) -> None:
        if self._serves_last_calls and not self.open:
            self.over = True
            self._deadlines.clear_all()
