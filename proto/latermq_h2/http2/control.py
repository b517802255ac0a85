"""The frames about the connection itself: SETTINGS, PING, PRIORITY, unknown ones, and keepalive.

Each costs the peer a token that time and completed calls bring back; answers to what we asked are
free, once. A peer may ping as often as
it likes while we send it something; without that, pings sooner than allowed are strikes.
"""

from collections.abc import Callable, Iterable
from typing import Final

from latermq_h2.http2 import frames
from latermq_h2.http2.deadlines import Deadlines
from latermq_h2.http2.frames import ConnectionFault, ErrorCode
from latermq_h2.http2.header_blocks import PRIORITY_BYTES, check_dependency
from latermq_h2.http2.limits import Budget, Keepalive, Limits
from latermq_h2.http2.outbound import Outbound
from latermq_h2.http2.stream import Stream

HELLO: Final = "hello"
SETTINGS_ACK: Final = "settings ack"
KEEPALIVE: Final = "keepalive"
KEEPALIVE_ACK: Final = "keepalive ack"

FRAME_BYTES_SENT_MAX: Final = 64 << 10  # streams take turns by frames
KEEPALIVE_PING: Final = b"latermq?"
SHUTDOWN_PING: Final = b"latermq!"
PROOF_PING: Final = b"latermq."  # its answer proves that the peer read what was sent before it


