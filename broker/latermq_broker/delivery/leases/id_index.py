"""Number → rows of the slab, in eight bytes each: linear hashing, chained through a column.

A block of buckets comes with as many ids: the block next in turn is split in two. So no insertion
pays for all the others, as in a table that doubles.

    buckets   0 … mask/2 | mask/2 + 1 … len - 1 | len … mask
                           split off             | not there yet: their rows are mask/2 + 1 before

Numbers in sequence, up to a multiple of a block's size, stand in buckets in sequence: what is lent
together comes and goes in a few slices. Blocks are spread; numbers at any regular distance are in
chains of at most a block's size, about. `IdIndex` finds a delivery by its id; `origin_index.py`
those of a message.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from latermq_broker.delivery.leases.columns import Numbers

BLOCK_BITS: Final = 4  # of a block's number of buckets
_BLOCK: Final = 1 << BLOCK_BITS
_LOW: Final = _BLOCK - 1
# 2²⁹ times the golden ratio, rounded: blocks in sequence, and at any regular distance, spread out.
# Of a block's number and of this so few bits that compiled code multiplies them as they are.
_SPREAD: Final = 0x33C6EF37
_SPREAD_BITS: Final = 29
_SPREAD_MASK: Final = (1 << 30) - 1


class Chained(Protocol):
    """The columns of the index by id."""

    id: Numbers
    chain: Numbers


class RowIndex:
    """Owns the buckets; row 0 is none."""

    def __init__(self) -> None:
        self._buckets = array("I", bytes(4 * _BLOCK))  # first row of each
        self._mask = _LOW
        self._count = 0

    def number(self, row: int) -> int:
        """Return the number that a row is found by."""
        raise NotImplementedError

    def chain(self) -> Numbers:
        """Return the column with the next row of the same bucket."""
        raise NotImplementedError

    def in_sequence(self, rows: range) -> bool:
        """Tell whether the numbers of those rows are in sequence."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self._count

    def first(self, number: int) -> int:
        """Return the first row of the number's bucket; 0: it is empty."""
        return self._buckets[self._bucket(number)]

    def add(self, rows: Sequence[int]) -> None:
        """Take up those rows, none of which the index has."""
        self._count += len(rows)
        while self._count > len(self._buckets):
            self._split()
        buckets, chain = self._buckets, self.chain()
        if isinstance(rows, range) and rows and self.in_sequence(rows):
            for number, row, end in self._blocks(self.number(rows.start), rows):
                stop = number + end - row
                chain[row:end] = buckets[number:stop]
                buckets[number:stop] = array("I", range(row, end))
            return
        for row in rows:
            number = self._bucket(self.number(row))
            chain[row] = buckets[number]
            buckets[number] = row

    def fill(self, rows: Sequence[int]) -> None:
        """Take up those rows, into an index that is empty, in buckets made for them."""
        assert not self._count
        blocks = -(-max(len(rows), 1) // _BLOCK)
        self._buckets = array("I", bytes(4 * _BLOCK * blocks))
        self._mask = (1 << (len(self._buckets) - 1).bit_length()) - 1
        self.add(rows)

    def remove(self, rows: Sequence[int]) -> None:
        """Forget those rows."""
        self._count -= len(rows)
        assert self._count >= 0
        buckets, chain = self._buckets, self.chain()
        if isinstance(rows, range) and rows and self.in_sequence(rows):
            for number, row, end in self._blocks(self.number(rows.start), rows):
                stop = number + end - row
                if buckets[number:stop] == array("I", range(row, end)):
                    buckets[number:stop] = array("I", chain[row:end].tobytes())
                else:  # others stand before them in their chains
                    for at in range(row, end):
                        self._unchain(at)
            return
        for row in rows:
            self._unchain(row)

    def remove_one(self, row: int) -> None:
        """Forget that row."""
        self._count -= 1
        assert self._count >= 0
        self._unchain(row)

    def _unchain(self, row: int) -> None:
        buckets = self._buckets
        bucket = self._bucket(self.number(row))
        chain = self.chain()
        before = buckets[bucket]
        if before == row:
            buckets[bucket] = chain[row]
            return
        while chain[before] != row:
            before = chain[before]
            assert before, "a row that is not in its chain"
        chain[before] = chain[row]

    def _blocks(self, item: int, rows: range) -> Iterator[tuple[int, int, int]]:
        """Yield (first bucket, first row, row behind the last) by block, from number `item` on."""
        row, stop = rows.start, rows.stop
        while row < stop:
            end = min(stop, row + _BLOCK - (item & _LOW))
            yield self._bucket(item), row, end
            item += end - row
            row = end

    def _bucket(self, item: int) -> int:
        block = item >> BLOCK_BITS & _SPREAD_MASK
        spread = block * _SPREAD >> _SPREAD_BITS << BLOCK_BITS
        number = (spread | item & _LOW) & self._mask
        return number if number < len(self._buckets) else number & self._mask >> 1

    def _split(self) -> None:
        """Split the block next in turn: one block more."""
        buckets, chain = self._buckets, self.chain()
        first = len(buckets)
        assert not first % _BLOCK
        if first > self._mask:
            self._mask = self._mask << 1 | 1
        buckets.extend(bytes(_BLOCK))
        for new in range(first, first + _BLOCK):
            old = new & self._mask >> 1
            row = buckets[old]
            buckets[old] = 0
            while row:
                following = chain[row]
                number = self._bucket(self.number(row))
                chain[row] = buckets[number]
                buckets[number] = row
                row = following


class IdIndex(RowIndex):
    """Delivery id → row. A range of rows has ids in sequence."""

    def __init__(self, slab: Chained) -> None:
        super().__init__()
        self._slab = slab

    def find(self, item: int) -> int:
        """Find the row of an id; 0: there is none."""
        row = self.first(item)
        slab = self._slab
        while row and slab.id[row] != item:
            row = slab.chain[row]
        return row

    def number(self, row: int) -> int:
        """Return the id."""
        return self._slab.id[row]

    def chain(self) -> Numbers:
        """Return the column `chain`."""
        return self._slab.chain

    def in_sequence(self, rows: range) -> bool:
        """Return True."""
        return True
