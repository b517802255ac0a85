"""What a server has served and refused since its start, for whoever operates it.

A count has a kind and a reason. Reasons are from a fixed set of texts, never from a client.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

STATUS: Final = "status"  # calls that ended with a gRPC status of ours other than OK
REFUSED: Final = "refused"  # requests that never became a call
FAULT: Final = "fault"  # connections we ended, by HTTP/2 error
CONNECTION: Final = "connection"  # connections that were not taken
KINDS: Final = (STATUS, REFUSED, FAULT, CONNECTION)


class Counts:
    def __init__(self) -> None:
        self.calls = 0  # begun
        self.connections = 0  # taken
        self.deadline_timers = 0  # armed now
        self._others: Counter[tuple[str, str]] = Counter()

    def add(self, kind: str, reason: str) -> None:
        self._others[kind, reason] += 1

    def of(self, kind: str) -> dict[str, int]:
        """Return the counts of a kind, by reason."""
        return {reason: count for (each, reason), count in self._others.items() if each == kind}

    @property
    def others(self) -> Mapping[tuple[str, str], int]:
        """Return what was added, by kind and reason."""
        return self._others

    def facts(self) -> dict[str, object]:
        """Gather everything that happened, for a log line."""
        return {
            "calls": self.calls,
            "connections": self.connections,
            **{kind: self.of(kind) for kind in KINDS if self.of(kind)},
        }
