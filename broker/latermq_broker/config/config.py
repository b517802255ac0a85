"""Every setting and limit of the broker, one frozen section per room.

Defaults < TOML file < `LATERMQ_*` environment < flags. Relations between limits are checked when a
section is built, before the first request. Names end in their unit; `_max` bounds are inclusive.
"""

from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path

from latermq_broker.config.addresses import http_url, listen_address
from latermq_broker.config.auth import AuthConfig
from latermq_broker.config.background import BackgroundConfig
from latermq_broker.config.cluster import ClusterConfig
from latermq_broker.config.core_bounds import NO_SETTING, ScanBounds, StoreBounds
from latermq_broker.config.number_bounds import check_maxima, check_minima
from latermq_broker.config.replication import ReplicationConfig
from latermq_broker.config.server_transport import Http2Config, TlsConfig, Transport
from latermq_broker.errors import ConfigError

KIB = 1 << 10
MIB = 1 << 20
LITE_IDLE_MS_MIN = 60_000
CALLS_APART_PERCENT_MAX = 50
BROKER_NAME_CHARACTERS_MAX = 255
SETTINGS_BYTES_MIN = 4 * MIB

RECORD_BODY_OVERHEAD_BYTES = 64 * KIB  # headers, properties and history beside one message's body
FAILURE_BYTES_MAX = 62 * KIB  # an ATTEMPT record fits where any message does

DELAY_LEVELS_MS = (
    1_000, 5_000, 10_000, 30_000, 60_000, 120_000, 180_000, 240_000, 300_000, 360_000, 420_000,
    480_000, 540_000, 600_000, 1_200_000, 1_800_000, 3_600_000, 7_200_000,
)  # fmt: skip
RETRY_LEVEL_FIRST = 3  # the delay level of the wait after the first attempt

LOG_LEVELS = ("debug", "info", "warning", "error")


class Flush(Enum):
    """When what was acknowledged is on disk; docs/store-format.md has the table of promises."""

    NONE = "none"  # acknowledged = in the page cache; synced when a segment is full, and at a stop
    ASYNC = "async"  # acknowledged = in the page cache; synced every `sync_interval_ms`
    SYNC = "sync"  # acknowledged = on disk, one sync for all who wait; leases do not wait
    SYNC_STRICT = "sync-strict"  # leases too: nothing at all is answered before it is on disk

    @property
    def acknowledges_synced(self) -> bool:
        """Tell whether sends, acks and changes are answered after a sync."""
        return self in (Flush.SYNC, Flush.SYNC_STRICT)


