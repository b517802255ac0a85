"""The time of day, now and as it was: how far the wall clock was ahead of the broker's own time.

Records and queue entries carry the broker's own time, which never falls. People and clients name
times of day. In between stand the steps of the wall clock, which CLOCK records tell: here, and
nowhere else, one is turned into the other, by the step that held at that time.
"""

from bisect import bisect_right
from typing import Final

STEPS_MAX: Final = 1_000  # that are remembered; times before the oldest are told by that one's past


class WallClock:
    """The edge has the engine set `ahead_ms` when the wall clock jumps."""

    def __init__(self) -> None:
        self.ahead_ms = 0  # of the broker's own time, now
        self._from_ms: list[int] = []  # own times, never falling, from which each step holds
        self._ahead_ms: list[int] = [0]  # before the first step, and from each one on

    @property
    def noted_ahead_ms(self) -> int:
        """Return how far it is ahead by the newest step that is in the log."""
        return self._ahead_ms[-1]

    def at(self, now_ms: int) -> int:
        """Return the time of day now, or that of a deadline to come."""
        return now_ms + self.ahead_ms

    def time_of_day(self, own_ms: int) -> int:
        """Return what the clock on the wall showed at a time of the broker's own; 0 stays 0."""
        if own_ms <= 0:
            return 0
        return own_ms + self._ahead_ms[bisect_right(self._from_ms, own_ms)]

    def first_at(self, wall_ms: int) -> int:
        """Return the first of the broker's own times at which the clock showed `wall_ms` or later.

        Nothing that was stored at or after that time of day lies before it. 0 and less: 0.
        """
        if wall_ms <= 0:
            return 0
        for step, ahead_ms in enumerate(self._ahead_ms[:-1]):
            own_ms = self._begin(step, wall_ms - ahead_ms)
            if own_ms < self._from_ms[step]:
                return max(own_ms, 0)
        return max(self._begin(len(self._from_ms), wall_ms - self._ahead_ms[-1]), 0)

    def last_at(self, wall_ms: int) -> int:
        """Return the last of the broker's own times at which the clock showed `wall_ms` or less.

        Nothing that was stored at or before that time of day lies behind it. -1: there is none.
        """
        for step in range(len(self._from_ms), 0, -1):
            own_ms = wall_ms - self._ahead_ms[step]
            if step < len(self._from_ms):
                own_ms = min(own_ms, self._from_ms[step] - 1)
            if own_ms >= self._from_ms[step - 1]:
                return own_ms
        own_ms = wall_ms - self._ahead_ms[0]
        return max(min(own_ms, self._from_ms[0] - 1) if self._from_ms else own_ms, -1)

    def _begin(self, step: int, own_ms: int) -> int:
        """Return a time that a step contains, or the step's beginning, if that is later."""
        return max(own_ms, self._from_ms[step - 1]) if step else own_ms

    def step(self, from_ms: int, ahead_ms: int) -> None:
        """Apply a CLOCK record."""
        assert not self._from_ms or from_ms >= self._from_ms[-1]
        if ahead_ms == self._ahead_ms[-1]:
            return
        self._from_ms.append(from_ms)
        self._ahead_ms.append(ahead_ms)
        if len(self._from_ms) > STEPS_MAX:
            del self._from_ms[0], self._ahead_ms[0]

    def steps(self) -> list[list[int]]:
        """Return what a checkpoint holds: the first offset, then each step as [from, ahead]."""
        pairs = [list(pair) for pair in zip(self._from_ms, self._ahead_ms[1:], strict=True)]
        return [[0, self._ahead_ms[0]], *pairs] if pairs else []

    def restore(self, steps: list[list[int]]) -> None:
        """Take what `steps` returned."""
        self._from_ms = [from_ms for from_ms, _ in steps[1:]]
        self._ahead_ms = [ahead_ms for _, ahead_ms in steps] or [0]
