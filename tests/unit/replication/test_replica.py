"""One broker's part in a replicated log: asked to end at an awkward moment, or given the log."""

import asyncio
import errno
import os
from collections.abc import AsyncGenerator
from itertools import count
from pathlib import Path

import pytest

from latermq_broker.clock import SystemClock
from latermq_broker.config.cluster import ClusterConfig
from latermq_broker.config.config import Config, StoreConfig
from latermq_broker.config.replication import ReplicationConfig
from latermq_broker.errors import LogUnavailableError, StoreError, StoreUnusableError
from latermq_broker.replication import replica as replica_module
from latermq_broker.replication import standby as standby_module
from latermq_broker.replication.batch import (
    Batch,
    cluster_hash,
    decode_batch,
    encode_batch,
    fence_of,
    hand_over_of,
)
from latermq_broker.replication.entry import Entry
from latermq_broker.replication.local_copy import LocalCopy
from latermq_broker.replication.note import Note, read_note
from latermq_broker.replication.replica import NEW_MS, RANK_MS, Replica, ReplicaPlace
from latermq_broker.replication.tenure import SILENT_MS, TAKE_OVER_MS
from latermq_broker.store.directory import LOG_NAME, take_lock
from latermq_broker.store.files import RealFiles
from latermq_broker.store.log.segment import segment_name
from support.driven_standby import CLUSTER, ShippedLog
from support.engine_rig import EngineRig, short_store
from support.log_in_memory import LogInMemory
from support.machine import patient

LOOK_MS = 20
ANOTHER = fence_of(cluster_hash("shop"), 0, 1, 7)


def beat(number: int) -> Batch:
    """Make a batch of the owner whose fence is `ANOTHER`."""
    return ANOTHER._replace(sequence=number, fence=False)


def decoded(entry: bytes) -> Batch:
    return decode_batch(entry, 0)


class ClaimedLog(LogInMemory):
    """`claiming` is told of a claim under way."""

    def __init__(self, claiming: asyncio.Event) -> None:
        super().__init__()
        self._claiming = claiming

    async def claim(self, fence: bytes) -> int:
        self._claiming.set()
        return await super().claim(fence)


class LateLog(LogInMemory):
    """An owner is in it, who is read of while the canary is on its way; then `stop` is set."""

    def __init__(self, stop: asyncio.Event) -> None:
        super().__init__()
        self._stop = stop
        self._read = asyncio.Event()

    async def canary(self) -> None:
        self.entries = [encode_batch(fence_of(cluster_hash("shop"), 0, 1, 7))]
        await self._read.wait()
        asyncio.get_running_loop().call_soon(self._stop.set)

    async def tail(self, offset: int) -> AsyncGenerator[Entry, None]:
        async for entry in super().tail(offset):
            yield entry
            self._read.set()


class OldLog(LogInMemory):
    """What is read of it first ends with a hand-over; the rest comes when its end was asked for."""

    def __init__(self, stop: asyncio.Event) -> None:
        super().__init__()
        self._stop = stop
        self._asked = asyncio.Event()

    async def end(self) -> int:
        self._asked.set()
        return await super().end()

    async def tail(self, offset: int) -> AsyncGenerator[Entry, None]:
        async for entry in super().tail(offset):
            if entry.offset == 2:
                await self._asked.wait()
            yield entry
            if entry.offset == 2:
                asyncio.get_running_loop().call_soon(self._stop.set)


class Ticking(LogInMemory):
    """Time goes by with each look at its clock; another owner's fence stands in it."""

    def __init__(self) -> None:
        super().__init__()
        self.entries.append(encode_batch(ANOTHER))

    def look(self) -> int:
        self.now_ms += LOOK_MS
        return self.now_ms

    def fences(self) -> list[Batch]:
        return [batch for batch in map(decoded, self.entries) if batch.fence]


