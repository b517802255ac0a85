"""Timers whose minute has come near: cut by second, merged when their second opens.

    minute taken ─► loading ─► a second's chunks ──┐
    armed ────────────────────► its fresh entries ─┴─► open: one second, merged ─► lanes ─► fired
                                                   late: armed for the open second or before ─┘

Eight bytes an entry until it is ready, and never much work at once: a minute is taken apart a slice
at a time, a chunk is sorted when it is full, a second is merged as far as it is asked for. So a
million timers of one instant hold nobody up. What is due stands in a lane for each topic, and the
lanes take turns: a million timers of one topic stand in front of its own only.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush, merge
from itertools import chain
from typing import Final

from latermq_broker.config.core_bounds import TimerBounds
from latermq_broker.schedule.due_lanes import DueLanes
from latermq_broker.schedule.run_file import MINUTE_MS, POSITION_BITS, pack_entry

SECOND_MS: Final = 1_000
SECONDS: Final = MINUTE_MS // SECOND_MS
OPEN_LEAD_MS: Final = 50
SORTED_TIMES: Final = 8  # so many times what is fired in one go is put in lanes

LanesOf = Callable[[Sequence[int]], Sequence[int]]  # keys → lane of each

_SECOND: Final = SECOND_MS << POSITION_BITS  # in keys, and in packed entries
_MINUTE: Final = MINUTE_MS << POSITION_BITS


class Near:
    """Keys order as (due, position): `due_ms << 48 | position >> 3`."""

    def __init__(self, bounds: TimerBounds) -> None:
        self._slice, self._chunk = bounds.slice_entries_max, bounds.chunk_entries_max
        self._loading: deque[tuple[int, array[int]]] = deque()  # (minute, what is left of it)
        self._chunks: dict[int, list[array[int]]] = {}  # second → sorted entries
        self._fresh: dict[int, array[int]] = {}  # second → entries as they came
        self._order: list[int] = []  # heap of the seconds in both
        self._opened = -1  # the second that was opened last
        self._open: list[array[int]] = []  # its chunks
        self._merged: Iterator[int] = iter(())  # … in order, less what was taken
        self._head: int | None = None  # key of the first that is left of them
        self._late: list[int] = []  # heap of keys
        self._end = 0  # what `due` was asked for last
        self._cancelled: set[int] = set()  # keys that stay in place
        self._lanes = DueLanes(self._cancelled)

    # --- in and out ----------------------------------------------------------------------------

    def load(self, minute: int, entries: "array[int]", cancelled: Iterable[int]) -> None:
        """Load a minute's entries, in no order, some of them cancelled. Minutes come in order."""
        base = minute * _MINUTE
        self._cancelled.update(packed + base for packed in cancelled)
        if entries:
            self._loading.append((minute, entries))

    def add(self, key: int) -> None:
        if key in self._cancelled:  # still in place from before it was cancelled
            self._cancelled.remove(key)
            return
        second = (key >> POSITION_BITS) // SECOND_MS
        if second <= self._opened:
            heappush(self._late, key)
        else:
            self._add_fresh(second, key - second // SECONDS * _MINUTE)

    def _add_fresh(self, second: int, packed: int) -> None:
        fresh = self._fresh.get(second)
        if fresh is None:
            fresh = self._fresh[second] = array("Q")
            heappush(self._order, second)
        fresh.append(packed)
        if len(fresh) == self._chunk:
            self._add_chunk(second, array("Q", sorted(fresh)))
            del fresh[:]

    def _add_chunk(self, second: int, chunk: "array[int]") -> None:
        chunks = self._chunks.get(second)
        if chunks is None:
            self._chunks[second] = [chunk]
            heappush(self._order, second)
        else:
            chunks.append(chunk)

    def cancel(self, key: int) -> None:
        """Cancel the entry of a key, which must be here."""
        if self._lanes.cancel(key):
            return
        if self._late and self._late[0] == key:
            heappop(self._late)
        else:
            assert key not in self._cancelled
            self._cancelled.add(key)

    # --- time ----------------------------------------------------------------------------------

    @property
    def loading(self) -> bool:
        """Tell whether minutes were loaded that are not yet taken apart."""
        return bool(self._loading)

    def load_slice(self) -> int:
        """Take a bit of what was loaded apart, by second; return how many entries that were."""
        minute, entries = self._loading[0]
        part = array("Q", sorted(entries[-self._slice :]))
        del entries[-self._slice :]
        if not entries:
            self._loading.popleft()
        low = 0
        while low < len(part):
            second = part[low] // _SECOND
            high = bisect_left(part, (second + 1) * _SECOND, low)
            self._add_chunk(minute * SECONDS + second, part[low:high])
            low = high
        return len(part)

    def due(self, end: int, count_max: int, lanes_of: LanesOf | None = None) -> list[int]:
        """Return up to `count_max` keys below `end`; they stay until cancelled.

        Lanes take turns; of each its earliest come first. Fewer, or none, while minutes are still
        loading.

        Args:
            lanes_of: puts keys in lanes; None: all in one.
        """
        self._lanes.put_back()
        if end < self._end:  # the clock was set back: some are not due any more
            for key in self._lanes.step_back(end):
                heappush(self._late, key)
        self._end = end
        fresh: list[int] = []
        known, most = len(self._lanes), count_max if lanes_of is None else SORTED_TIMES * count_max
        while lanes_of is None or len(fresh) < most:
            late = bool(self._late) and self._late[0] < end
            if lanes_of is None and not late and known + len(fresh) >= most:
                break  # no more than needed
            first = self._take_first(end)
            if first is None:
                break
            if first in self._cancelled:
                self._cancelled.remove(first)
            else:
                fresh.append(first)
        for key, lane in zip(fresh, lanes_of(fresh) if lanes_of else [0] * len(fresh), strict=True):
            self._lanes.enter(lane, key)
        return self._lanes.hand_out(count_max)

    def next_ms(self) -> int | None:
        """Return when to ask `due`: not after the first, nor long before; None: nothing is here.

        Long past while there is something to load.
        """
        due = self._lanes.first()
        if due is not None:
            return (
                min(due, *self._late[:1]) >> POSITION_BITS if self._late else due >> POSITION_BITS
            )
        while self._late and self._late[0] in self._cancelled:
            self._cancelled.remove(heappop(self._late))
        while self._head is not None and self._head in self._cancelled:
            self._cancelled.remove(self._head)
            self._advance()
        if self._loading:
            return 0
        first = self._late[0] >> POSITION_BITS if self._late else None
        if self._head is not None:
            head = self._head >> POSITION_BITS
        elif (second := self._first_second()) is not None:
            head = second * SECOND_MS - OPEN_LEAD_MS
        else:
            return first
        return head if first is None or head < first else first

    def _take_first(self, end: int) -> int | None:
        """Take out the first key below `end` that is in no lane; None: there is none."""
        while self._head is None and self._open_next(end):
            pass
        head, late = self._head, self._late
        if late and (head is None or late[0] < head):
            return heappop(late) if late[0] < end else None
        if head is None or head >= end:
            return None
        self._advance()
        return head

    def _first_second(self) -> int | None:
        order = self._order
        while order and order[0] not in self._chunks and order[0] not in self._fresh:
            heappop(order)
        return order[0] if order else None

    def _open_next(self, end: int) -> bool:
        """Open the next second if it is time and it is whole; tell whether it was."""
        second = self._first_second()
        if second is None or second * SECOND_MS - OPEN_LEAD_MS > end >> POSITION_BITS:
            return False
        if self._loading and self._loading[0][0] <= second // SECONDS:
            return False
        self._opened = second
        self._open = self._chunks.pop(second, [])
        fresh = self._fresh.pop(second, None)
        if fresh:
            self._open.append(array("Q", sorted(fresh)))
        self._merged = iter(self._open[0]) if len(self._open) == 1 else merge(*self._open)
        self._advance()
        return True

    def _advance(self) -> None:
        packed = next(self._merged, None)
        if packed is None:
            self._open, self._head = [], None
        else:
            self._head = packed + self._opened // SECONDS * _MINUTE

    # --- looking -------------------------------------------------------------------------------

    def holds(self, key: int) -> bool:
        if key in self._cancelled:
            return False
        if key in chain(self._lanes, self._late):
            return True
        minute = (key >> POSITION_BITS) // MINUTE_MS
        packed = key - minute * _MINUTE
        return any(packed in entries for other, entries in self._arrays() if other == minute)

    def tables(self) -> tuple[dict[int, "array[int]"], dict[int, "array[int]"]]:
        """Gather (entries, those of them that are cancelled), by minute, in no order."""
        tables: dict[int, array[int]] = {}
        for minute, entries in self._arrays():
            tables.setdefault(minute, array("Q")).extend(entries)
        for key in chain(self._lanes, self._late):
            _put(tables, key)
        cancelled: dict[int, array[int]] = {}
        for key in self._cancelled:
            _put(cancelled, key)
        return tables, cancelled

    def by_part(self) -> Iterator[tuple[int, "array[int]"]]:
        """Yield (minute, some of its entries, the cancelled too); each entry that stays, once."""
        rest: dict[int, array[int]] = {}
        for key in chain(self._lanes, self._late):
            _put(rest, key)
        yield from [*rest.items(), *self._arrays()]

    def cancelled(self, minute: int, packed: int) -> bool:
        return bool(self._cancelled) and packed + minute * _MINUTE in (self._cancelled)

    def in_order(self, after: int) -> Iterator[int]:
        """Yield the keys above `after`, in order; read little more than what is consumed."""
        early = [key for key in chain(self._lanes, self._late) if key > after]
        by_second: dict[int, list[int]] = {}
        for key in early:
            by_second.setdefault((key >> POSITION_BITS) // SECOND_MS, []).append(key)
        for minute, entries in self._loading:
            base = minute * _MINUTE
            for packed in entries:
                second = minute * SECONDS + packed // _SECOND
                by_second.setdefault(second, []).append(packed + base)
        first = (after >> POSITION_BITS) // SECOND_MS if after > 0 else 0
        seconds = {*by_second, *self._chunks, *self._fresh}
        if self._head is not None:
            seconds.add(self._opened)
        for second in sorted(second for second in seconds if second >= first):
            base = second // SECONDS * _MINUTE
            keys = by_second.get(second, [])
            parts = [*self._chunks.get(second, ()), self._fresh.get(second, ())]
            if second == self._opened and self._head is not None:
                parts += self._open_rest()
            for part in parts:
                keys.extend([packed + base for packed in part])
            for key in sorted(keys):
                if key > after and key not in self._cancelled:
                    yield key

    def _arrays(self) -> Iterator[tuple[int, "array[int]"]]:
        """Yield (minute, entries) of all but those in lanes and in `_late`."""
        if self._head is not None:
            for rest in self._open_rest():
                yield self._opened // SECONDS, rest
        for second in list(self._chunks):
            for chunk in self._chunks.get(second, ()):
                yield second // SECONDS, chunk
        for second in list(self._fresh):
            fresh = self._fresh.get(second)
            if fresh:
                yield second // SECONDS, fresh
        yield from list(self._loading)

    def _open_rest(self) -> Iterator["array[int]"]:
        """Return what is left of the open second, `_head` included."""
        assert self._head is not None
        head = self._head - self._opened // SECONDS * _MINUTE
        for chunk in self._open:
            yield chunk[bisect_right(chunk, head - 1) :]


def _put(table: dict[int, "array[int]"], key: int) -> None:
    due_ms = key >> POSITION_BITS
    position = (key & (1 << POSITION_BITS) - 1) << 3
    table.setdefault(due_ms // MINUTE_MS, array("Q")).append(pack_entry(due_ms, position))