class OnCorrupt(Enum):
    """What a broker does at a message that was durable and can no longer be read."""

    SKIP = "skip"  # say so, count it, go on with the others
    STOP = "stop"  # exit code 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    segment_bytes: int = 256 * MIB
    flush: Flush = Flush.ASYNC
    sync_interval_ms: int = 200
    sync_bytes: int = 16 * MIB
    unsynced_bytes_max: int = 64 * MIB  # more than this un-synced: TOO_MANY_REQUESTS
    checkpoint_records: int = 500_000
    checkpoint_bytes: int = 256 * MIB
    checkpoint_interval_ms: int = 30_000
    retention_ms: int = 3 * 86_400_000  # 0: for ever
    unread_retention_ms: int = 0  # what a group has not read; 0: until the disk is nearly full
    retention_bytes: int = 0  # of the log; 0: no bound
    dead_letter_retention_ms: int = 14 * 86_400_000  # 0: for ever
    disk_low_percent: int = 10  # free; less: old messages go early. 0: never
    disk_full_percent: int = 5  # free; less, or than two segments: sends are refused. 0: never
    message_body_bytes_max: int = 4 * MIB
    on_corrupt: OnCorrupt = OnCorrupt.SKIP
    scrub_pause_ms: int = 600_000  # between two old segments that are checked; 0: never
    allow_network_files: bool = False  # a data directory on NFS, SMB, FUSE and the like
    bounds: StoreBounds = field(default_factory=StoreBounds, metadata=NO_SETTING)

    def __post_init__(self) -> None:
        if self.segment_bytes % 4096 or self.segment_bytes < 64 * KIB:
            raise ConfigError("store.segment_bytes", "must be a multiple of 4096, at least 65536")
        record_max = self.message_body_bytes_max + RECORD_BODY_OVERHEAD_BYTES
        if record_max > self.record_bytes_max:
            raise ConfigError(
                "store.message_body_bytes_max",
                f"{self.message_body_bytes_max} does not fit: one record may take a quarter of a "
                f"segment ({self.record_bytes_max} bytes), {RECORD_BODY_OVERHEAD_BYTES} of them "
                "for headers",
            )
        check_minima(
            "store", self, "unsynced_bytes_max", "checkpoint_interval_ms", "retention_ms",
            "unread_retention_ms", "retention_bytes", "dead_letter_retention_ms",
            "disk_low_percent", "disk_full_percent", "message_body_bytes_max", "scrub_pause_ms",
        )  # fmt: skip
        if self.unread_retention_ms and not 0 < self.retention_ms <= self.unread_retention_ms:
            raise ConfigError(
                "store.unread_retention_ms", "must be 0 or at least retention_ms, which is not 0"
            )
        if self.retention_bytes and self.retention_bytes < 2 * self.segment_bytes:
            raise ConfigError("store.retention_bytes", "must be 0 or at least two segments")
        if not 0 <= self.disk_full_percent <= self.disk_low_percent <= 99:
            raise ConfigError(
                "store.disk_full_percent", "must be 0 to disk_low_percent, and that at most 99"
            )

    @property
    def record_bytes_max(self) -> int:
        return self.segment_bytes // 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryConfig:
    max_attempts: int = 17  # deliveries, the first included
    max_attempts_max: int = 1000
    delay_levels_ms: tuple[int, ...] = DELAY_LEVELS_MS
    receive_batch_max: int = 32
    receive_bytes_max: int = 32 * MIB  # of one reply; a first message goes out whatever its size
    invisible_ms_min: int = 1
    invisible_ms_max: int = 12 * 3_600_000
    auto_renew_lease_ms: int = 60_000
    auto_renew_total_ms_max: int = 3 * 3_600_000
    fresh_weight: int = 3  # lanes share a receive by weight; neither starves the other
    retry_weight: int = 1
    lower_priority_percent: int = 5  # of a PRIORITY topic, for each lower priority; 0: none
    tick_leases_max: int = 200  # one tick ends at most so many leases, of all groups in turn
    tick_timers_max: int = (
        100  # and fires so many timers: 1 ms of work; a call takes several turns of the loop
    )
    history_attempts_max: int = 64
    failure_class_bytes_max: int = 256
    failure_text_bytes_max: int = 2 * KIB
    failure_stack_bytes_max: int = 8 * KIB
    done_handles_max: int = 100_000  # acknowledged handles remembered for idempotent acks
    client_names_max: int = 10_000
    held_messages_max: int = 1_000_000  # of a group and topic, held back behind message groups
    unwanted_retry_ms_max: int = 60_000  # in a FIFO group, for a receive whose filter wants it
    delay_ms_max: int = 40 * 366 * 86_400_000
    bounds: ScanBounds = field(default_factory=ScanBounds, metadata=NO_SETTING)

    @property
    def retry_ladder_ms(self) -> tuple[int, ...]:
        """Return the waits after attempt 1, 2, … of a group without a backoff of its own.

        As in RocketMQ they are the delay levels from the third on.
        """
        return self.delay_levels_ms[RETRY_LEVEL_FIRST - 1 :] or self.delay_levels_ms[-1:]

    def __post_init__(self) -> None:
        if not 1 <= self.max_attempts <= self.max_attempts_max:
            raise ConfigError("delivery.max_attempts", f"must be 1 to {self.max_attempts_max}")
        if not 1 <= len(self.delay_levels_ms) <= 255 or min(self.delay_levels_ms) < 1:
            raise ConfigError("delivery.delay_levels_ms", "1 to 255 levels, each at least 1 ms")
        check_minima(
            "delivery", self, "receive_bytes_max", "unwanted_retry_ms_max", "lower_priority_percent"
        )
        failure_bytes_max = self.failure_class_bytes_max + self.failure_text_bytes_max
        if failure_bytes_max + self.failure_stack_bytes_max > FAILURE_BYTES_MAX:
            raise ConfigError(
                "delivery.failure_stack_bytes_max",
                f"class, text and stack of a failure may have {FAILURE_BYTES_MAX} bytes together",
            )
        if self.invisible_ms_max < self.invisible_ms_min:
            raise ConfigError("delivery.invisible_ms_max", "must not be below invisible_ms_min")
        if not 1 <= self.receive_batch_max <= 256:
            raise ConfigError("delivery.receive_batch_max", "must be 1 to 256")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """When the producers of a half message are asked how its transaction ended."""

    first_check_ms: int = 6_000  # after the send, unless the producer asks for another time
    check_interval_ms: int = 30_000
    checks_max: int = 15
    age_ms_max: int = 3 * 86_400_000  # then it is rolled back
    half_messages_max: int = 100_000  # open at once; more: TOO_MANY_REQUESTS
    ended_remembered_max: int = 10_000  # so that a repeated end is not an error

    def __post_init__(self) -> None:
        check_minima("transaction", self)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogConfig:
    auto_create: bool = True  # topics
    auto_create_groups: bool = True
    default_queue_count: int = 4
    queue_count_max: int = 64
    topic_count_max: int = 10_000
    group_count_max: int = 10_000

    def __post_init__(self) -> None:
        if not 1 <= self.default_queue_count <= self.queue_count_max:
            raise ConfigError("catalog.default_queue_count", f"must be 1 to {self.queue_count_max}")
        check_minima("catalog", self)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteConfig:
    """Topics of type lite, and the lite topics in them."""

    topics_per_parent_max: int = 100_000
    subscriptions_per_client_max: int = 2_000  # told to clients; some more are let through
    subscriptions_max: int = 1_000_000  # of all clients
    syncs_per_second_max: int = 5_000
    client_silent_ms_max: int = 180_000  # without a sync: its subscriptions are forgotten
    topic_idle_ms_max: int = (
        0  # nothing sent for so long: the lite topic goes; 0: with its messages
    )

    def __post_init__(self) -> None:
        check_minima("lite", self, "topic_idle_ms_max")
        if self.topic_idle_ms_max and self.topic_idle_ms_max < LITE_IDLE_MS_MIN:
            raise ConfigError("lite.topic_idle_ms_max", f"must be 0 or at least {LITE_IDLE_MS_MIN}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupConfig:
    """Ids that senders give their messages: of each, one message of a topic in a window."""

    window_ms: int = 300_000  # as SQS has it; what an id was given keeps it
    bytes_max: int = 64 * MIB  # of ids, some 110 bytes each; a quarter of a segment at most

    def __post_init__(self) -> None:
        check_minima("dedup", self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulesConfig:
    """What is sent again and again."""

    count_max: int = 1_000
    message_bytes_max: int = 4 * KIB  # body, properties, tag and keys together; held in memory
    catch_up_ms_max: int = 86_400_000  # ticks missed for longer are not sent, whatever the policy

    def __post_init__(self) -> None:
        check_minima("schedules", self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The port, the clients behind it, and how they are let go."""

    transport: Transport = Transport.LEAN
    listen: str = "127.0.0.1:8081"  # HOST:PORT or [IPV6]:PORT; port 0 picks a free one
    data_dir: str = "~/.local/share/latermq"  # made when missing; one broker at a time
    broker_name: str = "latermq-0"  # told to clients in routes
    request_bytes_max: int = 130 * MIB  # of a send: 32 messages of 4 MiB and their headers
    other_request_bytes_max: int = 4 * MIB  # of every other call
    reply_bytes_max: int = 64 * MIB  # answers that wait to be read, on all connections
    ping_interval_ms_min: int = 10_000  # clients may send a keepalive ping this often
    keepalive_interval_ms: int = 60_000  # ours, to find dead peers
    keepalive_timeout_ms: int = 20_000
    polling_ms_min: int = 5_000  # a receive's wait is clamped to these two
    polling_ms_max: int = 20_000
    short_polling: bool = True  # who asks for less than polling_ms_min gets it; RocketMQ: never
    polling_margin_ms: int = 100  # an empty reply leaves at least so long before the deadline
    parked_receives_max: int = 20_000  # beyond: TOO_MANY_REQUESTS
    parked_receives_per_group_max: int = 10_000
    send_messages_max: int = 4_096  # in one SendMessage
    client_silent_ms_max: int = 120_000  # no heartbeat for longer: the client is gone
    calls_max: int = 50_000  # at once, parked receives and telemetry streams included
    calls_begun_percent: int = 10  # of calls_max: those whose request is not whole
    calls_public_percent: int = 5  # of calls_max: health and reflection, asked by whoever it is
    calls_per_address_percent: int = 100  # of those that are left, but for loopback; 0: no bound
    public_call_ms_max: int = 600_000  # a Health/Watch, or a reflection stream
    clients_max: int = 50_000  # sessions kept; further clients are refused
    settings_bytes_max: int = 48 * MIB  # held for what all clients tell of themselves
    commands_per_client_max: int = 64  # queued for one telemetry stream that does not read
    drain_ms_max: int = 10_000  # after SIGTERM, for calls that still run
    replace_drain_ms_max: int = 2_000  # the same, where callers wait for another broker
    replace_ms_max: int = 60_000  # `serve --replace` waits so long for the other to be gone

    def __post_init__(self) -> None:
        listen_address("server.listen", self.listen)
        if not self.data_dir:  # perhaps of a variable that is not set: not the working directory
            raise ConfigError("server.data_dir", "must not be empty")
        name_length = len(self.broker_name)
        if not 1 <= name_length <= BROKER_NAME_CHARACTERS_MAX:
            least_and_most = f"1 to {BROKER_NAME_CHARACTERS_MAX} characters, not {name_length}"
            raise ConfigError("server.broker_name", f"must have {least_and_most}")
        if not self.broker_name.isprintable() or " " in self.broker_name:
            raise ConfigError("server.broker_name", "must be a name without blanks")
        check_minima(
            "server", self, "drain_ms_max", "replace_drain_ms_max", "polling_margin_ms",
            "calls_per_address_percent",
        )  # fmt: skip
        apart_percent = self.calls_begun_percent + self.calls_public_percent
        if apart_percent > CALLS_APART_PERCENT_MAX:
            raise ConfigError(
                "server.calls_begun_percent",
                f"it and calls_public_percent are {apart_percent} together, at most "
                f"{CALLS_APART_PERCENT_MAX}: the others are for callers that are known",
            )
        if self.polling_ms_max < self.polling_ms_min:
            raise ConfigError("server.polling_ms_max", "must not be below polling_ms_min")
        if not 64 * KIB <= self.other_request_bytes_max <= self.request_bytes_max:
            raise ConfigError(
                "server.other_request_bytes_max", "must be 64 KiB to request_bytes_max"
            )
        if not 4 * MIB < self.request_bytes_max < 2**31:
            raise ConfigError("server.request_bytes_max", "must be above 4 MiB and below 2 GiB")
        if self.settings_bytes_max < SETTINGS_BYTES_MIN:
            raise ConfigError(
                "server.settings_bytes_max",
                f"must be at least {SETTINGS_BYTES_MIN}: an eighth of it is one connection's, and "
                "the largest settings of one client must fit",
            )

    @property
    def directory(self) -> Path:
        """Find the data directory."""
        return Path(self.data_dir).expanduser().absolute()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompatConfig:
    """What differs from RocketMQ on purpose, and how to have it RocketMQ's way."""

    strict: bool = False  # RocketMQ's bounds and texts, and unknown topics are refused
    namespaces: str = "refuse"  # requests with names in a namespace; a broker has none

    def __post_init__(self) -> None:
        if self.namespaces != "refuse":
            raise ConfigError("compat.namespaces", f"must be refuse, not {self.namespaces!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    level: str = "info"  # debug, info, warning, error
    json: bool = False  # one JSON object per line, else text

    def __post_init__(self) -> None:
        if self.level not in LOG_LEVELS:
            raise ConfigError("log.level", f"must be one of {', '.join(LOG_LEVELS)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """Figures of the broker: as text over HTTP, and sent to a collector of OpenTelemetry."""

    listen: str = ""  # HOST:PORT or [IPV6]:PORT, e.g. 127.0.0.1:9464; "": off
    subscriptions_max: int = 1_000  # groups on topics with series of their own; and topics
    otlp: str = ""  # http://HOST:PORT of a collector, or a whole URL; "": off
    otlp_interval_ms: int = 15_000

    def __post_init__(self) -> None:
        check_minima("metrics", self)
        if self.otlp_interval_ms < 100:
            raise ConfigError("metrics.otlp_interval_ms", "must be at least 100")
        if self.otlp:
            http_url("metrics.otlp", self.otlp)
        if self.listen:
            listen_address("metrics.listen", self.listen)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig:
    """The calls of apache.rocketmq.v2.Admin; on a loopback address they are always served."""

    beyond_loopback: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole, a section per room."""

    server: ServerConfig = field(default_factory=ServerConfig)
    http2: Http2Config = field(default_factory=Http2Config)
    tls: TlsConfig = field(default_factory=TlsConfig)
    auth: AuthConfig = field(default_factory=AuthConfig)
    log: LogConfig = field(default_factory=LogConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    background: BackgroundConfig = field(default_factory=BackgroundConfig)
    admin: AdminConfig = field(default_factory=AdminConfig)
    store: StoreConfig = field(default_factory=StoreConfig)
    delivery: DeliveryConfig = field(default_factory=DeliveryConfig)
    transaction: TransactionConfig = field(default_factory=TransactionConfig)
    catalog: CatalogConfig = field(default_factory=CatalogConfig)
    compat: CompatConfig = field(default_factory=CompatConfig)
    lite: LiteConfig = field(default_factory=LiteConfig)
    dedup: DedupConfig = field(default_factory=DedupConfig)
    schedules: SchedulesConfig = field(default_factory=SchedulesConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    replication: ReplicationConfig = field(default_factory=ReplicationConfig)

    def __post_init__(self) -> None:
        for room in fields(self):
            check_maxima(room.name, getattr(self, room.name))
        if self.http2.reply_bytes_max > self.server.reply_bytes_max:
            raise ConfigError(
                "http2.reply_bytes_max",
                f"{self.http2.reply_bytes_max} is more than all connections together may hold: "
                f"server.reply_bytes_max is {self.server.reply_bytes_max}",
            )
        if self.tls.enabled and self.server.transport is not Transport.LEAN:
            raise ConfigError("tls.enabled", 'needs server.transport = "lean"')
        if self.server.transport is Transport.LEAN:
            self.http2.check_request(self.server.request_bytes_max)
        if self.auth.certificate_users and not self.tls.asks_for_certificates:
            raise ConfigError(
                "auth.certificate_users", "needs tls.enabled, and tls.client_certificates"
            )
        if self.replication.kafka and self.server.transport is not Transport.LEAN:
            raise ConfigError("replication.kafka", 'needs server.transport = "lean"')
        if self.cluster.shards:
            self._check_places_of_shards()
            self._check_calls_between_shards()

    def _check_places_of_shards(self) -> None:
        """Check that a shard at several addresses has brokers standing by. Raises ConfigError."""
        cluster = self.cluster
        if len(cluster.all_addresses) > len(cluster.shards) and not self.replication.kafka:
            raise ConfigError(
                "cluster.shards",
                "a shard at several addresses needs replication.kafka: whoever has another one's "
                "messages has them from there",
            )
        listen = self.server.listen
        if listen in cluster.addresses and listen != cluster.addresses[cluster.machine]:
            raise ConfigError(
                "cluster.machine",
                f"is {cluster.machine}, yet server.listen is the address of machine "
                f"{cluster.addresses.index(listen)}",
            )

    def _check_calls_between_shards(self) -> None:
        """Check that shards can call each other. Raises ConfigError: they could not."""
        if self.auth.enabled and not self.auth.root_access_key:
            raise ConfigError(
                "auth.root_access_key",
                "is needed in a cluster where auth.enabled: its shards sign their calls with it",
            )
        if self.auth.certificate_users:
            raise ConfigError(
                "auth.certificate_users",
                "must be false in a cluster: a call that a shard sends on carries no certificate",
            )
        if self.tls.enabled and not self.tls.clear_text and not self.cluster.ca:
            raise ConfigError(
                "cluster.ca", "is needed where tls.clear_text = false: whom do the shards trust?"
            )
