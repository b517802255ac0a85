"""Order of users' input on the event loop: a heavy user's input waits for lighter users.

    up to DIRECT_NS_MAX in a window ──→ handled as it is read
    more ─────────────────────────────→ queued; the least charged user's oldest connection first

A user is charged with the measured time of each piece of input. A user who was idle starts at the
charge of the one served last, so idle time earns no credit.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from latermq_broker.background.fair_share import Charged, Line

WINDOW_NS: Final = 2_000_000
DIRECT_NS_MAX: Final = 500_000  # of one user in a window, without waiting


class Caller(Charged):
    """One user's charge, and the queued connections of that user."""

    __slots__ = ("direct_ns", "pieces")

    def __init__(self) -> None:
        super().__init__()
        self.direct_ns = 0  # in this window
        self.pieces: deque[Callable[[], None]] = deque()


class UserTurns:
    """Queues of connections with input left, by user.

    A user is named by an access key; an unsigned connection counts as a user by its connection id.

    Args:
        now_ns: reads the monotonic clock.
    """

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._callers: dict[
            str, Caller
        ] = {}  # with time used in this window, or with queued pieces
        self._line: Line[Caller] = Line()
        self._count = 0
        self._window_ns = 0

    def __len__(self) -> int:
        """Count the pieces that wait."""
        return self._count

    def goes_on(self, user: str) -> bool:
        """Return whether this user's input may be handled now, without a turn."""
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
        """Call `piece(data)` and charge the user with the time of the call."""
        began_ns = self._now_ns()
        piece(data)
        caller, took_ns = self._caller(user), self._now_ns() - began_ns
        caller.charged_ns += took_ns
        caller.direct_ns += took_ns

    def ask(self, user: str, go_on: Callable[[], None]) -> None:
        """Call `go_on` in a later turn of this user; `go_on` may ask again."""
        caller = self._caller(user)
        caller.pieces.append(go_on)
        self._count += 1
        self._line.join(caller)

    def run(self, for_ns: int) -> None:
        """Run queued pieces for `for_ns`, and at least one."""
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
