"""Reading a replicated log from here to there."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from latermq_broker.replication.replicated_log import Entry, Offset, ReplicatedLog


async def entries_of(
    replicated_log: ReplicatedLog, begin: Offset, end: Offset
) -> AsyncGenerator[Entry, None]:
    """Yield the entries from `begin` to before `end`, which a quorum has.

    Raises as `ReplicatedLog.tail`.
    """
    if begin >= end:
        return
    async with aclosing(replicated_log.tail(begin)) as tail:
        async for entry in tail:
            if entry.offset < end:
                yield entry
            if entry.offset >= end - 1:
                break


async def read_range(replicated_log: ReplicatedLog, begin: Offset, end: Offset) -> list[Entry]:
    """Read the entries from `begin` to before `end`, as `entries_of`."""
    return [entry async for entry in entries_of(replicated_log, begin, end)]
