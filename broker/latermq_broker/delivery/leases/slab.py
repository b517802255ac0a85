"""Deliveries as rows of columns: 90 bytes each, and 4 in each index, by id and by message.

An object with its attributes in a dict or in slots takes five times as much, and a million of them
make the collector slow. Here a row is an index into columns. Rows are given back to a free list and
used again; row 0 is none. Free rows that lie side by side are one entry of that list, so that what
is lent together gets rows in sequence, a `range`: its columns are written in slices. Row by row, to
receive 32 and acknowledge them takes 28 to 30 % more of a compiled broker (docs/transport.md), and
a lone message no less. What many rows have in common is kept once, in `places` and `holders`.

A row is in at most one ring: that of the deadline it waits for, or of the lane it stands in. A ring
is a list linked both ways through two columns, closed over a row of its own that is no delivery; so
a row joins and leaves in four assignments, and nothing stale stays behind.

What a delivery means, and how it may change, is in `lease.py` and `leases.py`. Nothing here
decides anything.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Final

from latermq_broker.delivery.leases.columns import Column, Numbers
from latermq_broker.delivery.leases.id_index import IdIndex
from latermq_broker.delivery.leases.origin_index import OriginIndex
from latermq_broker.delivery.leases.shared import NOBODY, DeliveryKey, Holder, Shared

_ROWS_MIN: Final = 1 << 12
ROWS_MAX: Final = 1 << 32  # a link to a row has 32 bits
RUN_ROWS_MIN: Final = 8  # given back together, and lent together again
RUN_ROWS_MAX: Final = 64  # given back one by one
FEW_ROWS_MAX: Final = 1 << 10  # in shorter runs; with more of them nobody gets new rows

#  Column types: what checkpoints keep, in their order (docs/store-format.md), and what is derived.
KEPT_COLUMNS: Final = {
    "id": "Q", "position": "Q", "deadline_ms": "Q", "leased_ms": "Q",
    "last_attempt": "Q", "first_attempt": "Q",
    "offset": "I", "length": "I", "generation": "I", "place": "I", "holder": "I",
    "attempt": "H", "state": "B", "renewals": "B",
}  # fmt: skip
_DERIVED_COLUMNS: Final = {
    "armed": "H", "next": "I", "prev": "I", "chain": "I", "origin_chain": "I",
}  # fmt: skip


RENEWALS_MAX: Final = 253  # counted no further
LOST: Final = 254  # in `renewals`: the lease is renewed no more, its holder is gone
BOUNDED: Final = 255  # in `renewals`: the lease is renewed no more


def fill(column: Numbers, rows: Sequence[int], number: int) -> None:
    """Write one number into each of those rows of a column."""
    if isinstance(rows, range):
        column[rows.start : rows.stop] = array(column.format, (number,)) * len(rows)
        return
    for index in range(len(rows)):
        column[rows[index]] = number


def put(column: Numbers, rows: Sequence[int], numbers: Sequence[int]) -> None:
    """Put a number in each of those rows."""
    assert len(rows) == len(numbers)
    if isinstance(rows, range):
        column[rows.start : rows.stop] = array(column.format, numbers)
        return
    for index in range(len(rows)):
        column[rows[index]] = numbers[index]


class Slab:
    """The columns are public, for speed: whoever writes `id`, `place`, `holder`, `state` or a link
    otherwise than through the functions here and in `leases.py`, `renewals.py` (holder) and
    `row_deadlines.py` (links) breaks the slab."""

    id: Numbers
    position: Numbers
    deadline_ms: Numbers
    leased_ms: Numbers
    last_attempt: Numbers
    first_attempt: Numbers
    offset: Numbers
    length: Numbers
    generation: Numbers
    place: Numbers
    holder: Numbers
    attempt: Numbers
    state: Numbers  # 0: the row is no delivery
    renewals: Numbers
    armed: Numbers  # 0: it waits for no deadline; see row_deadlines.py
    next: Numbers  # in the ring, or in the free list; 0: in no ring
    prev: Numbers
    chain: Numbers  # of the index by id
    origin_chain: Numbers  # of that by message

    def __init__(self) -> None:
        codes = {**KEPT_COLUMNS, **_DERIVED_COLUMNS}
        self._columns = {name: Column(code, _ROWS_MIN) for name, code in codes.items()}
        self._end = 1  # rows from here on were never taken
        self._capacity = _ROWS_MIN
        # Of those that were given back, the first row of the first run: `next` is the next run's,
        # `prev` how many rows it has.
        self._runs = 0
        self._few = 0  # of short runs, and of what is left of others
        self._few_rows = 0
        self._bind()
        self.index = IdIndex(self)
        self.places = Shared(DeliveryKey(0, 0, 0))
        self.holders = Shared(NOBODY)
        self.origins = OriginIndex(self)

    def __len__(self) -> int:
        """Count the deliveries."""
        return len(self.index)

    @property
    def rows(self) -> int:
        """Return the last row; all from 1 up to it, free ones included, are there."""
        return self._end - 1

    def columns(self) -> dict[str, Numbers]:
        """Return what checkpoints keep, by name: of rows 1 to `rows`. To be let go of before a row
        is taken."""
        return {name: self._columns[name].view[1 : self._end] for name in KEPT_COLUMNS}

    def load(
        self,
        columns: Mapping[str, Numbers],
        places: Iterable[DeliveryKey],
        holders: Iterable[Holder],
    ) -> None:
        """Fill a slab without rows: what `columns` gave. Nothing is armed or in a ring."""
        assert not self.rows
        self._end = 1 + len(columns["id"])
        while self._capacity < self._end:
            self._grow()
        for name, column in columns.items():
            self._columns[name].view[1 : self._end] = column
        for row in range(self.rows, 0, -1):
            if not self.state[row]:
                self.give(row)
        live = list(self.live())
        self.index.fill(live)
        self.places.load(places, Counter(compress(self.place, self.state)))
        self.holders.load(holders, Counter(compress(self.holder, self.state)))
        for number in range(1, len(self.places.values)):
            self.origins.know(number)
        self.origins.fill(live)
        assert len(self) <= self.rows

    # --- rows ----------------------------------------------------------------------------------

    def take(self) -> int:
        """Take a row for somebody; in no ring."""
        if not self._few:
            if not self._runs:
                return self._take_new(1).start
            self._run_to_few()
        few = self._few
        left: int = self.prev[few] - 1
        assert left >= 0, "a run without a row"
        if left:
            self.prev[few] = left
        else:
            self._few, self.next[few] = self.next[few], 0
        self._few_rows -= 1
        return few + left

    def take_all(self, count: int) -> Sequence[int]:
        """Take so many rows, side by side as a range if there are such; in no ring."""
        assert count > 0
        if count == 1:  # slices of one are dearer than elements
            return [self.take()]
        while run := self._runs:
            left: int = self.prev[run] - count
            if left > 0:
                self.prev[run] = left
                return range(run + left, run + left + count)
            if left == 0:
                self._runs, self.next[run] = self.next[run], 0
                return range(run, run + count)
            self._run_to_few()
        if self._few_rows < FEW_ROWS_MAX:
            return self._take_new(count)
        return [self.take() for _ in range(count)]

    def _take_new(self, count: int) -> range:
        """Take rows that nobody had before."""
        first = self._end
        while first + count > self._capacity:
            self._grow()
        self._end = first + count
        assert self._end <= self._capacity
        return range(first, first + count)

    def _run_to_few(self) -> None:
        run = self._runs
        assert run
        self._runs, self.next[run] = self.next[run], self._few
        self._few = run
        self._few_rows += self.prev[run]

    def give(self, row: int) -> None:
        """Give back a row that is in no ring. What it holds can be read until it is taken."""
        assert 0 < row < self._end
        following, before = self.next, self.prev
        self.state[row] = 0
        few = self._few
        self._few_rows += 1
        if few and few + before[few] == row:
            before[few] += 1
            following[row] = 0
        elif few and row + 1 == few:
            following[row], following[few] = following[few], 0
            before[row] = before[few] + 1
            self._few = few = row
        else:
            following[row], before[row] = few, 1
            self._few = row
            return
        if before[few] >= RUN_ROWS_MAX:
            self._few_rows -= before[few]
            self._few, following[few] = following[few], self._runs
            self._runs = few

    def give_all(self, rows: range) -> None:
        """Give back rows in sequence."""
        first, count = rows.start, len(rows)
        assert first > 0
        assert first + count <= self._end
        if count < RUN_ROWS_MIN:
            for row in rows:
                self.give(row)
            return
        fill(self.state, rows, 0)
        fill(self.next, rows, 0)
        self.next[first], self.prev[first] = self._runs, count
        self._runs = first

    def run_of(self, ids: Sequence[int]) -> range | None:
        """Find the rows of ids in sequence, where they are in sequence too; None: else."""
        count = len(ids)
        if count < 2 or ids[-1] - ids[0] != count - 1:
            return None
        first = self.index.find(ids[0])
        rows = range(first, first + count)
        if (
            0 < first <= self._end - count
            and self.id[first : rows.stop] == array("Q", ids)
            and 0 not in self.state[first : rows.stop].tobytes()
        ):
            return rows
        return None

    def live(self) -> Iterator[int]:
        """Yield the rows of deliveries, in their order."""
        return compress(range(self._end), self.state)

    def _grow(self) -> None:
        self._capacity *= 2
        assert self._capacity <= ROWS_MAX
        for column in self._columns.values():
            column.resize(self._capacity)
        self._bind()

    def _bind(self) -> None:
        for name, column in self._columns.items():
            setattr(self, name, column.view)

    # --- rings ---------------------------------------------------------------------------------

    def new_ring(self) -> int:
        """Make an empty ring, named by its own row."""
        ring = self.take()
        self.next[ring] = self.prev[ring] = ring
        return ring

    def join(self, ring: int, rows: Sequence[int]) -> None:
        """Join rows to the ring's end, one after the other. They are in no ring."""
        assert 0 < ring < self._end
        following, before = self.next, self.prev
        last = before[ring]
        if isinstance(rows, range) and rows:
            first, stop = rows.start, rows.stop
            following[first : stop - 1] = array("I", range(first + 1, stop))
            before[first + 1 : stop] = array("I", range(first, stop - 1))
            following[last], before[first], last = first, last, stop - 1
        else:
            for row in rows:
                following[last] = row
                before[row] = last
                last = row
        following[last] = ring
        before[ring] = last

    def leave(self, row: int) -> None:
        """Take a row out of its ring, if it is in one."""
        following = self.next[row]
        if following:
            before = self.prev[row]
            self.next[before] = following
            self.prev[following] = before
            self.next[row] = 0

    def leave_all(self, rows: range) -> bool:
        """Unlink rows that stand in one ring, in their order; else do nothing, and return False."""
        assert rows
        following, before = self.next, self.prev
        first, last = rows.start, rows.stop - 1
        after, ahead = following[last], before[first]
        if not after or following[first:last] != array("I", range(first + 1, rows.stop)):
            return False
        following[ahead], before[after] = after, ahead
        fill(following, rows, 0)
        return True

    def members(self, ring: int) -> Iterator[int]:
        """Yield rows from the first to the last; the one just given may leave meanwhile."""
        row = self.next[ring]
        while row != ring:
            following = self.next[row]
            yield row
            row = following
