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
from latermq_h2.http2.connection_base import GOING, STALL, ConnectionBase
from latermq_h2.http2.control import SHUTDOWN_PING
from latermq_h2.http2.frames import PREFACE, ConnectionFault, ErrorCode
from latermq_h2.http2.limits import TURN_FRAMES_MAX, Keepalive, ServerLimits
from latermq_h2.http2.stream import Stream
from latermq_h2.http2.streams import Sink, Streams

IDLE: Final = "idle"
AGE: Final = "age"
UNREAD: Final = "nothing was read for too long"

# For the answer to the ping between the two GOAWAY. A call that the peer sent before it read the
# first and that comes after the second fails there, so a machine that is slow gets its time; a peer
# that is gone holds up a replacement for as long (other gRPC servers give 10 to 60 s).
GOING_MS_MAX: Final = 3_000


class Connection(ConnectionBase):
    """The server's side of one connection.

    Args:
        age_ms_max: of this connection; 0: for ever.
    """

    open: dict[int, Stream]

    def __init__(
        self,
        sink: Sink,
        limits: ServerLimits,
        keepalive: Keepalive,
        now_ms: int,
        age_ms_max: int = 0,
    ) -> None:
        hello = frames.settings(
            (
                (frames.MAX_CONCURRENT_STREAMS, limits.streams_max),
                (frames.INITIAL_WINDOW_SIZE, limits.stream_window_bytes),
                (frames.MAX_FRAME_SIZE, limits.frame_bytes_max),
                (frames.MAX_HEADER_LIST_SIZE, limits.header_list_bytes_max),
            )
        )
        super().__init__(
            limits, keepalive, hello, self._output_finished, sink.roomy, sink.reset, now_ms
        )
        self._sink = sink
        self._limits = limits
        self.streams = Streams(
            self.open, sink, limits, self.outbound, self._control, self._emptied, now_ms
        )
        self._read_with(self.streams, self._on_goaway, PREFACE, TURN_FRAMES_MAX)
        self._timed_ms = now_ms
        self._changes_seen = -1
        self._sent_seen = 0
        self._going = False
        self._serves_last_calls = False
        if limits.idle_ms_max:
            self._deadlines.set(IDLE, now_ms + limits.idle_ms_max)
        if age_ms_max:
            self._deadlines.set(AGE, now_ms + age_ms_max)

    def next_deadline(self) -> int | None:
        """Return when to call `on_timer`; too early does no harm."""
        waits = self.outbound.waiting or self.outbound.size
        if waits and STALL not in self._deadlines and not self.over:
            since_ms = max(self._heard_ms, self._timed_ms)
            self._deadlines.set(STALL, since_ms + self._limits.stall_ms_max)
        return self._deadlines.next_ms

    def on_timer(self, now_ms: int) -> None:
        """Do what is due."""
        self._timed_ms = now_ms
        super().on_timer(now_ms)

    def shut_down(self, now_ms: int) -> None:
        """Let calls finish, accept new ones until the peer knows, then be over."""
        if self._going or self.over:
            return
        self._going = True
        self.outbound.put(frames.goaway(frames.STREAM_ID_MAX, ErrorCode.NO_ERROR))
        self._control.ping(SHUTDOWN_PING)
        self._deadlines.set(GOING, now_ms + GOING_MS_MAX)

    def begin_no_more(self) -> None:
        """Keep nothing of calls that come from now on; the GOAWAY that ends it leaves them out."""
        self.streams.serve_no_more(announced=False)

    def _on_goaway(self, flags: int, stream_id: int, payload: bytes, now_ms: int) -> None:
        """Let the open streams finish: the peer opens no more."""
        if stream_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "GOAWAY on a stream")
        if len(payload) < 8:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "GOAWAY is less than 8 bytes")
        self._control.charge(now_ms, "GOAWAY")
        self._going = True
        self._last_calls(now_ms)

    def _peer_last_id(self) -> int:
        return self.streams.last_id

    def _drained(self, now_ms: int) -> None:
        self._last_calls(now_ms)

    def _on_deadline(self, name: str, now_ms: int) -> None:
        if name == IDLE:
            self._on_idle(now_ms)
        elif name == STALL:
            self._on_stall(now_ms)
        elif name == AGE:
            self.shut_down(now_ms)
        elif name == GOING:
            self._last_calls(now_ms)
        else:
            super()._on_deadline(name, now_ms)

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
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, UNREAD)
        self._sent_seen = outbound.taken
        for stream in list(outbound.waiting.values()):
            if stream.marked == stream.sent:
                self._end_stream(stream)
            else:
                stream.marked = stream.sent
        if outbound.waiting or outbound.size:
            self._deadlines.set(STALL, now_ms + self._limits.stall_ms_max)

    def end_unread(self) -> None:
        """Reset every stream whose output waits."""
        for stream in list(self.outbound.waiting.values()):
            self._end_stream(stream)

    def _end_stream(self, stream: Stream) -> None:
        self.streams.reset(stream, ErrorCode.CANCEL)
        self._sink.reset(stream, ErrorCode.CANCEL)

    def _output_finished(self, stream: Stream) -> None:
        self.streams.output_finished(stream)

    def _last_calls(self, now_ms: int) -> None:
        """Send the second GOAWAY, once, when going: later streams are ignored."""
        if not self._going or self._serves_last_calls:
            return
        self._serves_last_calls = True
        self._deadlines.clear(GOING)
        self.streams.serve_no_more(announced=True)
        self.outbound.put(frames.goaway(self.streams.last_id, ErrorCode.NO_ERROR))
        self._emptied()

    def _emptied(self) -> None:
        if self._serves_last_calls and not self.open:
            self.over = True
            self._deadlines.clear_all()
