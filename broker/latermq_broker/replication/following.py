"""Reading an engine's log from here to there."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from latermq_broker.replication.replicated_log import Entry, Offset, ReplicatedLog


async def entries_of(
    engine: ReplicatedLog, begin: Offset, end: Offset
) -> AsyncGenerator[Entry, None]:
    """Yield the entries from `begin` to before `end`, which a quorum has.

    Raises as `ReplicatedLog.follow`.
    """
    if begin >= end:
        return
    following = cast("AsyncGenerator[Entry, None]", engine.follow(begin))
    async with aclosing(following):
        async for entry in following:
            if entry.offset < end:
                yield entry
            if entry.offset >= end - 1:
                break


async def read_range(engine: ReplicatedLog, begin: Offset, end: Offset) -> list[Entry]:
    """Read the entries from `begin` to before `end`, as `entries_of`."""
    return [entry async for entry in entries_of(engine, begin, end)]
