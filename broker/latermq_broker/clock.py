"""The only reader of the time.

`now_ms` is wall-clock milliseconds that never run backwards and do not follow jumps of the wall
clock: the wall clock is read once, the monotonic clock counts from there.
"""

import time


class SystemClock:
    """Milliseconds since the Unix epoch, steady."""

    def __init__(self) -> None:
        self._origin_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        return (self._origin_ns + time.monotonic_ns()) // 1_000_000

    def not_before(self, floor_ms: int) -> None:
        """Never report an instant before `floor_ms`, the newest store time found on disk."""
        behind_ns = floor_ms * 1_000_000 - (self._origin_ns + time.monotonic_ns())
        if behind_ns > 0:
            self._origin_ns += behind_ns


def monotonic_ms() -> int:
    """Milliseconds of a clock that has no date; for deadlines of connections."""
    return time.monotonic_ns() // 1_000_000
