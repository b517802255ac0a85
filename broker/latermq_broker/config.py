"""Every setting and limit of the broker, one frozen section per room.

Defaults < TOML file < `LATERMQ_*` environment < flags. Relations between limits are checked when a
section is built, before the first request. Names end in their unit; `_max` bounds are inclusive.
"""

from dataclasses import dataclass, field
from enum import Enum

from latermq_broker.errors import ConfigError

KIB = 1 << 10
MIB = 1 << 20

RECORD_BODY_OVERHEAD_BYTES = 64 * KIB  # headers, properties and history beside one message's body

DELAY_LEVELS_MS = (
    1_000, 5_000, 10_000, 30_000, 60_000, 120_000, 180_000, 240_000, 300_000, 360_000, 420_000,
    480_000, 540_000, 600_000, 1_200_000, 1_800_000, 3_600_000, 7_200_000,
)  # fmt: skip


class Flush(Enum):
    """When an acknowledged write is on disk (storage format §5)."""

    ASYNC = "async"  # acknowledged = in the page cache; synced every `sync_interval_ms`
    SYNC = "sync"  # acknowledged = on disk, one sync for all who wait


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
    message_body_bytes_max: int = 4 * MIB

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
        for name in ("sync_interval_ms", "sync_bytes", "checkpoint_records", "checkpoint_bytes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"store.{name}", "must be at least 1")

    @property
    def record_bytes_max(self) -> int:
        return self.segment_bytes // 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryConfig:
    max_attempts: int = 17  # deliveries, the first included
    max_attempts_max: int = 1000
    delay_levels_ms: tuple[int, ...] = DELAY_LEVELS_MS
    receive_batch_max: int = 32
    invisible_ms_min: int = 1
    invisible_ms_max: int = 12 * 3_600_000
    auto_renew_lease_ms: int = 60_000
    auto_renew_total_ms_max: int = 3 * 3_600_000
    fresh_weight: int = 3  # lanes share a receive by weight; neither starves the other
    retry_weight: int = 1
    tick_leases_max: int = 1_000  # one tick ends at most so many leases, fires so many timers
    tick_timers_max: int = 2_000
    history_attempts_max: int = 64
    failure_class_bytes_max: int = 256
    failure_text_bytes_max: int = 2 * KIB
    failure_stack_bytes_max: int = 8 * KIB
    done_handles_max: int = 100_000  # acknowledged handles remembered for idempotent acks
    client_names_max: int = 10_000
    delay_ms_max: int = 40 * 366 * 86_400_000

    def __post_init__(self) -> None:
        if not 1 <= self.max_attempts <= self.max_attempts_max:
            raise ConfigError("delivery.max_attempts", f"must be 1 to {self.max_attempts_max}")
        if not 1 <= len(self.delay_levels_ms) <= 255 or min(self.delay_levels_ms) < 1:
            raise ConfigError("delivery.delay_levels_ms", "1 to 255 levels, each at least 1 ms")
        if self.fresh_weight < 1 or self.retry_weight < 1:
            raise ConfigError("delivery.fresh_weight", "lane weights must be at least 1")
        if not 1 <= self.receive_batch_max <= 256:
            raise ConfigError("delivery.receive_batch_max", "must be 1 to 256")


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogConfig:
    auto_create: bool = True
    default_queue_count: int = 4
    queue_count_max: int = 64
    topic_count_max: int = 10_000
    group_count_max: int = 10_000

    def __post_init__(self) -> None:
        if not 1 <= self.default_queue_count <= self.queue_count_max:
            raise ConfigError("catalog.default_queue_count", f"must be 1 to {self.queue_count_max}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole. Further sections (server, log) are added by the rooms that own them."""

    store: StoreConfig = field(default_factory=StoreConfig)
    delivery: DeliveryConfig = field(default_factory=DeliveryConfig)
    catalog: CatalogConfig = field(default_factory=CatalogConfig)
