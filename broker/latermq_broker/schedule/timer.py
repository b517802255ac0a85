"""What waits for its delivery time: arm, cancel, fire.

Entries are (due, position of the MESSAGE record), grouped by minute in packed arrays: 16 bytes
each. A minute is put in order when it comes near. Nothing here is a task or a thread: `fire` is
asked, and `next_deadline_ms` says when to ask again.
"""

from array import array
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

_MINUTE_MS: Final = 60_000

Entry = tuple[int, int]  # (due_ms, position)


class Timer:
    """Waiting messages by due time; equal times fire in the order of their positions."""

    def __init__(self) -> None:
        self._minutes: dict[int, array[int]] = {}  # minute → due, position, due, position, …
        self._minute_order: list[int] = []  # heap
        self._near: list[Entry] = []  # heap: the opened minutes
        self._near_until = 0  # first minute that is not opened
        self._cancelled: set[Entry] = set()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def arm(self, due_ms: int, position: int) -> None:
        self._count += 1
        entry = (due_ms, position)
        if entry in self._cancelled:  # still in place from before it was cancelled
            self._cancelled.remove(entry)
            return
        minute = due_ms // _MINUTE_MS
        if minute < self._near_until:
            heappush(self._near, entry)
            return
        waiting = self._minutes.get(minute)
        if waiting is None:
            waiting = self._minutes[minute] = array("Q")
            heappush(self._minute_order, minute)
        waiting.append(due_ms)
        waiting.append(position)

    def cancel(self, due_ms: int, position: int) -> None:
        """The entry must be armed: `fire`, and a replay of it, take entries out one by one."""
        entry = (due_ms, position)
        assert entry not in self._cancelled
        self._count -= 1
        if self._near and self._near[0] == entry:
            heappop(self._near)
        else:
            self._cancelled.add(entry)

    def contains(self, due_ms: int, position: int) -> bool:
        """Whether the entry is armed."""
        entry = (due_ms, position)
        if entry in self._cancelled:
            return False
        minute = due_ms // _MINUTE_MS
        return entry in (self._near if minute < self._near_until else self._entries(minute))

    def due(self, now_ms: int, count_max: int) -> list[Entry]:
        """Up to `count_max` entries at or before `now_ms`, in order; they stay until cancelled."""
        self._open_minutes(now_ms // _MINUTE_MS)
        found: list[Entry] = []
        near = self._near
        while near and len(found) < count_max and near[0][0] <= now_ms:
            entry = heappop(near)
            if entry in self._cancelled:
                self._cancelled.remove(entry)
            else:
                found.append(entry)
        for entry in reversed(found):
            heappush(near, entry)
        return found

    def next_deadline_ms(self) -> int | None:
        while True:
            while self._near:
                if self._near[0] not in self._cancelled:
                    return self._near[0][0]
                self._cancelled.remove(heappop(self._near))
            if not self._minute_order:
                return None
            self._open_minutes(self._minute_order[0])

    def in_order(self, after: Entry = (-1, -1)) -> Iterator[Entry]:
        """Entries greater than `after`, in order; reads only as far as it is consumed."""
        for entry in sorted(self._near):
            if entry > after and entry not in self._cancelled:
                yield entry
        for minute in sorted(self._minutes):
            if minute < after[0] // _MINUTE_MS:
                continue
            for entry in sorted(self._entries(minute)):
                if entry > after and entry not in self._cancelled:
                    yield entry

    def between(self, low: int, high: int) -> Iterator[tuple[int, list[Entry]]]:
        """(entries looked at, those with a position from `low` up to `high`), a minute at a time.

        What is armed, or opened, while this goes on may be missed.
        """
        near = [entry for entry in self._near if low <= entry[1] < high]
        yield len(self._near), [entry for entry in near if entry not in self._cancelled]
        for minute in list(self._minutes):
            waiting = self._minutes.get(minute)
            if waiting is None:
                continue
            found = [
                (waiting[2 * index], position)
                for index, position in enumerate(waiting[1::2])
                if low <= position < high
            ]
            yield len(waiting) // 2, [entry for entry in found if entry not in self._cancelled]

    def sweep(self, low: int, high: int) -> Iterator[int]:
        """Let go of cancelled entries with such positions, a minute at a time; those looked at."""
        for minute in list(self._minutes):
            waiting = self._minutes.get(minute, array("Q"))
            gone = {
                entry
                for entry in zip(waiting[::2], waiting[1::2], strict=True)
                if low <= entry[1] < high and entry in self._cancelled
            }
            if gone:
                kept = array("Q")
                for entry in self._entries(minute):
                    if entry not in gone:
                        kept.extend(entry)
                self._minutes[minute] = kept
                self._cancelled -= gone
            yield len(waiting) // 2

    def snapshot(self) -> bytes:
        """Pairs of u64, in no particular order."""
        flat = array("Q")
        for entry in self._near:
            if entry not in self._cancelled:
                flat.extend(entry)
        for minute in self._minutes:
            for entry in self._entries(minute):
                if entry not in self._cancelled:
                    flat.extend(entry)
        return flat.tobytes()

    def restore(self, section: bytes) -> None:
        flat = array("Q")
        flat.frombytes(section)
        for index in range(0, len(flat), 2):
            self.arm(flat[index], flat[index + 1])

    def _entries(self, minute: int) -> Iterator[Entry]:
        waiting = self._minutes.get(minute, array("Q"))
        return zip(waiting[::2], waiting[1::2], strict=True)

    def _open_minutes(self, last: int) -> None:
        if last < self._near_until:
            return
        self._near_until = last + 1
        grown = False
        while self._minute_order and self._minute_order[0] <= last:
            minute = heappop(self._minute_order)
            self._near.extend(self._entries(minute))
            del self._minutes[minute]
            grown = True
        if grown:
            heapify(self._near)
