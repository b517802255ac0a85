"""Which accepted connection is served next, and when: bookkeeping without sockets or a loop.

    backlog ──accept, while the door has room──→ waits unread, by address ──its turn──→ served
                                                      └── its client has left, in a crowd → closed

Addresses take turns. An address and all addresses together have a rate of new connections, with a
burst; connections beyond a rate wait. A full door leaves further connections in the kernel's
backlog, unless those that wait are beyond a rate: then the oldest of the most crowded address goes.
An address is an IPv4 address or an IPv6 network of 64 bits.
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from latermq_broker.config.server_transport import Http2Config

WAITING_MAX: Final = 2_000  # connections at the door: two addresses' worth, each a descriptor
CROWD: Final = 4  # connections that wait: from here on, those whose clients have left are closed
LEFT_MAX: Final = 16  # connections whose clients have left, closed in one turn of the loop

Item = TypeVar("Item")


class Rate:
    """A rate of events with a burst, for each of many names; names at rest take no memory.

    Args:
        per_s: events a second; 0: any number.
        burst: events at once, after a rest.
    """

    __slots__ = ("_each_ms", "_full_ms", "_slack_ms")

    def __init__(self, per_s: int, burst: int) -> None:
        self._each_ms = 1_000 / per_s if per_s else 0.0
        self._slack_ms = self._each_ms * (burst - 1)
        self._full_ms: OrderedDict[str, float] = OrderedDict()  # when its burst is whole again

    def __len__(self) -> int:
        return len(self._full_ms)

    def wait_ms(self, name: str, now_ms: int) -> int:
        """Return how long until one more may come, in ms; 0: it may."""
        full_ms = self._full_ms.get(name)
        if full_ms is None:
            return 0
        wait_ms = full_ms - self._slack_ms - now_ms
        return 0 if wait_ms <= 0 else int(wait_ms) + 1

    def take(self, name: str, now_ms: int) -> None:
        """Count one that comes."""
        if not self._each_ms:
            return
        self._full_ms[name] = max(self._full_ms.pop(name, 0.0), now_ms) + self._each_ms
        while self._full_ms:
            first = next(iter(self._full_ms))
            if self._full_ms[first] > now_ms:
                break
            del self._full_ms[first]


class Rates(NamedTuple):
    """Those of one door."""

    per_address: Rate
    overall: Rate

    @classmethod
    def of(cls, http2: Http2Config) -> "Rates":
        """Make the rates that the settings name, with whole bursts."""
        return cls(
            Rate(http2.connects_per_address_per_s, http2.connects_per_address_burst),
            Rate(http2.connects_per_s, http2.connects_burst),
        )


_ALL: Final = "all"


class Door(Generic[Item]):
    """Connections that wait to be served.

    Args:
        has_left: tells whether a connection's client has closed it.
    """

    def __init__(self, rates: Rates, has_left: Callable[[Item], bool]) -> None:
        self.rates = rates
        self.count = 0
        self._has_left = has_left
        self._waiting: dict[str, OrderedDict[Item, None]] = {}  # by address, the oldest first
        self._ready: OrderedDict[str, None] = OrderedDict()  # addresses within their rate, in turn
        self._blocked: list[tuple[int, str]] = []  # a heap: until when, addresses beyond theirs
        self._are_blocked: set[str] = set()  # the addresses in it

    @property
    def is_full(self) -> bool:
        """Tell whether one more has to wait in the kernel's backlog."""
        return self.count >= WAITING_MAX

    @property
    def is_crowded(self) -> bool:
        """Tell whether so many wait that those whose clients have left are closed unread."""
        return self.count >= CROWD

    def wait(self, address: str, item: Item) -> None:
        """Queue behind the connections of the same address."""
        items = self._waiting.get(address)
        if items is None:
            items = self._waiting[address] = OrderedDict()
            if address not in self._are_blocked:
                self._ready[address] = None
        items[item] = None
        self.count += 1

    def leave(self, address: str, item: Item) -> None:
        """Take out a connection that was given up; another one does nothing."""
        items = self._waiting.get(address)
        if items is not None and item in items:
            del items[item]
            self.count -= 1
            if not items:
                self._forget(address)

    def start(self, now_ms: int) -> tuple[list[Item], list[Item]]:
        """Take the connection whose turn it is, if any, and those whose clients have left."""
        leavers: list[Item] = []
        self._unblock(now_ms)
        while self._ready and len(leavers) < LEFT_MAX:
            if self.rates.overall.wait_ms(_ALL, now_ms):
                break
            address, _ = self._ready.popitem(last=False)
            wait_ms = self.rates.per_address.wait_ms(address, now_ms)
            if wait_ms:
                heapq.heappush(self._blocked, (now_ms + wait_ms, address))
                self._are_blocked.add(address)
                continue
            items = self._waiting[address]
            item, _ = items.popitem(last=False)
            self.count -= 1
            if items:
                self._ready[address] = None
            else:
                del self._waiting[address]
            if self.is_crowded and self._has_left(item):
                leavers.append(item)
                continue
            self.rates.per_address.take(address, now_ms)
            self.rates.overall.take(_ALL, now_ms)
            return [item], leavers
        return [], leavers

    def next_ms(self, now_ms: int) -> int | None:
        """Return when to call `start` again, in ms; None: nobody waits."""
        if not self._waiting:
            return None
        least_ms = now_ms + self.rates.overall.wait_ms(_ALL, now_ms)
        if self._ready or not self._blocked:
            return least_ms
        return max(least_ms, self._blocked[0][0])

    def make_room(self, now_ms: int, address: str = "") -> Item | None:
        """Take out an address's oldest connection, if it has left or others wait beyond a rate.

        Args:
            address: "": the most crowded one.
        """
        if not address:
            address = max(self._waiting, key=lambda each: len(self._waiting[each]), default="")
        items = self._waiting.get(address)
        if items is None:
            return None
        oldest = next(iter(items))
        is_beyond = len(items) > 1 and (
            self.rates.per_address.wait_ms(address, now_ms)
            or self.rates.overall.wait_ms(_ALL, now_ms)
        )
        if not is_beyond and not self._has_left(oldest):
            return None
        self.leave(address, oldest)
        return oldest

    def _unblock(self, now_ms: int) -> None:
        while self._blocked and self._blocked[0][0] <= now_ms:
            _, address = heapq.heappop(self._blocked)
            self._are_blocked.remove(address)
            if address in self._waiting:
                self._ready[address] = None

    def _forget(self, address: str) -> None:
        """Drop an address without connections; one in the heap goes when its time has come."""
        del self._waiting[address]
        self._ready.pop(address, None)
