"""A `ReplicatedLog` for tests in one process, whose entries are a list; and members."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from latermq_broker.deferred import Later
from latermq_broker.errors import EntriesGoneError, LogUnavailableError
from latermq_broker.replication.entry import Entry, Offset
from latermq_broker.replication.members.roster import Notice


class LogInMemory:
    """Takes all that it is given, from whomever, and says so in the next turn."""

    def __init__(self) -> None:
        self.now_ms = 500
        self.entries: list[bytes] = []
        self.begin = 0  # what is before was trimmed

    async def claim(self, fence: bytes) -> Offset:
        return await LogInMemory.append(self, fence)

    def append(self, batch: bytes) -> Later[Offset]:
        self.entries.append(batch)
        offset: Later[Offset] = Later()
        asyncio.get_running_loop().call_soon(offset.give, len(self.entries) - 1)
        return offset

    async def tail(self, offset: Offset) -> AsyncGenerator[Entry, None]:
        if 0 < offset < self.begin:
            raise EntriesGoneError(f"entry {offset} was trimmed")
        offset = max(offset, self.begin)
        while True:
            while offset < len(self.entries):
                yield Entry(offset, self.entries[offset])
                offset += 1
            await asyncio.sleep(0)

    async def trim(self, offset: Offset) -> None:
        self.begin = max(self.begin, offset)

    async def end(self) -> Offset:
        return len(self.entries)

    async def canary(self) -> None: ...

    async def close(self) -> None: ...


class MembersInMemory:
    """A `MembersTopic`. While `away`, it takes nothing and gives nothing."""

    def __init__(self) -> None:
        self.now_ms = 500
        self.notices: list[Notice] = []
        self.away = False

    def put(self, key: bytes, value: bytes | None) -> Later[Offset]:
        later: Later[Offset] = Later()
        if self.away:
            later.fail(LogUnavailableError("away"))
            return later
        self.notices.append(Notice(key, value, self.now_ms))
        asyncio.get_running_loop().call_soon(later.give, len(self.notices) - 1)
        return later

    async def tail(self) -> AsyncIterator[Notice]:
        read = 0
        while not self.away:
            for notice in self.notices[read:]:
                yield notice
                read += 1
            await asyncio.sleep(0)
        raise LogUnavailableError("away")

    async def close(self) -> None: ...
