"""What waits for its delivery time: arm, cancel, fire.

Entries are (due, position of the MESSAGE record). Those of minutes that have come near are in a
heap; the others are in `minutes.py`, in memory and on disk. Nothing here is a task or a thread:
`due` is asked, and `next_deadline_ms` says when to ask again.
"""

from array import array
from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush

from latermq_broker.schedule.minutes import Minutes
from latermq_broker.schedule.run_file import MINUTE_MS, Entry, RunFile, pack_entry, unpack_entry

_POSITION_BITS = 48
_POSITION_MASK = (1 << _POSITION_BITS) - 1


def _key(due_ms: int, position: int) -> int:
    """Orders as (due, position) does."""
    return due_ms << _POSITION_BITS | position >> 3


def _entry(key: int) -> Entry:
    return key >> _POSITION_BITS, (key & _POSITION_MASK) << 3


class Timer:
    """Waiting messages by due time; equal times fire in the order of their positions."""

    def __init__(self) -> None:
        self.far = Minutes()
        self._near: list[int] = []  # heap of keys: the minutes that were taken
        self._cancelled: set[int] = set()  # of the near ones
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def arm(self, due_ms: int, position: int) -> None:
        self._count += 1
        minute = due_ms // MINUTE_MS
        if minute >= self.far.taken_until:
            self.far.add(minute, pack_entry(due_ms, position))
            return
        key = _key(due_ms, position)
        if key in self._cancelled:  # still in place from before it was cancelled
            self._cancelled.remove(key)
        else:
            heappush(self._near, key)

    def cancel(self, due_ms: int, position: int) -> None:
        """The entry must be armed: `fire`, and a replay of it, take entries out one by one."""
        self._count -= 1
        minute = due_ms // MINUTE_MS
        key = _key(due_ms, position)
        if minute >= self.far.taken_until:
            self.far.cancel(minute, pack_entry(due_ms, position))
        elif self._near and self._near[0] == key:
            heappop(self._near)
        else:
            assert key not in self._cancelled
            self._cancelled.add(key)

    def contains(self, due_ms: int, position: int) -> bool:
        """Whether the entry is armed."""
        minute = due_ms // MINUTE_MS
        if minute >= self.far.taken_until:
            return self.far.holds(minute, pack_entry(due_ms, position))
        key = _key(due_ms, position)
        return key not in self._cancelled and key in self._near

    def due(self, now_ms: int, count_max: int) -> list[Entry]:
        """Up to `count_max` entries at or before `now_ms`, in order; they stay until cancelled."""
        self._bring_near(now_ms // MINUTE_MS)
        found: list[int] = []
        near = self._near
        end = _key(now_ms + 1, 0)
        while near and len(found) < count_max and near[0] < end:
            key = heappop(near)
            if key in self._cancelled:
                self._cancelled.remove(key)
            else:
                found.append(key)
        for key in reversed(found):
            heappush(near, key)
        return [_entry(key) for key in found]

    def next_deadline_ms(self) -> int | None:
        while True:
            while self._near:
                if self._near[0] not in self._cancelled:
                    return self._near[0] >> _POSITION_BITS
                self._cancelled.remove(heappop(self._near))
            first = self.far.first()
            if first is None:
                return None
            self._bring_near(first)

    def in_order(self, after: Entry = (-1, -1)) -> Iterator[Entry]:
        """Entries greater than `after`, in order; reads only as far as it is consumed."""
        for key in sorted(self._near):
            entry = _entry(key)
            if entry > after and key not in self._cancelled:
                yield entry
        for minute, entries in self.far.in_order(after[0] // MINUTE_MS):
            for packed in entries:
                entry = unpack_entry(minute, packed)
                if entry > after:
                    yield entry

    def snapshot(self) -> dict[str, bytes]:
        """Checkpoint sections by name; runs are saved by name, `far.freeze` comes first."""
        active, tombstones = self.far.snapshot()
        near = (_entry(key) for key in self._near if key not in self._cancelled)
        flat = array("Q", (self.far.taken_until, self._count))
        for entry in near:
            flat.extend(entry)
        return {"timer.near": flat.tobytes(), "timer.far": active, "timer.tombstones": tombstones}

    def restore(self, sections: Mapping[str, bytes], runs: list[RunFile]) -> None:
        """Into a fresh timer."""
        flat = array("Q")
        flat.frombytes(sections["timer.near"])
        self._count = flat[1]
        self.far.restore(sections["timer.far"], sections["timer.tombstones"], runs, flat[0])
        self._near = [_key(flat[at], flat[at + 1]) for at in range(2, len(flat), 2)]
        heapify(self._near)

    def _bring_near(self, last: int) -> None:
        """Take every minute up to `last` out of the far ones."""
        grown = False
        while (minute := self.far.first()) is not None and minute <= last:
            base = minute * MINUTE_MS << _POSITION_BITS
            self._near.extend([packed + base for packed in self.far.take(minute)])
            grown = True
        self.far.taken_until = max(self.far.taken_until, last + 1)
        if grown:
            heapify(self._near)
