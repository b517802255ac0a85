"""Order within message groups: which of them may go on, in one consumer group on one topic.

A message group is blocked while anything of it is leased or waits for its backoff, or while it is
parked: one of its messages died and the consumer group wants to look at it first. The queue is not
blocked; what the fresh lane meets of a blocked message group is held back here, in order, and the
group's progress passes it. So each queue entry is looked at once, and nothing has to be searched
for again.

    live     its deliveries, in queue order: leased, in backoff, or to be received again
    held     queue offsets of what waits behind them, rising
    parked   dead letters that stop it

    runnable = live or held, and nothing leased or in backoff, and not parked

A message group that has none of the three has no entry. Message groups are known by the 64-bit hash
of their name, the order key; two that share one block each other, which keeps the order too. All of
it is derived from records; the order in which runnable ones take turns is not.
"""

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

Letter = tuple[int, int]  # dead-letter topic id, offset

_DROPPED_MIN: Final = 1_024  # taken offsets are cut off so many at a time
_STALE_FIRSTS_MIN: Final = 1_024  # of `FifoGate._firsts`, before it is made anew


class RisingOffsets:
    """Queue offsets in rising order, dropped from the front; eight bytes each."""

    __slots__ = ("_offsets", "_start")

    def __init__(self) -> None:
        self._offsets = array("Q")
        self._start = 0

    def __len__(self) -> int:
        return len(self._offsets) - self._start

    def __iter__(self) -> Iterator[int]:
        for index in range(self._start, len(self._offsets)):
            yield self._offsets[index]

    @property
    def first(self) -> int:
        assert len(self)
        return self._offsets[self._start]

    def place(self, offset: int) -> int:
        """Count the offsets before this one; -1: it is not there."""
        index = bisect_left(self._offsets, offset, self._start)
        if index == len(self._offsets) or self._offsets[index] != offset:
            return -1
        return index - self._start

    def count_below(self, end: int) -> int:
        return bisect_left(self._offsets, end, self._start) - self._start

    def add(self, offset: int) -> None:
        """Add one, mostly behind all others."""
        if not len(self) or offset > self._offsets[-1]:
            self._offsets.append(offset)
        else:
            assert self.place(offset) < 0
            insort(self._offsets, offset, self._start)

    def drop_upto(self, end: int) -> int:
        """Forget those below `end`; how many."""
        before = self._start
        self._start = bisect_left(self._offsets, end, before)
        dropped = self._start - before
        if self._start >= _DROPPED_MIN and self._start * 2 > len(self._offsets):
            del self._offsets[: self._start]
            self._start = 0
        return dropped


class MessageGroup:
    __slots__ = ("behind", "busy", "held", "live", "parked", "queue_id")

    def __init__(self) -> None:
        self.live: list[tuple[int, int]] = []  # (queue offset, delivery id)
        self.busy = 0  # of the live ones: leased, or in backoff
        self.held = RisingOffsets()
        self.queue_id = -1  # of the held ones
        self.parked: set[Letter] = set()
        self.behind = 0  # of the gate's `behind_count`

    @property
    def blocked(self) -> bool:
        return bool(self.busy or self.parked)

    def count_behind(self) -> int:
        """Count the messages behind what blocks it anew; return how many more they are."""
        before = self.behind
        self.behind = len(self.live) - self.busy + len(self.held) if self.blocked else 0
        return self.behind - before


