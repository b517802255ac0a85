"""Deadlines of all groups: each has its own, and those that are due take turns.

Deficit round robin: in its turn a group ends up to `quantum` leases or backoffs for each unit of
weight. So a hundred thousand due retries of one group delay only that group. A group with nothing
due leaves the round and loses the unused rest of its turn.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush, merge
from typing import Final

from latermq_broker.delivery.leases.row_deadlines import RowDeadlines
from latermq_broker.delivery.leases.slab import Slab

QUANTUM: Final = 8  # deliveries of a turn, for each unit of weight


def equal_weight(_: int) -> int:
    """Return 1 for each group."""
    return 1


class GroupDeadlines:
    """When each armed row of a slab is due, by group."""

    def __init__(self, slab: Slab) -> None:
        self.quantum = QUANTUM  # the simulation raises it, to end leases group by group
        self._slab = slab
        self._groups: dict[int, RowDeadlines] = {}
        self._wakes: list[tuple[int, int]] = []  # heap of (when to look, group id); some are stale
        self._wake_ms: dict[int, int] = {}  # of groups that are not in turn: when to look
        self._turns: deque[int] = deque()  # groups that had something due, the next one first
        self._left: dict[int, int] = {}  # of each in turn: how many it may end before the next
        self._now_ms = 0  # when something was asked for last

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def arm(self, rows: Sequence[int], deadline_ms: int, early_ms: int = 0) -> None:
        """Let rows that are not armed, and in no ring, be due `early_ms` before their deadline."""
        group_ids = [self._group_id(rows[0])]
        if len(rows) > 1:
            values = self._slab.places.values
            places = {self._slab.place[row] for row in rows}
            group_ids = sorted({values[place].group_id for place in places})
        for group_id in group_ids:
            own = rows
            if len(group_ids) > 1:
                own = [row for row in rows if self._group_id(row) == group_id]
            deadlines = self._groups.get(group_id)
            if deadlines is None:
                deadlines = self._groups[group_id] = RowDeadlines(self._slab)
            deadlines.arm(own, deadline_ms, early_ms)
            due_ms = deadline_ms - early_ms
            if not deadlines.opened(due_ms):
                due_ms = deadlines.slot_ms(due_ms)
            self._look_at(group_id, due_ms)

    def disarm(self, row: int) -> None:
        """Disarm a row; one that is not armed stays as it is."""
        if self._slab.armed[row]:
            self._groups[self._group_id(row)].disarm(row)

    def disarm_all(self, rows: range) -> None:
        """Disarm rows in sequence, of one group."""
        deadlines = self._groups.get(self._group_id(rows.start))
        if deadlines is not None:
            deadlines.disarm_all(rows)

    def expire(
        self, now_ms: int, count_max: int, weight: Callable[[int], int] = equal_weight
    ) -> list[int]:
        """Disarm up to `count_max` rows due at `now_ms`, and return them; of each group the
        earliest first.

        Args:
            weight: of a group, by its id.
        """
        self._now_ms = now_ms
        woken: list[int] = []
        while self._wakes and self._wakes[0][0] <= now_ms:
            ms, group_id = heappop(self._wakes)
            if self._wake_ms.get(group_id) == ms:
                del self._wake_ms[group_id]
                woken.append(group_id)
        # By id: wake times depend on whether the rows came from a replay or from a checkpoint.
        for group_id in sorted(woken):
            self._turns.append(group_id)
            self._left[group_id] = 0
        expired: list[int] = []
        turns, left, done = self._turns, self._left, []
        while turns and len(expired) < count_max:
            group_id = turns[0]
            if not left[group_id]:
                left[group_id] = self.quantum * weight(group_id)
            count = min(left[group_id], count_max - len(expired))
            rows = self._groups[group_id].expire(now_ms, count)
            expired += rows
            left[group_id] -= len(rows)
            if len(rows) < count:
                done.append(self._end_turn())
            elif not left[group_id]:
                turns.rotate(-1)
        for group_id in done:
            self._look_again(group_id)
        return expired

    def next_deadline_ms(self) -> int | None:
        """Return a time before which nothing is due; within a second of the first deadline."""
        while self._turns:
            group_id = self._turns[0]
            ms = self._groups[group_id].next_deadline_ms()
            if ms is not None and ms <= self._now_ms:
                return ms
            self._end_turn()
            self._look_again(group_id)
        wakes = self._wakes
        while wakes:
            ms, group_id = wakes[0]
            if self._wake_ms.get(group_id) == ms:
                next_ms = self._groups[group_id].next_deadline_ms()
                if next_ms == ms:
                    return ms
                del self._wake_ms[group_id]
                heappop(wakes)
                self._look_again(group_id)
            else:
                heappop(wakes)
        return None

    def in_order(self, after: tuple[int, int] = (-1, -1)) -> Iterator[tuple[int, int]]:
        """Yield (due, id) beyond `after`, earliest first; reads only as far as it is consumed."""
        parts = [deadlines.in_order(after) for deadlines in self._groups.values()]
        return parts[0] if len(parts) == 1 else merge(*parts)

    def forget_empty(self, now_ms: int) -> None:
        """Let go of slots before `now_ms` that nothing waits in: where nothing expires, of a
        standby, nobody else does."""
        for group_id, deadlines in list(self._groups.items()):
            deadlines.forget_empty(now_ms)
            if group_id not in self._left and deadlines.next_deadline_ms() is None:
                del self._groups[group_id]
                self._wake_ms.pop(group_id, None)

    def _group_id(self, row: int) -> int:
        slab = self._slab
        return slab.places.values[slab.place[row]].group_id

    def _end_turn(self) -> int:
        """Take the group whose turn it is out of the line; return its id."""
        group_id = self._turns.popleft()
        del self._left[group_id]
        return group_id

    def _look_again(self, group_id: int) -> None:
        """Look at a group that is not in turn at its next deadline; forget one without any."""
        ms = self._groups[group_id].next_deadline_ms()
        if ms is None:
            del self._groups[group_id]
        else:
            self._look_at(group_id, ms)

    def _look_at(self, group_id: int, ms: int) -> None:
        if group_id in self._left:
            return
        known = self._wake_ms.get(group_id)
        if known is None or ms < known:
            self._wake_ms[group_id] = ms
            heappush(self._wakes, (ms, group_id))
