"""Which user's calls are handled next: of those who wait, the one who has had least of the loop.

    little ──────────────→ handled at once, as it is read
    much in a window ────→ waits; a piece of one connection at a time, the user who had least first

Time is what the work took. Who waits for the first time, or again, begins with what the one had
whose turn was the last: nobody saves up.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from latermq_broker.background.fair_share import Charged, Line

WINDOW_NS: Final = 2_000_000
DIRECT_NS_MAX: Final = 500_000  # of one user in a window, without waiting


class Caller(Charged):
    """A user who calls."""

    __slots__ = ("direct_ns", "pieces")

    def __init__(self) -> None:
        super().__init__()
        self.direct_ns = 0  # in this window
        self.pieces: deque[Callable[[], None]] = deque()


class UserTurns:
    """
    Users are named by their access keys; a connection on which nobody signs is one of its own.

    Args:
        now_ns: reads the monotonic clock.
    """

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._callers: dict[str, Caller] = {}  # who had some of this window, or waits
        self._line: Line[Caller] = Line()
        self._count = 0
        self._window_ns = 0

    def __len__(self) -> int:
        """Count the pieces that wait."""
        return self._count

    def goes_on(self, user: str) -> bool:
        """Tell whether input of this user is handled at once."""
        now_ns = self._now_ns()
        if now_ns - self._window_ns >= WINDOW_NS:
            self._window_ns = now_ns
            if self._count:
                for each in self._callers.values():
                    each.direct_ns = 0
            else:
                self._callers.clear()
        caller = self._callers.get(user)
        return caller is None or (not caller.pieces and caller.direct_ns < DIRECT_NS_MAX)

    def do(self, user: str, piece: Callable[[bytes], None], data: bytes) -> None:
        """Handle input, and charge its user with the time that it takes."""
        began_ns = self._now_ns()
        piece(data)
        caller, took_ns = self._caller(user), self._now_ns() - began_ns
        caller.charged_ns += took_ns
        caller.direct_ns += took_ns

    def ask(self, user: str, go_on: Callable[[], None]) -> None:
        """Call `go_on` in a turn of this user; it may ask again."""
        caller = self._caller(user)
        caller.pieces.append(go_on)
        self._count += 1
        self._line.join(caller)

    def run(self, for_ns: int) -> None:
        """Do what waits, one piece at least, for so long."""
        until_ns = self._now_ns() + for_ns
        for _ in range(self._count):
            caller = self._line.take()
            self._line.served_ns = caller.charged_ns
            self._count -= 1
            piece = caller.pieces.popleft()
            try:
                piece()
            finally:
                if caller.pieces:
                    self._line.join(caller)
            if self._now_ns() >= until_ns:
                return

    def _caller(self, user: str) -> Caller:
        caller = self._callers.get(user)
        if caller is None:
            caller = self._callers[user] = Caller()
            caller.charged_ns = self._line.served_ns
        return caller
