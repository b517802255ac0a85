"""Deadlines by id, of half messages: arm, disarm, expire, in order and to the millisecond.

A wheel of slots, each a dict of id → deadline; only slots whose time has come are put in order.
Arming and disarming cost O(1): most end long before their deadline. Leases and backoffs, by far
more, have `row_deadlines.py`.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

_SLOT_MS: Final = 256


class Deadlines:
    """id → deadline, by deadline."""

    def __init__(self) -> None:
        self._deadline: dict[int, int] = {}
        self._slots: dict[int, set[int]] = {}
        self._slot_order: list[int] = []  # heap of slot numbers; each once, maybe empty by now
        self._open: list[tuple[int, int]] = []  # heap of the opened slots' (deadline, id)
        self._open_until = 0  # first slot number that is not opened

    def __len__(self) -> int:
        return len(self._deadline)

    def arm(self, item: int, deadline_ms: int) -> None:
        """Arm an id; one armed again moves."""
        if item in self._deadline:
            self.disarm(item)
        self._deadline[item] = deadline_ms
        slot = deadline_ms // _SLOT_MS
        if slot < self._open_until:
            heappush(self._open, (deadline_ms, item))
            return
        members = self._slots.get(slot)
        if members is None:
            self._slots[slot] = {item}
            heappush(self._slot_order, slot)
        else:
            members.add(item)

    def disarm(self, item: int) -> None:
        """Disarm an id; one that is not armed stays as it is."""
        deadline_ms = self._deadline.pop(item, None)
        if deadline_ms is None:
            return
        members = self._slots.get(deadline_ms // _SLOT_MS)
        if members is not None:
            members.discard(item)

    def expire(self, now_ms: int, count_max: int) -> list[int]:
        """Disarm up to `count_max` ids due at `now_ms`, and return them, earliest first."""
        self._open_slots(now_ms // _SLOT_MS)
        due: list[int] = []
        while self._open and len(due) < count_max:
            deadline_ms, item = self._open[0]
            if self._deadline.get(item) != deadline_ms:
                heappop(self._open)  # disarmed or moved since
            elif deadline_ms > now_ms:
                break
            else:
                heappop(self._open)
                del self._deadline[item]
                due.append(item)
        return due

    def next_deadline_ms(self) -> int | None:
        while True:
            while self._open:
                deadline_ms, item = self._open[0]
                if self._deadline.get(item) == deadline_ms:
                    return deadline_ms
                heappop(self._open)
            if not self._slot_order:
                return None
            self._open_slots(self._slot_order[0])

    def in_order(self) -> Iterator[tuple[int, int]]:
        """Yield (deadline, id), earliest first; reads only as far as it is consumed."""
        opened = [pair for pair in self._open if self._deadline.get(pair[1]) == pair[0]]
        yield from sorted(set(opened))
        for slot in sorted(self._slots):
            members = self._slots.get(slot, ())
            yield from sorted((self._deadline[item], item) for item in members)

    def forget_empty(self, now_ms: int) -> None:
        """Let go of slots before `now_ms` that nothing waits in: where nothing expires, of a
        standby, nobody else does."""
        left: list[int] = []
        for slot in self._slot_order:
            if slot < now_ms // _SLOT_MS and not self._slots[slot]:
                del self._slots[slot]
            else:
                left.append(slot)
        heapify(left)
        self._slot_order = left

    def _open_slots(self, last: int) -> None:
        """Put every slot up to number `last` in order."""
        if last < self._open_until:
            return
        assert not self._slot_order or self._slot_order[0] >= self._open_until
        self._open_until = last + 1
        opened = [pair for pair in self._open if self._deadline.get(pair[1]) == pair[0]]
        grown = False
        while self._slot_order and self._slot_order[0] <= last:
            members = self._slots.pop(heappop(self._slot_order))
            opened.extend((self._deadline[item], item) for item in members)
            grown = grown or bool(members)
        if grown:
            heapify(opened)
            self._open = opened
