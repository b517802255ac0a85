"""Whose requests work now: a few of a page at once, and a bounded share of the loop for each.

A request's work is measured step by step, in time that it held the event loop. It is charged to
the page of the session, to the session, and to its user. While other pages are asked for, too, a
request waits until all three are within their shares again.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Coroutine, Generator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from latermq_console import clock

AT_ONCE_MAX: Final = 4  # requests of one page of a session at work
WAITING_MAX: Final = 64  # requests of one page of a session behind them
PAGE_SHARE: Final = 0.2  # of the loop's time, for one page of a session
SESSION_SHARE: Final = 0.4  # for all pages of a session
USER_SHARE: Final = 0.5  # for all sessions of a user
BURST_S: Final = 0.2  # of the loop's time that may be used at once
OTHERS_S: Final = 1.0  # age of a request for another page that still counts
PAUSE_S_MAX: Final = 0.5  # until the next look whether other pages are asked for
ACCOUNTS_MAX: Final = 4_096
PAGE_CHARACTERS_MAX: Final = 256  # of a path, in the name of an account

T = TypeVar("T")


class TooManyRequestsError(Exception):
    """AT_ONCE_MAX requests of the page are at work, and WAITING_MAX wait behind them."""


@dataclass(slots=True)
class _Place:
    """The requests of one page of a session."""

    at_work: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


@dataclass(slots=True)
class _Account:
    """Loop time that somebody used beyond a share of it, in seconds, at an instant."""

    share: float
    used_s: float = 0.0
    at_s: float = 0.0

    def use(self, seconds: float, now_s: float) -> None:
        self.used_s = max(0.0, self.used_s - (now_s - self.at_s) * self.share) + seconds
        self.at_s = now_s

    def pause_s(self, now_s: float) -> float:
        """Return how long to wait until the share is kept."""
        used_s = self.used_s - (now_s - self.at_s) * self.share
        return max(0.0, used_s - BURST_S) / self.share


class Gate:
    """Places are kept while a request is at work; accounts that are not used go."""

    def __init__(self) -> None:
        self._places: dict[Hashable, _Place] = {}
        self._accounts: OrderedDict[Hashable, _Account] = OrderedDict()
        self._seen_s: OrderedDict[Hashable, float] = OrderedDict()  # the latest last

    def note(self, who: Hashable) -> None:
        """Note that somebody has asked for a page now."""
        self._seen_s[who] = clock.monotonic_s()
        self._seen_s.move_to_end(who)
        while len(self._seen_s) > ACCOUNTS_MAX:
            self._seen_s.popitem(last=False)

    async def run(self, session: Hashable, user: str, path: str, work: Coroutine[Any, Any, T]) -> T:
        """Do a request's work when its turn comes, and return what it returns.

        Raises:
            TooManyRequestsError: nothing of it was done.
        """
        page = (session, path[:PAGE_CHARACTERS_MAX])
        self.note(page)
        accounts = [self._account(page, PAGE_SHARE), self._account(session, SESSION_SHARE)]
        if user:
            accounts.append(self._account(("user", user), USER_SHARE))
        try:
            async with self.turn(page):
                await self._keep_shares(page, accounts)
                done: T = await _Measured(work, accounts)
                return done
        finally:
            work.close()  # if its turn never came

    @asynccontextmanager
    async def turn(
        self, page: Hashable, at_once_max: int = AT_ONCE_MAX, waiting_max: int = WAITING_MAX
    ) -> AsyncIterator[None]:
        """Wait until fewer than `at_once_max` are in such a block. Raises TooManyRequestsError."""
        place = self._places.setdefault(page, _Place())
        if place.at_work >= at_once_max:
            await self._wait(page, place, waiting_max)
        else:
            place.at_work += 1
        try:
            yield
        finally:
            self._leave(page, place)

    async def _keep_shares(self, page: Hashable, accounts: list[_Account]) -> None:
        while self._others_ask(page):
            now_s = clock.monotonic_s()
            pause_s = max(each.pause_s(now_s) for each in accounts)
            if not pause_s:
                return
            await asyncio.sleep(min(pause_s, PAUSE_S_MAX))

    def _others_ask(self, page: Hashable) -> bool:
        """Tell whether another page was asked for lately."""
        for who in reversed(self._seen_s):
            if clock.monotonic_s() - self._seen_s[who] > OTHERS_S:
                return False
            if who != page:
                return True
        return False

    def _account(self, who: Hashable, share: float) -> _Account:
        account = self._accounts.setdefault(who, _Account(share))
        self._accounts.move_to_end(who)
        while len(self._accounts) > ACCOUNTS_MAX:
            self._accounts.popitem(last=False)
        return account

    async def _wait(self, page: Hashable, place: _Place, waiting_max: int) -> None:
        """Wait for the place of a request that has ended."""
        if len(place.waiting) >= waiting_max:
            raise TooManyRequestsError
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place.waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in place.waiting:
                place.waiting.remove(turn)
            elif not turn.cancelled():
                self._leave(page, place)  # its turn had come
            raise

    def _leave(self, page: Hashable, place: _Place) -> None:
        """Give the place of a request to the one that has waited longest."""
        while place.waiting:
            turn = place.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        place.at_work -= 1
        if not place.at_work and self._places.get(page) is place:
            del self._places[page]


class _Measured:
    """A coroutine whose steps are charged to accounts."""

    def __init__(self, work: Coroutine[Any, Any, T], accounts: list[_Account]) -> None:
        self._work = work
        self._accounts = accounts

    def __await__(self) -> Generator[Any, None, Any]:
        thrown: BaseException | None = None
        while True:
            began_s = clock.monotonic_s()
            try:
                waits = self._work.throw(thrown) if thrown else self._work.send(None)
            except StopIteration as end:
                return end.value
            finally:
                now_s = clock.monotonic_s()
                for account in self._accounts:
                    account.use(now_s - began_s, now_s)
            try:
                yield waits
                thrown = None
            except BaseException as error:  # noqa: BLE001  thrown into the work
                thrown = error
