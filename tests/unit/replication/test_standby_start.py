"""A standby that starts: on what its directory holds, on another log, in the middle of a claim."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from itertools import count
from types import SimpleNamespace
from typing import Final

import pytest

from latermq_broker.clock import SystemClock
from latermq_broker.engine.engine import Engine
from latermq_broker.errors import StoreUnusableError
from latermq_broker.replication import replica as replica_module
from latermq_broker.replication import standby as standby_module
from latermq_broker.replication.batch import decode_batch
from latermq_broker.replication.entry import Entry
from latermq_broker.replication.note import read_note, write_note
from latermq_broker.replication.replica import Replica, ReplicaPlace
from latermq_broker.store.directory import REPLICA_NAME
from latermq_broker.store.store import Store
from support.driven_standby import CLUSTER, DIRECTORY, DrivenStandby, ShippedLog
from support.engine_rig import START_MS, EngineRig
from support.log_in_memory import LogInMemory
from support.machine import patient
from support.memory_files import MemoryFiles

ASKED: Final = 10
PLACE: Final = ReplicaPlace(cluster=CLUSTER, shard=0, directory=DIRECTORY)


class Shop:
    """An owner that has written something, the log that has it, and a standby's disk."""

    def __init__(self) -> None:
        self.rig = EngineRig()
        self.shipped = ShippedLog(self.rig.engine.store.log)
        self.files = MemoryFiles()
        self.write("m-1", "m-2")

    def write(self, *names: str) -> None:
        self.rig.send(*names)

    async def copied(self, *behind: str) -> None:
        """Have the standby's directory hold what there is, and know it; and what is written then.

        Args:
            behind: what it holds, and does not know.
        """
        driven = DrivenStandby(self.shipped, self.rig.config, self.files, lambda: START_MS)
        driven.catch_up()
        await driven.standby.copy.keep()
        if behind:
            self.write(*behind)
            driven.catch_up()
        await driven.standby.close()

    def replicated_log(self) -> LogInMemory:
        replicated_log = LogInMemory()
        replicated_log.entries = list(self.shipped.entries)
        return replicated_log

    def replica(
        self, replicated_log: LogInMemory, now_ms: Callable[[], int] = lambda: 1_000
    ) -> Replica:
        """Return a standby that hears the owner for as long as `now_ms` stands."""
        return Replica(PLACE, replicated_log, self.rig.config, self.files, now_ms)


def stored(engine: Engine) -> int:
    """Count the messages that the shop wrote."""
    topic = engine.catalog.topic("orders")
    assert topic is not None
    return engine.store.queue(topic.id, 0).next


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(patient(30)):
        while not true():
            await asyncio.sleep(0)


# --- another log -------------------------------------------------------------------------------


async def test_a_directory_goes_on_where_it_was() -> None:
    shop, stop = Shop(), asyncio.Event()
    await shop.copied()
    shop.write("m-3")
    replica = shop.replica(shop.replicated_log())
    standing_by = asyncio.create_task(replica.take_over(SystemClock(), stop))
    await until(lambda: replica.figures().position == shop.rig.engine.store.log.end)
    stop.set()
    assert await standing_by is None


class Counted(LogInMemory):
    """Is read only when it was asked so often for its end."""

    def __init__(self, entries: list[bytes]) -> None:
        super().__init__()
        self.entries = entries
        self.asked = 0

    async def end(self) -> int:
        self.asked += 1
        return await super().end()

    async def tail(self, offset: int) -> AsyncGenerator[Entry, None]:
        while self.asked < ASKED:
            await asyncio.sleep(0)
        async for entry in super().tail(offset):
            yield entry


@pytest.mark.parametrize("messages", [0, 1, 40])
@pytest.mark.parametrize("behind", [(), ("m-4", "m-5")])
async def test_the_log_of_a_topic_that_was_made_anew_is_refused(
    monkeypatch: pytest.MonkeyPatch, messages: int, behind: Sequence[str]
) -> None:
    """What lies behind the note stays, too: a killed owner's last seconds, acknowledged."""
    monkeypatch.setattr(replica_module, "LOOK_S", 0.0)
    shop, other = Shop(), Shop()
    shop.write("m-3")
    await shop.copied(*behind)
    before = {path: bytes(inode.data) for path, inode in shop.files.inodes.items()}
    for number in range(messages):
        other.write(f"n-{number}")
    replicated_log = Counted(list(other.shipped.entries) if messages else [])
    there = len(replicated_log.entries)
    ticks = count(0, 100)
    replica = shop.replica(replicated_log, lambda: next(ticks))  # in which it would claim
    with pytest.raises(StoreUnusableError, match="was the topic deleted and made anew"):
        await replica.take_over(SystemClock(), asyncio.Event())
    assert len(replicated_log.entries) == there
    after = {path: bytes(inode.data) for path, inode in shop.files.inodes.items()}
    assert after == before
    shop.files.unlink(DIRECTORY / REPLICA_NAME)  # the page says: a broker that is alone may have it
    store = Store.open(DIRECTORY, shop.rig.config.store, shop.files, START_MS)
    alone = Engine.open(store, shop.rig.config, START_MS)
    assert stored(alone) == 3 + len(behind)
    alone.abandon()


