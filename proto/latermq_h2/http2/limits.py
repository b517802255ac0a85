"""What a connection may cost us: the limits, and budgets that useful work refills."""

from typing import Final, Protocol

SMALL_DATA_BYTES: Final = 256  # DATA of less costs more to handle than to send
TURN_FRAMES_MAX: Final = 256  # of one connection in a row: half a millisecond
TURN_HEADER_WORK_MAX: Final = 300  # likewise: one of these costs about as much as two frames
SMALL_DATA_PER_CALL: Final = 2
HEADER_WORK_PER_CALL: Final = 32


class Limits(Protocol):
    """The limits that both sides of a connection have."""

    @property
    def frame_bytes_max(self) -> int:
        """Return the MAX_FRAME_SIZE we announce."""

    @property
    def header_list_bytes_max(self) -> int:
        """Limit a decoded list, as RFC 7541 counts; larger: the call gets RESOURCE_EXHAUSTED."""

    @property
    def header_fields_max(self) -> int:
        """Limit a block's fields; more: as a list too large; far more (`hpack.decoder`): calm."""

    @property
    def header_block_bytes_max(self) -> int:
        """Limit an encoded block; larger: ENHANCE_YOUR_CALM."""

    @property
    def continuations_max(self) -> int:
        """Limit the frames after the HEADERS of one block."""

    @property
    def header_block_ms_max(self) -> int:
        """Limit the time from HEADERS to the block's last CONTINUATION."""

    @property
    def hello_ms_max(self) -> int:
        """Limit the time from connected to the client's first SETTINGS, and to the ack of ours."""

    @property
    def stream_window_bytes(self) -> int:
        """Limit what a client may send ahead on one stream."""

    @property
    def connection_window_bytes(self) -> int:
        """Limit what a client may send ahead on all streams."""

    @property
    def control_burst(self) -> int:
        """Limit PING, SETTINGS, PRIORITY, unknown frames, and errors we are made to send."""

    @property
    def control_per_s(self) -> int: ...

    @property
    def settings_entries_max(self) -> int:
        """Limit the entries in one SETTINGS frame."""

    @property
    def acks_pause(self) -> int:
        """Limit the answers waiting to be sent; more: reading pauses."""

    @property
    def acks_max(self) -> int:
        """Limit the answers waiting to be sent; more: ENHANCE_YOUR_CALM."""

    @property
    def empty_data_run_max(self) -> int:
        """Limit the empty DATA frames in a row on a stream."""

    @property
    def empty_data_max(self) -> int:
        """Limit the empty DATA frames on a stream."""

    @property
    def ping_strikes_max(self) -> int:
        """Limit the pings that may come sooner; one more is "too_many_pings"."""

    @property
    def stream_buffer_bytes_max(self) -> int:
        """Limit the output of a stream that waits for the peer; more: its producer waits."""

    @property
    def output_bytes_max(self) -> int:
        """Limit a connection's output ready to be written; more: producers and reading wait."""


class ServerLimits(Limits, Protocol):
    """Those of the server's side; the settings of section `http2` satisfy it."""

    @property
    def streams_max(self) -> int:
        """Limit the streams open at once; further ones are REFUSED_STREAM."""

    @property
    def resets_burst(self) -> int:
        """Limit the RST_STREAM at once; each completed call allows one more."""

    @property
    def resets_per_s(self) -> int: ...

    @property
    def resets_free_ms(self) -> int:
        """Return for how long a stream must have been open for its RST_STREAM to be free."""

    @property
    def header_work_burst(self) -> int:
        """Limit fields not seen before, and 64 bytes of a block each; calls earn 32."""

    @property
    def header_work_per_s(self) -> int: ...

    @property
    def small_data_burst(self) -> int:
        """Limit DATA frames that are neither the last of a stream nor large; calls earn two."""

    @property
    def small_data_per_s(self) -> int: ...

    @property
    def window_updates_burst(self) -> int: ...

    @property
    def window_updates_per_frame(self) -> int:
        """Return how many each stream opened, and each DATA frame sent, adds to the burst."""

    @property
    def idle_ms_max(self) -> int:
        """Limit the time without a call; 0: for ever."""

    @property
    def stall_ms_max(self) -> int:
        """Limit how long output may wait that the peer does not let us send."""


class Keepalive(Protocol):
    """When silence is looked into; the settings of section `server` satisfy it."""

    @property
    def ping_interval_ms_min(self) -> int:
        """Return the least time between pings of a connection to which we send nothing."""

    @property
    def keepalive_interval_ms(self) -> int:
        """Return the silence after which we ping."""

    @property
    def keepalive_timeout_ms(self) -> int:
        """Return the silence after our ping that ends the connection."""


class Budget:
    """Tokens that time and useful work bring back, up to a maximum."""

    __slots__ = ("_at_ms", "_per_s", "_tokens", "_tokens_max")

    def __init__(self, burst: int, per_s: int, now_ms: int) -> None:
        self._tokens = float(burst)
        self._tokens_max = burst
        self._per_s = per_s
        self._at_ms = now_ms

    def spend(self, now_ms: int, count: int = 1) -> bool:
        """Take `count`; False when there are not so many."""
        if self._tokens < count + 1 or now_ms - self._at_ms >= 1_000:
            refill = (now_ms - self._at_ms) * self._per_s / 1_000
            self._tokens = min(self._tokens_max, self._tokens + refill)
            self._at_ms = now_ms
        if self._tokens < count:
            return False
        self._tokens -= count
        return True

    def earn(self, count: int = 1) -> None:
        if self._tokens < self._tokens_max:
            self._tokens = min(self._tokens_max, self._tokens + count)


class CallBudget(Budget):
    """One that calls bring back too, when they begin; counted only when something is taken."""

    __slots__ = ("_begun", "_per_call")

    def __init__(self, burst: int, per_s: int, per_call: int, now_ms: int) -> None:
        super().__init__(burst, per_s, now_ms)
        self._per_call = per_call
        self._begun = 0

    def take(self, now_ms: int, count: int, begun: int) -> bool:
        """Spend `count`, after what the calls begun since the last time have earned."""
        new = begun - self._begun
        if new:
            self._begun = begun
            self.earn(new * self._per_call)
        return self.spend(now_ms, count)
