"""The console's connections: deadlines by phase, shares by address and session, who goes first.

Pure: every call is given the time in seconds of a monotonic clock. Closing a connection is done by
the function that the connection brought along.

    OPENING ─► HEAD ─► BODY ─► WORK ◄─► REPLY ─► IDLE ─► HEAD …       TLS first, clear text at HEAD

A connection ends when its phase lasts longer than DEADLINES_S, or to make room for a new one: the
half-open connections of crowded addresses first, idle ones of a signed-in person last, one whose
request is at work never.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

CONNECTIONS_MAX: Final = 1_024
CONNECTIONS_PER_ADDRESS_MAX: Final = 768
CONNECTIONS_PER_SESSION_MAX: Final = 16
CROWDED: Final = 16  # connections of an address; beyond, its connections are closed first
YOUNG_S: Final = 1.0  # a half-open connection younger than this waits for its first bytes
SESSION: Final = "latermq.session"  # of an ASGI scope: the name of the living session of a request


class Phase(Enum):
    """What a connection waits for."""

    OPENING = "the end of the TLS handshake"
    HEAD = "the rest of a request's head"
    BODY = "the rest of a request's body"
    WORK = "the console's answer"
    REPLY = "the peer to read the answer"
    IDLE = "another request"


HALF_OPEN: Final = frozenset({Phase.OPENING, Phase.HEAD, Phase.BODY})
DEADLINES_S: Final = {
    Phase.OPENING: 10.0,
    Phase.HEAD: 10.0,
    Phase.BODY: 20.0,
    Phase.REPLY: 30.0,
    Phase.IDLE: 75.0,
}  # WORK has none: calls to the broker have deadlines of their own
IDLE_UNSIGNED_S: Final = 10.0  # IDLE of a connection without a session
LONG_IDLE_S: Final = 10.0  # IDLE of a connection that makes room for another of its session


def _nothing() -> None:
    """Do nothing."""


@dataclass(slots=True, eq=False)
class Connection:
    """One accepted socket.

    Fields:
        address: as `latermq_text.places.network_of` writes it.
        since_s: when the phase began.
        session: name of that of the last request with a living one; None: no request had one.
        close: ends the connection at once.
        look: brings `phase` up to date.
    """

    address: str
    since_s: float
    close: Callable[[], object]
    phase: Phase = Phase.OPENING
    session: str | None = None
    look: Callable[[], None] = _nothing

    def enter(self, phase: Phase, now_s: float) -> None:
        """Note the phase; its deadline counts from when it began."""
        if phase is not self.phase:
            self.phase, self.since_s = phase, now_s

    def is_late(self, now_s: float) -> bool:
        """Tell whether the phase has lasted too long."""
        limit_s = DEADLINES_S.get(self.phase)
        if self.phase is Phase.IDLE and self.session is None:
            limit_s = IDLE_UNSIGNED_S
        return limit_s is not None and now_s - self.since_s > limit_s


class Connections:
    """Bounded by CONNECTIONS_MAX, and for each address and session."""

    def __init__(self) -> None:
        self._open: dict[Connection, None] = {}  # the longest there first
        self._of_address: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, address: str, now_s: float) -> Connection | None:
        """Return a new connection, having closed another one where there was no room.

        The caller sets `close` before anything else is admitted.

        Returns:
            None: every connection that could go has a request at work.
        """
        if self._of_address[address] >= CONNECTIONS_PER_ADDRESS_MAX:
            own = [each for each in self._open if each.address == address]
            if not self._close_one(own, now_s):
                return None
        elif len(self._open) >= CONNECTIONS_MAX and not self.make_room(now_s):
            return None
        connection = Connection(address, now_s, _nothing)
        self._open[connection] = None
        self._of_address[address] += 1
        return connection

    def make_room(self, now_s: float) -> bool:
        """Close the connection that is missed least; return False where none may go."""
        return self._close_one(list(self._open), now_s)

    def leave(self, connection: Connection) -> None:
        """Forget a connection that has ended; a second time nothing happens."""
        if connection in self._open:
            del self._open[connection]
            self._of_address[connection.address] -= 1
            if not self._of_address[connection.address]:
                del self._of_address[connection.address]

    def sign(self, connection: Connection, session: str, now_s: float) -> bool:
        """Note whose request came, and tell whether the connection may stay after its answer.

        Beyond the session's share one of its connections that has long been idle ends instead.
        """
        if connection.session == session:
            return True
        own = [each for each in self._open if each.session == session]
        if len(own) >= CONNECTIONS_PER_SESSION_MAX:
            idle = [each for each in own if each.phase is Phase.IDLE]
            if not self._close_one([e for e in idle if now_s - e.since_s > LONG_IDLE_S], now_s):
                return False
        connection.session = session
        return True

    def sweep(self, now_s: float) -> None:
        """Close what is beyond its deadline."""
        for each in list(self._open):
            each.look()
            if each.is_late(now_s):
                self._close(each)

    def _close_one(self, among: list[Connection], now_s: float) -> bool:
        idle = [each for each in among if each.phase is not Phase.WORK]
        if not idle:
            return False
        self._close(min(idle, key=lambda each: self._worth(each, now_s)))
        return True

    def _worth(self, each: Connection, now_s: float) -> tuple[bool, bool, bool, float]:
        """Return what orders connections: the smallest goes first."""
        half_open = each.phase in HALF_OPEN and now_s - each.since_s >= YOUNG_S
        crowded = self._of_address[each.address] > CROWDED
        return each.session is not None, not crowded, not half_open, each.since_s

    def _close(self, connection: Connection) -> None:
        self.leave(connection)
        connection.close()
