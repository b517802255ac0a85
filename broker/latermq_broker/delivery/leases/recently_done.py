"""Receipt handles of what is over, for repeated acks.

The section `done` of a checkpoint: columns, of what is over together, oldest first.

    0        4       8
    | format | rows | deadline_ms u64 each | generation u32 | group u32 | topic u32 | ids u32 | ids…

`ids` says how many of the delivery ids (u64) at the end are of the row.
"""

import struct
from array import array
from collections.abc import Sequence
from typing import Final

from latermq_broker.delivery.leases.columns import NUMBER_BYTES, numbers, swapped
from latermq_broker.delivery.leases.shared import DeliveryKey

FORMAT: Final = 1
_HEAD: Final = struct.Struct("<II")
_COLUMNS: Final = "QIIII"
_GONE_MIN: Final = 1_024  # rows are cut off so many at a time
_BLOCK_BITS: Final = 6
_LOW: Final = (1 << _BLOCK_BITS) - 1
_NONE: Final = array("Q")


class RecentlyDone:
    """Handles whose message is done or dead, while their lease would have lasted; bounded.

    At the bound the oldest is forgotten: a repeated ack then gets INVALID_RECEIPT_HANDLE, which
    clients take as the end of it too. Kept in the columns that a checkpoint takes as they are; ids
    find their rows in eight bytes each, where ids in sequence share a block. A dictionary of them
    took 200: 20 MiB at the bound.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._blocks: dict[int, array[int]] = {}  # block of ids → rows, each with low bits of an id
        self._rows = tuple(array(code) for code in _COLUMNS)
        self._ids = array("Q")
        self._gone_rows = self._gone_ids = 0  # at the front of the columns
        self._cut_rows = 0  # rows are numbered from the first that ever was

    def remember(
        self, ids: Sequence[int], generation: int, place: DeliveryKey, deadline_ms: int
    ) -> None:
        """Remember what is over together; `forget` is to follow."""
        assert ids
        self._ids.extend(ids)
        deadlines, generations, groups, topics, counts = self._rows
        number = self._cut_rows + len(deadlines)
        for id in ids:
            block = self._blocks.get(id >> _BLOCK_BITS)
            if block is None:
                block = self._blocks[id >> _BLOCK_BITS] = array("Q")
            block.append(number << _BLOCK_BITS | id & _LOW)
        deadlines.append(deadline_ms)
        generations.append(generation)
        groups.append(place.group_id)
        topics.append(place.topic_id)
        counts.append(len(ids))

    def forget(self, now_ms: int) -> None:
        """Drop what is too old, or too much."""
        ids = self._ids
        deadlines, counts = self._rows[0], self._rows[4]
        row, first, spare = self._gone_rows, self._gone_ids, len(ids) - self._count_max
        while row < len(deadlines) and (first < spare or deadlines[row] <= now_ms):
            following = first + counts[row]
            for id in ids[first:following]:
                self._forget(id, self._cut_rows + row)
            first = following
            row += 1
        assert first <= len(ids)
        assert first >= spare
        if row >= _GONE_MIN and row * 2 > len(deadlines):
            for column in self._rows:
                del column[:row]
            del ids[:first]
            self._cut_rows += row
            row = first = 0
        self._gone_rows, self._gone_ids = row, first

    def holds(self, delivery_id: int, generation: int, owner: tuple[int, int], now_ms: int) -> bool:
        """Tell whether a handle is held. `owner`: group and topic id, as in `DeliveryKey.is_of`."""
        deadlines, generations, groups, topics, _ = self._rows
        for entry in self._blocks.get(delivery_id >> _BLOCK_BITS, _NONE):
            row = (entry >> _BLOCK_BITS) - self._cut_rows
            if entry & _LOW == delivery_id & _LOW and generations[row] == generation:
                place = DeliveryKey(groups[row], topics[row], 0)
                return place.is_of(owner) and deadlines[row] > now_ms
        return False

    def snapshot(self) -> bytes:
        """Encode all that is remembered, as the section above."""
        columns = [column[self._gone_rows :] for column in self._rows]
        packed = [swapped(column.typecode, column.tobytes()) for column in columns]
        ids = swapped("Q", self._ids[self._gone_ids :].tobytes())
        return b"".join((_HEAD.pack(FORMAT, len(columns[0])), *packed, ids))

    def restore(self, section: bytes) -> None:
        """Restore from a section, while nothing is remembered; b"" if the checkpoint has none.

        One of a newer format counts as none: a repeated ack is refused then.
        """
        assert not self._ids
        format_, rows = _HEAD.unpack_from(section) if section else (0, 0)
        if format_ != FORMAT:
            return
        at = _HEAD.size
        columns: list[Sequence[int]] = []
        for code in _COLUMNS:
            size = rows * NUMBER_BYTES[code]
            columns.append(numbers(code, swapped(code, section[at : at + size])))
            at += size
        ids = numbers("Q", swapped("Q", section[at:]))
        first = 0
        for deadline_ms, generation, group_id, topic_id, count in zip(*columns, strict=True):
            place = DeliveryKey(group_id, topic_id, 0)
            self.remember(ids[first : first + count].tolist(), generation, place, deadline_ms)
            first += count
        assert first == len(ids)

    def _forget(self, id: int, number: int) -> None:
        """Take an id's row out of its block."""
        block = self._blocks[id >> _BLOCK_BITS]
        block.remove(number << _BLOCK_BITS | id & _LOW)
        if not block:
            del self._blocks[id >> _BLOCK_BITS]