class Electing(Ticking):
    """Has no leader for four seconds, as whoever asks for its end finds out; the canary's topic
    has one. The owner lives, and its next beat comes as soon as the log has a leader again."""

    def __init__(self, stop: asyncio.Event) -> None:
        super().__init__()
        self._stop = stop
        self._asked = False

    async def end(self) -> int:
        if self._asked:
            self._stop.set()
            raise LogUnavailableError("the test is over")
        self._asked = True
        self.now_ms += 4_000
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self.entries.append, encode_batch(beat(1)))
        return len(self.entries)

    async def claim(self, fence: bytes) -> int:
        self._stop.set()
        return await super().claim(fence)


class Unread(Ticking):
    """The owner is back at the moment of the first claim: a beat of it stands before the fence.
    Who claimed is not told that its fence stands, and sees it when it reads again."""

    def __init__(self) -> None:
        super().__init__()
        self.beat_ms = 0

    async def claim(self, fence: bytes) -> int:
        if self.beat_ms:
            return await super().claim(fence)
        self.beat_ms = self.now_ms
        self.entries += [encode_batch(beat(1)), fence]
        raise LogUnavailableError("a node of Kafka is being started again")


class NoSegments(RealFiles):
    """A disk with room for small files, and not for a segment more when it is `full`."""

    full = False

    def allocate(self, fd: int, size: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().allocate(fd, size)


def fence(epoch: int, token: int) -> Batch:
    return fence_of(cluster_hash("shop"), 0, epoch, token)


async def test_who_is_told_to_end_while_it_claims_does_not_serve(tmp_path: Path) -> None:
    """The signal would be lost otherwise: whoever serves waits for one of its own."""
    stop = asyncio.Event()
    replicated_log = ClaimedLog(stop)
    place = ReplicaPlace(cluster="shop", shard=0, directory=tmp_path / "data")
    replica = Replica(place, replicated_log, Config(), RealFiles(), lambda: 1_000)
    assert await replica.take_over(SystemClock(), stop) is None
    take_lock(RealFiles(), place.directory)
    assert len(replicated_log.entries) == 1
    note = read_note(RealFiles(), place.directory)
    assert note is not None
    assert note.mine[0] == 1  # so the next start there need not wait


async def test_who_reads_of_an_owner_while_it_asks_the_engine_claims_nothing(
    tmp_path: Path,
) -> None:
    """With an empty directory nobody waits for silence: the log may have no owner yet."""
    stop = asyncio.Event()
    place = ReplicaPlace(cluster="shop", shard=0, directory=tmp_path / "data")
    replicated_log = LateLog(stop)
    replica = Replica(place, replicated_log, Config(), RealFiles(), lambda: 1_000)
    assert await replica.take_over(SystemClock(), stop) is None
    assert len(replicated_log.entries) == 1, "it claimed the log of an owner that lives"


class AskedLog(ClaimedLog):
    """Counts how often it was asked whether it takes anything."""

    def __init__(self, claiming: asyncio.Event) -> None:
        super().__init__(claiming)
        self.asked = 0

    async def canary(self) -> None:
        self.asked += 1


async def test_who_is_not_to_own_it_first_leaves_a_new_log_to_others(tmp_path: Path) -> None:
    """So the machine that is started first does not get all shards."""
    stop, now_ms = asyncio.Event(), 1_000
    replicated_log = AskedLog(stop)
    place = ReplicaPlace(cluster="shop", shard=0, directory=tmp_path / "data")
    cluster = ClusterConfig(shards=("127.0.0.1:81;127.0.0.1:82",), machine=1)
    config = Config(cluster=cluster, replication=ReplicationConfig(kafka="k:1"))
    replica = Replica(place, replicated_log, config, RealFiles(), lambda: now_ms)
    standing_by = asyncio.create_task(replica.take_over(SystemClock(), stop))
    await asyncio.sleep(0)
    now_ms += NEW_MS + TAKE_OVER_MS + RANK_MS - 1
    while replicated_log.asked < 3:
        await asyncio.sleep(0.01)
    assert not replicated_log.entries
    now_ms += 1
    assert await standing_by is None  # it claims the log, which tells it to end
    assert len(replicated_log.entries) == 1


async def test_two_clusters_in_one_topic_are_told_apart(tmp_path: Path) -> None:
    replicated_log, stop = LogInMemory(), asyncio.Event()
    replicated_log.entries.append(encode_batch(fence_of(cluster_hash("other"), 0, 1, 77)))
    place = ReplicaPlace(cluster="shop", shard=0, directory=tmp_path / "data")
    replica = Replica(place, replicated_log, Config(), RealFiles(), lambda: 1_000)
    with pytest.raises(StoreUnusableError, match="two clusters may not share a topic"):
        await replica.take_over(SystemClock(), stop)
    assert len(replicated_log.entries) == 1


async def test_an_election_in_the_engine_moves_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_module, "LOOK_S", 0.0)
    stop = asyncio.Event()
    replicated_log = Electing(stop)
    place = ReplicaPlace(cluster="shop", shard=0, directory=tmp_path / "data")
    replica = Replica(place, replicated_log, Config(), RealFiles(), replicated_log.look)
    assert await replica.take_over(SystemClock(), stop) is None
    assert replicated_log.fences() == [ANOTHER], "it fenced an owner that lives"


