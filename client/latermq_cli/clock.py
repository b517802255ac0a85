"""The one reader of the time for commands, and who waits for it."""

import time

_NS: int = 1_000_000


def sleep(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)


def monotonic_s() -> float:
    """Read a clock that nobody sets, in seconds."""
    return time.monotonic()


def now_ms() -> int:
    """Read the wall clock, in milliseconds since the Unix epoch."""
    return time.time_ns() // _NS
