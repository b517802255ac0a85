"""Which message groups have something at LaterMQ, so that what follows has to go there too.

Order by key: while a record waits for its next attempt, later ones of its key must not overtake it.
They are handed to LaterMQ as well, whose FIFO group gives them one after the other. A message group
goes straight again when LaterMQ says that nothing of it is left; whenever that is not known, it is
on a detour, which costs time and never the order.

Of DETOURS_MAX message groups it is remembered. While so many are on a detour, what would be a
further one waits, and its partition with it: Kafka keeps what is behind.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from latermq.errors import (
    DiskFullError,
    RequestTimeoutError,
    ServerError,
    TooManyRequestsError,
    UnavailableError,
)

log = logging.getLogger("latermq.kafka")

# The broker may answer later.
WORTH_ANOTHER_TRY: Final = (
    UnavailableError, RequestTimeoutError, TooManyRequestsError, ServerError, DiskFullError,
)  # fmt: skip
LOOK_S: Final = 0.1  # between two looks
LOOK_S_MAX: Final = 5.0
WORTH_A_WARNING_S: Final = 10.0
DETOURS_MAX: Final = 100_000


class Lane(Protocol):
    """The FIFO group at LaterMQ, as far as it is asked."""

    async def unread(self) -> int:
        """Count messages that the group was never given, and that wait behind nothing."""

    async def busy(self) -> set[str]:
        """Name the message groups of which something is neither done nor dead."""


class Detours:
    """The message groups of one listener in this process."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._sends: dict[str, int] = {}  # of each on a detour: how many were begun
        self._sending: dict[str, int] = {}  # and how many are not answered yet
        self._known: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._said_full = False  # since the last time that none was on a detour

    def __contains__(self, message_group: str) -> bool:
        return message_group in self._sends

    def __len__(self) -> int:
        return len(self._sends)

    def begin(self) -> None:
        """Learn anew what is at LaterMQ: partitions came, and what another process handed over."""
        if self._known is not None:
            self._known.cancel()
        self._known = asyncio.create_task(self._learn())

    async def known(self) -> None:
        """Wait until it is known."""
        while self._known is not None and not self._known.done():
            await asyncio.wait([self._known])
        if self._known is not None and not self._known.cancelled():
            self._known.result()

    async def send(self, message_group: str, send: Callable[[], Awaitable[Any]]) -> None:
        """Hand something of a message group over: it is on a detour from now on.

        While DETOURS_MAX others are, this waits.
        """
        while message_group not in self._sends and len(self._sends) >= DETOURS_MAX:
            self._say_full()
            self._keep_looking()
            await asyncio.sleep(LOOK_S_MAX)
        self._sends[message_group] = self._sends.get(message_group, 0) + 1
        self._sending[message_group] = self._sending.get(message_group, 0) + 1
        try:
            await send()
        finally:
            self._sending[message_group] -= 1
            if not self._sending[message_group]:
                del self._sending[message_group]
            self._keep_looking()

    async def close(self) -> None:
        """Stop looking."""
        tasks = [task for task in (self._known, self._watch) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _learn(self) -> None:
        loop = asyncio.get_running_loop()
        began_s, warned = loop.time(), False
        while True:
            unread = await _asked(self._lane.unread)
            if unread == 0:
                break
            if not warned and loop.time() - began_s > WORTH_A_WARNING_S:
                log.warning("waiting for the workers to take up what LaterMQ has: %s", unread)
                warned = True
            await asyncio.sleep(LOOK_S)
        busy = await _asked(self._lane.busy)
        while busy is None:
            await asyncio.sleep(LOOK_S)
            busy = await _asked(self._lane.busy)
        for message_group in busy:
            self._sends.setdefault(message_group, 0)
        if self._sends:
            self._keep_looking()

    def _say_full(self) -> None:
        if not self._said_full:
            self._said_full = True
            log.warning(
                "%d message groups have records at LaterMQ: partitions wait until fewer have",
                DETOURS_MAX,
            )

    def _keep_looking(self) -> None:
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._look())

    async def _look(self) -> None:
        """Look from time to time which ones may go straight again, until all do."""
        loop = asyncio.get_running_loop()
        while self._sends:
            began_s = loop.time()
            await self._look_once()
            took_s = loop.time() - began_s
            await asyncio.sleep(min(max(LOOK_S, 10 * took_s), LOOK_S_MAX))
        self._said_full = False

    async def _look_once(self) -> None:
        before = {name: n for name, n in self._sends.items() if name not in self._sending}
        if await _asked(self._lane.unread) != 0:
            return
        busy = await _asked(self._lane.busy)
        if busy is None:
            return
        for name, sends in before.items():
            # Whatever was sent before the look has been given to the group, and nothing is left.
            if name not in busy and self._sends.get(name) == sends and name not in self._sending:
                del self._sends[name]


async def _asked(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Return the answer; None: there is none now. Raises RequestError: there will be none."""
    try:
        return await ask()
    except WORTH_ANOTHER_TRY:
        log.debug("no answer about message groups", exc_info=True)
        return None
