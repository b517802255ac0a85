"""What keeps old segments for a while though retention could delete them: backups that copy them.

A hold says from which position on the log is needed, and ends by itself unless it is renewed: who
copies may die. On a disk that is nearly full there is none.
"""

from itertools import count
from typing import Final

from latermq_broker.store.disk_pressure import DiskPressure

HOLD_MS: Final = 60_000
HOLDS_MAX: Final = 16  # more than that: the oldest end


class LogHolds:
    def __init__(self, disk: DiskPressure) -> None:
        self._disk = disk
        self._holds: dict[str, tuple[int, int]] = {}  # (from position, until)
        self._numbers = count(1)

    def begin(self, position: int, now_ms: int) -> str:
        """Hold the log from `position` on; the name of the hold."""
        self._expire(now_ms)
        while len(self._holds) >= HOLDS_MAX:
            del self._holds[next(iter(self._holds))]
        name = str(next(self._numbers))
        self._holds[name] = (position, now_ms + HOLD_MS)
        return name

    def keep(self, name: str, position: int, now_ms: int) -> bool:
        """Renew a hold, or end it where `position` is 0; False: there is none of the name."""
        self._expire(now_ms)
        if name not in self._holds:
            return False
        if position:
            self._holds[name] = (position, now_ms + HOLD_MS)
        else:
            del self._holds[name]
        return True

    def needs(self, end: int, now_ms: int) -> bool:
        """Tell whether a hold needs a segment that ends there."""
        if not self._holds or self._disk.low:
            return False
        self._expire(now_ms)
        return any(position < end for position, _ in self._holds.values())

    def _expire(self, now_ms: int) -> None:
        for name in [name for name, (_, until) in self._holds.items() if until <= now_ms]:
            del self._holds[name]
