"""What one connection of this client may cost it, and when silence is looked into."""

from dataclasses import dataclass

from latermq._connection.transport import RESPONSE_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """`latermq_h2`'s Limits, for the client's side."""

    message_bytes_max: int = RESPONSE_BYTES_MAX
    frame_bytes_max: int = 64 << 10  # a whole receive in one frame
    header_list_bytes_max: int = 64 << 10
    header_fields_max: int = 1_024
    header_block_bytes_max: int = 64 << 10
    continuations_max: int = 8
    header_block_ms_max: int = 10_000
    hello_ms_max: int = 10_000
    stream_window_bytes: int = 4 << 20
    connection_window_bytes: int = 32 << 20
    control_burst: int = 1_000
    control_per_s: int = 100
    settings_entries_max: int = 32
    acks_pause: int = 1_000
    acks_max: int = 10_000
    empty_data_run_max: int = 10
    empty_data_max: int = 100
    ping_strikes_max: int = 2
    stream_buffer_bytes_max: int = 64 << 10
    output_bytes_max: int = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionKeepalive:
    """Servers allow a ping every 30 s or less often."""

    ping_interval_ms_min: int = 0  # a server may ping us as often as its budget lets it
    keepalive_interval_ms: int = 60_000
    keepalive_timeout_ms: int = 10_000
