"""What one group did with one topic since the start, counted where it happens.

Nothing here survives a restart, and nothing is decided by it. Replay counts nothing.
"""

from typing import Final

from latermq_broker.delivery.failure import Failure
from latermq_broker.engine.state.figures import Histogram

CLASSES_MAX: Final = 8  # failures told apart by class; those of further classes are OTHER
RARE_MAX: Final = 32  # further classes whose frequency is known, so that one may get its own count
HALF_LIFE_MS: Final = 3_600_000  # a failure of so long ago weighs half
CLASS_NAME_MAX: Final = 100  # characters of a class that are shown
OTHER: Final = "other"
LEASE_EXPIRED: Final = "lease_expired"  # nobody acknowledged in time
CLIENT_GONE: Final = "client_gone"  # nobody could: the connection broke, or the client left
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


class FailureClasses:
    """Counts failures by class: the CLASSES_MAX that are frequent lately, and all others as OTHER.

    A class that becomes at least twice as frequent as the least of those takes its place and begins
    at 0, as its failures before were counted as OTHER. The count that it replaces vanishes: added
    to OTHER it would look like that many failures at once. So no count ever goes down, and none
    counts a failure twice.
    """

    __slots__ = ("_half_lives", "_named", "_rare", "counts")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._named: dict[str, float] = {}  # weight of each that has a count, but for OTHER
        self._rare: dict[str, float] = {}  # of some that have none; a little too small, or right
        self._half_lives = 0  # passed at the last failure

    def add(self, name: str, now_ms: int) -> None:
        """Count a failure of that class."""
        self._fade(now_ms // HALF_LIFE_MS)
        if name in self._named or self._rises(name):
            self._named[name] += 1
        else:
            name = OTHER
        self.counts[name] = self.counts.get(name, 0) + 1

    def _fade(self, half_lives: int) -> None:
        if half_lives == self._half_lives:
            return
        factor = 0.5 ** min(64, max(0, half_lives - self._half_lives))
        self._half_lives = half_lives
        for weights in (self._named, self._rare):
            for name in weights:
                weights[name] *= factor

    def _rises(self, name: str) -> bool:
        """Note a failure of a class without a count; tell whether it has one from now on."""
        if name == OTHER:
            return False
        if len(self._named) < CLASSES_MAX:
            self._named[name] = 0.0
            return True
        weight = self._note_rare(name)
        least = min(self._named, key=self._named.__getitem__)
        if weight <= 2 * (self._named[least] + 1):
            return False
        del self._rare[name], self.counts[least]
        self._rare[least] = self._named.pop(least)
        self._named[name] = weight - 1
        return True

    def _note_rare(self, name: str) -> float:
        """Return how often it failed lately. A class too many makes all others less, itself as
        well: whatever has more than its share stays, and what comes once each does not pile up."""
        rare = self._rare
        if name not in rare and len(rare) >= RARE_MAX:
            self._rare = {each: weight - 1 for each, weight in rare.items() if weight > 1}
            return 0
        rare[name] = rare.get(name, 0) + 1
        return rare[name]


class Flow:
    """Deliveries, and how they ended."""

    __slots__ = (
        "acked",
        "acked_lately",
        "attempt_ms",
        "dead",
        "delivered",
        "expired_unread",
        "failed",
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
        self.failed = 0  # attempts
        self.failed_lately = LastMinute()
        self.failures = FailureClasses()
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
        self, failure: Failure | None, attempt_ms: int, now_ms: int, without: str = NOT_TOLD
    ) -> None:
        """Count a failed attempt by the class its consumer named, or else as `without`."""
        self.failed += 1
        self.failed_lately.add(1, now_ms)
        name = without
        if failure is not None and failure.class_name:
            name = failure.class_name[:CLASS_NAME_MAX]
        self.failures.add(name, now_ms)
        self.attempt_ms.observe(attempt_ms)
