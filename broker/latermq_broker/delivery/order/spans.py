"""Queue offsets that are done with although older ones are not: what a group was given ahead.

A consumer takes what its filter wants past messages that another consumer of its group wants. The
group's next offset stays at the oldest that nobody was given; those behind it that were given, or
that nobody wants, are kept here as spans, 16 bytes each.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class Spans:
    """Rising spans of offsets that do not touch each other; each end is exclusive."""

    __slots__ = ("_ends", "_starts", "count")

    def __init__(self) -> None:
        self._starts = array("Q")
        self._ends = array("Q")
        self.count = 0  # offsets in all of them

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._ends, strict=True)

    def add(self, start: int, end: int) -> None:
        """Add the offsets `start` … `end` - 1."""
        assert 0 <= start < end
        starts, ends = self._starts, self._ends
        low = bisect_left(ends, start)  # the first that reaches it
        high = bisect_right(starts, end)  # behind the last that it reaches
        for index in range(low, high):
            self.count -= ends[index] - starts[index]
        if low < high:
            start, end = min(start, starts[low]), max(end, ends[high - 1])
        starts[low:high] = array("Q", (start,))
        ends[low:high] = array("Q", (end,))
        self.count += end - start

    def after(self, offset: int) -> int:
        """Find the first offset from `offset` on that is in none."""
        index = bisect_right(self._starts, offset) - 1
        if index >= 0 and offset < self._ends[index]:
            return self._ends[index]
        return offset

    def start_after(self, offset: int) -> int:
        """Find where the first span behind `offset` begins; -1: there is none."""
        index = bisect_right(self._starts, offset)
        return self._starts[index] if index < len(self._starts) else -1

    def holds(self, offset: int) -> bool:
        return self.after(offset) != offset

    def drop_below(self, offset: int) -> None:
        """Forget the offsets below `offset`."""
        index = bisect_right(self._ends, offset)
        for each in range(index):
            self.count -= self._ends[each] - self._starts[each]
        del self._starts[:index]
        del self._ends[:index]
        if self._starts and self._starts[0] < offset:
            self.count -= offset - self._starts[0]
            self._starts[0] = offset

    def count_from(self, offset: int) -> int:
        """Count the offsets from `offset` on."""
        below = 0
        for start, end in self:
            if start >= offset:
                break
            below += min(end, offset) - start
        return self.count - below
