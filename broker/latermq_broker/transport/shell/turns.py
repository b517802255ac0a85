"""Whose input goes on next: connections that were held because one read brought too much work."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from latermq_broker.clock import monotonic_ms

TURN_MS_MAX: Final = 2  # of all of them together, in one turn of the loop


class Turns:
    """Gives each connection a bounded piece of work after the other, in the order they asked.

    However many wait, others are read in between: whose input fits in one piece never waits here.
    """

    def __init__(self, now_ms: Callable[[], int] = monotonic_ms) -> None:
        self._now_ms = now_ms
        self._waiting: deque[Callable[[], None]] = deque()
        self._asked = False

    def __len__(self) -> int:
        return len(self._waiting)

    def ask(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` when it is this connection's turn; it may ask again."""
        self._waiting.append(go_on)
        self._schedule()

    def _schedule(self) -> None:
        if not self._asked:
            self._asked = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._asked = False
        until_ms = self._now_ms() + TURN_MS_MAX
        try:
            for _ in range(len(self._waiting)):
                self._waiting.popleft()()
                if self._now_ms() >= until_ms:
                    break
        finally:
            if self._waiting:
                self._schedule()