async def test_whose_own_fence_stands_last_waits_for_the_owner_before_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wait: nobody owns the log by that fence, and whom it fenced may not know of it yet."""
    monkeypatch.setattr(replica_module, "LOOK_S", 0.0)
    replicated_log = Unread()
    place = ReplicaPlace(cluster="shop", shard=0, directory=tmp_path / "data")
    config = Config(store=StoreConfig(segment_bytes=17 << 20))
    replica = Replica(place, replicated_log, config, RealFiles(), replicated_log.look)
    owned = await replica.take_over(SystemClock(), asyncio.Event())
    assert owned is not None
    owner, own_engine, _ = owned
    own_engine.store.abandon()
    assert len(replicated_log.fences()) == 3
    replicated_log.now_ms = replicated_log.beat_ms + SILENT_MS
    assert not owner._tenure.serving(replicated_log.now_ms), (
        "two serve: the one before has a fresh proof"
    )


async def test_who_was_started_again_waits_for_the_owner_before_that_its_note_knows(
    tmp_path: Path,
) -> None:
    """All that the log has of that one is in the note; behind it comes only the own fence."""
    replicated_log = LogInMemory()
    replicated_log.now_ms, mine = 10_000, fence(2, 8)
    replicated_log.entries = [encode_batch(ANOTHER), encode_batch(beat(1))]
    place = ReplicaPlace(cluster="shop", shard=0, directory=tmp_path / "data")
    config = Config(store=StoreConfig(segment_bytes=17 << 20))
    copy = LocalCopy(place.directory, config.store, RealFiles(), Note("shop", 0))
    for offset, entry in enumerate(replicated_log.entries):
        copy.reader.read(Entry(offset, entry))
    await copy.keep()
    copy.claim(mine.epoch, mine.token)
    copy.close()
    replicated_log.entries.append(encode_batch(mine))
    replica = Replica(place, replicated_log, config, RealFiles(), lambda: replicated_log.now_ms)
    owned = await replica.take_over(SystemClock(), asyncio.Event())
    assert owned is not None
    owned.engine.store.abandon()
    assert not owned.owner._tenure.serving(replicated_log.now_ms), "two serve"


async def test_who_was_started_again_when_it_had_just_claimed_waits_for_the_owner_before(
    tmp_path: Path,
) -> None:
    """Its note has its own fence; that it was to wait, and since when, went with its process."""
    replicated_log = LogInMemory()
    replicated_log.now_ms, mine = 10_000, fence(2, 8)
    entries = replicated_log.entries = [encode_batch(each) for each in (ANOTHER, beat(1), mine)]
    place = ReplicaPlace(cluster="shop", shard=0, directory=tmp_path / "data")
    config = Config(store=StoreConfig(segment_bytes=17 << 20))
    copy = LocalCopy(place.directory, config.store, RealFiles(), Note("shop", 0))
    copy.claim(mine.epoch, mine.token)
    for offset, entry in enumerate(entries):
        copy.reader.read(Entry(offset, entry))
    await copy.keep()
    copy.close()
    replica = Replica(place, replicated_log, config, RealFiles(), lambda: replicated_log.now_ms)
    owned = await replica.take_over(SystemClock(), asyncio.Event())
    assert owned is not None
    owned.engine.store.abandon()
    assert not owned.owner._tenure.serving(replicated_log.now_ms), "two serve"


async def test_whose_own_fence_stands_last_waits_for_nobody_otherwise(tmp_path: Path) -> None:
    replicated_log = LogInMemory()
    replicated_log.now_ms = 10_000
    place = ReplicaPlace(cluster="shop", shard=0, directory=tmp_path / "data")
    config = Config(store=StoreConfig(segment_bytes=17 << 20))
    for life in (1, 2):
        replica = Replica(place, replicated_log, config, RealFiles(), lambda: replicated_log.now_ms)
        owned = await replica.take_over(SystemClock(), asyncio.Event())
        assert owned is not None
        owner, own_engine, _ = owned
        own_engine.store.abandon()
        assert len(replicated_log.entries) == life
        assert owner._tenure.serving(replicated_log.now_ms)


async def test_a_note_never_says_more_than_the_directory_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read last could not be written, for the disk was full."""
    monkeypatch.setattr(standby_module, "KEEP_S", 0.0)
    rig = EngineRig(store=short_store())
    replicated_log = LogInMemory()
    replicated_log.entries = ShippedLog(rig.engine.store.log).entries
    rig.send("one")
    files = NoSegments()
    place = ReplicaPlace(cluster=CLUSTER, shard=0, directory=tmp_path / "data")
    replica = Replica(
        place, replicated_log, rig.config, files, lambda: 0
    )  # no silence: the clock stands
    following = asyncio.create_task(replica.take_over(SystemClock(), asyncio.Event()))
    async with asyncio.timeout(patient(30)):
        while replica.figures().position < rig.engine.store.log.end:
            await asyncio.sleep(0)
    files.full = True
    while len(rig.engine.store.log.segments) < 2:
        rig.send("more", body=bytes(1_000))
    with pytest.raises(StoreError, match="disk full"):
        await following
    copy = LocalCopy(place.directory, rig.config.store, RealFiles(), Note(CLUSTER, 0))
    assert copy.end < rig.engine.store.log.end
    copy.close()


