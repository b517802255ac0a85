"""The one reader of the time for the console: ages, and how long things are kept."""

import time

_NS: int = 1_000_000


def now_ms() -> int:
    """Read the wall clock, in milliseconds since the Unix epoch."""
    return time.time_ns() // _NS


def monotonic_s() -> float:
    """Read the clock that never jumps, in seconds."""
    return time.monotonic()
