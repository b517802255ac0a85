"""Which brokers have answered none of a session's calls for a while.

Either one of the calls failed, and the broker may be gone; or this process stood still itself: it
was stopped, its machine was suspended, its event loop was blocked. A suspended machine's monotonic
clock may stand still, too, so the wall clock is asked as well.
"""

import asyncio
from collections.abc import Callable
from time import time
from typing import Final

from latermq._values.endpoints import Endpoints
from latermq.errors import LaterMQError, RequestTimeoutError, UnavailableError

# So long lasts a renewed lease at least when its broker goes: it is looked at before its end.
SILENT_S: Final = 10.0
# Heartbeats, every 10 s and answered within 10 s, leave no longer gap between two answers.
STANDSTILL_S: Final = 22.0


def nobody_answered(error: LaterMQError) -> bool:
    """Tell whether a call failed because there is no broker, or none that answers in time."""
    if isinstance(error, RequestTimeoutError):
        return error.grpc_code != 0  # else it is the answer
    return isinstance(error, UnavailableError)


class Silence:
    """Tells of a broker that has been silent for `SILENT_S`, and lets others wait for its end."""

    def __init__(self) -> None:
        self.tell: Callable[[Endpoints], None] | None = None  # nobody wants to know
        self.tell_gap: Callable[[Endpoints], None] | None = None  # of an answer after a long time
        self._timers: dict[Endpoints, asyncio.TimerHandle] = {}
        self._ends: dict[Endpoints, asyncio.Event] = {}
        self._heard: dict[Endpoints, tuple[float, float]] = {}  # by the loop's and the wall clock

    def failed(self, endpoints: Endpoints) -> None:
        """Note a call that was not answered."""
        if self.tell is not None and endpoints not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[endpoints] = loop.call_later(SILENT_S, self.tell, endpoints)
            self._ends[endpoints] = asyncio.Event()

    def heard(self, endpoints: Endpoints) -> None:
        """Note an answer."""
        if self.tell_gap is not None and self.is_stale(endpoints):
            self.tell_gap(endpoints)
        self._heard[endpoints] = asyncio.get_running_loop().time(), time()
        if self._timers and (timer := self._timers.pop(endpoints, None)):
            timer.cancel()
            self._ends.pop(endpoints).set()

    def is_known(self, endpoints: Endpoints) -> bool:
        """Tell whether a call failed since the broker was heard."""
        return endpoints in self._timers

    def is_stale(self, endpoints: Endpoints) -> bool:
        """Tell whether a broker was not heard for longer than it is between two heartbeats."""
        heard = self._heard.get(endpoints)
        if heard is None:
            return False
        past_s = max(asyncio.get_running_loop().time() - heard[0], time() - heard[1])
        return past_s > STANDSTILL_S

    def stale(self) -> list[Endpoints]:
        """List the brokers that are so."""
        return [endpoints for endpoints in self._heard if self.is_stale(endpoints)]

    def forget(self, endpoints: Endpoints) -> None:
        """Forget when a broker was heard, which is gone."""
        self._heard.pop(endpoints, None)

    async def over(self, endpoints: Endpoints) -> None:
        """Wait for the next answer of a broker that is silent."""
        if endpoints in self._ends:
            await self._ends[endpoints].wait()

    def close(self) -> None:
        """Tell nobody any more."""
        self.tell = self.tell_gap = None
        for timer in self._timers.values():
            timer.cancel()
