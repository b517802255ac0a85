"""Attempts to sign in, in lanes: one for each address and key, one for each address.

An attempt counts when it begins, and is given back when its secret was right. Beyond a lane's burst
the next attempt waits for its turn, so a wrong secret delays attempts with its own key from its own
address, and refuses nobody else. Of those that wait the newest goes first: whoever comes after a
flood does not stand behind what is left of it. The bounds on waiting are kept by refusing the one
that has waited longest.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from latermq_console import clock

KEY_BURST: Final = 5  # attempts with one key from one address, before they are slowed down
KEY_EVERY_S: Final = 3.0  # between two attempts in that lane from then on
ADDRESS_BURST: Final = 20  # attempts with any key from one address
ADDRESS_EVERY_S: Final = 0.5
AT_ONCE_MAX: Final = 16  # attempts that the broker is asked about
WAITING_PER_LANE_MAX: Final = 4
WAITING_PER_ADDRESS_MAX: Final = 32
WAITING_MAX: Final = 128
WAIT_S_MAX: Final = 15.0
LOOK_S: Final = 0.1  # between two looks at who may go, while somebody waits
LANES_MAX: Final = 8_192


class TooManyAttemptsError(Exception):
    """Others came after it, or its turn did not come within WAIT_S_MAX."""


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt to sign in; `right` is set by who asked the broker."""

    address: str
    key: str
    turn: asyncio.Future[None]
    since_s: float
    right: bool = False


class Pace:
    """When the next attempt of a lane may begin. Pure: told the time."""

    def __init__(self) -> None:
        # By lane: when it would be empty again; "" as key: of all keys of the address.
        self._empty_s: OrderedDict[tuple[str, str], float] = OrderedDict()

    def may_begin(self, address: str, key: str, now_s: float) -> bool:
        """Tell whether both lanes have room."""
        return all(
            self._empty_s.get(lane, now_s) - now_s <= (burst - 1) * every_s
            for lane, burst, every_s in _lanes(address, key)
        )

    def begin(self, address: str, key: str, now_s: float) -> None:
        """Count an attempt."""
        for lane, _, every_s in _lanes(address, key):
            self._empty_s[lane] = max(now_s, self._empty_s.get(lane, now_s)) + every_s
            self._empty_s.move_to_end(lane)
        while len(self._empty_s) > LANES_MAX:
            self._empty_s.popitem(last=False)

    def give_back(self, address: str, key: str) -> None:
        """Forget an attempt that was right, and the wrong ones before it with its key."""
        self._empty_s.pop((address, key), None)
        if (address, "") in self._empty_s:
            self._empty_s[address, ""] -= ADDRESS_EVERY_S

    def backlog_s(self, address: str, key: str, now_s: float) -> float:
        """Return how far a lane is behind: the less, the sooner its turn."""
        return max(0.0, self._empty_s.get((address, key), now_s) - now_s)


class Attempts:
    """Gives turns to those who sign in."""

    def __init__(self) -> None:
        self._pace = Pace()
        self._waiting: list[Attempt] = []  # the longest waiting first
        self._under_way = 0
        self._looking: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def turn(self, address: str, key: str) -> AsyncIterator[Attempt]:
        """Wait for a turn; the block asks the broker, and sets `right`.

        Raises:
            TooManyAttemptsError: nothing was tried.
        """
        loop = asyncio.get_running_loop()
        attempt = Attempt(address, key, loop.create_future(), clock.monotonic_s())
        self._waiting.append(attempt)
        self._bound(attempt)
        self._give_turns()
        try:
            await attempt.turn
        except asyncio.CancelledError:
            if attempt in self._waiting:
                self._waiting.remove(attempt)
            elif not attempt.turn.cancelled() and attempt.turn.exception() is None:
                self._under_way -= 1  # its turn had come
                self._give_turns()
            raise
        try:
            yield attempt
        finally:
            self._under_way -= 1
            if attempt.right:
                self._pace.give_back(address, key)
            self._give_turns()

    def _bound(self, newest: Attempt) -> None:
        same_address = [each for each in self._waiting if each.address == newest.address]
        same_lane = [each for each in same_address if each.key == newest.key]
        for group, most in (
            (same_lane, WAITING_PER_LANE_MAX),
            (same_address, WAITING_PER_ADDRESS_MAX),
            (self._waiting, WAITING_MAX),
        ):
            if len(group) > most and group[0] in self._waiting:
                self._refuse(group[0])

    def _give_turns(self) -> None:
        now_s = clock.monotonic_s()
        self._waiting = [each for each in self._waiting if not each.turn.done()]  # cancelled ones
        for each in [each for each in self._waiting if now_s - each.since_s > WAIT_S_MAX]:
            self._refuse(each)
        while self._under_way < AT_ONCE_MAX:
            ready = [
                each for each in reversed(self._waiting)
                if self._pace.may_begin(each.address, each.key, now_s)
            ]  # fmt: skip
            if not ready:
                break
            self._begin(
                min(ready, key=lambda each: self._pace.backlog_s(each.address, each.key, now_s)),
                now_s,
            )
        if self._waiting and self._looking is None:
            self._looking = asyncio.ensure_future(self._look())

    def _begin(self, attempt: Attempt, now_s: float) -> None:
        self._waiting.remove(attempt)
        self._pace.begin(attempt.address, attempt.key, now_s)
        self._under_way += 1
        attempt.turn.set_result(None)

    def _refuse(self, attempt: Attempt) -> None:
        self._waiting.remove(attempt)
        if not attempt.turn.done():
            attempt.turn.set_exception(TooManyAttemptsError())

    async def _look(self) -> None:
        """Give turns as time goes on, until nobody waits."""
        try:
            while self._waiting:
                await asyncio.sleep(LOOK_S)
                self._give_turns()
        finally:
            self._looking = None


def _lanes(address: str, key: str) -> tuple[tuple[tuple[str, str], int, float], ...]:
    """Return the lanes of an attempt, each with its burst and its pace."""
    return (
        ((address, key), KEY_BURST, KEY_EVERY_S),
        ((address, ""), ADDRESS_BURST, ADDRESS_EVERY_S),
    )
