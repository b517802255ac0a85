"""Timers that are due: a lane for each topic, and the lanes take turns.

Keys are those of `near.py`. A key that is handed out is in no lane until it is put back; one that
fires is cancelled. A key that is cancelled in its lane stays there, in `cancelled`, until its turn.
"""

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Final

QUANTUM: Final = 8  # timers of a lane, before the next one has its turn


class DueLanes:
    """Adds and removes keys of `cancelled`, which `near.py` has too."""

    def __init__(self, cancelled: set[int]) -> None:
        self._cancelled = cancelled
        self._lanes: dict[int, list[int]] = {}  # lane → heap of keys
        self._turns: deque[int] = deque()  # lanes, the next one first
        self._offered: dict[int, int] = {}  # key that was handed out last → its lane

    def __len__(self) -> int:
        """Count the keys in lanes, the cancelled too."""
        return sum(map(len, self._lanes.values()))

    def __iter__(self) -> Iterator[int]:
        """Yield all keys, the cancelled too."""
        yield from self._offered
        for keys in self._lanes.values():
            yield from keys

    def enter(self, lane: int, key: int) -> None:
        """Put a key into a lane."""
        keys = self._lanes.get(lane)
        if keys is None:
            self._lanes[lane] = [key]
            self._turns.append(lane)
        else:
            heappush(keys, key)

    def put_back(self) -> None:
        """Put what was handed out and not cancelled back into its lane."""
        for key, lane in self._offered.items():
            self.enter(lane, key)
        self._offered.clear()

    def hand_out(self, count_max: int) -> list[int]:
        """Take out up to `count_max` keys, lane by lane in turn, of each its first."""
        while self._turns and len(self._offered) < count_max:
            lane = self._turns[0]
            keys = self._lanes[lane]
            for _ in range(min(QUANTUM, count_max - len(self._offered))):
                if self._first_of(keys) is None:
                    break
                self._offered[heappop(keys)] = lane
            if keys:
                self._turns.rotate(-1)
            else:
                del self._lanes[self._turns.popleft()]
        return list(self._offered)

    def cancel(self, key: int) -> bool:
        """Forget a key that was handed out; False: it was not."""
        return self._offered.pop(key, None) is not None

    def step_back(self, end: int) -> list[int]:
        """Take the keys from `end` on out of their lanes: they are not due any more."""
        early: list[int] = []
        for lane, keys in self._lanes.items():
            early += [key for key in keys if key >= end]
            self._lanes[lane] = [key for key in keys if key < end]
            heapify(self._lanes[lane])
        return early

    def first(self) -> int | None:
        """Return the first key of all that is not cancelled."""
        firsts = [key for keys in self._lanes.values() if (key := self._first_of(keys)) is not None]
        return min(chain(firsts, self._offered), default=None)

    def _first_of(self, keys: list[int]) -> int | None:
        """Return the first key of a lane that is not cancelled."""
        while keys and keys[0] in self._cancelled:
            self._cancelled.remove(heappop(keys))
        return keys[0] if keys else None
