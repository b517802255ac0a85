"""Slows down whoever signs calls wrongly or not at all, address by address.

A call that is signed rightly never comes here, so nobody can have an honest user behind the same
address refused or slowed down. Of the others an address has FAILURES_PER_S; beyond them a refusal
is bytes that were made before, nothing is logged, and it is kept back for HELD_MS, as long as not
too many are: who tries one secret after the other tries one in so long, and a client that does not
stop to ask with a wrong secret costs next to nothing.

Bounded in addresses and in answers kept back.
"""

import asyncio
from collections import OrderedDict
from typing import Final, TypeVar

from latermq_broker.deferred import Later
from latermq_broker.observability.complaints import network_of
from latermq_broker.services.messaging.token_bucket import TokenBucket

Answer = TypeVar("Answer")

FAILURES_PER_S: Final = 20  # of one address; a second's worth may come at once
ADDRESSES_MAX: Final = 4_096  # beyond, those that failed the longest ago begin anew
HELD_MS: Final = 1_000
HELD_MAX: Final = 512  # at a time, of all addresses
HELD_PER_ADDRESS_MAX: Final = 32  # further ones are refused at once


class _Address:
    """What one address did wrong lately."""

    __slots__ = ("bucket", "held")

    def __init__(self, now_ms: int) -> None:
        self.bucket = TokenBucket(FAILURES_PER_S, now_ms)
        self.held = 0


class Brake:
    def __init__(self) -> None:
        self._addresses: OrderedDict[str, _Address] = OrderedDict()  # of the last failure last
        self._held = 0

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
