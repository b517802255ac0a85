"""Settings of the lean transport: the limits of a connection, and TLS."""

from dataclasses import dataclass
from enum import Enum

from latermq_broker.config.number_bounds import check_minima
from latermq_broker.errors import ConfigError

KIB = 1 << 10
MIB = 1 << 20
REQUEST_OVERHEAD_BYTES = 256 * KIB  # its head and objects, and the next frame


class Transport(Enum):
    """What carries the services."""

    LEAN = "lean"  # our own HTTP/2 on the event loop
    GRPCIO = "grpcio"  # grpc.aio


class ClientCertificates(Enum):
    """What a TLS client has to show of itself."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class Http2Config:
    """What one connection may cost; only the lean transport looks at it."""

    streams_max: int = 1_000  # long polls need many
    frame_bytes_max: int = 16 * KIB
    header_list_bytes_max: int = 16 * KIB  # decoded
    header_block_bytes_max: int = 64 * KIB  # encoded
    continuations_max: int = 8
    header_fields_max: int = 128  # of one block
    header_work_burst: int = 4_096  # new header fields and 64 bytes of a block; a call earns 32
    header_work_per_s: int = 1_000
    header_block_ms_max: int = 10_000
    hello_ms_max: int = 10_000  # preface, SETTINGS, and the answer to ours
    stream_window_bytes: int = 1 * MIB
    connection_window_bytes: int = 16 * MIB
    assembly_bytes_max: int = 148 * MIB  # held for the requests of one connection
    requests_bytes_max: int = 152 * MIB  # held for the requests of all connections
    inflated_bytes_max: int = 16 * MIB  # of one request that came compressed: 50 ms of work
    request_ms_max: int = 20_000  # from a request's head to its end; PINGs do not count
    resets_burst: int = 1_000
    resets_per_s: int = 33  # and one for each completed call
    resets_free_ms: int = 1_000  # a call that was open for so long is cancelled freely: polls are
    control_burst: int = 1_000  # PING, SETTINGS, PRIORITY, errors we are made to send
    control_per_s: int = 100  # and one for each completed call
    settings_entries_max: int = 32
    acks_pause: int = 1_000
    acks_max: int = 10_000
    small_data_burst: int = 1_000  # DATA of less than 256 bytes that ends nothing; a call earns 2
    small_data_per_s: int = 100
    empty_data_run_max: int = 10
    empty_data_max: int = 100
    window_updates_burst: int = 1_000
    window_updates_per_frame: int = 10
    ping_strikes_max: int = 2
    idle_ms_max: int = 120_000  # without calls; 0: for ever
    stall_ms_max: int = 60_000
    stall_scarce_ms: int = 5_000  # while more than half of server.reply_bytes_max waits
    reply_bytes_max: int = 32 * MIB  # answers that wait to be read, on one connection
    stream_buffer_bytes_max: int = 64 * KIB
    output_bytes_max: int = 1 * MIB
    age_ms_max: int = 0  # plus or minus a tenth; 0: for ever
    gzip_reply_bytes_min: int = 0  # replies from here on are compressed if allowed; 0: none
    connections_max: int = 20_000
    connections_per_address_max: int = 1_000
    connects_burst: int = 2_000  # new connections at once; more wait
    connects_per_s: int = 1_000  # 0: any number
    connects_per_address_burst: int = 1_000  # of one IPv4 address, or IPv6 network of 64 bits
    connects_per_address_per_s: int = 100  # 0: any number
    proxy_from: str = ""  # addresses or networks whose PROXY header is believed, comma-separated

    def __post_init__(self) -> None:
        check_minima(
            "http2", self, "idle_ms_max", "age_ms_max", "gzip_reply_bytes_min", "connects_per_s",
            "connects_per_address_per_s",
        )  # fmt: skip
        if self.reply_bytes_max < self.output_bytes_max:
            raise ConfigError(
                "http2.reply_bytes_max",
                f"must not be below output_bytes_max, {self.output_bytes_max}",
            )
        if not 16 * KIB <= self.frame_bytes_max < 16 * MIB:
            raise ConfigError("http2.frame_bytes_max", "must be 16 KiB to 16 MiB - 1")
        for name in ("stream_window_bytes", "connection_window_bytes"):
            if not 64 * KIB <= getattr(self, name) < 2**31:
                raise ConfigError(f"http2.{name}", "must be 64 KiB to 2 GiB - 1")

    def check_request(self, request_bytes_max: int) -> None:
        """Raises ConfigError: the largest request does not fit into what may be held."""
        need = held_bytes_max(request_bytes_max)
        for name in ("assembly_bytes_max", "requests_bytes_max"):
            if getattr(self, name) < need:
                raise ConfigError(
                    f"http2.{name}",
                    f"must be at least {need}: a request of server.request_bytes_max "
                    f"({request_bytes_max}), and an eighth for its buffer",
                )


def held_bytes_max(request_bytes: int) -> int:
    """Compute what a request of so many bytes may take in memory while it comes."""
    return request_bytes + request_bytes // 8 + REQUEST_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """TLS on the same port; only the lean transport has it."""

    enabled: bool = False
    certificate: str = ""  # PEM file, with its chain; "": one of our own, made at the first start
    key: str = ""  # PEM file
    client_ca: str = ""  # PEM file; who may sign client certificates
    client_certificates: ClientCertificates = ClientCertificates.NONE
    clear_text: bool = True  # clients without TLS are served too
    handshake_ms_max: int = 10_000
    handshakes_max: int = 200  # at once; more wait for their turn

    def __post_init__(self) -> None:
        if bool(self.certificate) != bool(self.key):
            raise ConfigError("tls.certificate", "certificate and key are given together")
        if self.client_certificates is not ClientCertificates.NONE and not self.client_ca:
            raise ConfigError("tls.client_ca", "who may sign client certificates?")
        check_minima("tls", self)

    @property
    def asks_for_certificates(self) -> bool:
        return self.enabled and self.client_certificates is not ClientCertificates.NONE
