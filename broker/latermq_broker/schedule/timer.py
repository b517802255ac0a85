"""What waits for its delivery time: arm, cancel, fire.

Entries are (due, position of the MESSAGE record), whatever told their time: a timestamp or a delay
level. Those of minutes that have come near are in `near.py`; the others are in `minutes.py`, in
memory and on disk. Nothing here is a task or a thread: `due` is asked, and `next_deadline_ms` says
when to ask again.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from latermq_broker.config.core_bounds import TimerBounds
from latermq_broker.schedule.minutes import Minutes, dump, load
from latermq_broker.schedule.near import Near
from latermq_broker.schedule.run_file import (
    MINUTE_MS,
    POSITION_BITS,
    Entry,
    RunFile,
    pack_entry,
    unpack_entry,
)

LOAD_LEAD_MS: Final = 10_000  # a minute is read so long before it begins

_POSITION_MASK: Final = (1 << POSITION_BITS) - 1


def _key(due_ms: int, position: int) -> int:
    """Make the key that orders as (due, position) does."""
    return due_ms << POSITION_BITS | position >> 3


def _entry(key: int) -> Entry:
    return key >> POSITION_BITS, (key & _POSITION_MASK) << 3


class Timer:
    """Waiting messages by due time; equal times fire in the order of their positions."""

    def __init__(self, bounds: TimerBounds) -> None:
        self._budget = bounds.load_entries_max
        self.far = Minutes(bounds)
        self.near = Near(bounds)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def arm(self, due_ms: int, position: int) -> None:
        """Arm an entry; its position may have been armed before, for another time or this one."""
        self._count += 1
        minute = due_ms // MINUTE_MS
        if minute >= self.far.taken_until:
            self.far.add(minute, pack_entry(due_ms, position))
        else:
            self.near.add(_key(due_ms, position))

    def arm_fresh(self, entries: Sequence[Entry]) -> None:
        """Arm many whose positions never were before; cheaper, most where much is cancelled."""
        self._count += len(entries)
        for due_ms, position in self.far.add_fresh(entries):
            self.near.add(_key(due_ms, position))

    def cancel(self, due_ms: int, position: int) -> None:
        """Cancel an entry, which must be armed; `fire`, and a replay of it, do so one by one."""
        if self._count:  # a log that nobody of ours wrote may cancel what never was armed
            self._count -= 1
        minute = due_ms // MINUTE_MS
        if minute >= self.far.taken_until:
            self.far.cancel(minute, pack_entry(due_ms, position))
        else:
            self.near.cancel(_key(due_ms, position))

    def contains(self, due_ms: int, position: int) -> bool:
        """Tell whether the entry is armed."""
        minute = due_ms // MINUTE_MS
        if minute >= self.far.taken_until:
            return self.far.holds(minute, pack_entry(due_ms, position))
        return self.near.holds(_key(due_ms, position))

    def due(
        self,
        now_ms: int,
        count_max: int,
        lanes_of: Callable[[Sequence[int]], Sequence[int]] | None = None,
    ) -> list[Entry]:
        """Return up to `count_max` entries due at `now_ms`; they stay until cancelled.

        Lanes take turns, and are in order each. `lanes_of` tells those of positions; None: all are
        in one.

        Fewer, or none, while a large minute is being read; then `next_deadline_ms` is not after
        now. When `now_ms` falls, what was due and was not cancelled is due later again.
        """
        self._bring_near((now_ms + LOAD_LEAD_MS) // MINUTE_MS)
        end = _key(now_ms + 1, 0)
        if lanes_of is None:
            return [_entry(key) for key in self.near.due(end, count_max)]

        def lanes(keys: Sequence[int]) -> Sequence[int]:
            return lanes_of([_entry(key)[1] for key in keys])

        return [_entry(key) for key in self.near.due(end, count_max, lanes)]

    def next_deadline_ms(self) -> int | None:
        """Tell when to ask `due`: not after the first entry, maybe a while before any is due."""
        near = self.near.next_ms()
        if near is not None and near < self.far.taken_until * MINUTE_MS - LOAD_LEAD_MS:
            return near
        first = self.far.first()
        if first is None:
            return near
        load_ms = first * MINUTE_MS - LOAD_LEAD_MS
        return load_ms if near is None else min(near, load_ms)

    def in_order(self, after: Entry = (-1, -1)) -> Iterator[Entry]:
        """Yield the entries greater than `after`, in order; read only as far as it is consumed."""
        for key in self.near.in_order(_key(*after) if after[0] >= 0 else -1):
            entry = _entry(key)
            if entry > after:
                yield entry
        for minute, entries in self.far.in_order(after[0] // MINUTE_MS):
            for packed in entries:
                entry = unpack_entry(minute, packed)
                if entry > after:
                    yield entry

    def between(self, low: int, high: int) -> Iterator[tuple[int, list[Entry]]]:
        """Yield (entries looked at, those with a position from `low` up to `high`), part by part.

        What is armed, or comes near, while this goes on may be missed.
        """
        first, end = low >> 3, high >> 3
        for minute, entries in self.near.by_part():
            timers = [packed for packed in entries if first <= packed & _POSITION_MASK < end]
            yield (
                len(entries),
                [
                    unpack_entry(minute, packed)
                    for packed in timers
                    if not self.near.cancelled(minute, packed)
                ],
            )
        for minute, entries in self.far.by_minute(0):
            timers = [packed for packed in entries if first <= packed & _POSITION_MASK < end]
            yield len(entries), [unpack_entry(minute, packed) for packed in timers]

    def snapshot(self) -> dict[str, bytes]:
        """Encode checkpoint sections by name; runs are saved by name, `far.freeze` comes first."""
        active, tombstones = self.far.snapshot()
        entries, cancelled = self.near.tables()
        return {
            "timer.near": array("Q", (self.far.taken_until, self._count)).tobytes(),
            "timer.coming": dump(entries),
            "timer.coming_tombstones": dump(cancelled),
            "timer.far": active,
            "timer.tombstones": tombstones,
        }

    def restore(self, sections: Mapping[str, bytes], runs: list[RunFile]) -> None:
        """Restore the sections and runs of a checkpoint into a fresh timer."""
        flat = array("Q")
        flat.frombytes(sections["timer.near"])
        self._count = flat[1]
        self.far.restore(sections["timer.far"], sections["timer.tombstones"], runs, flat[0])
        tombstones = load(sections.get("timer.coming_tombstones", b""))
        for minute, entries in load(sections.get("timer.coming", b"")).items():
            self.near.load(minute, entries, tombstones.get(minute, ()))
        for at in range(2, len(flat), 2):  # as they were saved before `timer.coming`
            self.near.add(_key(flat[at], flat[at + 1]))

    def _bring_near(self, last: int) -> None:
        """Take the minutes up to `last` from the far ones, as far as the budget goes."""
        near, far = self.near, self.far
        budget = self._budget
        while budget > 0:
            if near.loading:
                budget -= near.load_slice()
                continue
            if last < far.taken_until:
                return
            first = far.first()
            if first is None or first > last:
                far.taken_until = last + 1
                return
            near.load(first, *far.take(first))
