"""What happened since the start, counted where it happens: plain additions, read by whoever asks.

Nothing here survives a restart, and nothing is decided by it.
"""

from bisect import bisect_left
from typing import Final

LATENESS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 250, 500, 1_000, 5_000, 30_000, 300_000)
DURATION_MS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000)


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
        wanted = share * sum(self.counts)
        if not wanted:
            return 0.0
        seen = 0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            seen += count
            if seen >= wanted:
                return min(bound, self.largest)
        return self.largest


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
