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

TIMES_MS: Final = (
    10, 50, 100, 500, 1_000, 5_000, 30_000, 60_000, 300_000, 1_800_000, 7_200_000, 86_400_000,
)  # fmt: skip


class Flow:
    """Deliveries, and how they ended."""

    __slots__ = (
        "acked",
        "attempt_ms",
        "dead",
        "delivered",
        "expired_unread",
        "failures",
        "redriven",
        "to_ack_ms",
    )

    def __init__(self) -> None:
        self.delivered = 0  # each attempt counted
        self.acked = 0
        self.dead = 0
        self.redriven = 0  # letters given back to the group
        self.expired_unread = 0  # went by their age before the group got them
        self.failures: dict[str, int] = {}  # by class, the first CLASSES_MAX and OTHER
        self.attempt_ms = Histogram(TIMES_MS)  # from a delivery to its acknowledgement or failure
        self.to_ack_ms = Histogram(TIMES_MS)  # from a message's entry into its queue

    def acknowledge(self, count: int, attempt_ms: int, to_ack_ms: int) -> None:
        """Count messages that were acknowledged together. `to_ack_ms` below 0: it is not known."""
        self.acked += count
        self.attempt_ms.observe_some(attempt_ms, count)
        if to_ack_ms >= 0:
            self.to_ack_ms.observe_some(to_ack_ms, count)

    def fail(self, failure: Failure | None, attempt_ms: int, *, expired: bool = False) -> None:
        """Count an attempt that failed, by the class that its consumer told."""
        name = LEASE_EXPIRED if expired else NOT_TOLD
        if failure is not None and failure.class_name:
            name = failure.class_name[:CLASS_NAME_MAX]
        if name not in self.failures and len(self.failures) >= CLASSES_MAX:
            name = OTHER
        self.failures[name] = self.failures.get(name, 0) + 1
        self.attempt_ms.observe(attempt_ms)
