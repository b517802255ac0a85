"""Requests of one user at work: a few at once, a bounded number behind them, in order."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

AT_ONCE_MAX: Final = 12
WAITING_MAX: Final = 64


class TooManyRequestsError(Exception):
    """AT_ONCE_MAX requests of the user are at work, and WAITING_MAX wait behind them."""


@dataclass(slots=True)
class _Place:
    """One user's requests."""

    at_work: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class Gate:
    """Kept for users with a request at work only."""

    def __init__(self) -> None:
        self._places: dict[Hashable, _Place] = {}

    @asynccontextmanager
    async def of(self, who: Hashable) -> AsyncIterator[None]:
        """Let one more request of `who` work, when its turn comes. Raises TooManyRequestsError."""
        place = self._places.setdefault(who, _Place())
        if place.at_work >= AT_ONCE_MAX:
            await self._wait(who, place)
        else:
            place.at_work += 1
        try:
            yield
        finally:
            self._leave(who, place)

    async def _wait(self, who: Hashable, place: _Place) -> None:
        """Wait for the place of a request that has ended."""
        if len(place.waiting) >= WAITING_MAX:
            raise TooManyRequestsError
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place.waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in place.waiting:
                place.waiting.remove(turn)
            elif not turn.cancelled():
                self._leave(who, place)  # its turn had come
            raise

    def _leave(self, who: Hashable, place: _Place) -> None:
        self._hand_on(place)
        if not place.at_work and self._places.get(who) is place:
            del self._places[who]

    def _hand_on(self, place: _Place) -> None:
        """Give the place of a request to the one that has waited longest."""
        while place.waiting:
            turn = place.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        place.at_work -= 1
