"""A standby that passes over what the owner writes, as one before it is missing."""

import asyncio
from pathlib import Path

import pytest

from latermq_broker.clock import SystemClock
from latermq_broker.config.config import Config
from latermq_broker.replication.batch import Batch, cluster_hash, encode_batch, fence_of
from latermq_broker.replication.replica import EARLY_MS, Replica, ReplicaPlace
from latermq_broker.replication.tenure import TAKE_OVER_MS
from latermq_broker.store.files import RealFiles
from support.log_in_memory import LogInMemory

FENCE = fence_of(cluster_hash("shop"), 0, 1, 7)


def beat(number: int) -> Batch:
    return FENCE._replace(sequence=number, fence=False)


async def test_batches_that_miss_one_for_long_are_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    replicated_log, stop, now_ms = LogInMemory(), asyncio.Event(), 1_000
    place = ReplicaPlace(cluster="shop", shard=0, directory=tmp_path / "data")
    replica = Replica(place, replicated_log, Config(), RealFiles(), lambda: now_ms)

    async def warnings(*batches: Batch) -> int:
        """Count them when these were read."""
        replicated_log.entries += map(encode_batch, batches)
        while (standby := replica._standby) is None or (
            standby.copy.reader.offset < len(replicated_log.entries)
        ):
            await asyncio.sleep(0)
        return caplog.text.count("which is not sent again")

    assert EARLY_MS < TAKE_OVER_MS, "it is said when it is too late"
    following = asyncio.create_task(replica.take_over(SystemClock(), stop))
    assert not await warnings(FENCE, beat(2))
    now_ms += EARLY_MS - 1
    assert not await warnings(beat(3), beat(1), beat(2), beat(4))
    now_ms += EARLY_MS - 1
    assert not await warnings(beat(5))
    now_ms += 1
    assert await warnings(beat(6), beat(7)) == 1
    stop.set()
    assert await following is None
