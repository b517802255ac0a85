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

    def remember(self, id: int, generation: int, group_id: int, deadline_ms: int) -> None:
        """What is over; `forget` is to follow."""
        self._handles[id] = (generation, group_id, deadline_ms)

    def forget(self, now_ms: int) -> None:
        """What is too old, or too much."""
        handles = self._handles
        while handles:
            _, (_, _, deadline_ms) = next(iter(handles.items()))
            if len(handles) <= self._count_max and deadline_ms > now_ms:
                break
            handles.popitem(last=False)

    def holds(self, delivery_id: int, generation: int, group_id: int, now_ms: int) -> bool:
        known = self._handles.get(delivery_id)
        return known is not None and known[:2] == (generation, group_id) and known[2] > now_ms
