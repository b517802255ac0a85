"""Places of connections that have not said what they want, shared by address: no sockets, no loop.

A full house gives a newcomer the place of the oldest connection of the address that has most, so
that nobody keeps others out by connecting and saying nothing.
"""

import ipaddress
from functools import lru_cache
from typing import Final, Generic, TypeVar

IPV6_PREFIX: Final = 64  # bits of the network that one owner has at least
HOSTS_KEPT: Final = 4_096  # texts whose network is remembered

Item = TypeVar("Item")


class Places(Generic[Item]):
    """A number of places.

    Args:
        places_max: connections at once.
    """

    def __init__(self, places_max: int) -> None:
        self.count = 0
        self._places_max = places_max
        self._taken: dict[str, dict[Item, None]] = {}  # by address, the oldest first

    def take(self, host: str, item: Item) -> Item | None:
        """Give a connection from `host` a place; return the one that has lost its place for it."""
        loser = None
        if self.count >= self._places_max:
            crowded = max(self._taken, key=lambda each: len(self._taken[each]))
            loser = next(iter(self._taken[crowded]))
            self._drop(crowded, loser)
        self._taken.setdefault(network_of(host), {})[item] = None
        self.count += 1
        return loser

    def leave(self, host: str, item: Item) -> None:
        """Take a connection's place back: it said what it wants, or is over; again does nothing."""
        address = network_of(host)
        if item in self._taken.get(address, ()):
            self._drop(address, item)

    def _drop(self, address: str, item: Item) -> None:
        self.count -= 1
        del self._taken[address][item]
        if not self._taken[address]:
            del self._taken[address]


@lru_cache(maxsize=HOSTS_KEPT)
def network_of(host: str) -> str:
    """Name the owner of an address: an IPv4 address, an IPv6 network of 64 bits, or ::1.

    Text that is no address stays as it is.
    """
    host = host.strip("[]").partition("%")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    if address.is_loopback:
        return str(address)
    return str(ipaddress.ip_network((address, IPV6_PREFIX), strict=False))
