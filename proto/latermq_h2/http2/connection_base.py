"""What both sides of a connection have in common: from input to frames to blocks; its end."""

from collections.abc import Callable
from typing import Any, Final, Protocol

from latermq_h2.http2 import frames
from latermq_h2.http2.control import HELLO as HELLO_DUE
from latermq_h2.http2.control import KEEPALIVE, KEEPALIVE_ACK, SETTINGS_ACK, Control
from latermq_h2.http2.deadlines import Deadlines
from latermq_h2.http2.frame_reader import FrameReader, Handler
from latermq_h2.http2.frames import ConnectionFault, ErrorCode
from latermq_h2.http2.header_blocks import DEADLINE as HEADER_BLOCK
from latermq_h2.http2.header_blocks import Block, HeaderBlocks
from latermq_h2.http2.limits import TURN_HEADER_WORK_MAX, Keepalive, Limits
from latermq_h2.http2.outbound import Outbound
from latermq_h2.http2.stream import Stream

STALL: Final = "stall"
GOING: Final = "going"
LATE_MS_MAX: Final = 250  # a timer that fires later than this says that the loop stood still
EXCUSED_MS: Final = 1_000  # to read in then what the peer has sent in time
# What the peer must have sent, or read, by then.
PEERS_DEADLINES: Final = frozenset(
    {HELLO_DUE, SETTINGS_ACK, HEADER_BLOCK, KEEPALIVE_ACK, STALL, GOING}
)


class Frames(Protocol):
    """Frames about streams."""

    def on_data(self, flags: int, stream_id: int, payload: bytes, now_ms: int) -> None: ...

    def on_rst_stream(self, flags: int, stream_id: int, payload: bytes, now_ms: int) -> None: ...

    def on_window_update(self, flags: int, stream_id: int, payload: bytes, now_ms: int) -> None: ...

    def on_block(self, block: Block, now_ms: int) -> None: ...

    def on_header_work(self, work: int, now_ms: int) -> None:
        """Count the work of reading a block that was not known; called before its `on_block`."""


class ConnectionBase:
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
        self._decoder = self._blocks.decoder
        self._heard_ms = now_ms
        self._header_work = 0  # of this `receive`
        self._excused: dict[str, int] = {}  # deadline → the later one it was given
        self._reset = reset

    def _read_with(
        self, streams: Frames, on_goaway: Handler, preface: bytes, turn_frames_max: int
    ) -> None:
        """Set up the reader; call once, before anything is received."""
        control = self._control
        self._on_block = streams.on_block
        self._on_header_work = streams.on_header_work
        self._yields = turn_frames_max > 0
        self._reader = FrameReader(
            (
                streams.on_data, self._on_headers, control.on_priority, streams.on_rst_stream,
                control.on_settings, control.on_push_promise, control.on_ping, on_goaway,
                streams.on_window_update, self._on_continuation,
            ),
            control.on_unknown,
            self._limits_shared.frame_bytes_max,
            preface,
            turn_frames_max,
        )  # fmt: skip

    def receive(self, data: bytes, now_ms: int) -> None:
        """Handle input; b"" goes on with what a `hold` left over."""
        if self.over:
            return
        if data:
            self._heard_ms = now_ms
        self._header_work = 0
        try:
            self._reader.feed(data, now_ms)
        except ConnectionFault as fault:
            self.fail(fault)

    def keep(self, data: bytes, now_ms: int) -> None:
        """Keep input as if a `hold` had left it: the next `receive` handles it."""
        if not self.over:
            self._heard_ms = now_ms
            self._reader.keep(data)

    def hold(self) -> None:
        """Handle no more input in this `receive`."""
        self._reader.held = True

    @property
    def input_left(self) -> bool:
        """Tell whether a `hold` left input to `receive`."""
        return self._reader.held and self._reader.waiting_bytes > 0 and not self.over

    @property
    def input_bytes(self) -> int:
        """Count the bytes that came of a frame or a header block that is not handled yet."""
        return self._reader.waiting_bytes + self._blocks.waiting_bytes

    @property
    def congested(self) -> bool:
        """Tell whether reading should pause until output was taken."""
        return self.outbound.congested or self.outbound.acks > self._limits_shared.acks_pause

    def ask_proof(self) -> None:
        """Ask the peer whether it has read what is output so far: `proofs` grows when it has."""
        if not self.over:
            self._control.ask_proof()

    @property
    def proofs(self) -> int:
        """Count the answers to `ask_proof`."""
        return self._control.proofs

    def take(self) -> bytes:
        """Take the bytes to write, at most about `output_bytes_max`; b"": there are none now."""
        return self.outbound.take()

    def on_timer(self, now_ms: int) -> None:
        """Do what is due."""
        try:
            for name, due_ms in self._deadlines.take_due(now_ms):
                if not self.over and not self._is_excused(name, due_ms, now_ms):
                    self._on_deadline(name, now_ms)
        except ConnectionFault as fault:
            self.fail(fault)

    def _is_excused(self, name: str, due_ms: int, now_ms: int) -> bool:
        """Give the peer a little longer, once, where it is us who were late to listen."""
        if name not in PEERS_DEADLINES or due_ms == self._excused.get(name):
            return False
        if now_ms - due_ms <= LATE_MS_MAX and not self.input_left:
            return False
        self._excused[name] = now_ms + EXCUSED_MS
        self._deadlines.set(name, now_ms + EXCUSED_MS)
        return True

    def fail(self, fault: ConnectionFault) -> None:
        """End it with a GOAWAY; every stream is reset."""
        if self.over:
            return
        self.fault = fault
        self.outbound.put(frames.goaway(self._peer_last_id(), fault.code, fault.reason))
        self.lost(fault.code)

    def lost(self, code: int = ErrorCode.CANCEL) -> None:
        """Reset every stream and handle nothing more, as the peer is lost or will be."""
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
        """Return the id of the last stream of the peer's that we handled."""
        raise NotImplementedError

    def _drained(self, now_ms: int) -> None:
        """Go on with the shutdown: the answer to SHUTDOWN_PING came."""

    def _on_headers(self, flags: int, stream_id: int, payload: bytes, now_ms: int) -> None:
        block = self._blocks.on_headers(flags, stream_id, payload, now_ms)
        if block is None:
            self._reader.block_of = stream_id
            return
        if self._decoder.work:
            self._spend_on_headers(now_ms)
        self._on_block(block, now_ms)

    def _on_continuation(self, flags: int, stream_id: int, payload: bytes, now_ms: int) -> None:
        block = self._blocks.on_continuation(flags, stream_id, payload)
        if block is not None:
            self._reader.block_of = 0
            if self._decoder.work:
                self._spend_on_headers(now_ms)
            self._on_block(block, now_ms)

    def _spend_on_headers(self, now_ms: int) -> None:
        """Count what reading a block took; after much of it others get their turn."""
        work, self._decoder.work = self._decoder.work, 0
        self._header_work += work
        if self._yields and self._header_work >= TURN_HEADER_WORK_MAX:
            self.hold()
        self._on_header_work(work, now_ms)

    def _on_deadline(self, name: str, now_ms: int) -> None:
        """Do what is due under this name. Raises ConnectionFault."""
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
