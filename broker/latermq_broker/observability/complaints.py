"""Decides which complaints about callers the log gets: what strangers do must not fill it.

One line per address and kind in so long, and so many of all addresses. Bounded in addresses too:
beyond, those that were complained of the longest ago may be again.
"""

from collections import OrderedDict
from typing import Final

from latermq_text.places import network_of

PAUSE_MS: Final = 60_000  # between two lines of one kind about one address
LINES_MAX: Final = 120  # of all, in as long
ADDRESSES_MAX: Final = 4_096


class Complaints:
    """Those of one part of the broker."""

    def __init__(self) -> None:
        self._told_ms: OrderedDict[tuple[str, str], int] = OrderedDict()  # the last told last
        self._minute_ms = 0
        self._lines = 0

    def due(self, peer: str, kind: str, now_ms: int) -> bool:
        """Tell whether the log is to have a line of this kind about this `host:port` now."""
        key = (network_of(peer.rpartition(":")[0]), kind)
        if abs(now_ms - self._told_ms.get(key, -PAUSE_MS)) < PAUSE_MS:
            return False
        if abs(now_ms - self._minute_ms) >= PAUSE_MS:
            self._minute_ms, self._lines = now_ms, 0
        self._lines += 1
        if self._lines > LINES_MAX:
            return False
        if len(self._told_ms) >= ADDRESSES_MAX:
            self._told_ms.popitem(last=False)
        self._told_ms[key] = now_ms
        self._told_ms.move_to_end(key)
        return True
