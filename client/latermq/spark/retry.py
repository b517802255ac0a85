"""Trying again while a broker is away.

Spark ends a query at the first error of its planner and never retries it, and a task has one life
in local mode. So a broker that restarts must be waited for here, inside the call.
"""

import random
import time
from collections.abc import Callable
from typing import Final

from latermq.spark.errors import BrokerUnreachableError

FIRST_WAIT_MS: Final = 50
WAIT_MS_MAX: Final = 2_000


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def sleep_ms(milliseconds: float) -> None:
    time.sleep(milliseconds / 1_000)


class Patience:
    """Counts failures of one call since it last made progress."""

    def __init__(
        self,
        total_ms: int,
        clock_ms: Callable[[], int] = monotonic_ms,
        sleep: Callable[[float], None] = sleep_ms,
    ) -> None:
        self._total_ms: Final = total_ms
        self._clock_ms: Final = clock_ms
        self._sleep: Final = sleep
        self._since_ms: int | None = None
        self.failure_count = 0

    def progressed(self) -> None:
        self._since_ms = None
        self.failure_count = 0

    def failed(self, call: str, reason: str) -> None:
        """Wait before the next try: 50 ms, doubling to 2 s, ± 25 %.

        Raises:
            BrokerUnreachableError: it has been failing for as long as we may wait.
        """
        now_ms = self._clock_ms()
        if self._since_ms is None:
            self._since_ms = now_ms
        left_ms = self._total_ms - (now_ms - self._since_ms)
        if left_ms <= 0:
            raise BrokerUnreachableError(
                f"{call} failed for {(now_ms - self._since_ms) / 1_000:.1f} s ({reason}); the "
                f"checkpoint is safe: start the query again when the broker is back"
            )
        wait_ms = min(FIRST_WAIT_MS << min(self.failure_count, 10), WAIT_MS_MAX)
        self.failure_count += 1
        self._sleep(min(wait_ms * random.uniform(0.75, 1.25), left_ms))
