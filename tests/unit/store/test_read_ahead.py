"""Old records are asked for together, before they are read."""

from collections.abc import Iterator
from typing import Final

import pytest

from latermq_broker.store.log import read_ahead as module
from latermq_broker.store.log.read_ahead import AHEAD_BYTES, GAP_BYTES, read_ahead
from support.engine_rig import EngineRig, short_store
from support.memory_files import MemoryFiles, MemoryMap

ASKED: Final[list[tuple[int, int]]] = []


@pytest.fixture(autouse=True)
def all_is_cold(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def will_need(view: MemoryMap, offset: int, size: int) -> None:
        assert 0 <= offset < offset + size <= view._size
        ASKED.append((offset, size))

    monkeypatch.setattr(module, "HOT_BYTES", 0)
    monkeypatch.setattr(MemoryMap, "will_need", will_need)
    yield
    ASKED.clear()


def rig_of(segment_bytes: int = 1 << 20) -> EngineRig:
    return EngineRig(files=MemoryFiles(), store=short_store(segment_bytes, retention_ms=0))


def test_near_ones_make_one_range_and_far_ones_several() -> None:
    rig = rig_of()
    for number in range(12):
        rig.send(f"m{number}", body=bytes(60_000))
    log = rig.engine.store.log
    read_ahead(log, [(300_000, 500), (1_000, 100), (1_200, 100), (300_000 - GAP_BYTES, 500)])
    assert ASKED == [(1_000, 300), (300_000 - GAP_BYTES, GAP_BYTES + 500)]


def test_somebody_who_reads_on_is_read_ahead_to() -> None:
    rig = rig_of()
    for number in range(12):
        rig.send(f"m{number}", body=bytes(60_000))
    read_ahead(rig.engine.store.log, [(1_000 * number, 1_000) for number in range(1, 6)])
    assert ASKED == [(1_000, 5_000 + AHEAD_BYTES)]


def test_what_is_recent_or_gone_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = rig_of(16 << 10)
    for number in range(30):
        rig.send(f"m{number}", body=bytes(1_000))
    log = rig.engine.store.log
    monkeypatch.setattr(module, "HOT_BYTES", 10_000)
    read_ahead(log, [(log.end - 5_000, 100), (log.end + 5_000, 100), (200, 100)])
    assert ASKED == [(200, 100)]


def test_receives_timers_and_bulk_readers_ask() -> None:
    rig = rig_of()
    sent = rig.send("m0", "m1", body=bytes(5_000))
    delayed = rig.send("m2", wait_ms=1_000)
    rig.send("m3")
    assert len(rig.receive()) == 3
    assert ASKED.pop()[0] == sent[0].position
    rig.advance(1_000)
    assert ASKED.pop()[0] == delayed[0].position
    ASKED.clear()
    rig.engine.queues.read("orders", "", 0, 0, 2, rows_max=2, bytes_max=1 << 20)
    rig.engine.queues.pull("orders", 0, 1, 1)
    assert [offset for offset, _ in ASKED] == [sent[0].position, sent[1].position]
