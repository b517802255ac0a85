"""The one reader of the time for commands: ages and times that are shown."""

import time

_NS: int = 1_000_000


def now_ms() -> int:
    """Read the wall clock, in milliseconds since the Unix epoch."""
    return time.time_ns() // _NS
