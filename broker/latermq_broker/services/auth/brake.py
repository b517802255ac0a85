"""Slows down callers that sign wrongly or not at all, by address and by access key.

A signature is always checked, so a right one passes at once, whatever else comes from its address
and whoever else tries its key. Of wrong ones an address has FAILURES_PER_S, and an access key has
as many over all addresses. Beyond them an answer is bytes that were made before, nothing is logged,
and it waits for its turn: FAILURES_PER_S answers leave a second, however many tries began at once,
and a caller that does not wait for its answer frees no turn. An address with HELD_PER_ADDRESS_MAX
tries that wait loses the connection of each further one, so that trying on costs a new connection
a try.

Bounded in addresses, in keys and in answers kept back.
"""

import asyncio
from collections import OrderedDict
from typing import Any, Final, TypeVar

from latermq_broker.catalog.token_bucket import TokenBucket
from latermq_broker.deferred import Later
from latermq_text.places import network_of

Answer = TypeVar("Answer")

FAILURES_PER_S: Final = 20  # of one address, or with one key; a second's worth may come at once
LANES_MAX: Final = 4_096  # of addresses, and of keys; beyond, the least recently used begin anew
HELD_S: Final = 1.0  # an answer is kept back for so long, or more
HELD_MAX: Final = 4_096  # at a time, of all addresses
HELD_PER_ADDRESS_MAX: Final = 1_024  # the last waits for 52 s, if its caller does
KEY_CHARACTERS_MAX: Final = 64  # of an access key


class _Lane:
    """What one address, or whoever tries one key, did wrong lately."""

    __slots__ = ("bucket", "held", "turn_s")

    def __init__(self, now_ms: int) -> None:
        self.bucket = TokenBucket(FAILURES_PER_S, now_ms)
        self.held = 0
        self.turn_s = 0.0  # by the loop's clock, from when on the next answer may leave


class Brake:
    def __init__(self) -> None:
        # By address and by key, the last that failed last.
        self._addresses: OrderedDict[str, _Lane] = OrderedDict()
        self._keys: OrderedDict[str, _Lane] = OrderedDict()
        self._held: dict[Later[Any], list[_Lane]] = {}
        self._drains = False

    def fails(self, peer: str, key: str, now_ms: int) -> bool:
        """Count a call that nobody signed; tell whether it is one too many of its kind.

        Args:
            key: the access key that it names; "": none.
        """
        braked = False
        for lane in self._lanes(peer, key, now_ms):
            if lane.held or lane.bucket.wait_ms(now_ms):
                braked = True
            else:
                lane.bucket.take(1)
        return braked

    def hold(self, peer: str, key: str, answer: Answer, now_ms: int) -> Later[Answer] | None:
        """Give the answer when its turn comes; None: too many are kept back already."""
        later = Later(answer)
        if self._drains:
            later.release()
            return later
        lanes = self._lanes(peer, key, now_ms)
        if lanes[0].held >= HELD_PER_ADDRESS_MAX or len(self._held) >= HELD_MAX:
            return None
        loop = asyncio.get_running_loop()
        turn_s = max(loop.time() + HELD_S, *(lane.turn_s for lane in lanes))
        for lane in lanes:
            lane.held += 1
            lane.turn_s = turn_s + 1 / FAILURES_PER_S
        self._held[later] = lanes
        loop.call_at(turn_s, self._let_go, later)
        return later

    def drain(self) -> None:
        """Give every answer now, and none later: the broker goes down."""
        self._drains = True
        for later in list(self._held):
            self._let_go(later)

    def _let_go(self, later: Later[Any]) -> None:
        for lane in self._held.pop(later, ()):
            lane.held -= 1
        later.release()

    def _lanes(self, peer: str, key: str, now_ms: int) -> list[_Lane]:
        lanes = [_lane(self._addresses, network_of(peer.rpartition(":")[0]), now_ms)]
        if key:
            lanes.append(_lane(self._keys, key[:KEY_CHARACTERS_MAX], now_ms))
        return lanes


def _lane(lanes: OrderedDict[str, _Lane], name: str, now_ms: int) -> _Lane:
    lane = lanes.get(name)
    if lane is not None:
        lanes.move_to_end(name)
        return lane
    if len(lanes) >= LANES_MAX:
        lanes.popitem(last=False)
    lane = lanes[name] = _Lane(now_ms)
    return lane
