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
    Those on which a user has called go first: a busy one would else fall behind for as long as many
    strangers keep asking. One of the strangers has its piece in each turn all the same.
    """

    def __init__(self, now_ms: Callable[[], int] = monotonic_ms) -> None:
        self._now_ms = now_ms
        self._known: deque[Callable[[], None]] = deque()
        self._strangers: deque[Callable[[], None]] = deque()
        self._asked = False

    def __len__(self) -> int:
        return len(self._known) + len(self._strangers)

    def ask(self, go_on: Callable[[], None], *, known: bool = False) -> None:
        """Call `go_on` when it is this connection's turn; it may ask again.

        Args:
            known: a user has called on it.
        """
        (self._known if known else self._strangers).append(go_on)
        self._schedule()

    def _schedule(self) -> None:
        if not self._asked:
            self._asked = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._asked = False
        until_ms = self._now_ms() + TURN_MS_MAX
        try:
            for waiting in (self._known, self._strangers):
                for _ in range(len(waiting)):
                    waiting.popleft()()
                    if self._now_ms() >= until_ms:
                        break
        finally:
            if self._known or self._strangers:
                self._schedule()