async def test_a_log_that_was_handed_over_is_claimed_at_once(tmp_path: Path) -> None:
    """By a clock that stands: nobody waits for silence, nor for that of the owner before."""
    replicated_log = LogInMemory()
    replicated_log.entries = [encode_batch(fence(1, 7)), encode_batch(hand_over_of(fence(1, 7)))]
    place = ReplicaPlace(cluster="shop", shard=0, directory=tmp_path / "data")
    replica = Replica(place, replicated_log, Config(), RealFiles(), lambda: 1_000)
    owned = await replica.take_over(SystemClock(), asyncio.Event())
    assert owned is not None
    assert decode_batch(replicated_log.entries[2], 2).epoch == 3
    assert owned.owner.figures().epoch == 3
    serving = asyncio.Event()
    owned.owner.on_serving = lambda now: serving.set() if now else None
    owned.owner.begin()
    await serving.wait()
    await owned.owner.stop()
    await owned.disk.join()
    owned.disk.close()
    owned.engine.abandon()


async def test_a_hand_over_of_long_ago_is_not_claimed(tmp_path: Path) -> None:
    stop = asyncio.Event()
    replicated_log = OldLog(stop)
    replicated_log.entries = [
        encode_batch(fence(1, 7)), encode_batch(hand_over_of(fence(1, 7))),
        encode_batch(fence(3, 8)),
    ]  # fmt: skip
    place = ReplicaPlace(cluster="shop", shard=0, directory=tmp_path / "data")
    replica = Replica(place, replicated_log, Config(), RealFiles(), lambda: 1_000)
    assert await replica.take_over(SystemClock(), stop) is None
    assert len(replicated_log.entries) == 3


