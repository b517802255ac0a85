"""The client's side of one HTTP/2 connection, without I/O.

request(…) → take() → bytes          receive(bytes, now) → sink.headed, sink.received, sink.ended
next_deadline() → on_timer(now)

greeting ──SETTINGS──→ open ──GOAWAY──→ going: what is open ends, nothing new ──no stream──→ over
   └───────────┴──────────────┴── fault: GOAWAY with its code, all streams reset ──→ over
"""

from collections.abc import Sequence
from typing import Final

from latermq_h2.http2 import frames
from latermq_h2.http2.client_streams import Answered, ClientStream, ClientStreams
from latermq_h2.http2.connection_base import ConnectionBase
from latermq_h2.http2.frames import PREFACE, ConnectionFault, ErrorCode
from latermq_h2.http2.limits import Keepalive, Limits
from latermq_h2.http2.stream import Stream

GOAWAY_BYTES_MIN: Final = 8
REASON_BYTES_MAX: Final = 200  # of a GOAWAY, kept to be shown
# After a call without an answer, if nothing was heard for SILENT_MS: a PING, at most one
# in SUSPECT_PAUSE_MS; without anything heard in SUSPECT_MS_MAX the connection is lost.
SILENT_MS: Final = 1_000
SUSPECT_MS_MAX: Final = 2_000
SUSPECT_PAUSE_MS: Final = 10_000


class ClientConnection(ConnectionBase):
    """One connection; calls `sink` as answers come.

    Fields:
        going: the peer sent GOAWAY; `farewell` says why.
    """

    open: dict[int, ClientStream]

    def __init__(self, sink: Answered, limits: Limits, keepalive: Keepalive, now_ms: int) -> None:
        hello = PREFACE + frames.settings(
            (
                (frames.ENABLE_PUSH, 0),
                (frames.INITIAL_WINDOW_SIZE, limits.stream_window_bytes),
                (frames.MAX_FRAME_SIZE, limits.frame_bytes_max),
                (frames.MAX_HEADER_LIST_SIZE, limits.header_list_bytes_max),
            )
        )
        super().__init__(limits, keepalive, hello, self._sent, sink.roomy, sink.reset, now_ms)
        self._control.push_max = 0
        self.streams = ClientStreams(
            self.open, sink, limits, self.outbound, self._control, self._forgotten
        )
        self._read_with(self.streams, self._on_goaway, b"", 0)
        self.going = False
        self.farewell = ""
        self._suspected_ms = now_ms - SUSPECT_PAUSE_MS

    @property
    def greeted(self) -> bool:
        """Tell whether the peer's SETTINGS came: it serves us."""
        return self._control.greeted

    @property
    def accepts(self) -> bool:
        """Tell whether `request` and `open_request` may be called."""
        return self.room > 0

    @property
    def room(self) -> int:
        """Count the requests that may be made now: none while the connection is suspect."""
        if self.going or self.over or not self.greeted or self._heard_ms < self._suspected_ms:
            return 0
        return max(0, self._control.peer_streams_max - len(self.open))

    @property
    def ends(self) -> bool:
        """Tell whether no new request will ever be accepted."""
        return self.going or self.over

    def request(self, block: bytes, body: Sequence[bytes], size: int) -> ClientStream:
        """Send a whole request, with a body of `size` bytes in pieces."""
        stream = self._start()
        self.outbound.send_whole(stream, block, body, size, b"")
        return stream

    def open_request(self, block: bytes) -> ClientStream:
        """Open a request whose body follows, by `outbound.data` and `outbound.end`."""
        stream = self._start()
        self.outbound.headers(stream, block)
        return stream

    def next_deadline(self) -> int | None:
        """Return when to call `on_timer`; too early does no harm."""
        return self._deadlines.next_ms

    def suspect(self, now_ms: int) -> None:
        """Ping the peer, after a call that it did not answer, unless it was heard a moment ago.

        A firewall or a NAT that forgot the connection drops what is sent on it without a word. No
        request is made on it until the peer is heard.
        """
        if self.over or not self.greeted or now_ms - self._heard_ms < SILENT_MS:
            return
        if now_ms - self._suspected_ms >= SUSPECT_PAUSE_MS:
            self._suspected_ms = now_ms
            self._control.probe(now_ms, SUSPECT_MS_MAX)

    def leave(self, why: str) -> None:
        """Make no more requests; what is open goes on."""
        self.going = True
        self.farewell = why
        self._forgotten()

    def close(self) -> None:
        """Say GOAWAY and be over; every stream is reset."""
        if not self.over:
            self.outbound.put(frames.goaway(0, ErrorCode.NO_ERROR))
            self.lost()

    def _start(self) -> ClientStream:
        stream = self.streams.start()
        if stream.id + 2 > frames.STREAM_ID_MAX:
            self.going = True  # what is open goes on
            self.farewell = "its stream ids are used up"
        return stream

    def _peer_last_id(self) -> int:
        return 0

    def _on_goaway(self, flags: int, stream_id: int, payload: bytes, now_ms: int) -> None:
        if stream_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "GOAWAY on a stream")
        if len(payload) < GOAWAY_BYTES_MIN:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "GOAWAY is less than 8 bytes")
        self._control.charge(now_ms, "GOAWAY")
        last_id = int.from_bytes(payload[:4], "big") & frames.STREAM_ID_MAX
        code = int.from_bytes(payload[4:8], "big")
        reason = payload[8 : 8 + REASON_BYTES_MAX].decode("ascii", "replace")
        self.farewell = f"GOAWAY {code} {reason}".rstrip()
        self.going = True
        self.streams.refuse_after(last_id)
        self._forgotten()

    def _sent(self, stream: Stream) -> None:
        """Do nothing when the last frame of a request was written."""

    def _forgotten(self) -> None:
        if self.going and not self.open:
            self.over = True
            self._deadlines.clear_all()
