"""A pump with a real engine on files in memory; time is virtual."""

import asyncio
import errno
from collections.abc import Awaitable
from contextlib import suppress
from itertools import count
from pathlib import Path

from latermq_broker.config.config import CatalogConfig, Config, StoreConfig
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import Outgoing, ReceiveRequest
from latermq_broker.errors import StoreFullError
from latermq_broker.pump.disk_work import DiskWork
from latermq_broker.pump.pump import Pump
from latermq_broker.store.records.record import RecordType
from latermq_broker.store.store import Store
from support.engine_rig import SMALL_STORE
from support.memory_files import MemoryFiles
from support.virtual_loop import START_MS, InlineThreads, VirtualClock


class BrokenFiles(MemoryFiles):
    """Counts calls, and fails those of one name once told to."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}
        self.broken = ""
        self.number = errno.EIO

    def _called(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1
        if name == self.broken:
            raise OSError(self.number, "broken")


class PumpRig:
    """A pump with a real engine on files in memory."""

    def __init__(self, store: StoreConfig = SMALL_STORE, *, replicated: bool = False) -> None:
        self.files = BrokenFiles()
        self.config = Config(store=store, catalog=CatalogConfig(default_queue_count=1))
        self.clock = VirtualClock()
        self.engine = Engine.open(
            Store.open(Path("/data"), store, self.files, START_MS), self.config, START_MS
        )
        self.log = self.engine.store.log
        self.threads = InlineThreads()
        self.failures: list[BaseException] = []
        disk = DiskWork(self.engine, self.clock, store, self.threads)
        self.pump = Pump(
            self.engine, self.clock, self.config, disk, self.failures.append, replicated=replicated
        )
        self.pump.start()

    def send(self, *, wait_ms: int = 0, size: int = 4) -> None:
        now_ms = self.clock.now_ms()
        message = Outgoing(
            topic="t",
            rest=bytes(size),
            sys=b"",
            message_id="m",
            deliver_at_ms=now_ms + wait_ms if wait_ms else 0,
        )
        self.engine.send([message], now_ms)

    def fill(self) -> None:
        """Send until sends are refused, then write what is taken even so, until nothing is."""
        with suppress(StoreFullError):
            while True:
                self.send(size=60_000)
        with suppress(StoreFullError):
            for number in count():  # the smallest record there is
                client = f"{number:08}"
                self.engine._journal.write(RecordType.CLIENT, client, self.clock.now_ms())

    def prepared(self) -> list[str]:
        """Segments that wait to be used, without the spare."""
        names = [path.name for path in self.files.inodes if path.suffix == ".prep"]
        return [name for name in names if not name.startswith("spare")]

    def receive(self, *, invisible_ms: int = 30_000) -> int:
        wanted = ReceiveRequest(
            group="g", topic="t", client_id="c", count_max=32, invisible_ms=invisible_ms
        )
        return len(self.engine.receive(wanted, self.clock.now_ms()))

    def writes(self) -> int:
        return self.files.counts.get("pwrite", 0)

    def syncs(self) -> int:
        return self.files.counts.get("datasync", 0)


async def settled(awaitable: Awaitable[None]) -> bool:
    """Tell whether an awaitable ends without time passing."""
    future = asyncio.ensure_future(awaitable)
    for _ in range(10):
        await asyncio.sleep(0)
    return future.done()
