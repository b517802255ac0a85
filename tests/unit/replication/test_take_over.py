"""A standby that takes over in the middle of a checkpoint: clients do not wait for it."""

import asyncio
import threading
from pathlib import Path
from typing import Final

from latermq_broker.clock import SystemClock
from latermq_broker.engine.engine import Engine
from latermq_broker.pump.pump import Pump
from latermq_broker.store.directory import CHECKPOINTS_NAME
from latermq_broker.store.store import Store
from support.driven_standby import DIRECTORY, DrivenStandby, ShippedLog
from support.engine_facts import facts
from support.engine_rig import START_MS, EngineRig
from support.memory_files import MemoryFiles

LATER_MS: Final = START_MS + 3_600_000  # a checkpoint is due by then


class HeldFiles(MemoryFiles):
    """A checkpoint is not put in its place before `go_on`."""

    def __init__(self) -> None:
        super().__init__()
        self.held = threading.Event()
        self.go_on = threading.Event()

    def rename(self, old: Path, new: Path) -> None:
        if new.parent.name == CHECKPOINTS_NAME:
            self.held.set()
            self.go_on.wait()
        super().rename(old, new)


async def test_work_on_the_disk_goes_on_at_who_takes_over() -> None:
    now_ms = START_MS
    rig, files = EngineRig(), HeldFiles()
    shipped = ShippedLog(rig.engine.store.log)
    driven = DrivenStandby(shipped, rig.config, files, lambda: now_ms)
    rig.send("m-1", "m-2")
    store = driven.engine.store
    now_ms = LATER_MS
    await driven.standby.housekeep()
    await asyncio.to_thread(files.held.wait)
    engine, disk = await driven.standby.begin_life()
    failures: list[BaseException] = []
    clock = SystemClock(*[lambda: now_ms * 1_000_000] * 2)
    pump = Pump(engine, clock, rig.config, disk, failures.append)
    pump.start()
    engine.ensure_topic("made-by-the-next-owner", now_ms)
    await pump.synced()
    assert store.checkpointed == 0
    files.go_on.set()
    await pump.stop()
    assert store.checkpointed > 0
    assert not failures
    disk.close()
    before = facts(engine)
    engine.abandon()
    again = Engine.open(Store.open(DIRECTORY, rig.config.store, files, now_ms), rig.config, now_ms)
    assert again.recovery is not None
    assert not again.recovery.rebuilt
    assert facts(again) == before
    again.abandon()
    rig.engine.abandon()


async def test_a_clock_that_was_ahead_delays_no_checkpoint() -> None:
    """It goes on by the clock of the owner before, which is an hour behind its own."""
    rig = EngineRig()
    shipped = ShippedLog(rig.engine.store.log)
    driven = DrivenStandby(shipped, rig.config, MemoryFiles(), lambda: LATER_MS)
    store = driven.engine.store
    rig.send("m-1")
    driven.catch_up()
    engine, disk = await driven.standby.begin_life()
    assert store.checkpoint_due(START_MS + rig.config.store.checkpoint_interval_ms)
    disk.close()
    engine.abandon()
    rig.engine.abandon()
