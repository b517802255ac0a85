"""Message → rows of its deliveries in a group, whatever became of its queue entry: `Origin`.

A million deliveries of one group take no longer to search than ten. The messages of one queue are
numbered by their offsets, from a number that group, topic and queue give: what is lent together
goes in slices, as by id (`id_index.py`).
"""

from array import array
from collections.abc import Iterator
from typing import Final, Protocol

from latermq_broker.delivery.leases.columns import Numbers
from latermq_broker.delivery.leases.id_index import BLOCK_BITS, RowIndex
from latermq_broker.delivery.leases.shared import (
    LOW_BITS,
    LOW_MASK,
    DeliveryKey,
    Origin,
    Shared,
)

# Odd, and below 2³⁰: compiled code multiplies small ids by them as they are.
_GROUP_SPREAD: Final = 0x2C1B3C6D
_TOPIC_SPREAD: Final = 0x297A2D39
_QUEUE_SPREAD: Final = 0x1B873593
_HIGH_SPREAD: Final = 0x0C2B2AE5
_SUBJECT_MASK: Final = (1 << 40) - 1


class Placed(Protocol):
    """The columns of the index by message."""

    place: Numbers
    offset: Numbers
    origin_chain: Numbers
    places: Shared[DeliveryKey]


class OriginIndex(RowIndex):
    """A group's message → rows: one, but for what an older version lent twice."""

    def __init__(self, slab: Placed) -> None:
        super().__init__()
        self._slab = slab
        self._firsts: list[int] = []  # of each place by its number: see `_first_number`

    def know(self, place: int) -> None:
        """Prepare for rows of a place, by its number."""
        firsts = self._firsts
        if place >= len(firsts):
            firsts.extend([0] * (place + 1 - len(firsts)))
        key = self._slab.places.values[place]
        firsts[place] = _first_number(key.group_id, *_queue_of(key), key.offset_high)

    def find(self, group_id: int, origin: Origin) -> Iterator[int]:
        """Yield the rows of the group's deliveries of that message."""
        topic_id, queue_id, offset = origin
        assert offset >= 0
        high, low = offset >> LOW_BITS, offset & LOW_MASK
        slab = self._slab
        row = self.first(_first_number(group_id, topic_id, queue_id, high) + low)
        while row:
            following = slab.origin_chain[row]
            if slab.offset[row] == low:
                place = slab.places.values[slab.place[row]]
                if (
                    place.group_id == group_id
                    and place.offset_high == high
                    and _queue_of(place) == (topic_id, queue_id)
                ):
                    yield row
            row = following

    def number(self, row: int) -> int:
        """Return the number of the row's message."""
        slab = self._slab
        return self._firsts[slab.place[row]] + slab.offset[row]

    def chain(self) -> Numbers:
        """Return the column `origin_chain`."""
        return self._slab.origin_chain

    def in_sequence(self, rows: range) -> bool:
        """Tell whether the rows are of messages in sequence, of one queue and one group."""
        slab, first, stop = self._slab, rows.start, rows.stop
        offset = slab.offset[first]
        if slab.offset[stop - 1] - offset != len(rows) - 1:
            return False
        firsts = {self._firsts[place] for place in {*slab.place[first:stop]}}
        return len(firsts) == 1 and slab.offset[first:stop] == array(
            "I", range(offset, offset + len(rows))
        )


def _queue_of(place: DeliveryKey) -> tuple[int, int]:
    """Return topic and queue that the messages of a place had first."""
    if place.redrive:
        return place.origin_topic_id, place.origin_queue_id
    return place.topic_id, place.queue_id


def _first_number(group_id: int, topic_id: int, queue_id: int, high: int) -> int:
    """Return the number of a queue's message whose offset has no low bits."""
    mixed = (
        group_id * _GROUP_SPREAD
        + topic_id * _TOPIC_SPREAD
        + queue_id * _QUEUE_SPREAD
        + high * _HIGH_SPREAD
    )
    return (mixed & _SUBJECT_MASK) << BLOCK_BITS
