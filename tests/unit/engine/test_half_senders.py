"""Whose a half message is: known while it is open, over starts, segments that go and repairs."""

from typing import Final

import pytest

from latermq_broker.catalog.access import User
from latermq_broker.engine.state.model import Outgoing
from latermq_broker.store.offline.inspect import scan_directory
from latermq_broker.store.records.record import RecordType
from support.engine_rig import EngineRig, short_store
from support.memory_files import MemoryFiles, lose_checkpoints
from support.mended import repair_log

SHOP: Final = User(access_key="shop", secret="the-secret-of-shop")


def send(rig: EngineRig, *names: str, by: User | None) -> None:
    """Send half messages in one call."""
    halves = [Outgoing("orders", b"body", name.encode(), name) for name in names]
    rig.engine.transactions.send(halves, rig.now_ms, by)
    rig.engine.write()


def senders(rig: EngineRig) -> list[str]:
    """Tell whose the open ones are, the oldest first."""
    return [half.sender for half in rig.engine._state.halves]


@pytest.mark.parametrize("end", ["crash", "restart", "crash after checkpoint"])
def test_it_is_known_after_a_start(end: str) -> None:
    rig = EngineRig()
    send(rig, "m-1", "m-2", by=SHOP)
    send(rig, "m-3", by=None)
    if end == "crash after checkpoint":
        rig.checkpoint()
    rig.restart() if end == "restart" else rig.crash()
    assert senders(rig) == ["shop", "shop", ""]
    assert rig.engine._state.halves.senders == {"shop": 2}


def test_it_outlives_the_segment_that_says_it() -> None:
    files = MemoryFiles()
    rig = EngineRig(store=short_store(retention_ms=1_000), files=files)
    send(rig, "m-1", by=SHOP)
    first = rig.segments()[0]
    for _ in range(60):
        rig.send("filler", topic="fillers", body=bytes(1_000))
    rig.advance(2_000)
    rig.retain()
    assert rig.segments()[0] > first
    rig.engine.close(rig.now_ms)
    lose_checkpoints(files)
    rig.engine = rig.reopened()
    assert senders(rig) == ["shop"]


@pytest.mark.parametrize("spoilt", [RecordType.HALF, RecordType.HALF_SENDER])
def test_what_a_repair_gives_up_is_nobodys(spoilt: RecordType) -> None:
    files = MemoryFiles()
    rig = EngineRig(files=files)
    send(rig, "m-1", by=SHOP)
    send(rig, "m-2", by=SHOP)
    rig.engine.store.log.synced(rig.engine.store.log.sync())
    rig.engine.store.log.mark(rig.now_ms)
    rig.engine.write()
    rig.engine.abandon()
    record = next(one for one in scan_directory(rig.DIRECTORY, files) if one.type is spoilt)
    [path] = [path for path in files.inodes if path.suffix == ".seg"]
    files.inodes[path].data[record.position - int(path.stem) + record.length - 1] ^= 1
    repair_log(rig.DIRECTORY, files, rig.config, rig.now_ms)
    rig.engine = rig.reopened()
    assert senders(rig) == (["shop"] if spoilt is RecordType.HALF else ["", "shop"])


def test_a_torn_group_brings_neither() -> None:
    files = MemoryFiles()
    rig = EngineRig(files=files)
    send(rig, "m-1", by=SHOP)
    [path] = [path for path in files.inodes if path.suffix == ".seg"]
    told = next(
        one for one in scan_directory(rig.DIRECTORY, files) if one.type is RecordType.HALF_SENDER
    )
    rig.engine.abandon()
    files.inodes[path].data[told.position - int(path.stem) + told.length - 1] ^= 1
    rig.engine = rig.reopened()
    assert senders(rig) == []
