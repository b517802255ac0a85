"""Receipt handles of what is over, for repeated acks."""

from collections import OrderedDict


class RecentlyDone:
    """Handles whose message is done or dead, while their lease would have lasted; bounded.

    At the bound the oldest is forgotten: a repeated ack then gets INVALID_RECEIPT_HANDLE, which
    clients take as the end of it too.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._handles: OrderedDict[int, tuple[int, int, int]] = OrderedDict()
        self._first_ms = 0  # deadline of the oldest

    def remember(self, id: int, generation: int, group_id: int, deadline_ms: int) -> None:
        """What is over; `forget` is to follow."""
        if not self._handles:
            self._first_ms = deadline_ms
        self._handles[id] = (generation, group_id, deadline_ms)

    def forget(self, now_ms: int) -> None:
        """What is too old, or too much."""
        handles = self._handles
        while handles and (len(handles) > self._count_max or self._first_ms <= now_ms):
            handles.popitem(last=False)
            _, _, self._first_ms = next(iter(handles.values()), (0, 0, 0))

    def holds(self, delivery_id: int, generation: int, group_id: int, now_ms: int) -> bool:
        known = self._handles.get(delivery_id)
        return known is not None and known[:2] == (generation, group_id) and known[2] > now_ms