async def test_what_an_engine_lost_behind_the_note_is_cut_and_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of what the directory's broker was the owner of; what the log has comes back from it."""
    monkeypatch.setattr(replica_module, "LOOK_S", 0.0)
    shop = Shop()
    shop.write("m-3")
    await shop.copied("m-4")
    replicated_log = shop.replicated_log()
    there = shop.rig.engine.store.log.end
    shop.write("m-5")
    await shop.copied()
    note = read_note(shop.files, DIRECTORY)
    assert note is not None
    standing = note.standing
    assert standing is not None
    lost = standing.whole_end - there
    note = note._replace(mine=(standing.epoch, standing.token))
    # As it was when only the first three were known.
    known = note._replace(offset=1, standing=standing._replace(
        sequence=0, end=0, segment_end=0, whole_end=0, whole_segment_end=0
    ), segments=())  # fmt: skip
    write_note(shop.files, DIRECTORY, known)
    replica = shop.replica(replicated_log, lambda: 1_000)
    owned = await replica.take_over(SystemClock(), asyncio.Event())
    assert owned is not None
    assert stored(owned.engine) == 4
    [said] = [each for each in caplog.records if "the replicated log lacks" in each.message]
    assert lost - 8 < vars(said)["bytes"] <= lost  # a record is filled up with zeros
    assert vars(said)["position"] == there
    await owned.disk.join()
    owned.disk.close()
    owned.engine.abandon()


async def test_a_log_that_lost_entries_while_it_was_followed_is_not_claimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replica_module, "LOOK_S", 0.0)
    shop, stop = Shop(), asyncio.Event()
    replicated_log = Counted(list(shop.shipped.entries))
    now_ms = 1_000
    replica = shop.replica(replicated_log, lambda: now_ms)
    standing_by = asyncio.create_task(replica.take_over(SystemClock(), stop))
    await until(lambda: replica.figures().position == shop.rig.engine.store.log.end)
    replicated_log.entries.clear()
    now_ms += 60_000  # of silence
    asked = replicated_log.asked
    await until(lambda: replicated_log.asked > asked + ASKED)
    assert not replicated_log.entries
    stop.set()
    assert await standing_by is None


# --- a long replay -----------------------------------------------------------------------------


async def test_the_loop_goes_on_while_the_first_replay_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its figures are asked for, and it says that it lives."""
    shop, stop = Shop(), asyncio.Event()
    replicated_log = shop.replicated_log()
    replaying, go_on, loop = asyncio.Event(), threading.Event(), asyncio.get_running_loop()

    def slowly(*arguments: object) -> Engine:
        loop.call_soon_threadsafe(replaying.set)
        assert go_on.wait(patient(30))
        return Engine.behind(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(standby_module, "Engine", SimpleNamespace(behind=slowly))
    replica = shop.replica(replicated_log)
    standing_by = asyncio.create_task(replica.take_over(SystemClock(), stop))
    await replaying.wait()
    replayed = replica.figures().position
    shop.write("m-3")
    replicated_log.entries = list(shop.shipped.entries)
    for _ in range(20):
        await asyncio.sleep(0)
    assert replica.figures().position == replayed, "it was written to while it was read"
    go_on.set()
    await until(lambda: replica.figures().position == shop.rig.engine.store.log.end > replayed)
    stop.set()
    assert await standing_by is None


class Flood(LogInMemory):
    """Gives entries without waiting for any."""

    all_read = False

    async def tail(self, offset: int) -> AsyncGenerator[Entry, None]:
        for at in range(offset, 2_000_000):
            yield Entry(at, b"of somebody else")
        self.all_read = True
        await asyncio.Event().wait()


async def test_the_loop_goes_on_while_entries_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_module, "LOOK_S", 0.0)
    stop, replicated_log = asyncio.Event(), Flood()
    standing_by = asyncio.create_task(Shop().replica(replicated_log).take_over(SystemClock(), stop))
    await asyncio.sleep(0)
    stop.set()
    assert await standing_by is None
    assert not replicated_log.all_read


# --- a claim -----------------------------------------------------------------------------------


class LateOwner(LogInMemory):
    """What its owner had on its way comes to stand in front of the next one's fence."""

    on_its_way: Sequence[bytes] = ()

    async def claim(self, fence: bytes) -> int:
        self.entries += self.on_its_way
        self.on_its_way = ()
        return await super().claim(fence)


async def test_first_bytes_may_come_with_the_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_module, "LOOK_S", 0.0)
    shop, stop, ticks = Shop(), asyncio.Event(), count(0, 100)
    replicated_log = LateOwner()
    fence, *replicated_log.on_its_way = shop.shipped.entries
    replicated_log.entries = [fence]
    replica = shop.replica(replicated_log, lambda: next(ticks))
    owned = await replica.take_over(SystemClock(), stop)
    assert owned is not None
    mine = owned[1]
    assert len(replicated_log.on_its_way) == 0
    assert decode_batch(replicated_log.entries[-1], 0).fence
    log, before = mine.store.log, shop.rig.engine.store.log
    assert [each.base for each in log.segments] == [0]
    assert log.uuid == before.uuid
    assert stored(mine) == 2
    assert log.epoch == before.epoch + 1
    note = read_note(shop.files, DIRECTORY)
    assert note is not None
    assert note.standing is not None
    assert note.standing.whole_end == before.end
    mine.abandon()
