"""The only reader of the time.

Two scales, both milliseconds since the Unix epoch:

- the broker's own, `now_ms`: read from the wall clock once, counted by the monotonic clock from
  there. In one life it never runs backwards, and it follows no jump. Leases, backoffs, ages and
  whatever else lasts a while are measured on it.
- the wall clock, `now_ms + wall_offset_ms`: it jumps when somebody sets it, when a machine was
  suspended, or when this life of the broker goes on by the time of the one before, which was
  another machine's or ended later. What producers and operators name as a time of day is on it.

A jump is seen at the next look. Forward, less than `JUMP_NS` is no jump: the two are read one after
the other, and whatever comes between looks like one. Back, nothing looks like one: it is followed
from `BACK_NS` on, so that nothing is delivered earlier than that.
"""

import time
from collections.abc import Callable
from typing import Final

JUMP_NS: Final = 20_000_000
BACK_NS: Final = 1_000_000
_monotonic_ns: Final = time.monotonic_ns
_BOOTTIME: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_APART_NS: Final = 1_000_000  # the two clocks were read farther apart: no measurement


class SystemClock:
    """See the module.

    Args:
        wall_ns, monotonic_ns: the two clocks of the system.
    """

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.wall_offset_ms = 0
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._offset_ns = 0
        self._origin_ns = wall_ns() - monotonic_ns()

    def now_ms(self) -> int:
        """Read the broker's own time; has a look at the wall clock too."""
        monotonic_ns = self._monotonic_ns()
        jump_ns = self._wall_ns() - monotonic_ns - self._origin_ns - self._offset_ns
        if (
            not -BACK_NS < jump_ns < JUMP_NS
            and self._monotonic_ns() - monotonic_ns < _APART_NS  # nobody interrupted us in between
        ):
            self._offset_ns += jump_ns
            self.wall_offset_ms = self._offset_ns // 1_000_000
        return (self._origin_ns + monotonic_ns) // 1_000_000

    def wall_ms(self) -> int:
        """Read the time of day."""
        return self.now_ms() + self.wall_offset_ms

    def not_before(self, floor_ms: int) -> None:
        """Never report an instant before `floor_ms`, the newest store time found on disk."""
        if self.now_ms() < floor_ms:
            self.go_on_from(floor_ms)

    def go_on_from(self, now_ms: int) -> None:
        """Have the broker's own time be `now_ms` now, even if it was later; before a life begins.

        The wall clock stays what it is.
        """
        behind_ns = now_ms * 1_000_000 - (self._origin_ns + self._monotonic_ns())
        self._origin_ns += behind_ns
        self._offset_ns -= behind_ns
        self.wall_offset_ms = self._offset_ns // 1_000_000


def monotonic_ms() -> int:
    """Read the milliseconds of a clock that has no date; for deadlines of connections."""
    return _monotonic_ns() // 1_000_000


def monotonic_us() -> int:
    """Read the microseconds of CLOCK_MONOTONIC, as systemd compares them with its own."""
    return _monotonic_ns() // 1_000


def boot_ms() -> int:
    """Read the milliseconds of a clock without a date that counts what the machine slept, too."""
    return time.clock_gettime_ns(_BOOTTIME) // 1_000_000


def monotonic_ns() -> int:
    """Read the nanoseconds of a clock that has no date; for slices of work."""
    return _monotonic_ns()
