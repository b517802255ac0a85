"""Slows down whoever signs calls wrongly or not at all, address by address.

A call that is signed rightly never comes here, so nobody can have an honest user behind the same
address refused or slowed down. Of the others an address has FAILURES_PER_S; beyond them a refusal
is bytes that were made before, nothing is logged, and it is kept back for HELD_MS, as long as not
too many are: who tries one secret after the other tries one in so long, and a client that does not
stop to ask with a wrong secret costs next to nothing.

Bounded in addresses, in answers kept back, and in lines of the log.
"""

import asyncio
from collections import OrderedDict
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Final, TypeVar

from latermq_broker.deferred import Later
from latermq_broker.services.messaging.token_bucket import TokenBucket

Answer = TypeVar("Answer")

FAILURES_PER_S: Final = 20  # of one address; a second's worth may come at once
ADDRESSES_MAX: Final = 4_096  # beyond, those that failed the longest ago begin anew
HELD_MS: Final = 1_000
HELD_MAX: Final = 512  # at a time, of all addresses
HELD_PER_ADDRESS_MAX: Final = 32  # further ones are refused at once
COMPLAIN_MS: Final = 60_000  # one line in the log per address and kind in so long
COMPLAINTS_MAX: Final = 120  # and so many of all in as long
_NETWORK_BITS: Final = 64  # of an IPv6 address; one host has all that follow


class _Address:
    """What one address did wrong lately."""

    __slots__ = ("bucket", "held", "told_ms")

    def __init__(self, now_ms: int) -> None:
        self.bucket = TokenBucket(FAILURES_PER_S, now_ms)
        self.held = 0
        self.told_ms: dict[str, int] = {}  # by the kind of line


class Brake:
    def __init__(self) -> None:
        self._addresses: OrderedDict[str, _Address] = OrderedDict()  # of the last failure last
        self._held = 0
        self._minute_ms = 0
        self._complaints = 0

    def fails(self, peer: str, now_ms: int) -> bool:
        """Count a call that nobody signed; tell whether its address has used up what it has."""
        bucket = self._address(peer, now_ms).bucket
        if bucket.wait_ms(now_ms):
            return True
        bucket.take(1)
        return False

    def hold(self, peer: str, answer: Answer, now_ms: int) -> Later[Answer]:
        """Give the answer HELD_MS from now; at once, if too many are kept back already."""
        later = Later(answer)
        address = self._address(peer, now_ms)
        if self._held >= HELD_MAX or address.held >= HELD_PER_ADDRESS_MAX:
            later.release()
            return later
        self._held += 1
        address.held += 1
        asyncio.get_running_loop().call_later(HELD_MS / 1_000, self._let_go, address, later)
        return later

    def complains(self, peer: str, kind: str, now_ms: int) -> bool:
        """Tell whether the log is to have a line about this address now."""
        told_ms = self._address(peer, now_ms).told_ms
        if abs(now_ms - told_ms.get(kind, -COMPLAIN_MS)) < COMPLAIN_MS:
            return False
        if abs(now_ms - self._minute_ms) >= COMPLAIN_MS:
            self._minute_ms, self._complaints = now_ms, 0
        self._complaints += 1
        if self._complaints > COMPLAINTS_MAX:
            return False
        told_ms[kind] = now_ms
        return True

    def _let_go(self, address: _Address, later: Later[Answer]) -> None:
        self._held -= 1
        address.held -= 1
        later.release()

    def _address(self, peer: str, now_ms: int) -> _Address:
        name = network_of(peer.rpartition(":")[0])
        addresses = self._addresses
        address = addresses.get(name)
        if address is not None:
            addresses.move_to_end(name)
            return address
        if len(addresses) >= ADDRESSES_MAX:
            addresses.popitem(last=False)
        address = addresses[name] = _Address(now_ms)
        return address


@lru_cache(maxsize=ADDRESSES_MAX)
def network_of(host: str) -> str:
    """The part of an address that one host cannot change: of IPv6 its first half."""
    if not host.startswith("["):
        return host
    try:
        address = IPv6Address(host[1:-1].partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{int(address) >> _NETWORK_BITS:x}"
