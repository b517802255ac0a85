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


class RecentlyDone:
    """Handles whose message is done or dead, while their lease would have lasted; bounded.

    At the bound the oldest is forgotten: a repeated ack then gets INVALID_RECEIPT_HANDLE, which
    clients take as the end of it too. Kept in the columns that a checkpoint takes as they are.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._handles: dict[int, tuple[int, DeliveryKey, int]] = {}
        self._rows = tuple(array(code) for code in _COLUMNS)
        self._ids = array("Q")
        self._gone_rows = self._gone_ids = 0  # at the front of the columns

    def remember(
        self, ids: Sequence[int], generation: int, place: DeliveryKey, deadline_ms: int
    ) -> None:
        """Remember what is over together; `forget` is to follow."""
        assert ids
        if len(ids) == 1:  # a lone one: half the time
            self._handles[ids[0]] = (generation, place, deadline_ms)
            self._ids.append(ids[0])
        else:
            self._handles.update(dict.fromkeys(ids, (generation, place, deadline_ms)))
            self._ids.extend(ids)
        deadlines, generations, groups, topics, counts = self._rows
        deadlines.append(deadline_ms)
        generations.append(generation)
        groups.append(place.group_id)
        topics.append(place.topic_id)
        counts.append(len(ids))

    def forget(self, now_ms: int) -> None:
        """Drop what is too old, or too much."""
        handles, ids = self._handles, self._ids
        deadlines, counts = self._rows[0], self._rows[4]
        row, first = self._gone_rows, self._gone_ids
        if row < len(deadlines) and deadlines[row] > now_ms and len(handles) <= self._count_max:
            return  # most often
        while row < len(deadlines) and (len(handles) > self._count_max or deadlines[row] <= now_ms):
            following = first + counts[row]
            for id in ids[first:following]:
                handles.pop(id, None)
            first = following
            row += 1
        assert first <= len(ids)
        assert len(handles) <= self._count_max
        if row >= _GONE_MIN and row * 2 > len(deadlines):
            for column in self._rows:
                del column[:row]
            del ids[:first]
            row = first = 0
        self._gone_rows, self._gone_ids = row, first

    def holds(self, delivery_id: int, generation: int, owner: tuple[int, int], now_ms: int) -> bool:
        """`owner`: ids of group and topic, as in `DeliveryKey.is_of`."""
        known = self._handles.get(delivery_id)
        if known is None:
            return False
        of_generation, place, deadline_ms = known
        return of_generation == generation and place.is_of(owner) and deadline_ms > now_ms

    def snapshot(self) -> bytes:
        """All that is remembered, as the section above."""
        columns = [column[self._gone_rows :] for column in self._rows]
        packed = [swapped(column.typecode, column.tobytes()) for column in columns]
        ids = swapped("Q", self._ids[self._gone_ids :].tobytes())
        return b"".join((_HEAD.pack(FORMAT, len(columns[0])), *packed, ids))

    def restore(self, section: bytes) -> None:
        """Into one that remembers nothing; b"" is the section of a checkpoint that has none.

        One of a newer format counts as none: a repeated ack is refused then.
        """
        assert not self._handles
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
