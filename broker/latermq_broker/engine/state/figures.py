"""What happened since the start, counted where it happens: plain additions, read by whoever asks.

Nothing here survives a restart, and nothing is decided by it.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from typing import Final

LATENESS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 250, 500, 1_000, 5_000, 30_000, 300_000)
DURATION_MS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000)
RECENT_MS: Final = 300_000
MARK_MS: Final = 30_000


class Histogram:
    """How many values lay at or below each bound, and above the last."""

    __slots__ = ("bounds", "counts", "largest", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0  # of the values
        self.largest = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value
        if value > self.largest:
            self.largest = value

    def observe_some(self, value: float, count: int) -> None:
        """Count one value so many times."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count
        if value > self.largest:
            self.largest = value

    def quantile(self, share: float) -> float:
        """Find a bound that at least `share` of the values do not exceed; 0 when there are none."""
        return self.quantile_of(self.counts, share)

    def quantile_of(self, counts: Sequence[int], share: float) -> float:
        """Find the same of some of its values, counted by its bounds."""
        wanted = share * sum(counts)
        if not wanted:
            return 0.0
        seen = 0
        for bound, count in zip(self.bounds, counts, strict=False):
            seen += count
            if seen >= wanted:
                return min(bound, self.largest)
        return self.largest


class Lately:
    """What came into a histogram in the last RECENT_MS, and up to MARK_MS before.

    Of all since the start one late hour is seen for days, and after months a late minute is not.
    """

    __slots__ = ("_marks", "_whole")

    def __init__(self, whole: Histogram) -> None:
        self._whole = whole
        self._marks: deque[tuple[int, list[int]]] = deque()  # (when, its counts then)

    def mark(self, now_ms: int) -> None:
        """Remember how much it has, at times; called each second."""
        marks = self._marks
        if not marks:
            marks.append((now_ms, [0] * len(self._whole.counts)))
        elif now_ms - marks[-1][0] >= MARK_MS:
            marks.append((now_ms, list(self._whole.counts)))
        while len(marks) > 1 and now_ms - marks[1][0] >= RECENT_MS:
            marks.popleft()

    def quantile(self, share: float) -> float:
        """Find a bound that at least `share` of them do not exceed; 0 when there are none."""
        whole = self._whole
        if not self._marks:
            return whole.quantile(share)
        before = self._marks[0][1]
        counts = [now - then for now, then in zip(whole.counts, before, strict=True)]
        return whole.quantile_of(counts, share)


class Figures:
    """One of an engine; the edges add what only they can see."""

    def __init__(self) -> None:
        self.messages_sent = 0  # stored for their producers, delayed ones included
        self.messages_duplicate = 0  # not stored: their dedup id was known
        self.bytes_sent = 0  # of the log, for them
        self.messages_due = 0  # delayed ones whose time came
        self.schedule_ticks = 0  # messages that schedules have sent
        self.messages_delivered = 0  # leases, each attempt counted
        self.messages_acknowledged = 0
        self.attempts_failed = 0  # nacks and leases that ran out
        self.dead_letters = 0
        self.lateness_ms = Histogram(LATENESS_MS)  # from a due time to its reference in the log
        self.loop_lag_ms = Histogram(DURATION_MS)  # what the loop was late for a timer, by samples
        self.sync_ms = Histogram(DURATION_MS)  # of the log, from the wish to the loop knowing
        self.lateness_lately = Lately(self.lateness_ms)
        self.loop_lag_lately = Lately(self.loop_lag_ms)
        self.sync_lately = Lately(self.sync_ms)

    def on_second(self, now_ms: int) -> None:
        """Remember how it was, for what is asked of the last minutes."""
        for each in (self.lateness_lately, self.loop_lag_lately, self.sync_lately):
            each.mark(now_ms)
