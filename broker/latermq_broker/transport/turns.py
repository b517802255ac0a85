"""Whose work goes on next: input of connections, and connections that are new.

known       of connections on which a user has called: input beyond one piece, and input of users
            beyond their direct time (`background/user_turns.py`)
strangers   all input of other connections; their addresses take turns
newcomers   connections to be let in, TLS handshakes to begin
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from latermq_broker.background.user_turns import UserTurns
from latermq_broker.clock import monotonic_ms, monotonic_ns

TURN_MS_MAX: Final = 2  # of all of them together, in one turn of the loop
KNOWN_NS_MAX: Final = 1_000_000  # of users' pieces
STRANGERS_MS_MAX: Final = 1  # of strangers and newcomers, likewise
NEWCOMERS_MAX: Final = 2  # pieces in one turn: most of what each costs comes in the turns after it
CROWD: Final = 4  # pieces of strangers that wait


class Turns:
    """Gives each connection a bounded piece of work after the other.

    Input of a light user is handled as it is read and never queued here. Users' pieces come before
    strangers', or a flood of strangers would starve a busy user; still, each turn of the loop has
    one stranger's and one newcomer's piece.
    """

    def __init__(
        self, now_ms: Callable[[], int] = monotonic_ms, now_ns: Callable[[], int] = monotonic_ns
    ) -> None:
        self._now_ms = now_ms
        self.users = UserTurns(now_ns)
        self._strangers: OrderedDict[str, deque[Callable[[], None]]] = OrderedDict()  # by address
        self._strangers_count = 0
        self._newcomers: deque[Callable[[], None]] = deque()
        self._asked = False

    def __len__(self) -> int:
        return len(self.users) + self._strangers_count + len(self._newcomers)

    @property
    def is_crowded(self) -> bool:
        """Tell whether so many strangers wait that those whose clients have left are not read."""
        return self._strangers_count >= CROWD

    def ask(self, go_on: Callable[[], None], *, user: str = "", address: str = "") -> None:
        """Call `go_on` when it is this connection's turn; it may ask again.

        Args:
            user: who has called on it; "": a stranger's.
            address: where a stranger comes from.
        """
        if user:
            self.users.ask(user, go_on)
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
            if self.users:
                self.users.run(KNOWN_NS_MAX)
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
