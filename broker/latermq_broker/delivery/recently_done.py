"""Receipt handles of what is over, for repeated acks.

The section `done` of a checkpoint: columns, of what is over together, oldest first.

    0        4       8
    | format | rows | deadline_ms u64 each | generation u32 | group u32 | topic u32 | ids u32 | ids…

`ids` says how many of the delivery ids (u64) at the end are of the row.
"""

import struct
from array import array
from collections import deque
from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import Final

from latermq_broker.delivery.columns import NUMBER_BYTES, numbers, swapped
from latermq_broker.delivery.slab import Place

FORMAT: Final = 1
_HEAD: Final = struct.Struct("<II")
_COLUMNS: Final = "QIIII"
_GROUP_OF: Final = itemgetter(Place._fields.index("group_id"))
_TOPIC_OF: Final = itemgetter(Place._fields.index("topic_id"))


class RecentlyDone:
    """Handles whose message is done or dead, while their lease would have lasted; bounded.

    At the bound the oldest is forgotten: a repeated ack then gets INVALID_RECEIPT_HANDLE, which
    clients take as the end of it too.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._handles: dict[int, tuple[int, Place, int]] = {}
        self._order: deque[tuple[int, Sequence[int], int, Place]] = deque()
        """Deadline, ids, generation, place."""

    def remember(self, ids: Sequence[int], generation: int, place: Place, deadline_ms: int) -> None:
        """What is over, together; `forget` is to follow."""
        self._handles.update(dict.fromkeys(ids, (generation, place, deadline_ms)))
        self._order.append((deadline_ms, ids, generation, place))

    def forget(self, now_ms: int) -> None:
        """What is too old, or too much."""
        handles, order = self._handles, self._order
        while order and (len(handles) > self._count_max or order[0][0] <= now_ms):
            for id in order.popleft()[1]:
                handles.pop(id, None)

    def holds(self, delivery_id: int, generation: int, owner: tuple[int, int], now_ms: int) -> bool:
        """`owner`: ids of group and topic, as in `Place.is_of`."""
        known = self._handles.get(delivery_id)
        if known is None:
            return False
        of_generation, place, deadline_ms = known
        return of_generation == generation and place.is_of(owner) and deadline_ms > now_ms

    def snapshot(self) -> bytes:
        """All that is remembered, as the section above."""
        if not self._order:
            return _HEAD.pack(FORMAT, 0)
        deadlines, all_ids, generations, places = zip(*self._order, strict=True)
        columns = (
            array("Q", deadlines),
            array("I", generations),
            array("I", map(_GROUP_OF, places)),
            array("I", map(_TOPIC_OF, places)),
            array("I", map(len, all_ids)),
            array("Q", chain.from_iterable(all_ids)),
        )
        packed = [swapped(column.typecode, column.tobytes()) for column in columns]
        return b"".join((_HEAD.pack(FORMAT, len(self._order)), *packed))

    def restore(self, section: bytes) -> None:
        """Forgets what it knew; b"" is the section of a checkpoint that has none.

        One of a newer format counts as none: a repeated ack is refused then.
        """
        self._handles.clear()
        self._order.clear()
        format_, rows = _HEAD.unpack_from(section) if section else (0, 0)
        if format_ != FORMAT:
            return
        at = _HEAD.size
        columns: list[Sequence[int]] = []
        for code in _COLUMNS:
            size = rows * NUMBER_BYTES[code]
            columns.append(numbers(code, swapped(code, section[at : at + size])))
            at += size
        all_ids = numbers("Q", swapped("Q", section[at:]))
        first = 0
        for deadline_ms, generation, group_id, topic_id, count in zip(*columns, strict=True):
            ids = tuple(all_ids[first : first + count])
            self.remember(ids, generation, Place(group_id, topic_id, 0), deadline_ms)
            first += count
