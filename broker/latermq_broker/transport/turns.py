"""Whose work goes on next: input of connections, and connections that are new.

known       input beyond one piece, of connections on which a user has called
strangers   all input of other connections; their addresses take turns
newcomers   connections to be let in, TLS handshakes to begin
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from latermq_broker.clock import monotonic_ms

TURN_MS_MAX: Final = 2  # of all of them together, in one turn of the loop
STRANGERS_MS_MAX: Final = 1  # of strangers and newcomers, likewise
NEWCOMERS_MAX: Final = 2  # pieces in one turn: most of what each costs comes in the turns after it
CROWD: Final = 4  # pieces of strangers that wait


class Turns:
    """Gives each connection a bounded piece of work after the other.

    However many wait, users are read in between: input that fits in one piece, of a connection on
    which a user has called, never waits here. Those connections go first: a busy one would else
    fall behind for as long as many strangers keep asking. One stranger and one newcomer have their
    piece in each turn all the same.
    """

    def __init__(self, now_ms: Callable[[], int] = monotonic_ms) -> None:
        self._now_ms = now_ms
        self._known: deque[Callable[[], None]] = deque()
        self._strangers: OrderedDict[str, deque[Callable[[], None]]] = OrderedDict()  # by address
        self._strangers_count = 0
        self._newcomers: deque[Callable[[], None]] = deque()
        self._asked = False

    def __len__(self) -> int:
        return len(self._known) + self._strangers_count + len(self._newcomers)

    @property
    def is_crowded(self) -> bool:
        """Tell whether so many strangers wait that those whose clients have left are not read."""
        return self._strangers_count >= CROWD

    def ask(self, go_on: Callable[[], None], *, known: bool = False, address: str = "") -> None:
        """Call `go_on` when it is this connection's turn; it may ask again.

        Args:
            known: a user has called on it.
            address: where a stranger comes from.
        """
        if known:
            self._known.append(go_on)
        else:
            self._strangers_count += 1
            self._strangers.setdefault(address, deque()).append(go_on)
        self._schedule()

    def ask_in(self, let_in: Callable[[], None]) -> None:
        """Call `let_in`, which lets in one newcomer or begins one handshake; it may ask again."""
        self._newcomers.append(let_in)
        self._schedule()

    def _schedule(self) -> None:
        if not self._asked:
            self._asked = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._asked = False
        now_ms = self._now_ms()
        until_ms = now_ms + TURN_MS_MAX
        try:
            if self._known:
                self._run_some(self._known.popleft, len(self._known), until_ms)
                now_ms = self._now_ms()
            until_ms = min(until_ms, now_ms + STRANGERS_MS_MAX)
            self._run_some(self._next_stranger, self._strangers_count, until_ms)
            newcomers = min(len(self._newcomers), NEWCOMERS_MAX)
            self._run_some(self._newcomers.popleft, newcomers, until_ms)
        finally:
            if len(self):
                self._schedule()

    def _run_some(self, take: Callable[[], Callable[[], None]], count: int, until_ms: int) -> None:
        """Do up to `count` pieces, at least one of them, until the time is over."""
        for _ in range(count):
            take()()
            if self._now_ms() >= until_ms:
                return

    def _next_stranger(self) -> Callable[[], None]:
        """Take the oldest piece of the address whose turn it is."""
        address, pieces = self._strangers.popitem(last=False)
        piece = pieces.popleft()
        self._strangers_count -= 1
        if pieces:
            self._strangers[address] = pieces
        return piece
