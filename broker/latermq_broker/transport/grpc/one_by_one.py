"""Long pieces of work of many calls: one in a turn of the loop, in the order they asked."""

import asyncio
from collections import deque


class OneByOne:
    """Others are served between two of them."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._asked = False

    async def turn(self) -> None:
        """Return when the caller may begin; what it does before it awaits again is its turn."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._schedule()
        await waiter

    def _schedule(self) -> None:
        if not self._asked:
            self._asked = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._asked = False
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                break
        if self._waiting:
            self._schedule()
