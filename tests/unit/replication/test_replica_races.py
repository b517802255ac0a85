"""Two brokers that want one log: who is faster keeps it; and a log that falls silent at a claim."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Final

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
from latermq_broker.replication.replica import Replica, ReplicaPlace
from latermq_broker.store.directory import REPLICA_NAME, take_lock
from latermq_broker.store.files import RealFiles
from support.log_in_memory import LogInMemory
from support.machine import patient

FASTER: Final = 2  # the entry by which another claims the log


class Slow(RealFiles):
    """Whatever is in `meanwhile` happens while a note is written, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: list[Callable[[], None]] = []

    def rename(self, old: Path, new: Path) -> None:
        super().rename(old, new)
        aside = threading.current_thread() is not threading.main_thread()
        if aside and new.name == REPLICA_NAME and self.meanwhile:
            self.meanwhile.pop(0)()


class ReadLog(LogInMemory):
    """Tells when its entry `FASTER` was read."""

    def __init__(self) -> None:
        super().__init__()
        self.read = threading.Event()

    async def tail(self, offset: int) -> AsyncGenerator[Entry, None]:
        async for entry in super().tail(offset):
            yield entry
            if entry.offset == FASTER:
                self.read.set()


class Unheard(LogInMemory):
    """Takes a fence, and then nothing can be read of it; `stop` is set."""

    def __init__(self, stop: asyncio.Event) -> None:
        super().__init__()
        self._stop = stop

    async def claim(self, fence: bytes) -> int:
        self._stop.set()
        return await super().claim(fence)

    async def tail(self, offset: int) -> AsyncGenerator[Entry, None]:
        await asyncio.Event().wait()
        yield Entry(offset, b"")


def fence(epoch: int) -> Batch:
    return fence_of(cluster_hash("shop"), 0, epoch, token=epoch)


async def test_who_reads_of_another_while_it_syncs_does_not_outbid_it(tmp_path: Path) -> None:
    """Else the other one, which was faster, would serve for a moment, and end."""
    replicated_log, files = ReadLog(), Slow()
    replicated_log.entries = [encode_batch(fence(1)), encode_batch(hand_over_of(fence(1)))]
    place = ReplicaPlace(cluster="shop", shard=0, directory=tmp_path / "data")
    replica = Replica(place, replicated_log, Config(), files, lambda: 1_000)  # no silence

    def faster() -> None:
        replicated_log.entries.append(encode_batch(fence(3)))
        replicated_log.read.wait()

    files.meanwhile = [
        faster,
        lambda: replicated_log.entries.append(encode_batch(hand_over_of(fence(3)))),
    ]
    owned = await replica.take_over(SystemClock(), asyncio.Event())
    assert owned is not None
    assert [decode_batch(entry, 0).epoch for entry in replicated_log.entries] == [1, 2, 3, 4, 5]
    assert owned.owner.figures().epoch == 5
    await owned.disk.join()
    owned.disk.close()
    owned.engine.abandon()


async def test_who_is_told_to_end_does_not_wait_to_read_its_fence(tmp_path: Path) -> None:
    """The log may be away for hours by then."""
    stop = asyncio.Event()
    place = ReplicaPlace(cluster="shop", shard=0, directory=tmp_path / "data")
    replicated_log = Unheard(stop)
    replica = Replica(place, replicated_log, Config(), RealFiles(), lambda: 1_000)
    async with asyncio.timeout(patient(30)):
        assert await replica.take_over(SystemClock(), stop) is None
    assert len(replicated_log.entries) == 1
    RealFiles().close(take_lock(RealFiles(), place.directory))
