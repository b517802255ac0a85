"""The order in which requests begin: few in one turn of the loop, sessions and addresses by turns.

Many requests that arrive together would all begin in one turn of the loop, which nobody else's page
gets past. A request that has begun holds nothing here, so slow ones keep nobody waiting.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Final

from latermq_console.serving.headers import App, Receive, Scope, Send

BEGIN_AT_ONCE_MAX: Final = 2  # requests in one turn of the loop


class Turns:
    """An ASGI application whose requests begin by turns; `whose` names a session or an address."""

    def __init__(self, app: App, whose: Callable[[Scope], Hashable]) -> None:
        self._app = app
        self._whose = whose
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()
        self._begun = 0  # in this turn of the loop
        self._armed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._turn(self._whose(scope))
        await self._app(scope, receive, send)

    async def _turn(self, whose: Hashable) -> None:
        loop = asyncio.get_running_loop()
        if not self._armed:
            self._armed = True
            loop.call_soon(self._next)
        if self._begun < BEGIN_AT_ONCE_MAX and not self._waiting:
            self._begun += 1
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(whose, deque()).append(turn)
        await turn

    def _next(self) -> None:
        """Begin a new turn of the loop."""
        self._begun, self._armed = 0, False
        while self._waiting and self._begun < BEGIN_AT_ONCE_MAX:
            whose, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[whose] = turns  # behind the others
            if not turn.done():
                turn.set_result(None)
                self._begun += 1
        if self._waiting or self._begun:
            self._armed = True
            asyncio.get_running_loop().call_soon(self._next)
