"""Delivery id → row of the slab, in eight bytes each: linear hashing, chained through a column.

One more bucket comes with one more id: the bucket next in turn is split in two. So no insertion
pays for all the others, as in a table that doubles.

    buckets   0 … mask/2 | mask/2 + 1 … len - 1 | len … mask
                           split off             | not there yet: their rows are mask/2 + 1 before
"""

from array import array
from collections.abc import Sequence
from typing import Final, Protocol

from latermq_broker.delivery.columns import Numbers

# 2³² times the golden ratio, rounded: ids in sequence, and ids at any regular distance, spread out.
_SPREAD: Final = 0x19E3779B1
_SPREAD_BITS: Final = 32


class Chained(Protocol):
    """The columns it works on."""

    id: Numbers
    chain: Numbers


class IdIndex:
    """Owns the buckets; row 0 is none."""

    def __init__(self, slab: Chained) -> None:
        self._slab = slab
        self._buckets = array("I", [0, 0])  # first row of each
        self._mask = 1
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def find(self, item: int) -> int:
        """The row of that id; 0: there is none."""
        buckets = self._buckets
        number = item * _SPREAD >> _SPREAD_BITS & self._mask
        if number >= len(buckets):
            number &= self._mask >> 1
        row = buckets[number]
        slab = self._slab
        while row and slab.id[row] != item:
            row = slab.chain[row]
        return row

    def add(self, row: int) -> None:
        """The id in that row, which is in no other."""
        self.add_all((row,))

    def add_all(self, rows: Sequence[int]) -> None:
        """The same for several."""
        buckets, ids, chain = self._buckets, self._slab.id, self._slab.chain
        for row in rows:
            self._count += 1
            if self._count > len(buckets):
                self._split()
            number = ids[row] * _SPREAD >> _SPREAD_BITS & self._mask
            if number >= len(buckets):
                number &= self._mask >> 1
            chain[row] = buckets[number]
            buckets[number] = row

    def fill(self, rows: Sequence[int]) -> None:
        """As `add` for each, into one that is empty."""
        assert not self._count
        self._count = len(rows)
        self._buckets = array("I", bytes(4 * max(2, self._count)))
        self._mask = (1 << (len(self._buckets) - 1).bit_length()) - 1
        buckets, ids, chain = self._buckets, self._slab.id, self._slab.chain
        for row in rows:
            number = self._bucket(ids[row])
            chain[row] = buckets[number]
            buckets[number] = row

    def remove(self, row: int) -> None:
        self._count -= 1
        buckets, chain = self._buckets, self._slab.chain
        number = self._slab.id[row] * _SPREAD >> _SPREAD_BITS & self._mask
        if number >= len(buckets):
            number &= self._mask >> 1
        before = buckets[number]
        if before == row:
            buckets[number] = chain[row]
            return
        while chain[before] != row:
            before = chain[before]
        chain[before] = chain[row]

    def _bucket(self, item: int) -> int:
        number = item * _SPREAD >> _SPREAD_BITS & self._mask
        return number if number < len(self._buckets) else number & self._mask >> 1

    def _split(self) -> None:
        buckets, chain = self._buckets, self._slab.chain
        new = len(buckets)
        if new > self._mask:
            self._mask = self._mask << 1 | 1
        row = buckets[new & self._mask >> 1]
        buckets[new & self._mask >> 1] = 0
        buckets.append(0)
        while row:
            following = chain[row]
            number = self._bucket(self._slab.id[row])
            chain[row] = buckets[number]
            buckets[number] = row
            row = following
