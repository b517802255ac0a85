"""Which lite topics a consumer reads, and how the broker hears of it.

The broker keeps it in memory, by client id. So it is told each change, and the whole set whenever
it has answered our settings, which it does first after a restart and to a new identity, and every
30 s. One call at a time: a set never overtakes a change.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from latermq._connection.session import Session
from latermq._values import arguments
from latermq._values.failure import exc_info, tell
from latermq._wire.lite_calls import SYNC_LITE, Action, ask_sync_lite, read_sync_lite
from latermq.codes import Code
from latermq.errors import ClosedError, LaterMQError, LiteQuotaError
from latermq.message import Begin

log = logging.getLogger("latermq.client")

REPEAT_S: Final = 30.0


def tell_taken(taken: Callable[[str], None], name: str) -> None:
    """Call the application's function; what it raises is logged, and ends nothing of ours."""
    try:
        taken(name)
    except KeyboardInterrupt:
        raise  # the program is asked to end
    except BaseException as error:  # noqa: BLE001  it is the application's
        about = {"lite_topic": name}
        tell(
            log, logging.ERROR, "taken failed: lite topic %s", name,
            exc_info=exc_info(error), extra=about,
        )  # fmt: skip


class LiteTopics:
    """The set of one consumer, whatever identity it has; the newest one speaks for it.

    Args:
        taken: told of each lite topic that another client of an exclusive group has now.
    """

    def __init__(self, parent: str, taken: Callable[[str], None] | None) -> None:
        arguments.name_of("parent", parent)
        if taken is not None and not callable(taken):
            raise arguments.wrong("taken", "a function or None", taken)
        self.parent = parent
        self._taken = taken
        self._names: set[str] = set()
        self._session: Session | None = None
        self._version = 0
        self._turn = asyncio.Lock()

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._names)

    def attach(self, session: Session) -> Session:
        """Speak as `session` from now on; those before it say nothing more."""
        self._session = session
        began = False

        def known() -> None:
            nonlocal began
            session.tasks.start(self._tell_all(session), "latermq lite topics")
            if not began:
                began = True
                session.tasks.start(self._repeat(session), "latermq lite topics, every 30 s")

        session.on_known = known
        session.on_taken = lambda name: self._lose(session, name)
        return session

    async def add(self, names: Collection[str], begin: Begin | None) -> None:
        """Raises as `LitePushConsumer.subscribe`, with nothing changed here."""
        arguments.texts("lite_topics", names)
        if begin is not None and not isinstance(begin, Begin):
            raise arguments.wrong("begin", "a Begin or None", begin)
        new: set[str] = set()

        async def tell(session: Session) -> None:
            nonlocal begin
            await session.route(self.parent)  # from here on the quota is known
            limit = session.settings.lite_topics_max
            count = len(self._names.union(names))
            if count > limit:
                message = f"{count} lite topics, at most {limit} are allowed"
                raise LiteQuotaError(Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, message)
            new.update(set(names) - self._names)
            self._names |= new  # before the answer: what is taken from us at once, is
            await self._tell(session, Action.ADD, names, begin=begin)
            begin = None  # that is done, should a new identity have to repeat the rest

        try:
            await self._as_newest(tell)
        except BaseException:
            self._names -= new
            self._set_right(new)
            raise

    def _set_right(self, new: Collection[str]) -> None:
        """Send the set again: a broker may have `new`; in an exclusive group others miss them."""
        session = self._session
        if new and session is not None:
            session.tasks.start(self._tell_all(session), "latermq lite topics")

    async def remove(self, names: Collection[str]) -> None:
        arguments.texts("lite_topics", names)

        async def tell(session: Session) -> None:
            await self._tell(session, Action.REMOVE, names)
            self._names.difference_update(names)

        await self._as_newest(tell)

    async def _as_newest(self, tell: Callable[[Session], Awaitable[None]]) -> None:
        """Tell it once more, if the consumer has another identity by then."""
        while True:
            session = self._session
            assert session is not None, "attached when the consumer is made"
            session.check_loop()
            try:
                async with self._turn:
                    await tell(session)
            except ClosedError:
                if session is self._session:
                    raise
            if session is self._session:
                return

    async def _tell_all(self, session: Session) -> None:
        """Tell the broker the whole set: it removes what is not in it."""
        try:
            await session.route(self.parent)
            async with self._turn:
                if session is not self._session:
                    return
                self._version += 1
                await self._tell(session, Action.BECOME, self._names, version=self._version)
        except LaterMQError as error:
            session.refusals.failed("lite topics", "lite subscription", error, topic=self.parent)
        else:
            session.refusals.taken("lite topics")

    async def _repeat(self, session: Session) -> None:
        while session is self._session:
            await asyncio.sleep(REPEAT_S)
            await self._tell_all(session)

    async def _tell(
        self,
        session: Session,
        action: Action,
        names: Collection[str],
        *,
        version: int = 0,
        begin: Begin | None = None,
    ) -> None:
        request = ask_sync_lite(
            session.profile, self.parent, action, names, version=version, begin=begin
        )
        route = await session.route(self.parent)
        for endpoints in route.endpoints():
            read_sync_lite(await session.call(endpoints, SYNC_LITE, request))

    def _lose(self, session: Session, name: str) -> None:
        if session is not self._session or name not in self._names:
            return  # an identity of ours that is over made room for the next one
        self._names.discard(name)
        log.info("lite topic %s taken by another client", name, extra={"lite_topic": name})
        if self._taken is not None:
            tell_taken(self._taken, name)