@pytest.mark.parametrize("given_up", [False, True])
@pytest.mark.parametrize("yields", [False, True])
async def test_who_handed_over_leaves_the_log_to_others_for_a_while(
    tmp_path: Path, yields: bool, given_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it goes on, also if the log never said it. One that was started again takes it at once."""
    monkeypatch.setattr(replica_module, "LOOK_S", 0.001)
    now_ms = count(1_000, 50)
    place = ReplicaPlace(cluster="shop", shard=0, directory=tmp_path / "data")
    replicated_log, stop = LogInMemory(), asyncio.Event()
    claims: list[int] = []

    async def claim(batch: bytes) -> int:
        claims.append(next(now_ms))
        stop.set()  # and so it does not serve
        return await LogInMemory.claim(replicated_log, batch)

    monkeypatch.setattr(replicated_log, "claim", claim)
    for mine in (False, True):
        stop.clear()
        replica = Replica(place, replicated_log, Config(), RealFiles(), lambda: next(now_ms))
        began_ms = next(now_ms)
        again = mine and yields
        assert await replica.take_over(SystemClock(), stop, yields=again) is None
        assert (claims[-1] - began_ms >= TAKE_OVER_MS) is again
        if not given_up:
            replicated_log.entries.append(
                encode_batch(hand_over_of(decode_batch(replicated_log.entries[-1], 0)))
            )


class Trimmed(LogInMemory):
    """Loses what is before its entry `front` when a reader has two, which cannot go on then."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = rig = EngineRig(store=short_store())
        self.entries = ShippedLog(rig.engine.store.log).entries
        for _ in range(40):
            rig.send("old", body=bytes(1_000))
        rig.advance(120_000)
        rig.send("new")
        rig.retain()
        self.base = rig.engine.store.log.segments[0].base
        places = [(batch.segment, batch.position) for batch in map(decoded, self.entries)]
        self.front = next(
            at for at, (size, base) in enumerate(places) if size and base == self.base
        )
        assert self.front > 2

    async def tail(self, offset: int) -> AsyncGenerator[Entry, None]:
        async for entry in super().tail(offset):
            yield entry
            if entry.offset == 1:
                self.begin = self.front
                raise LogUnavailableError("a node of Kafka is being started again")


async def test_a_filling_that_trimming_overtakes_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is in the directory that the replicated log did not just give."""
    monkeypatch.setattr(replica_module, "AWAY_S", 0.0)
    replicated_log, stop = Trimmed(), asyncio.Event()
    place = ReplicaPlace(cluster=CLUSTER, shard=0, directory=tmp_path / "data")
    replica = Replica(
        place, replicated_log, replicated_log.rig.config, RealFiles(), lambda: 0
    )  # no silence
    following = asyncio.create_task(replica.take_over(SystemClock(), stop))
    async with asyncio.timeout(patient(30)):
        while replica.figures().position < replicated_log.rig.engine.store.log.end:
            await asyncio.sleep(0)
    stop.set()
    assert await following is None
    names = sorted(path.name for path in (place.directory / LOG_NAME).iterdir())
    assert names[0] == segment_name(replicated_log.base)


async def test_a_directory_that_trimming_overtook_while_it_was_closed_is_left_alone(
    tmp_path: Path,
) -> None:
    """It may have been more than a copy: whoever empties it has looked."""
    replicated_log = Trimmed()
    place = ReplicaPlace(cluster=CLUSTER, shard=0, directory=tmp_path / "data")
    copy = LocalCopy(
        place.directory, replicated_log.rig.config.store, RealFiles(), Note(CLUSTER, 0)
    )
    copy.cut()
    for offset in range(2):
        copy.write(copy.reader.read(Entry(offset, replicated_log.entries[offset]))[1])
    await copy.keep()
    copy.close()
    replicated_log.begin = replicated_log.front
    replica = Replica(place, replicated_log, replicated_log.rig.config, RealFiles(), lambda: 0)
    with pytest.raises(StoreUnusableError, match="too old"):
        await replica.take_over(SystemClock(), asyncio.Event())
    assert (place.directory / LOG_NAME / segment_name(0)).exists()
