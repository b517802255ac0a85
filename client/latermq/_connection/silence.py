"""Which brokers have answered none of a session's calls for a while, since one of them failed."""

import asyncio
from collections.abc import Callable
from typing import Final

from latermq._values.endpoints import Endpoints
from latermq.errors import LaterMQError, RequestTimeoutError, UnavailableError

# So long lasts a renewed lease at least when its broker goes: it is looked at before its end.
SILENT_S: Final = 10.0


def nobody_answered(error: LaterMQError) -> bool:
    """Tell whether a call failed because there is no broker, or none that answers in time."""
    if isinstance(error, RequestTimeoutError):
        return error.grpc_code != 0  # else it is the answer
    return isinstance(error, UnavailableError)


class Silence:
    """Tells of a broker that has been silent for `SILENT_S`, and lets others wait for its end."""

    def __init__(self) -> None:
        self.tell: Callable[[Endpoints], None] | None = None  # nobody wants to know
        self._timers: dict[Endpoints, asyncio.TimerHandle] = {}
        self._ends: dict[Endpoints, asyncio.Event] = {}

    def failed(self, endpoints: Endpoints) -> None:
        """Note a call that was not answered."""
        if self.tell is not None and endpoints not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[endpoints] = loop.call_later(SILENT_S, self.tell, endpoints)
            self._ends[endpoints] = asyncio.Event()

    def heard(self, endpoints: Endpoints) -> None:
        """Note an answer."""
        if self._timers and (timer := self._timers.pop(endpoints, None)):
            timer.cancel()
            self._ends.pop(endpoints).set()

    async def over(self, endpoints: Endpoints) -> None:
        """Wait for the next answer of a broker that is silent."""
        if endpoints in self._ends:
            await self._ends[endpoints].wait()

    def close(self) -> None:
        """Tell nobody any more."""
        self.tell = None
        for timer in self._timers.values():
            timer.cancel()
