"""What one group did with one topic since the start, counted where it happens.

Nothing here survives a restart, and nothing is decided by it. Replay counts nothing.
"""

from typing import Final

from latermq_broker.delivery.failure import Failure
from latermq_broker.engine.state.figures import Histogram

CLASSES_MAX: Final = 8  # failures told apart by class; those of further classes are OTHER
CLASS_NAME_MAX: Final = 100  # characters of a class that are shown
OTHER: Final = "other"
LEASE_EXPIRED: Final = "lease_expired"  # nobody acknowledged in time
NOT_TOLD: Final = "not_told"  # the consumer failed without saying why

MINUTE_MS: Final = 60_000
TIMES_MS: Final = (
    10, 50, 100, 500, 1_000, 5_000, 30_000, 60_000, 300_000, 1_800_000, 7_200_000, 86_400_000,
)  # fmt: skip


class LastMinute:
    """How many came in the minute before now, as whole minutes and the share of the last tell."""

    __slots__ = ("_before", "_count", "_minute")

    def __init__(self) -> None:
        self._minute = 0
        self._count = 0  # in that minute
        self._before = 0  # in the one before it

    def add(self, count: int, now_ms: int) -> None:
        minute = now_ms // MINUTE_MS
        if minute != self._minute:
            self._before = self._count if minute == self._minute + 1 else 0
            self._minute, self._count = minute, 0
        self._count += count

    def per_s(self, now_ms: int) -> float:
        """Return the mean of the last 60 seconds."""
        self.add(0, now_ms)
        share = now_ms % MINUTE_MS / MINUTE_MS  # of this minute
        return (self._before * (1 - share) + self._count) / 60


class Flow:
    """Deliveries, and how they ended."""

    __slots__ = (
        "acked",
        "acked_lately",
        "attempt_ms",
        "dead",
        "delivered",
        "expired_unread",
        "failed_lately",
        "failures",
        "redriven",
        "to_ack_ms",
    )

    def __init__(self) -> None:
        self.delivered = 0  # each attempt counted
        self.acked = 0
        self.acked_lately = LastMinute()
        self.dead = 0
        self.redriven = 0  # letters given back to the group
        self.expired_unread = 0  # went by their age before the group got them
        self.failed_lately = LastMinute()
        self.failures: dict[str, int] = {}  # by class, the first CLASSES_MAX and OTHER
        self.attempt_ms = Histogram(TIMES_MS)  # from a delivery to its acknowledgement or failure
        self.to_ack_ms = Histogram(TIMES_MS)  # from a message's entry into its queue

    def acknowledge(self, count: int, attempt_ms: int, to_ack_ms: int, now_ms: int) -> None:
        """Count messages that were acknowledged together. `to_ack_ms` below 0: it is not known."""
        self.acked += count
        self.acked_lately.add(count, now_ms)
        self.attempt_ms.observe_some(attempt_ms, count)
        if to_ack_ms >= 0:
            self.to_ack_ms.observe_some(to_ack_ms, count)

    def fail(
        self, failure: Failure | None, attempt_ms: int, now_ms: int, *, expired: bool = False
    ) -> None:
        """Count an attempt that failed, by the class that its consumer told."""
        self.failed_lately.add(1, now_ms)
        name = LEASE_EXPIRED if expired else NOT_TOLD
        if failure is not None and failure.class_name:
            name = failure.class_name[:CLASS_NAME_MAX]
        if name not in self.failures and len(self.failures) >= CLASSES_MAX:
            name = OTHER
        self.failures[name] = self.failures.get(name, 0) + 1
        self.attempt_ms.observe(attempt_ms)
