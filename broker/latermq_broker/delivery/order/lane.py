"""Deliveries that wait to be received again, in line, or in a line for each priority."""

from collections.abc import Iterator

from latermq_broker.delivery.leases.lease import Delivery, State
from latermq_broker.delivery.leases.leases import Leases


class Lane:
    """A ring of rows that are READY: whoever steps out of READY steps out of the lane."""

    __slots__ = ("_leases", "_ring")

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._ring = 0  # made with the first to stand in it

    def append(self, delivery: Delivery) -> None:
        """Move a READY delivery to the end; it stands nowhere else in the lane than there."""
        slab = self._leases.slab
        assert delivery.state is State.READY
        if not self._ring:
            self._ring = slab.new_ring()
        slab.leave(delivery.row)
        slab.join(self._ring, (delivery.row,))

    def __iter__(self) -> Iterator[Delivery]:
        """Yield deliveries from the first to the last; the one just given may leave meanwhile."""
        slab = self._leases.slab
        for row in slab.members(self._ring):
            yield Delivery(slab, row)

    def close(self) -> None:
        """Give the ring back: nobody stands in it any more."""
        if self._ring:
            assert not any(self._leases.slab.members(self._ring))
            self._leases.slab.give(self._ring)
            self._ring = 0


class RankedLanes:
    """Keeps a lane for each queue of a PRIORITY topic; the number of a queue is a priority."""

    __slots__ = ("_lanes", "_leases")

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._lanes: dict[int, Lane] = {}

    def lane(self, queue_id: int) -> Lane:
        lane = self._lanes.get(queue_id)
        if lane is None:
            lane = self._lanes[queue_id] = Lane(self._leases)
        return lane

    def append(self, delivery: Delivery) -> None:
        self.lane(delivery.queue_id).append(delivery)

    def __iter__(self) -> Iterator[Delivery]:
        """Yield deliveries from the highest priority's first to the lowest one's last."""
        for queue_id in sorted(self._lanes, reverse=True):
            yield from self._lanes[queue_id]

    def close(self) -> None:
        for lane in self._lanes.values():
            lane.close()
