"""The retry lane where it is long, spent, or the disk is full: nothing in it is lost."""

import pytest

from latermq_broker.config.config import CatalogConfig, DeliveryConfig
from latermq_broker.engine.state.model import PendingFilter
from latermq_broker.errors import StoreFullError
from latermq_broker.store.records.record import RecordType
from support.engine_rig import EngineRig, until_full
from support.memory_files import MemoryFiles


def failed_once(rig: EngineRig, *names: str, body: bytes = b"body") -> None:
    """Messages in the retry lane of group billing, their first attempt over."""
    rig.send(*names, body=body)
    assert len(rig.receive(lease_ms=10)) == len(names)
    rig.advance(10)


def allow_one_attempt(rig: EngineRig) -> None:
    rig.engine.groups.alter(
        "billing", max_attempts=1, backoff=None, clear_backoff=False, now_ms=rig.now_ms
    )
    rig.engine.write()


def fill(rig: EngineRig, files: MemoryFiles) -> None:
    """Until not even a small message fits."""
    files.disk.capacity_bytes = 0
    until_full(lambda n: rig.send(f"filler-{n}", topic="filler", body=b"x" * 60_000))
    until_full(lambda n: rig.engine._journal.write(RecordType.CLIENT, f"{n:064}", rig.now_ms))
    rig.engine.write()


def waiting(rig: EngineRig) -> set[str]:
    items, _ = rig.engine.pending.page(PendingFilter(group="billing"), 100)
    return {item.sys.decode() for item in items}


def test_what_stands_behind_many_that_do_not_match_is_reached() -> None:
    rig = EngineRig()
    for start in range(0, DeliveryConfig().bounds.entries_max, 32):
        names = [f"a{n}" for n in range(start, start + 32)]
        rig.send(*names, tag="a")
        assert len(rig.receive(lease_ms=10)) == 32
    rig.send("b", tag="b")
    assert rig.names(tags="b") == ["b"]
    rig.advance(10)  # all a's, in front of b
    rig.advance(990)
    found = [name for _ in range(2) for name in rig.names(tags="b")]
    assert found == ["b"]
    assert len(rig.names(tags="a")) == 32


def test_the_spent_die_and_those_a_full_disk_kept_from_it_die_later() -> None:
    rig = EngineRig(files=(files := MemoryFiles()))
    names = {f"m{n}" for n in range(20)}
    failed_once(rig, *sorted(names), body=b"x" * 40_000)
    allow_one_attempt(rig)
    fill(rig, files)
    with pytest.raises(StoreFullError):
        rig.receive()
    files.disk.capacity_bytes = None
    assert rig.receive() == []
    assert waiting(rig) == set()
    assert set(rig.names(topic="%DLQ%billing")) == names


def test_what_was_leased_before_the_disk_was_full_is_delivered() -> None:
    """Whatever room is left: two queues, so two leases, and the log has room for one at most."""
    counts = set()
    for padding in range(0, 128, 8):
        files = MemoryFiles()
        rig = EngineRig(files=files, catalog=CatalogConfig(default_queue_count=2))
        rig.send("before")
        rig.ack(*rig.receive())  # its group and its client are known to the log
        for n in range(2):
            rig.send(f"m{n}")
        rig.send("first", topic="filler", body=b"x" * (padding + 1))
        fill(rig, files)
        try:
            names = rig.names()
        except StoreFullError:
            names = []
        assert len(waiting(rig)) == len(names)
        counts.add(len(names))
        files.disk.capacity_bytes = None
        assert {*names, *rig.names()} == {"m0", "m1"}
    assert counts == {0, 1}
