"""How often a listener is called: so many times in so long, evenly spaced."""

import asyncio
import re
from datetime import timedelta
from typing import Final

from latermq._values.arguments import wrong
from latermq_text.durations import DURATION_MS_MAX, UNITS_MS, shown

_WORDS: Final = re.compile(r"\s*([0-9]{1,9})\s*/\s*([0-9]{0,9})\s*(ms|s|m|h|d)\s*")

LATE_S: Final = 0.01  # that a timer may be; made up for, or a high rate would not be reached


def interval_of(rate: str) -> timedelta:
    """Return what lies between two calls at a rate such as "10/s", "100/m" or "1/30s".

    Raises:
        TypeError, ValueError: no rate.
    """
    if not isinstance(rate, str):
        raise wrong("rate", 'text such as "10/s"', rate)
    match = _WORDS.fullmatch(rate)
    if match is None or not int(match[1]) or not int(match[2] or 1):
        raise ValueError(f'rate must be such as "10/s", "100/m" or "1/30s", not {shown(rate)}')
    span_ms = int(match[2] or 1) * UNITS_MS[match[3]]
    if span_ms > DURATION_MS_MAX:
        raise ValueError(f"rate is per hundred years at most, not {shown(rate)}")
    interval = timedelta(milliseconds=span_ms) / int(match[1])
    if not interval:
        raise ValueError(f"rate is a million a second at most, not {shown(rate)}")
    return interval


class Pacer:
    """Lets one call begin at a time, `interval` after the one before."""

    def __init__(self, interval: timedelta) -> None:
        self._interval_s = interval.total_seconds()
        self._next_s = 0.0

    async def turn(self) -> None:
        """Wait until the next call may begin."""
        wait_s = self._next_s - asyncio.get_running_loop().time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    def begun(self) -> None:
        """Count a call from now on: an idle time is no credit, but for what timers are late."""
        now_s = asyncio.get_running_loop().time()
        due_s = self._next_s if now_s - self._next_s < LATE_S else now_s
        self._next_s = due_s + self._interval_s
