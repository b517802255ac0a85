"""Connections that wait for a queue's turn: the loop's side of `Door` and `Handshakes`.

A queue decides who is next and when; here its answer is carried out, one connection in a turn of
the loop's time for newcomers (`turns.py`).
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from latermq_broker.callbacks import do_nothing
from latermq_broker.clock import monotonic_ms
from latermq_broker.transport.greetings import Greeting
from latermq_broker.transport.turns import Turns

LEFT: Final = "left before its turn"


class Queue(Protocol):
    """Who is next, and when."""

    def wait(self, address: str, item: Greeting) -> None: ...

    def leave(self, address: str, item: Greeting) -> None: ...

    def start(self, now_ms: int) -> tuple[list[Greeting], list[Greeting]]:
        """Take those whose turn it is, and those that are given up."""

    def next_ms(self, now_ms: int) -> int | None:
        """Return when to call `start` again; None: nobody waits."""


class WaitingRoom:
    """Calls a queue when the loop has a turn for newcomers, and no sooner than the queue says.

    Args:
        given_up: why a connection is closed that the queue gives up.
        then: called after each start: a place in the queue may be free.
    """

    def __init__(
        self, queue: Queue, turns: Turns, given_up: str, then: Callable[[], None] = do_nothing
    ) -> None:
        self._queue = queue
        self._turns = turns
        self._given_up = given_up
        self._then = then
        self._asked = False
        self._timer: asyncio.TimerHandle | None = None  # when a turn is to be asked for

    async def turn(self, greeting: Greeting, address: str) -> None:
        """Wait for a connection's turn; who is cancelled has to leave the queue."""
        greeting.turn = asyncio.get_running_loop().create_future()
        self._queue.wait(address, greeting)
        self.look()
        await greeting.turn

    def look(self) -> None:
        """Call the queue in a turn soon: somebody waits, or a place became free."""
        if not self._asked:
            self._asked = True
            self._turns.ask_in(self._start)

    def _start(self) -> None:
        """Let the next one begin, and look again when there may be more."""
        self._asked = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop = asyncio.get_running_loop()
        now_ms = monotonic_ms()
        started, given_up = self._queue.start(now_ms)
        for greeting in given_up:
            greeting.end(self._given_up)
        for greeting in started:
            greeting.go_on(loop)
        self._then()
        next_ms = self._queue.next_ms(now_ms)
        if next_ms is None:
            return
        if next_ms <= now_ms:
            self.look()
        else:  # or sooner, when a place becomes free
            delay_s = (next_ms - now_ms) / 1_000
            self._timer = loop.call_later(delay_s, self.look)
