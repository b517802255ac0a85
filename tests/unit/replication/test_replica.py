"""One broker's part in a replicated log, where it is asked to end at an awkward moment."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from latermq_broker.clock import SystemClock
from latermq_broker.config.config import Config
from latermq_broker.errors import StoreUnusableError
from latermq_broker.replication.batch import cluster_hash, encode_batch, fence_of
from latermq_broker.replication.note import read_note
from latermq_broker.replication.replica import Replica, ReplicaPlace
from latermq_broker.replication.replicated_log import Entry
from latermq_broker.replication.standby import Standby
from latermq_broker.store.directory import take_lock
from latermq_broker.store.files import RealFiles
from support.log_in_memory import LogInMemory


class Engine(LogInMemory):
    """`claiming` is told of a claim under way."""

    def __init__(self, claiming: asyncio.Event) -> None:
        super().__init__()
        self._claiming = claiming

    async def claim(self, fence: bytes) -> int:
        self._claiming.set()
        return await super().claim(fence)


class LateEngine(LogInMemory):
    """An owner is in it, who is read of while the canary is on its way; then `stop` is set."""

    def __init__(self, stop: asyncio.Event) -> None:
        super().__init__()
        self._stop = stop
        self._read = asyncio.Event()

    async def canary(self) -> None:
        self.entries = [encode_batch(fence_of(cluster_hash("shop"), 0, 1, 7))]
        await self._read.wait()
        asyncio.get_running_loop().call_soon(self._stop.set)

    async def follow(self, offset: int) -> AsyncIterator[Entry]:
        async for entry in super().follow(offset):
            yield entry
            self._read.set()


async def test_who_is_told_to_end_while_it_claims_does_not_serve(tmp_path: Path) -> None:
    """The signal would be lost otherwise: whoever serves waits for one of its own."""
    stop = asyncio.Event()
    engine = Engine(stop)
    place = ReplicaPlace(cluster="shop", shard=0, directory=tmp_path / "data")
    replica = Replica(place, engine, Config(), RealFiles(), lambda: 1_000)
    assert await replica.take_over(SystemClock(), stop) is None
    take_lock(RealFiles(), place.directory)
    assert len(engine.entries) == 1
    note = read_note(RealFiles(), place.directory)
    assert note is not None
    assert note.mine[0] == 1  # so the next start there need not wait


async def test_who_reads_of_an_owner_while_it_asks_the_engine_claims_nothing(
    tmp_path: Path,
) -> None:
    """With an empty directory nobody waits for silence: the log may have no owner yet."""
    stop = asyncio.Event()
    place = ReplicaPlace(cluster="shop", shard=0, directory=tmp_path / "data")
    engine = LateEngine(stop)
    replica = Replica(place, engine, Config(), RealFiles(), lambda: 1_000)
    assert await replica.take_over(SystemClock(), stop) is None
    assert len(engine.entries) == 1, "it claimed the log of an owner that lives"


async def test_work_on_the_disk_ends_before_the_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint may take longer than others wait for the first word of who claimed."""
    stop = asyncio.Event()
    engine = Engine(stop)
    claims: list[int] = []
    settle = Standby.settle

    async def noted(standby: Standby) -> None:
        await settle(standby)
        claims.append(len(engine.entries))

    monkeypatch.setattr(Standby, "settle", noted)
    place = ReplicaPlace(cluster="shop", shard=0, directory=tmp_path / "data")
    replica = Replica(place, engine, Config(), RealFiles(), lambda: 1_000)
    assert await replica.take_over(SystemClock(), stop) is None
    assert claims == [0]


async def test_two_clusters_in_one_topic_are_told_apart(tmp_path: Path) -> None:
    engine, stop = LogInMemory(), asyncio.Event()
    engine.entries.append(encode_batch(fence_of(cluster_hash("other"), 0, 1, 77)))
    place = ReplicaPlace(cluster="shop", shard=0, directory=tmp_path / "data")
    replica = Replica(place, engine, Config(), RealFiles(), lambda: 1_000)
    with pytest.raises(StoreUnusableError, match="two clusters may not share a topic"):
        await replica.take_over(SystemClock(), stop)
    assert len(engine.entries) == 1
