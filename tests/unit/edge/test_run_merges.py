"""Timer runs that have become many are merged by a real process, and taken up by the pump."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from latermq_broker.clock import SystemClock
from latermq_broker.config.config import CatalogConfig, Config
from latermq_broker.config.core_bounds import StoreBounds, TimerBounds
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import Outgoing
from latermq_broker.pump.disk_work import DiskWork
from latermq_broker.pump.pump import Pump
from latermq_broker.store.files import RealFiles
from latermq_broker.store.store import Store
from support.engine_rig import SMALL_STORE

BOUNDS = StoreBounds(timer=TimerBounds(run_entries_min=4, merge_runs_min=3))
STORE = replace(SMALL_STORE, checkpoint_interval_ms=1, bounds=BOUNDS)
MINUTE_MS = 60_000


def send(engine: Engine, clock: SystemClock, wait_ms: int) -> int:
    now_ms = clock.now_ms()
    message = Outgoing(topic="t", rest=b"", sys=b"", message_id="m", deliver_at_ms=now_ms + wait_ms)
    return engine.send([message], now_ms)[0].due_ms


async def test_runs_become_one(tmp_path: Path) -> None:
    config = Config(store=STORE, catalog=CatalogConfig(default_queue_count=1))
    clock = SystemClock()
    engine = Engine.open(
        Store.open(tmp_path / "data", STORE, RealFiles(), clock.now_ms()), config, clock.now_ms()
    )
    failures: list[BaseException] = []
    far = engine._state.timer.far
    dues = []
    with ThreadPoolExecutor(4) as threads:
        disk = DiskWork(engine, clock, config.store, threads)
        pump = Pump(engine, clock, config, disk, failures.append, housekeeping_ms=10)
        pump.start()
        for batch in range(3):
            for n in range(4):
                dues.append(send(engine, clock, (10 + batch) * MINUTE_MS + n))
            await pump.written()
            while len(far.runs) < batch + 1 and not any("merged" in r.name for r in far.runs):
                await asyncio.sleep(0.01)
        while [len(run) for run in far.runs] != [12]:
            await asyncio.sleep(0.01)
        await pump.stop()
    engine.close(clock.now_ms())
    assert not failures
    again = Engine.open(
        Store.open(tmp_path / "data", STORE, RealFiles(), clock.now_ms()), config, clock.now_ms()
    )
    assert not again.recovery or not again.recovery.rebuilt
    assert [due_ms for due_ms, _ in again._state.timer.in_order()] == sorted(dues)
    again.abandon()
