"""A directory that lacks what its note says was read: it is filled before the log is claimed."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from latermq_broker.clock import SystemClock
from latermq_broker.config.config import Config
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
from latermq_broker.replication.replica import EARLY_MS, Replica, ReplicaPlace
from latermq_broker.replication.tenure import TAKE_OVER_MS
from latermq_broker.store.directory import REPLICA_NAME
from latermq_broker.store.files import RealFiles
from support.driven_standby import CLUSTER, ShippedLog
from support.engine_rig import EngineRig, short_store
from support.log_in_memory import LogInMemory
from support.machine import patient

FENCE = fence_of(cluster_hash("shop"), 0, 1, 7)


def beat(number: int) -> Batch:
    return FENCE._replace(sequence=number, fence=False)


class Hiding(LogInMemory):
    """Does not give one entry when it is read first."""

    hidden = -1

    async def tail(self, offset: int) -> AsyncGenerator[Entry, None]:
        async for entry in super().tail(offset):
            if entry.offset == self.hidden:
                self.hidden = -1
            else:
                yield entry


@pytest.mark.parametrize("hidden", [-1, 1])
async def test_what_is_missing_for_long_is_looked_for_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, hidden: int
) -> None:
    """It was passed over here, or is in the log nowhere before others."""
    replicated_log, stop, now_ms = Hiding(), asyncio.Event(), 1_000
    replicated_log.hidden = hidden
    place = ReplicaPlace(cluster="shop", shard=0, directory=tmp_path / "data")
    replica = Replica(place, replicated_log, Config(), RealFiles(), lambda: now_ms)

    async def sequence(*batches: Batch) -> int:
        """Give the last one that counts when these were read."""
        replicated_log.entries += map(encode_batch, batches)
        while (standby := replica._standby) is None or (
            standby.copy.reader.offset < len(replicated_log.entries)
        ):
            await asyncio.sleep(0)
        assert standby.copy.reader.standing is not None
        return standby.copy.reader.standing.sequence

    assert EARLY_MS < TAKE_OVER_MS, "it is looked for when it is too late"
    following = asyncio.create_task(replica.take_over(SystemClock(), stop))
    first = [] if hidden < 0 else [beat(1)]
    assert await sequence(FENCE, *first, beat(2)) == 0
    now_ms += EARLY_MS - 1
    assert await sequence(beat(3)) == 0
    assert "is read again" not in caplog.text
    now_ms += 1
    assert await sequence(beat(4)) == (0 if hidden < 0 else 4)
    now_ms += EARLY_MS
    assert await sequence(beat(6)) == (0 if hidden < 0 else 4)
    assert caplog.text.count("is read again") == 1
    assert await sequence(*map(beat, range(1, 7))) == 6
    stop.set()
    assert await following is None


def succession(ending: str, rig: EngineRig) -> tuple[list[bytes], int]:
    """Make a log of two owners, the entries of the second behind its fence.

    Returns:
        It, and where the fence stands that an older build stopped to read at.
    """
    shipped = ShippedLog(rig.engine.store.log).entries
    while len(rig.engine.store.log.segments) < 3:
        rig.send("more", body=bytes(1_000))
    batches = [decode_batch(entry, 0) for entry in shipped]
    kept = len(batches) // 2  # in the middle of a segment
    first, second = batches[:kept], batches[kept:]
    fence = stop = fence_of(cluster_hash(CLUSTER), 0, 2, 2)
    if ending == "handed over twice":
        stop, fence = hand_over_of(first[0]), fence._replace(epoch=3)
    theirs = [
        batch._replace(epoch=fence.epoch, token=2, sequence=number)
        for number, batch in enumerate(second, 1)
    ]
    last = {
        "silent": [],
        "handed over": [hand_over_of(fence)],
        "handed over twice": [hand_over_of(fence)],
        "claimed again": [fence._replace(epoch=3, token=3)],
    }[ending]
    between = [stop] if stop is fence else [stop, fence]
    return [encode_batch(each) for each in (*first, *between, *theirs, *last)], kept


async def poisoned(directory: Path, rig: EngineRig, entries: list[bytes], fence: int) -> None:
    """Make the directory of an owner that an older build left: it noted all as read."""
    copy = LocalCopy(directory, rig.config.store, RealFiles(), Note(CLUSTER, 0))
    copy.cut()
    for offset, entry in enumerate(entries[: fence + 1]):
        copy.write(copy.reader.read(Entry(offset, entry))[1])
    await copy.keep()
    copy.close()
    facts = json.loads((directory / REPLICA_NAME).read_text())
    assert facts.pop("whole")
    facts["offset"] = len(entries)
    (directory / REPLICA_NAME).write_text(json.dumps(facts))


@pytest.mark.parametrize("ending", ["silent", "handed over", "handed over twice", "claimed again"])
async def test_a_directory_of_an_older_build_claims_only_when_it_has_all(
    tmp_path: Path, ending: str
) -> None:
    rig = EngineRig(store=short_store())
    replicated_log, now_ms = LogInMemory(), 1_000
    replicated_log.entries, fence = succession(ending, rig)
    place = ReplicaPlace(cluster=CLUSTER, shard=0, directory=tmp_path / "data")
    await poisoned(place.directory, rig, replicated_log.entries, fence)
    replica = Replica(place, replicated_log, rig.config, RealFiles(), lambda: now_ms)
    following = asyncio.create_task(replica.take_over(SystemClock(), asyncio.Event()))
    async with asyncio.timeout(patient(30)):
        while not following.done():
            now_ms += 100
            await asyncio.sleep(0.01)
    owned = await following
    assert owned is not None
    kept, has = rig.engine.store.log, owned.engine.store.log
    for ours, theirs in zip(has.segments, kept.segments, strict=True):
        end = min(kept.written, theirs.end)
        assert ours.pread(end - ours.base, ours.base) == theirs.pread(end - ours.base, ours.base)
    note = read_note(RealFiles(), place.directory)
    assert note is not None
    assert note.whole
    await owned.owner.stop()
    await owned.disk.join()
    owned.disk.close()
    owned.engine.abandon()
    rig.engine.abandon()
