"""What an owner makes of a long gap: it judges each entry as it comes, and stops in time."""

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest

from latermq_broker.config.config import Flush
from latermq_broker.errors import FencedError
from latermq_broker.replication.batch import encode_batch, fence_of
from latermq_broker.replication.entry import Entry, Offset
from latermq_broker.replication.note import Note
from latermq_broker.replication.owner import Owner
from latermq_broker.replication.reader import Reader
from latermq_broker.replication.shipper import Shipper
from latermq_broker.replication.tenure import Gap, Tenure
from latermq_broker.replication.validity import EMPTY, judge
from latermq_broker.store.log.commitment import Commitment
from support.log_in_memory import LogInMemory

FENCE = fence_of(1, 0, 1, 7)


class Watched(LogInMemory):
    """Notes how far whoever reads it has judged when it asks for more."""

    def __init__(self) -> None:
        super().__init__()
        self.tenure: Tenure | None = None
        self.unjudged: list[int] = []
        self.closed = False

    async def tail(self, offset: Offset) -> AsyncGenerator[Entry, None]:
        try:
            for at in range(offset, len(self.entries)):
                yield Entry(at, self.entries[at])
                assert self.tenure is not None
                self.unjudged.append(at + 1 - self.tenure.reader.offset)
        finally:
            self.closed = True


@pytest.mark.parametrize("fence_at", [None, 3])
async def test_a_gap_is_judged_as_it_comes(fence_at: int | None) -> None:
    """Check that an owner holds one entry of a gap at a time: an hour of them are gigabytes."""
    watched = Watched()
    other = fence_of(1, 0, 2, 9)
    strange = Shipper(other, 0)
    watched.entries = [encode_batch(FENCE)]
    watched.entries += [strange.ship(0, beat=True)[0].entry] * 200
    if fence_at is not None:
        watched.entries[fence_at] = encode_batch(other)
    _, standing = judge(EMPTY, FENCE, 0)
    tenure = watched.tenure = Tenure(FENCE, Reader(1, 0, standing, 1), 0, -10_000)
    log: Any = SimpleNamespace(durable=0, written=0, syncs=[], commitment=Commitment(Flush.ASYNC))
    owner = Owner(watched, tenure, log, lambda: 0, Note("shop", 0), lambda _: None)
    failures: list[BaseException] = []
    owner.on_failure = failures.append
    async with asyncio.timeout(30):
        await owner._read(Gap(1, None, ()))
    assert not any(watched.unjudged), "more than one entry is held"
    assert watched.closed
    if fence_at is None:
        assert tenure.reader.offset == len(watched.entries)
        assert failures == []
    else:
        assert len(watched.unjudged) == fence_at - 1, "it reads on behind what ends it"
        assert tenure.reader.offset == fence_at + 1
        assert [type(error) for error in failures] == [FencedError]
    await owner.stop()
