"""Answers of one connection that the client itself has not proved to have.

    sent whole ──→ new ──PING, after a second──→ asked ──its answer──→ proved
                    └──────────── the connection breaks ────────────→ unheard

A kernel acknowledges what a load balancer took and never passed on. What answers a PING is who
speaks HTTP/2, after it has read all that was sent before. A proxy that speaks HTTP/2 itself answers
for its client: there only the repeated attempt id tells of a lost reply.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from latermq_broker.transport.unconfirmed import Timer, give_up

ASK_S: Final = 1.0  # from an answer to the PING behind it
ASKED_FROM: Final = 64  # answers that wait for a PING and get it at once
KEPT_MAX: Final = 1_024  # answers of a connection; the oldest of more count as proved


class Unheard:
    """Keeps what is to be done for answers of one connection until its client has them.

    Args:
        later: has something done after so many seconds.
        ping: sends a PING whose answer calls `heard`.
    """

    __slots__ = ("_asked", "_is_asked", "_later", "_new", "_ping", "_timer")

    def __init__(
        self,
        later: Callable[[float, Callable[[], None]], Timer],
        ping: Callable[[], None],
    ) -> None:
        self._later = later
        self._ping = ping
        self._is_asked = False
        self._timer: Timer | None = None
        self._new: deque[Callable[[], None]] = deque(maxlen=KEPT_MAX)
        self._asked: deque[Callable[[], None]] = deque(maxlen=KEPT_MAX)

    def __len__(self) -> int:
        return len(self._new) + len(self._asked)

    def add(self, unheard: Callable[[], None]) -> None:
        """Keep what is to be done if the connection breaks before its client has an answer."""
        self._new.append(unheard)
        if self._is_asked:
            return
        if len(self._new) >= ASKED_FROM:
            self.ask()
        elif self._timer is None:
            self._timer = self._later(ASK_S, self.ask)

    def heard(self) -> None:
        """Take what was sent before the last PING for proved: its answer came."""
        self._is_asked = False
        self._asked.clear()
        if self._new and self._timer is None:
            self._timer = self._later(ASK_S, self.ask)

    def forget(self) -> None:
        """Take all for proved: the connection ends in order, by us."""
        self._stop()
        self._new.clear()
        self._asked.clear()

    def lose(self) -> None:
        """Do what is to be done for what is not proved: the connection is lost."""
        self._stop()
        for kept in (self._asked, self._new):
            while kept:
                give_up(kept.popleft())

    def ask(self) -> None:
        """Ask now whether what was sent has arrived; nothing if nothing waits for that."""
        self._stop()
        if not self._new or self._is_asked:
            return
        self._is_asked = True
        self._asked.extend(self._new)
        self._new.clear()
        self._ping()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