class FifoGate:
    """All message groups of one consumer group on one topic that are not simply idle."""

    def __init__(self) -> None:
        self.groups: dict[int, MessageGroup] = {}  # by order key
        self.runnable: dict[int, None] = {}  # in the order of their turns
        self.held_count = 0
        self.behind_count = 0  # held or ready messages of blocked message groups
        self._firsts: dict[int, list[tuple[int, int]]] = {}
        """By queue id, once somebody asked: a heap of (first held offset, order key); what is no
        longer so stays in it until it comes to the top."""

    def enter(self, key: int, offset: int, delivery_id: int) -> None:
        """Begin a delivery; it is ready."""
        insort(self._group(key).live, (offset, delivery_id))
        self._settle(key)

    def lend(self, key: int, offset: int, delivery_id: int) -> None:
        """Begin a delivery; it is leased at once."""
        group = self._group(key)
        insort(group.live, (offset, delivery_id))
        group.busy += 1
        assert group.busy <= len(group.live)
        self.runnable.pop(key, None)
        self.behind_count += group.count_behind()

    def seize(self, key: int) -> None:
        """Note that a delivery that was ready is leased."""
        group = self.groups[key]
        group.busy += 1
        assert group.busy <= len(group.live)
        self.runnable.pop(key, None)
        self.behind_count += group.count_behind()

    def ease(self, key: int) -> None:
        """Note that a delivery that was leased or in backoff is ready."""
        group = self.groups[key]
        group.busy -= 1
        assert group.busy >= 0
        self._settle(key)

    def leave(self, key: int, offset: int, delivery_id: int, *, ready: bool) -> None:
        """End a delivery; `ready`: it was neither leased nor in backoff."""
        group = self.groups[key]
        group.live.remove((offset, delivery_id))
        group.busy -= not ready
        assert 0 <= group.busy <= len(group.live)
        self._settle(key)

    def hold(self, key: int, queue_id: int, offset: int) -> None:
        """Hold back a fresh message, behind what its message group has."""
        group = self._group(key)
        assert group.queue_id in (queue_id, -1)  # a message group has one queue
        group.queue_id = queue_id
        group.held.add(offset)
        if group.held.first == offset:
            self._note_first(key, group)
        self.held_count += 1
        self._settle(key)

    def unhold(self, key: int, offset: int) -> None:
        """Drop a held message that is taken or passed over, and all that was held before it."""
        group = self.groups.get(key)
        if group is not None and len(group.held):
            self._drop_held(key, group, offset + 1)

    def trim(self, queue_id: int, first: int) -> None:
        """Drop what was held below `first`: it has expired."""
        if self.held_count:
            for key, group in list(self.groups.items()):
                if group.queue_id == queue_id:
                    self._drop_held(key, group, first)

    def forget_held(self, queue_id: int) -> None:
        """Forget all held of a queue: the group's progress on it was moved at someone's wish."""
        self.trim(queue_id, 1 << 63)

    def park(self, key: int, letter: Letter) -> None:
        self._group(key).parked.add(letter)
        self._settle(key)

    def unpark(self, key: int, letter: Letter) -> None:
        self.groups[key].parked.discard(letter)
        self._settle(key)

    def letters(self) -> Iterator[Letter]:
        """Return the letters that park a message group."""
        for group in self.groups.values():
            yield from group.parked

    def first_held(self, queue_id: int) -> int | None:
        """Find the oldest offset that is held on the queue; None: none is."""
        firsts = self._firsts.get(queue_id)
        if firsts is None:
            firsts = self._firsts[queue_id] = [
                (group.held.first, key)
                for key, group in self.groups.items()
                if group.queue_id == queue_id and len(group.held)
            ]
            heapify(firsts)
        while firsts:
            offset, key = firsts[0]
            group = self.groups.get(key)
            if group is not None and group.queue_id == queue_id and group.held.first == offset:
                return offset
            heappop(firsts)
        return None

    def withheld(self, queue_id: int, end: int, count: int) -> list[tuple[int, int]]:
        """List up to `count` (order key, offset) that blocked message groups hold below `end`."""
        positions: list[tuple[int, int]] = []
        for key, group in self.groups.items():
            if group.queue_id == queue_id and group.blocked:
                for offset in group.held:
                    if offset >= end or len(positions) == count:
                        break
                    positions.append((key, offset))
        return positions

    def facts(self) -> dict[int, tuple[object, ...]]:
        """Return what recovery must bring back, for comparisons."""
        return {
            key: (group.live, group.busy, list(group.held), group.parked, key in self.runnable)
            for key, group in self.groups.items()
        }

    def _group(self, key: int) -> MessageGroup:
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = MessageGroup()
        return group

    def _note_first(self, key: int, group: MessageGroup) -> None:
        """Remember what the message group holds first, if anyone asks for such."""
        firsts = self._firsts.get(group.queue_id)
        if firsts is None:
            return
        heappush(firsts, (group.held.first, key))
        if len(firsts) > 2 * len(self.groups) + _STALE_FIRSTS_MIN:
            del self._firsts[group.queue_id]

    def _drop_held(self, key: int, group: MessageGroup, end: int) -> None:
        dropped = group.held.drop_upto(end)
        self.held_count -= dropped
        assert self.held_count >= 0
        if not len(group.held):
            group.queue_id = -1
        elif dropped:
            self._note_first(key, group)
        self._settle(key)

    def _settle(self, key: int) -> None:
        group = self.groups[key]
        self.behind_count += group.count_behind()
        if not (group.live or len(group.held)):
            self.runnable.pop(key, None)
            if not group.parked:
                del self.groups[key]
        elif group.blocked:
            self.runnable.pop(key, None)
        else:
            self.runnable.setdefault(key)
