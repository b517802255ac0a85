"""An engine on a simulated file system with a clock that the test turns."""

from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Final

import pytest

from latermq_broker.config.config import (
    CatalogConfig,
    CompatConfig,
    Config,
    DedupConfig,
    DeliveryConfig,
    SchedulesConfig,
    StoreConfig,
    TransactionConfig,
)
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import (
    EVERYTHING,
    Delivered,
    Outgoing,
    ReceiveRequest,
    Sent,
    TagFilter,
)
from latermq_broker.errors import StoreFullError
from latermq_broker.store.files import Files
from latermq_broker.store.store import Store
from support.memory_files import MemoryFiles

START_MS = 1_700_000_000_000
SMALL_STORE = StoreConfig(segment_bytes=1 << 20, message_body_bytes_max=64 << 10)


def short_store(
    segment_bytes: int = 16 << 10, *, retention_ms: int = 60_000, **settings: int
) -> StoreConfig:
    """Segments smaller than any user may ask for, and messages that soon go."""
    config = StoreConfig()
    settings |= {
        "segment_bytes": segment_bytes,
        "message_body_bytes_max": segment_bytes // 8,
        "retention_ms": retention_ms,
        "unread_retention_ms": settings.get("unread_retention_ms", retention_ms),
    }
    for name, value in settings.items():
        object.__setattr__(config, name, value)
    return config


class EngineRig:
    """`now_ms` moves only through `advance`; every call is followed by a write, as by the pump."""

    DIRECTORY: Final = Path("/data")

    def __init__(
        self,
        *,
        delivery: DeliveryConfig | None = None,
        catalog: CatalogConfig | None = None,
        transaction: TransactionConfig | None = None,
        dedup: DedupConfig | None = None,
        schedules: SchedulesConfig | None = None,
        strict: bool = False,
        store: StoreConfig = SMALL_STORE,
        files: Files | None = None,
        now_ms: int = START_MS,
    ) -> None:
        self.now_ms = now_ms
        self.ahead_ms = 0  # the wall clock, of `now_ms`
        self.files = files or MemoryFiles()
        self.config = Config(
            store=copy(store),  # a test may set what no setting may be
            delivery=delivery or DeliveryConfig(),
            transaction=transaction or TransactionConfig(),
            dedup=dedup or DedupConfig(),
            schedules=schedules or SchedulesConfig(),
            compat=CompatConfig(strict=strict),
            catalog=catalog or CatalogConfig(default_queue_count=1),
        )
        self.engine = self.reopened()

    def reopened(self) -> Engine:
        """Another start on the same files; the last one let go of them."""
        store = Store.open(self.DIRECTORY, self.config.store, self.files, self.now_ms)
        engine = Engine.open(store, self.config, self.now_ms)
        engine.clock.stepped(self.ahead_ms, self.now_ms)
        return engine

    def step_wall(self, step_ms: int) -> None:
        """Somebody sets the wall clock by `step_ms`; what is due then is done."""
        self.ahead_ms += step_ms
        self.engine.clock.stepped(self.ahead_ms, self.now_ms)
        self.advance(0)

    def crash(self) -> Engine:
        """The process dies, what it did was written, and starts again on the same files."""
        self.engine.write()
        self.engine.abandon()
        self.engine = self.reopened()
        return self.engine

    def restart(self, *, drained: bool = True) -> Engine:
        """The process stops in order and starts again on the same files."""
        self.engine.close(self.now_ms, drained=drained)
        self.engine = self.reopened()
        return self.engine

    def checkpoint(self) -> None:
        """Take one, with what it lets go."""
        self.engine.write()
        self.engine.checkpoints.take(self.now_ms)

    def segments(self) -> list[int]:
        """Bases of the segment files that are there."""
        files = self.files.inodes if isinstance(self.files, MemoryFiles) else {}
        return sorted(int(path.stem) for path in files if path.suffix == ".seg")

    def retain(self) -> None:
        """Let retention do all it can now: some seconds pass."""
        for _ in range(3):
            self.checkpoint()
            for _ in range(30):
                self.advance(100)
        self.checkpoint()

    def advance(self, step_ms: int) -> None:
        """Time passes; everything due is done."""
        self.now_ms += step_ms
        while (deadline_ms := self.engine.tick(self.now_ms)) is not None:
            if deadline_ms > self.now_ms:
                break
        self.engine.write()

    def send(
        self,
        *names: str,
        topic: str = "orders",
        tag: str = "",
        body: bytes = b"body",
        wait_ms: int = 0,
        level: int = 0,
    ) -> list[Sent]:
        sent = self.engine.send(
            [
                Outgoing(
                    topic=topic,
                    rest=body,
                    sys=name.encode(),
                    message_id=name,
                    tag=tag,
                    deliver_at_ms=self.now_ms + wait_ms if wait_ms else 0,
                    delay_level=level,
                )
                for name in names
            ],
            self.now_ms,
        )
        self.engine.write()
        return sent

    def receive(
        self,
        group: str = "billing",
        *,
        topic: str = "orders",
        count: int = 32,
        lease_ms: int = 1_000,
        push: bool = False,
        tags: str = "",
        client: str = "client-1",
        single_file: bool = False,
    ) -> list[Delivered]:
        delivered = self.engine.receive(
            ReceiveRequest(
                group=group,
                topic=topic,
                client_id=client,
                count_max=count,
                invisible_ms=lease_ms,
                auto_renew=push,
                filter=TagFilter(frozenset(tags.split())) if tags else EVERYTHING,
                single_file=single_file,
            ),
            self.now_ms,
        )
        self.engine.write()
        return delivered

    def names(self, group: str = "billing", *, topic: str = "orders", tags: str = "") -> list[str]:
        return [one.sys.decode() for one in self.receive(group, topic=topic, tags=tags)]

    def ack(self, *delivered: Delivered, group: str = "billing") -> list[bool]:
        results = self.engine.ack(group, [one.handle for one in delivered], self.now_ms)
        self.engine.write()
        return [error is None for error in results]


def until_full(step: Callable[[int], object]) -> None:
    """Take the step, with a number that grows, until the store has no room for it."""
    for n in range(10_000):
        try:
            step(n)
        except StoreFullError:
            return
    pytest.fail("it is never full")


def do_due(engine: Engine, now_ms: int) -> None:
    """Tick and write until nothing is due any more."""
    while (deadline_ms := engine.tick(now_ms)) is not None and deadline_ms <= now_ms:
        engine.write()
    engine.write()
