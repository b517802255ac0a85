"""A broker says what its part in a replicated log is, now and then, and hears what others say.

    figures ─► entry ─► topic ─► roster ─► `latermq cluster show`, metrics

Nothing depends on it: who owns a log is said in the log. If the topic fails, only this does.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Final, Protocol

from latermq_broker.deferred import Later
from latermq_broker.errors import EntriesGoneError, EntriesLostError, LogUnavailableError
from latermq_broker.observability.replication_figures import (
    OWNER,
    Member,
    Others,
    ReplicationFigures,
)
from latermq_broker.replication.entry import Offset
from latermq_broker.replication.members.member_entry import encode_member, encode_name
from latermq_broker.replication.members.roster import Notice, Roster
from latermq_text.version import own_version

log = logging.getLogger("latermq.replication")

TELL_S: Final = 5.0
LOOK_S: Final = 1.0  # at where the own log ends
TOLD: Final = "told"
HEARD: Final = "heard"


class MembersTopic(Protocol):
    """A topic beside the log: the last that each broker said, by key. Used in the loop."""

    def put(self, key: bytes, value: bytes | None) -> Later[Offset]:
        """Have `value` stand for `key`; None: nothing does. Fails with LogUnavailableError."""

    def tail(self) -> AsyncIterator[Notice]:
        """Read what there is, then what comes. Never ends.

        Raises LogUnavailableError, EntriesGoneError, EntriesLostError: tail again.
        """

    async def close(self) -> None:
        """Settle what is in flight, with LogUnavailableError if need be, and let the topic go."""


class Members:
    """Made and used in one running loop.

    Args:
        name: of this broker, which no other has.
        address: where it serves when it owns the log.
        now_ms: a clock that never falls.
    """

    def __init__(
        self, topic: MembersTopic, name: str, address: str, shard: int, now_ms: Callable[[], int]
    ) -> None:
        self._topic = topic
        self._name = name
        self._address = address
        self._shard = shard
        self._now_ms = now_ms
        self._roster = Roster()
        self._figures: Callable[[], ReplicationFigures] | None = None
        self._changed = asyncio.Event()
        self._failing: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []

    def tell(self, figures: Callable[[], ReplicationFigures]) -> None:
        """Have others know what `figures` say, at once and from now on; and hear them."""
        self._figures = figures
        self._changed.set()
        if not self._tasks:
            work = self._say(), self._hear(), self._look_again()
            self._tasks = [asyncio.create_task(each) for each in work]
            for task in self._tasks:
                task.add_done_callback(_ended)

    def others(self) -> Others:
        """Tell of the other brokers of the same log."""
        seen = [
            each for each in self._roster.seen(self._now_ms()) if each.member.shard == self._shard
        ]
        heard = any(each.name == self._name and not each.silent for each in seen)
        others = tuple(each for each in seen if each.name != self._name)
        return Others(others, self._roster.unread, heard, self._address)

    async def close(self) -> None:
        """Say that this broker ends."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._tasks:
            self._topic.put(encode_name(self._name), None)
        await self._topic.close()

    async def _say(self) -> None:
        while True:
            self._changed.clear()
            try:
                await self._topic.put(encode_name(self._name), encode_member(self._myself()))
                self._failing.discard(TOLD)
            except LogUnavailableError as error:
                self._warn(TOLD, error)
            with suppress(TimeoutError):
                async with asyncio.timeout(TELL_S):
                    await self._changed.wait()

    def _myself(self) -> Member:
        assert self._figures is not None
        seen = self._figures()
        return Member(
            address=self._address,
            shard=self._shard,
            role=seen.role,
            epoch=seen.epoch,
            position=seen.position,
            lag_entries=seen.lag_entries,
            version=own_version() or "",
            ready=seen.ready,
            checkpoint=seen.checkpoint,
        )

    def _look(self) -> None:
        assert self._figures is not None
        seen = self._figures()
        self._roster.log_ends(seen.position if seen.role == OWNER else None, self._now_ms())

    async def _look_again(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(LOOK_S)

    async def _hear(self) -> None:
        while True:
            try:
                async for notice in self._topic.tail():
                    self._look()
                    self._roster.take(notice, self._now_ms())
                    self._failing.discard(HEARD)
            except (LogUnavailableError, EntriesGoneError, EntriesLostError) as error:
                self._warn(HEARD, error)
            await asyncio.sleep(TELL_S)

    def _warn(self, what: str, error: Exception) -> None:
        """Say what does not go, once until it goes again."""
        if what not in self._failing:
            log.warning("members are not %s", what, extra={"reason": str(error)})
        self._failing.add(what)


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("this broker and others do not hear of each other any more", exc_info=error)
