"""An engine that the replicated log drives: what its owner wrote, it applies, and decides nothing.

    cold: bytes into the directory ──caught up──► warm: and into the engine ──► its own life

It is opened as at any start, from its own newest checkpoint, and then given each group that became
valid by the replay of a start. So whoever takes over has nothing left to replay.
"""

import asyncio
import logging
from typing import Final

from latermq_broker.clock import SystemClock
from latermq_broker.config.config import Config
from latermq_broker.engine.engine import Engine
from latermq_broker.pump.disk_work import DiskWork, disk_threads
from latermq_broker.replication.entry import Entry
from latermq_broker.replication.local_copy import LocalCopy
from latermq_broker.replication.validity import Verdict

log = logging.getLogger("latermq.replication")

ABLE_S: Final = 10.0  # without anything kept: its disk does not keep up, or the log is away
KEEP_S: Final = 2.0  # what was read since has to be synced when it takes over


class Standby:
    """Made and used in one running loop. Raises StoreError, in all methods: it cannot go on."""

    def __init__(self, copy: LocalCopy, config: Config, clock: SystemClock) -> None:
        self.copy = copy
        self.engine: Engine | None = None
        self._config = config
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._kept_s = 0.0
        self._applied_ms: tuple[int, int] | None = None  # when, and the log's time then
        self._disk: DiskWork | None = None
        self._failure: BaseException | None = None
        self.ready = asyncio.Event()  # for entries
        self.ready.set()

    @property
    def cold(self) -> bool:
        """Return whether there is a log, and no engine that has it."""
        return self.engine is None and bool(self.copy.store.log.segments)

    @property
    def able(self) -> bool:
        """Return whether it has an engine, and a disk that keeps up."""
        return self.engine is not None and self._loop.time() - self._kept_s < ABLE_S

    @property
    def checkpoint(self) -> int | None:
        """Return where its newest checkpoint is; None: that is not looked at yet."""
        return None if self.engine is None else self.copy.store.checkpointed

    def take(self, entry: Entry) -> Verdict:
        """Read the next entry of the replicated log; what becomes valid with it, too."""
        verdict, pieces = self.copy.reader.read(entry)
        if pieces:
            self.copy.write(pieces)
            if self.engine is not None and self.copy.end > self.copy.store.log.end:
                self.engine.apply_up_to(self.copy.end)
                self._applied_ms = self._clock.now_ms(), self.copy.store.log.last_store_ms
        return verdict

    async def warm_up_aside(self) -> None:
        """Open the engine in a thread: a first replay may take long. Entries wait meanwhile."""
        began_s = self._loop.time()
        self.ready.clear()
        self._warm(await self._loop.run_in_executor(None, self._opened), began_s)
        self.ready.set()

    def warm_up(self) -> None:
        """Open the engine: all that there is was read."""
        began_s = self._loop.time()
        self._warm(self._opened(), began_s)

    def _opened(self) -> Engine:
        store, now_ms = self.copy.store, self._clock.now_ms()
        return Engine.behind(store, self._config, now_ms, self.copy.end)

    def _warm(self, engine: Engine, began_s: float) -> None:
        self.engine, self._disk = engine, self._disk_of(engine)
        report = self.engine.recovery
        assert report is not None
        took_ms = round((self._loop.time() - began_s) * 1_000)
        log.info(
            "follows with an engine",
            extra={"ms": took_ms, "records": report.records, "rebuilt": report.rebuilt},
        )

    async def housekeep(self) -> None:
        """Keep what was read, now and then, and take the checkpoints that are due."""
        self._check()
        if self._loop.time() - self._kept_s < KEEP_S:
            return
        await self.copy.keep()  # first: what a checkpoint lets go is not to be missed by the note
        self._kept_s = self._loop.time()
        if self._disk is not None:
            self._disk.shorten(self._clock.now_ms())

    async def settle(self) -> None:
        """Keep what was read: to be done before the log is claimed."""
        self._check()
        await self.copy.keep()

    async def begin_life(self) -> tuple[Engine, DiskWork]:
        """Let the engine go, which may decide now: the log is ours.

        What its hands are at goes on: a checkpoint may take seconds, and clients wait.
        """
        await self.copy.keep()
        if self.cold:  # its first bytes came with the claim
            self.warm_up()
        store, clock = self.copy.store, self._clock
        self._set_clock()
        now_ms = clock.now_ms()
        if self.engine is None or self._disk is None:
            self.copy.begin_log(now_ms)
            engine = Engine.open(store, self._config, now_ms)
            return engine, self._disk_of(engine)
        store.begin_life(now_ms)
        self.engine.begin_life(now_ms)
        return self.engine, self._disk

    async def close(self) -> None:
        """Let the directory go."""
        if self._disk is not None:
            await self._disk.join()
            self._disk.close()
        if self.engine is not None:
            self.engine.abandon()
        self.copy.close()

    def _disk_of(self, engine: Engine) -> DiskWork:
        disk = DiskWork(engine, self._clock, self._config.store, disk_threads())
        disk.on_failure = self._fail
        return disk

    def _set_clock(self) -> None:
        """Go on by the clock of the owner before: on it are the ends of leases that it gave.

        Its last record says what it showed, if that was read when it was written: by an engine that
        follows. Otherwise the own clock has to do, which may be ahead.
        """
        if self._applied_ms is None:
            self._clock.not_before(self.copy.store.log.last_store_ms)
        else:
            read_ms, store_ms = self._applied_ms
            self._clock.go_on_from(store_ms + self._clock.now_ms() - read_ms)

    def _fail(self, error: BaseException) -> None:
        self._failure = error

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
