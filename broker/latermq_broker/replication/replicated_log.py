"""What replication asks of a log: that it is one total order of entries, and kept by a quorum.

Kafka keeps it, or whatever speaks its protocol; an adapter puts these calls on a client of that.
Adapters carry bytes and know nothing of what is in them: who owns the log, and which entries count,
is a rule that every reader applies to the same entries in the same order. So of the log three
things are asked, and nothing else:

1. **One order.** An entry has an offset, and every reader sees the same entries in that order.
2. **Acknowledged is kept.** An offset is told when a quorum has the entry, and all before it.
3. **Nothing is made up.** An entry is what some `claim` or `append` was given, whole.

Entries may come twice, late, or from a writer that everybody believes dead: the rule copes. Offsets
of one writer are dense as long as nobody else writes: that is how an owner knows, without reading,
that nothing came in between. What Kafka keeps for itself (control records) may take offsets.

All calls are made in the event loop, and all answers come there.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

from latermq_broker.deferred import Later
from latermq_broker.replication.entry import Entry, Offset


class ReplicatedLog(Protocol):
    """One shard's replicated log.

    Errors, all of `latermq_broker.errors`:
        LogUnavailableError: what was to be written may be there, may come to be there later, or
            never; nothing is wrong with asking again.
        FencedError: the log itself refuses this writer, for ever. One that never does so is as
            safe: the rule does not count on it.
        EntriesLostError: it has less than it acknowledged; nobody goes on from there.
    """

    async def claim(self, fence: bytes) -> Offset:
        """Append a fence when all earlier appends are settled; where it stands, never UNTOLD.

        A new owner begins with it. All entries before it are final then: it reads up to the fence
        to see whether it is the owner. Raises LogUnavailableError: claim again, with another fence.
        """

    def append(self, batch: bytes) -> Later[Offset]:
        """Append behind whatever this writer appended before; settled when a quorum has it.

        Several may be in flight, and they stand in the order of the calls. Gives its offset, or
        UNTOLD; fails with LogUnavailableError or FencedError. After a LogUnavailableError later
        ones may stand in the log all the same; the caller appends again from the failed one on.
        """

    def tail(self, offset: Offset) -> AsyncGenerator[Entry, None]:
        """Read entries in order from `offset` on; 0: from the first that trim left. Never ends.

        Yields only what a quorum has. Closing the generator ends it. Raises LogUnavailableError
        after the adapter's own attempts: then tail again from the last entry's offset + 1; and
        EntriesGoneError: `offset` is not 0, and the log begins behind it; EntriesLostError: the log
        ends before it.
        """

    async def trim(self, offset: Offset) -> None:
        """Have what stands before `offset` deleted; never the entry at it.

        May do less, and later. Raises LogUnavailableError.
        """

    async def end(self) -> Offset:
        """Return the offset behind the last entry that a quorum has; 0 when there is none.

        Raises LogUnavailableError.
        """

    async def canary(self) -> None:
        """Have a quorum take something of no meaning, elsewhere than in the log.

        Raises LogUnavailableError: it does not, so an owner that is not heard of may be there.
        """

    async def close(self) -> None:
        """Settle what is in flight, with LogUnavailableError if need be, and let the log go."""


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
