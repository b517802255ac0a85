"""What both sides of a connection have in common: from input to frames to blocks; its end."""

from collections.abc import Callable
from typing import Any, Protocol

from latermq_h2.http2 import frames
from latermq_h2.http2.control import HELLO as HELLO_DUE
from latermq_h2.http2.control import KEEPALIVE, KEEPALIVE_ACK, SETTINGS_ACK, Control
from latermq_h2.http2.deadlines import Deadlines
from latermq_h2.http2.frame_reader import FrameReader, Handler
from latermq_h2.http2.frames import ConnectionFault, ErrorCode
from latermq_h2.http2.header_blocks import DEADLINE as HEADER_BLOCK
from latermq_h2.http2.header_blocks import Block, HeaderBlocks
from latermq_h2.http2.limits import Keepalive, Limits
from latermq_h2.http2.outbound import Outbound
from latermq_h2.http2.stream import Stream


class Frames(Protocol):
    """Frames about streams."""

    def on_data(self, flags: int, stream_id: int, payload: bytes, now_ms: int) -> None: ...

    def on_rst_stream(self, flags: int, stream_id: int, payload: bytes, now_ms: int) -> None: ...

    def on_window_update(self, flags: int, stream_id: int, payload: bytes, now_ms: int) -> None: ...

    def on_block(self, block: Block, now_ms: int) -> None: ...


class Line:
    """One side; `over` says that nothing more will come of it once `take` is empty.

    Args:
        hello: what is sent first.
        finished, roomy: as `Outbound` has them.
        reset: told of each stream that is reset when the connection ends, and why.
    """

    def __init__(
        self,
        limits: Limits,
        keepalive: Keepalive,
        hello: bytes,
        finished: Callable[[Stream], None],
        roomy: Callable[[Any], None],
        reset: Callable[[Any, int], None],
        now_ms: int,
    ) -> None:
        self.over = False
        self.fault: ConnectionFault | None = None
        self.open: dict[int, Any] = {}
        self.outbound = Outbound(limits, finished, roomy)
        self._limits_shared = limits
        self._deadlines = Deadlines()
        self._control = Control(
            limits, keepalive, hello, self.outbound, self._deadlines, self.open.values,
            self._drained, now_ms,
        )  # fmt: skip
        self._blocks = HeaderBlocks(limits, self._deadlines)
        self._heard_ms = now_ms
        self._reset = reset

    def _read_with(self, streams: Frames, on_goaway: Handler, preface: bytes) -> None:
        """Called once, before anything is received."""
        control = self._control
        self._on_block = streams.on_block
        self._reader = FrameReader(
            (
                streams.on_data, self._on_headers, control.on_priority, streams.on_rst_stream,
                control.on_settings, control.on_push_promise, control.on_ping, on_goaway,
                streams.on_window_update, self._on_continuation,
            ),
            control.on_unknown,
            self._limits_shared.frame_bytes_max,
            preface,
        )  # fmt: skip

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
    def input_bytes(self) -> int:
        """What came of a frame or a header block that is not handled yet."""
        return self._reader.waiting_bytes + self._blocks.waiting_bytes

    @property
    def congested(self) -> bool:
        """Reading should pause until output was taken."""
        return self.outbound.congested or self.outbound.acks > self._limits_shared.acks_pause

    def take(self) -> bytes:
        """Bytes to write, at most about `output_bytes_max`; b"" when there are none now."""
        return self.outbound.take()

    def on_timer(self, now_ms: int) -> None:
        """Do what is due."""
        try:
            for name in self._deadlines.take_due(now_ms):
                if not self.over:
                    self._on_deadline(name, now_ms)
        except ConnectionFault as fault:
            self.fail(fault)

    def fail(self, fault: ConnectionFault) -> None:
        """End it with a GOAWAY; every stream is reset."""
        if self.over:
            return
        self.fault = fault
        self.outbound.put(frames.goaway(self._peer_last_id(), fault.code, fault.reason))
        self.lost(fault.code)

    def lost(self, code: int = ErrorCode.CANCEL) -> None:
        """The peer is gone, or will be: every stream is reset, nothing more is handled."""
        self.over = True
        self._deadlines.clear_all()
        self._reader.clear()
        self._blocks.clear()
        streams = list(self.open.values())
        self.open.clear()
        for stream in streams:
            stream.input_open = False
            self.outbound.drop(stream)
            self._reset(stream, code)

    def _peer_last_id(self) -> int:
        """The last stream of the peer's that we handled."""
        raise NotImplementedError

    def _drained(self, now_ms: int) -> None:
        """The answer to SHUTDOWN_PING came."""

    def _on_headers(self, flags: int, stream_id: int, payload: bytes, now_ms: int) -> None:
        block = self._blocks.on_headers(flags, stream_id, payload, now_ms)
        if block is None:
            self._reader.block_of = stream_id
        else:
            self._on_block(block, now_ms)

    def _on_continuation(self, flags: int, stream_id: int, payload: bytes, now_ms: int) -> None:
        block = self._blocks.on_continuation(flags, stream_id, payload)
        if block is not None:
            self._reader.block_of = 0
            self._on_block(block, now_ms)

    def _on_deadline(self, name: str, now_ms: int) -> None:
        """Raises ConnectionFault."""
        if name == KEEPALIVE:
            self._control.keepalive_due(self._heard_ms, now_ms)
        elif name == KEEPALIVE_ACK:
            self._control.keepalive_ack_due(self._heard_ms, now_ms)
        elif name == SETTINGS_ACK:
            raise ConnectionFault(ErrorCode.SETTINGS_TIMEOUT, "our SETTINGS were not acknowledged")
        elif name == HELLO_DUE:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "no SETTINGS in time")
        else:
            assert name == HEADER_BLOCK
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "a header block took too long")
