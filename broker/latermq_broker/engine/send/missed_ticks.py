"""Logs that ticks of a schedule were missed: at most one line per schedule and hour.

A schedule of every second on a loaded machine misses ticks all day. The next line says how often
ticks were missed since the last one.
"""

import logging
from collections.abc import Callable
from typing import Final

log = logging.getLogger("latermq.engine")

LINE_MS: Final = 3_600_000  # of one schedule's clock: between two of its lines


class MissedTicks:
    """Bounded by the schedules there are.

    Args:
        exists: tells whether there is a schedule of a name.
    """

    def __init__(self, exists: Callable[[str], bool]) -> None:
        self._exists = exists
        self._lines: dict[str, tuple[int, int]] = {}  # when the last one was; times since then

    def note(self, name: str, from_ms: int, now_ms: int) -> None:
        """Log that ticks from `from_ms` on are not sent, or count it for the schedule's next line.

        Args:
            from_ms: the first of them, by the time of day.
            now_ms: the broker's own time.
        """
        last = self._lines.get(name)
        if last is not None and now_ms - last[0] < LINE_MS:
            self._lines[name] = (last[0], last[1] + 1)
            return
        if last is None:  # not often: what a schedule that is gone had is forgotten
            self._lines = {each: of for each, of in self._lines.items() if self._exists(each)}
        self._lines[name] = (now_ms, 0)
        log.warning(
            "schedule: ticks were missed and are not sent",
            extra={
                "schedule": name,
                "from_ms": from_ms,
                "not_logged_before": last[1] if last is not None else 0,
            },
        )
