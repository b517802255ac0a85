"""Old segments are checked in turn by a real process, beside a broker that serves."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from latermq_broker.clock import SystemClock
from latermq_broker.config.config import CatalogConfig, Config, OnCorrupt
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import Outgoing
from latermq_broker.errors import CorruptRecordError
from latermq_broker.pump.disk_work import DiskWork
from latermq_broker.pump.pump import Pump
from latermq_broker.pump.scrub_work import Scrub
from latermq_broker.store.files import RealFiles
from latermq_broker.store.store import Store
from support.engine_rig import SMALL_STORE

STORE = replace(SMALL_STORE, checkpoint_interval_ms=1, scrub_pause_ms=1)


def opened(path: Path, config: Config, now_ms: int) -> Engine:
    store = Store.open(path, config.store, RealFiles(), now_ms)
    return Engine.open(store, config, now_ms)


@pytest.mark.parametrize("on_corrupt", list(OnCorrupt))
async def test_damage_is_found_where_nobody_reads(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    on_corrupt: OnCorrupt,
) -> None:
    config = Config(
        store=replace(STORE, on_corrupt=on_corrupt), catalog=CatalogConfig(default_queue_count=1)
    )
    clock = SystemClock()
    engine = opened(tmp_path / "data", config, clock.now_ms())
    sent = [
        engine.send(
            [Outgoing(topic="t", rest=bytes(50_000), sys=b"", message_id=f"m{number}")],
            clock.now_ms(),
        )[0]
        for number in range(50)
    ]
    engine.write()
    scrubbed = engine.store.scrubbed
    with (tmp_path / "data" / "log" / f"{0:020d}.seg").open("r+b") as file:
        file.seek(sent[3].position + 100)
        file.write(b"\xff")
    failures: list[BaseException] = []
    with ThreadPoolExecutor(5) as threads, caplog.at_level(logging.ERROR, "latermq.scrub"):
        disk = DiskWork(engine, clock, config.store, threads)
        pump = Pump(engine, clock, config, disk, failures.append, housekeeping_ms=10)
        pump.start()
        while not failures and scrubbed.segments < 3:  # both old ones, and the first again
            await asyncio.sleep(0.01)
        await pump.stop()
    engine.abandon()
    assert scrubbed.damages >= 1
    [record] = caplog.records[:1]
    assert record.message == "record damaged on disk"
    assert vars(record)["position"] == sent[3].position
    assert vars(record)["good_from"] == sent[4].position
    if on_corrupt is OnCorrupt.STOP:
        [failure] = failures
        assert isinstance(failure, CorruptRecordError)
    else:
        assert not failures
        assert scrubbed.records > 40


def test_only_what_no_start_would_replay_is_checked_and_each_in_turn(tmp_path: Path) -> None:
    config = Config(store=replace(STORE, scrub_pause_ms=1_000))
    engine = opened(tmp_path / "data", config, 1_000)
    for number in range(60):
        message = Outgoing(topic="t", rest=bytes(50_000), sys=b"", message_id=f"m{number}")
        engine.send([message], 1_000)
    engine.write()
    begun: list[str] = []

    def start(
        name: str, work: Callable[[], object], done: Callable[[BaseException | None], None]
    ) -> bool:
        work()
        done(None)
        begun.append(name)
        return True

    scrub = Scrub(engine.store, config.store, start, lambda error: None)
    for now_ms in (10_000, 10_500, 11_000):
        scrub.look(now_ms)
    assert begun == [], "nothing is checkpointed yet"
    engine.checkpoints.take(1_000)
    checked = []
    for now_ms in range(11_100, 16_000, 100):
        scrub.look(now_ms)
        checked.append(scrub._checked)
    old = [segment.base for segment in engine.store.log.segments[:-1]]
    assert len(begun) == 5
    assert list(dict.fromkeys(checked)) == old
    off = Scrub(engine.store, replace(config.store, scrub_pause_ms=0), start, lambda error: None)
    off.look(99_000)
    assert len(begun) == 5
    engine.abandon()
