"""Deadlines of one group's leases and backoffs: in order and to the millisecond.

A wheel of slots, each a ring of the slab's rows; only when a slot's time has come are its rows put
in order. Arming and disarming cost O(1), and leave nothing behind: most leases are acknowledged
long before their deadline. A row is due at its `deadline_ms`, or a bit earlier: `armed` is 1 + how
much, and 0 while it is not armed. A slot of many rows is opened in parts, one for each question.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final

from latermq_broker.delivery.leases.slab import Slab, fill

_SLOT_BITS: Final = 10
SLOT_MS: Final = 1 << _SLOT_BITS
OPENED_ROWS_MAX: Final = 4_096  # rows of a slot taken up in one go: some 3 ms
EARLY_MS_MAX: Final = (1 << 16) - 1  # below this: `armed` has 16 bits
#  (due, id) in order, as one number.
_ID_BITS: Final = 64
_ID_MASK: Final = (1 << _ID_BITS) - 1


class RowDeadlines:
    """When each armed row of a slab is due."""

    def __init__(self, slab: Slab) -> None:
        self._slab = slab
        self._count = 0
        self._rings: dict[int, int] = {}  # slot number → ring
        self._slot_order: list[int] = []  # heap of slot numbers; each once, maybe empty by now
        self._open: list[int] = []  # heap of what is due in opened slots; some of it is stale
        self._opening: list[int] = []  # what was taken up of the next slot, in no order
        self._open_until = 0  # first slot number that is not opened
        self._listed_slot = -1  # whose rows `_listed` holds in order, for the next listing
        self._listed: list[int] = []

    def __len__(self) -> int:
        return self._count

    def arm(self, rows: Sequence[int], deadline_ms: int, early_ms: int = 0) -> None:
        """Let rows that are not armed, and in no ring, be due `early_ms` before their deadline."""
        assert 0 <= early_ms < EARLY_MS_MAX
        slab = self._slab
        fill(slab.deadline_ms, rows, deadline_ms)
        fill(slab.armed, rows, 1 + early_ms)
        self._count += len(rows)
        due_ms = deadline_ms - early_ms
        slot = due_ms >> _SLOT_BITS
        if slot < self._open_until:
            for row in rows:
                heappush(self._open, due_ms << _ID_BITS | slab.id[row])
            return
        ring = self._rings.get(slot)
        if ring is None:
            ring = self._rings[slot] = slab.new_ring()
            heappush(self._slot_order, slot)
        if slot == self._listed_slot:
            self._listed_slot = -1
        slab.join(ring, rows)

    def disarm(self, row: int) -> None:
        """Disarm a row; one that is not armed stays as it is."""
        slab = self._slab
        if not slab.armed[row]:
            return
        slab.armed[row] = 0
        self._count -= 1
        assert self._count >= 0
        following, before = slab.next, slab.prev
        if following[row]:  # as `Slab.leave`
            following[before[row]] = following[row]
            before[following[row]] = before[row]
            following[row] = 0

    def disarm_all(self, rows: range) -> None:
        """Disarm rows in sequence, at once where they stand in one ring."""
        slab = self._slab
        if 0 not in slab.armed[rows.start : rows.stop] and slab.leave_all(rows):
            fill(slab.armed, rows, 0)
            self._count -= len(rows)
            assert self._count >= 0
        else:
            for row in rows:
                self.disarm(row)

    def opened(self, due_ms: int) -> bool:
        """Tell whether what is due then is in order already."""
        return due_ms >> _SLOT_BITS < self._open_until

    def slot_ms(self, due_ms: int) -> int:
        """Return when the slot of what is due then begins."""
        return due_ms >> _SLOT_BITS << _SLOT_BITS

    def expire(self, now_ms: int, count_max: int) -> list[int]:
        """Disarm up to `count_max` rows due at `now_ms`, and return them, earliest first."""
        due: list[int] = []
        while len(due) < count_max:
            if self._open:
                key = self._open[0]
                if key >> _ID_BITS > now_ms:
                    break
                heappop(self._open)
                row = self._armed_row(key >> _ID_BITS, key & _ID_MASK)
                if row:
                    self.disarm(row)
                    due.append(row)
            elif not self._open_slot(now_ms >> _SLOT_BITS):
                if self._opening:
                    break
                self._open_until = max(self._open_until, (now_ms >> _SLOT_BITS) + 1)
                break
        return due

    def next_deadline_ms(self) -> int | None:
        """Return a time before which nothing is due; of a slot not opened its begin, if later."""
        while self._open:
            key = self._open[0]
            if self._armed_row(key >> _ID_BITS, key & _ID_MASK):
                return key >> _ID_BITS
            heappop(self._open)
        slab = self._slab
        while self._slot_order:
            slot = self._slot_order[0]
            ring = self._rings[slot]
            if slab.next[ring] != ring or self._opening:
                return slot << _SLOT_BITS
            self._forget_slot(slot)
        return None

    def in_order(self, after: tuple[int, int] = (-1, -1)) -> Iterator[tuple[int, int]]:
        """Yield (due, id) beyond `after`, earliest first; reads only as far as it is consumed."""
        opened: set[int] = set()
        if after[0] >> _SLOT_BITS < self._open_until:
            opened.update(self._open)
        for key in sorted(opened):
            pair = (key >> _ID_BITS, key & _ID_MASK)
            if pair > after and self._armed_row(*pair):
                yield pair
        first = after[0] >> _SLOT_BITS
        for slot in sorted(slot for slot in self._rings if slot >= first):
            yield from self._slot_in_order(slot, after)

    def _slot_in_order(self, slot: int, after: tuple[int, int]) -> Iterator[tuple[int, int]]:
        if slot != self._listed_slot:
            keys = [due_ms << _ID_BITS | item for due_ms, item in self._in(slot)]
            if self._slot_order and slot == self._slot_order[0]:
                keys += self._opening
            self._listed = sorted(set(keys))
            self._listed_slot = slot
        listed = self._listed  # what is armed into the slot from here on is left out
        first = bisect_right(listed, (after[0] << _ID_BITS) + after[1])
        for index in range(first, len(listed)):
            pair = (listed[index] >> _ID_BITS, listed[index] & _ID_MASK)
            if self._armed_row(*pair):
                yield pair

    def _in(self, slot: int) -> Iterator[tuple[int, int]]:
        """Yield (due, id) of a slot's rows, as they came."""
        slab = self._slab
        for row in slab.members(self._rings.get(slot, 0)):
            yield slab.deadline_ms[row] + 1 - slab.armed[row], slab.id[row]

    def _armed_row(self, due_ms: int, item: int) -> int:
        """Find the row with that id if it is armed for then, else 0."""
        slab = self._slab
        row = slab.index.find(item)
        armed = slab.armed[row]
        return row if armed and slab.deadline_ms[row] + 1 - armed == due_ms else 0

    def _open_slot(self, last: int) -> bool:
        """Put the next slot in order; False: none up to number `last` is left, or, where `_opening`
        has some of it, it is not whole yet."""
        if not self._slot_order or self._slot_order[0] > last:
            return False
        slot = self._slot_order[0]
        assert slot >= self._open_until
        assert not self._open
        slab = self._slab
        ring = self._rings[slot]
        for row in islice(slab.members(ring), OPENED_ROWS_MAX):
            due_ms = slab.deadline_ms[row] + 1 - slab.armed[row]
            self._opening.append(due_ms << _ID_BITS | slab.id[row])
            slab.leave(row)
        if slot == self._listed_slot:
            self._listed_slot = -1
        if slab.next[ring] != ring:
            return False
        self._forget_slot(slot)
        self._open, self._opening = self._opening, []
        heapify(self._open)
        self._open_until = slot + 1
        return True

    def forget_empty(self, now_ms: int) -> None:
        """Let go of slots before `now_ms` that nothing waits in: where nothing expires, of a
        standby, nobody else does."""
        last = now_ms >> _SLOT_BITS
        slab = self._slab
        left: list[int] = []
        for slot in self._slot_order:
            ring = self._rings[slot]
            if slot < last and slab.next[ring] == ring and not self._opening:
                slab.give(self._rings.pop(slot))
            else:
                left.append(slot)
        heapify(left)
        self._slot_order = left

    def _forget_slot(self, slot: int) -> None:
        first = heappop(self._slot_order)
        assert first == slot
        self._slab.give(self._rings.pop(slot))