class Control:
    """Handles SETTINGS, PING and the other frames about one connection itself.

    Args:
        hello: what we send before anything else, our SETTINGS with it.
        streams: those that are open, when INITIAL_WINDOW_SIZE changes.
        drained: the answer to SHUTDOWN_PING came.
    """

    def __init__(
        self,
        limits: Limits,
        keepalive: Keepalive,
        hello: bytes,
        outbound: Outbound,
        deadlines: Deadlines,
        streams: Callable[[], Iterable[Stream]],
        drained: Callable[[int], None],
        now_ms: int,
    ) -> None:
        self.budget = Budget(limits.control_burst, limits.control_per_s, now_ms)
        self.peer_streams_max = frames.STREAM_ID_MAX
        self.push_max = 1  # of ENABLE_PUSH
        self._limits = limits
        self._keepalive = keepalive
        self._outbound = outbound
        self._deadlines = deadlines
        self._streams = streams
        self._drained = drained
        self._pinged_ms: int | None = None
        self._strikes = 0
        self._sent_at_ping = -1  # what we had sent at the last ping
        self._probed_ms = 0
        self._pings_out = 0  # of ours, not answered
        self._proofs_out = 0  # PROOF_PINGs among them: 0 or 1
        self.proofs = 0  # PROOF_PINGs answered
        deadlines.set(HELLO, now_ms + limits.hello_ms_max)
        deadlines.set(SETTINGS_ACK, now_ms + limits.hello_ms_max)
        deadlines.set(KEEPALIVE, now_ms + keepalive.keepalive_interval_ms)
        outbound.put(hello)
        more = limits.connection_window_bytes - frames.WINDOW_DEFAULT
        if more > 0:
            outbound.put(frames.window_update(0, more))

    @property
    def greeted(self) -> bool:
        """Tell whether the peer's first SETTINGS came."""
        return HELLO not in self._deadlines

    def charge(self, now_ms: int, what: str, count: int = 1) -> None:
        """Charge the peer for what is not a call. Raises ConnectionFault: it is too much."""
        if not self.budget.spend(now_ms, count):
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, f"too many {what}")

    def on_settings(self, flags: int, stream_id: int, payload: bytes, now_ms: int) -> None:
        if stream_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "SETTINGS on a stream")
        if flags & frames.ACK:
            if payload:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS ACK with a payload")
            if SETTINGS_ACK not in self._deadlines:
                self.charge(now_ms, "answers to no SETTINGS")
            self._deadlines.clear(SETTINGS_ACK)
            return
        if len(payload) % frames.SETTING_BYTES:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS of a broken length")
        count = len(payload) // frames.SETTING_BYTES
        if count > self._limits.settings_entries_max:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many settings in one frame")
        self.charge(now_ms, "settings", max(count, 1))
        self._deadlines.clear(HELLO)
        for start in range(0, len(payload), frames.SETTING_BYTES):
            name = int.from_bytes(payload[start : start + 2], "big")
            self._apply(name, int.from_bytes(payload[start + 2 : start + 6], "big"))
        self._acknowledge(frames.frame(frames.SETTINGS, frames.ACK, 0))

    def _apply(self, name: int, value: int) -> None:
        outbound = self._outbound
        if name == frames.INITIAL_WINDOW_SIZE:
            fits = value <= frames.WINDOW_MAX
            if not fits or not outbound.set_initial_window(value, self._streams()):
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "a window too large")
        elif name == frames.MAX_FRAME_SIZE:
            if not frames.FRAME_BYTES_DEFAULT <= value <= frames.FRAME_BYTES_LIMIT:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "MAX_FRAME_SIZE out of range")
            outbound.frame_bytes_max = min(value, FRAME_BYTES_SENT_MAX)
        elif name == frames.MAX_CONCURRENT_STREAMS:
            self.peer_streams_max = value
        elif name == frames.ENABLE_PUSH and value > self.push_max:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "ENABLE_PUSH must not be that")

    def on_ping(self, flags: int, stream_id: int, payload: bytes, now_ms: int) -> None:
        if stream_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PING on a stream")
        if len(payload) != frames.PING_BYTES:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "PING is not 8 bytes")
        if flags & frames.ACK:
            if self._pings_out:
                self._pings_out -= 1
            else:
                self.charge(now_ms, "answers to no PING")
            if payload == KEEPALIVE_PING:
                self._probed_ms = -1  # also when the answer came within the same millisecond
            elif payload == SHUTDOWN_PING:
                self._drained(now_ms)
            elif payload == PROOF_PING and self._proofs_out:
                self._proofs_out = 0
                self.proofs += 1
            return
        self.charge(now_ms, "pings")
        self._acknowledge(frames.frame(frames.PING, frames.ACK, 0, payload))
        self._watch_pings(now_ms)

    def _watch_pings(self, now_ms: int) -> None:
        before, self._pinged_ms = self._pinged_ms, now_ms
        sent, self._sent_at_ping = self._sent_at_ping, self._outbound.frames_sent
        if self._sent_at_ping != sent or before is None:
            self._strikes = 0
        elif now_ms - before < self._keepalive.ping_interval_ms_min:
            self._strikes += 1
            if self._strikes > self._limits.ping_strikes_max:
                raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too_many_pings")

    def on_priority(self, flags: int, stream_id: int, payload: bytes, now_ms: int) -> None:
        """Ignore a PRIORITY, once it is well-formed."""
        if not stream_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PRIORITY without a stream")
        if len(payload) != PRIORITY_BYTES:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "PRIORITY is not 5 bytes")
        check_dependency(stream_id, payload)
        self.charge(now_ms, "priorities")

    def on_unknown(self, flags: int, stream_id: int, payload: bytes, now_ms: int) -> None:
        self.charge(now_ms, "unknown frames")

    def on_push_promise(self, flags: int, stream_id: int, payload: bytes, now_ms: int) -> None:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE, which is not allowed")

    def ping(self, payload: bytes) -> None:
        """Ask for an answer, which is then free."""
        self._pings_out += 1
        self._outbound.put(frames.frame(frames.PING, 0, 0, payload))

    def ask_proof(self) -> None:
        """Send a PROOF_PING, behind everything that is output so far."""
        self._proofs_out = 1
        self.ping(PROOF_PING)

    def keepalive_due(self, heard_ms: int, now_ms: int) -> None:
        """Ping if nothing was heard for long."""
        silent_ms = now_ms - heard_ms
        interval_ms = self._keepalive.keepalive_interval_ms
        if silent_ms < interval_ms:
            self._deadlines.set(KEEPALIVE, heard_ms + interval_ms)
            return
        self.probe(now_ms, self._keepalive.keepalive_timeout_ms)

    def probe(self, now_ms: int, answer_ms_max: int) -> None:
        """Ping at once; without anything heard in `answer_ms_max` the keepalive has failed."""
        self._deadlines.clear(KEEPALIVE)
        self._probed_ms = now_ms
        self.ping(KEEPALIVE_PING)
        self._deadlines.set(KEEPALIVE_ACK, now_ms + answer_ms_max)

    def keepalive_ack_due(self, heard_ms: int, now_ms: int) -> None:
        """Take whatever was heard since the ping as proof of life. Raises ConnectionFault."""
        if heard_ms <= self._probed_ms:
            raise ConnectionFault(ErrorCode.NO_ERROR, "keepalive timeout")
        self._deadlines.set(KEEPALIVE, heard_ms + self._keepalive.keepalive_interval_ms)

    def _acknowledge(self, data: bytes) -> None:
        self._outbound.put_ack(data)
        if self._outbound.acks > self._limits.acks_max:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many answers not taken")
