"""How many connections there are, by address: bookkeeping without sockets or a loop.

A connection has a seat from the moment it is accepted. Each of those that may end it leaves the
seat, the first counts: the listener that gives it up, the greeting that fails, the protocol that
loses it.
"""

from collections import Counter


class Seat:
    """One connection's, at an address."""

    __slots__ = ("_seats", "host", "taken")

    def __init__(self, seats: "Seats", host: str) -> None:
        self._seats = seats
        self.host = host
        self.taken = True

    def leave(self) -> None:
        """Make room for another connection; again is harmless."""
        if self.taken:
            self.taken = False
            self._seats.left(self.host)


class Seats:
    """Those of one listener."""

    def __init__(self) -> None:
        self._of_host: Counter[str] = Counter()
        self.count = 0

    def take(self, host: str) -> Seat:
        """Count a connection in."""
        self.count += 1
        self._of_host[host] += 1
        return Seat(self, host)

    def of(self, host: str) -> int:
        """Count the seats that are taken by an address."""
        return self._of_host.get(host, 0)

    def left(self, host: str) -> None:
        """Count a connection out; called by its seat."""
        self.count -= 1
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]
        assert self.count >= 0
