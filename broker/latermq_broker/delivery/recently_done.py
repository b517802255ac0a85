"""Receipt handles of what is over, for repeated acks."""

from collections import OrderedDict

from latermq_broker.delivery.slab import Place


class RecentlyDone:
    """Handles whose message is done or dead, while their lease would have lasted; bounded.

    At the bound the oldest is forgotten: a repeated ack then gets INVALID_RECEIPT_HANDLE, which
    clients take as the end of it too.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._handles: OrderedDict[int, tuple[int, Place, int]] = OrderedDict()
        self._first_ms = 0  # deadline of the oldest

    def remember(self, id: int, generation: int, place: Place, deadline_ms: int) -> None:
        """What is over; `forget` is to follow."""
        if not self._handles:
            self._first_ms = deadline_ms
        self._handles[id] = (generation, place, deadline_ms)

    def forget(self, now_ms: int) -> None:
        """What is too old, or too much."""
        handles = self._handles
        while handles and (len(handles) > self._count_max or self._first_ms <= now_ms):
            handles.popitem(last=False)
            oldest = next(iter(handles.values()), None)
            self._first_ms = oldest[2] if oldest else 0

    def holds(self, delivery_id: int, generation: int, owner: tuple[int, int], now_ms: int) -> bool:
        """`owner`: ids of group and topic, as in `Place.is_of`."""
        known = self._handles.get(delivery_id)
        if known is None:
            return False
        of_generation, place, deadline_ms = known
        return of_generation == generation and place.is_of(owner) and deadline_ms > now_ms
