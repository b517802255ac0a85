"""Which TLS handshakes go on at once, and who is next: bookkeeping without sockets or a loop.

    waits, by address ──its turn──→ goes on ──→ done
                                       └── all places taken, the oldest of who has most: given up

A place is taken only when the client's first message is there, so a handshake that goes on waits
for a client that was just answered. Addresses take turns; none can keep the others out. An address
has a few that were answered just now: many clients of one machine are answered as fast as they are,
and none of them is given up for the next.
"""

from collections import OrderedDict, deque
from itertools import islice
from typing import Final, Generic, TypeVar

STARTS_MAX: Final = 2  # in one turn of the loop: a signature is up to a millisecond
ANSWERED_MAX: Final = 32  # of one address, within REST_MS, and not done yet
REST_MS: Final = 500  # a client has so long to answer before its place can be taken

Item = TypeVar("Item")


class Handshakes(Generic[Item]):
    """Those of one listener.

    Args:
        going_max: at once.
    """

    def __init__(self, going_max: int) -> None:
        self._going_max = going_max
        self._going_count = 0
        self._waiting: OrderedDict[str, deque[Item]] = OrderedDict()
        self._going: dict[str, OrderedDict[Item, int]] = {}  # since when, the oldest first

    @property
    def waiting(self) -> bool:
        """Tell whether somebody waits for a turn."""
        return bool(self._waiting)

    def wait(self, address: str, item: Item) -> None:
        """Queue behind those of the same address."""
        self._waiting.setdefault(address, deque()).append(item)

    def start(self, now_ms: int) -> tuple[list[Item], list[Item]]:
        """Take the next few: those whose turn it is, and those that are given up for them."""
        started: list[Item] = []
        given_up: list[Item] = []
        while len(started) < STARTS_MAX:
            address = self._next(now_ms)
            if address is None:
                break
            if self._going_count >= self._going_max:
                oldest = self._oldest(now_ms)
                if oldest is None:
                    break
                given_up.append(oldest)
            items = self._waiting.pop(address)
            item = items.popleft()
            if items:
                self._waiting[address] = items
            self._going.setdefault(address, OrderedDict())[item] = now_ms
            self._going_count += 1
            started.append(item)
        return started, given_up

    def next_ms(self, now_ms: int) -> int | None:
        """Return when to call `start` again, in ms; None: nobody waits."""
        if not self._waiting:
            return None
        least_ms = max(now_ms, min(self._ready_ms(address) for address in self._waiting))
        if self._going_count < self._going_max:
            return least_ms
        most = max(self._going.values(), key=len)
        return max(least_ms, next(iter(most.values())) + REST_MS)

    def leave(self, address: str, item: Item) -> None:
        """Take out an item: it is over, however it ended, or nobody waits for its turn any more."""
        going = self._going.get(address)
        if going is not None and item in going:
            self._take(address, item)
            return
        items = self._waiting.get(address)
        if items is not None and item in items:
            items.remove(item)
            if not items:
                del self._waiting[address]

    def _next(self, now_ms: int) -> str | None:
        """Find the address whose turn it is."""
        for address in self._waiting:
            if self._ready_ms(address) <= now_ms:
                return address
        return None

    def _ready_ms(self, address: str) -> int:
        """Return when one more of an address may begin; 0: now."""
        going = self._going.get(address)
        if going is None or len(going) < ANSWERED_MAX:
            return 0
        return next(islice(reversed(going.values()), ANSWERED_MAX - 1, None)) + REST_MS

    def _oldest(self, now_ms: int) -> Item | None:
        """Take out the oldest of the address that has most, if it had its time."""
        address = max(self._going, key=lambda each: len(self._going[each]))
        item, since_ms = next(iter(self._going[address].items()))
        if now_ms - since_ms < REST_MS:
            return None
        self._take(address, item)
        return item

    def _take(self, address: str, item: Item) -> None:
        del self._going[address][item]
        if not self._going[address]:
            del self._going[address]
        self._going_count -= 1
