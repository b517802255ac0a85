"""Receipt handles of what is over, for repeated acks."""

from collections import deque
from collections.abc import Sequence

from latermq_broker.delivery.slab import Place


class RecentlyDone:
    """Handles whose message is done or dead, while their lease would have lasted; bounded.

    At the bound the oldest is forgotten: a repeated ack then gets INVALID_RECEIPT_HANDLE, which
    clients take as the end of it too.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._handles: dict[int, tuple[int, Place, int]] = {}
        self._order: deque[tuple[int, Sequence[int]]] = deque()  # deadline, ids

    def remember(self, ids: Sequence[int], generation: int, place: Place, deadline_ms: int) -> None:
        """What is over, together; `forget` is to follow."""
        self._handles.update(dict.fromkeys(ids, (generation, place, deadline_ms)))
        self._order.append((deadline_ms, ids))

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
