"""What is not in order with a broker that serves: which of its parts, since when, and why.

Set by those that find out, where a log line would be all that remains of it: a checkpoint that
failed, a directory that cannot be looked at, a disk that is full. Each ends when the same look
finds it in order again. Shown by `/readyz`, `latermq health`, `latermq broker show` and the metric
`latermq_not_well`; nothing is decided by it.
"""

from enum import StrEnum
from typing import Final, NamedTuple

from latermq_broker.catalog.schedules import Schedules

CLOCK_BEHIND_MS_MAX: Final = 60_000  # of the wall clock behind the broker's own time
SCHEDULE_LATE_MS_MAX: Final = 60_000  # of a tick that was not sent


class Part(StrEnum):
    """What may be out of order."""

    CHECKPOINTS = "checkpoints"
    DIRECTORY = "directory"
    DISK = "disk"
    CLOCK = "clock"
    SCHEDULES = "schedules"


class Trouble(NamedTuple):
    """Why a part is out of order, and since when, in ms of the broker's own time."""

    since_ms: int
    reason: str


class Conditions:
    """One of an engine."""

    def __init__(self) -> None:
        self.troubles: dict[Part, Trouble] = {}

    def set(self, part: Part, reason: str | None, now_ms: int) -> bool:
        """Note what a look at a part found; None: it is in order. Tell whether that is new."""
        known = self.troubles.get(part)
        if reason is None:
            self.troubles.pop(part, None)
            return known is not None
        self.troubles[part] = Trouble(now_ms if known is None else known.since_ms, reason)
        return known is None

    def lines(self) -> list[str]:
        """List what is out of order, each in one line."""
        return [f"{part.value}: {self.troubles[part].reason}" for part in self._parts()]

    def _parts(self) -> list[Part]:
        return [part for part in Part if part in self.troubles]

    def look_at_clock(self, ahead_ms: int, now_ms: int) -> None:
        """Note a wall clock that is so far behind that times of day are not those of the log."""
        behind_ms = -ahead_ms
        reason = f"the wall clock is {behind_ms // 1_000:,} s behind the times in the log"
        self.set(Part.CLOCK, reason if behind_ms > CLOCK_BEHIND_MS_MAX else None, now_ms)

    def look_at_schedules(self, schedules: Schedules, wall_ms: int, now_ms: int) -> None:
        """Note schedules that the broker had to pause, and ticks that should have been sent."""
        late_ms = wall_ms - SCHEDULE_LATE_MS_MAX
        paused = [each.name for each in schedules.all() if each.fault]
        late = [each.name for each in schedules.due(late_ms)]
        reason = None
        if paused:
            reason = f"{len(paused)} paused, as they cannot send: {paused[0]}"
        elif late:
            reason = f"{len(late)} late by more than a minute: {late[0]}"
        self.set(Part.SCHEDULES, reason, now_ms)
