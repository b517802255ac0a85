"""Flow control: who sends, waits or holds more than its limit is told TOO_MANY_REQUESTS.

The message names the limit, how it can be seen, and for rates when to come again. Without limits a
call costs one look at a flag. Rates are counted by client and by user, from the first call after a
limit was set on; buckets of those that have not called for the longest time are given up first,
full again. A client chooses its id, and may take another with each call: what is to hold for those
who run it is a limit of their user, within which those of its clients stay.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from latermq_broker.catalog.access import User
from latermq_broker.catalog.limits import Scope
from latermq_broker.engine.catalog.limit_rules import LimitAdmin
from latermq_broker.engine.state.model import ReceiveRequest
from latermq_broker.errors import TooManyRequestsError
from latermq_broker.services.messaging.token_bucket import TokenBucket

CLIENTS_MAX: Final = 50_000


class _Buckets(NamedTuple):
    sends: TokenBucket | None
    bytes: TokenBucket | None
    sends_per_s: int
    bytes_per_s: int


class FlowControl:
    def __init__(self, limits: LimitAdmin) -> None:
        self._limits = limits
        self.table = limits.table
        self._buckets: OrderedDict[tuple[Scope, str], _Buckets] = OrderedDict()
        self._version = -1

    def admit_send(
        self, client_id: str, count: int, size: int, now_ms: int, user: User | None
    ) -> None:
        """Call when `table.sends` is set, before a send of `count` messages in `size` bytes.

        Raises TooManyRequestsError.
        """
        taken = [self._admitted(Scope.CLIENT, client_id, now_ms)]
        if user is not None:
            taken.append(self._admitted(Scope.USER, user.access_key, now_ms))
        for buckets in taken:
            if buckets.sends is not None:
                buckets.sends.take(count)
            if buckets.bytes is not None:
                buckets.bytes.take(size)

    def _admitted(self, scope: Scope, name: str, now_ms: int) -> _Buckets:
        """List the buckets of a client or user that has something left.

        Raises TooManyRequestsError.
        """
        buckets = self._of(scope, name, now_ms)
        for bucket, most, what in (
            (buckets.sends, buckets.sends_per_s, "messages per second"),
            (buckets.bytes, buckets.bytes_per_s, "bytes per second"),
        ):
            if bucket is not None and (wait_ms := bucket.wait_ms(now_ms)):
                raise TooManyRequestsError(
                    f"{scope.name.lower()} {name} may send {most} {what} "
                    f"({self._limit_name(scope)}); again in {wait_ms} ms"
                )
        return buckets

    def admit_polls_of(self, scope: Scope, name: str, waiting: int) -> None:
        """Call when `table.polls` is set, before one more waits. Raises TooManyRequestsError."""
        most = self.table.bound(scope, name, "parked_polls")
        if most and waiting >= most:
            raise TooManyRequestsError(
                f"{waiting} receives of {scope.name.lower()} {name} wait, at most {most} may "
                f"({self._limit_name(scope)})"
            )

    def fitted(self, receive: ReceiveRequest) -> ReceiveRequest:
        """Call when `table.in_flight` is set: as many as the group may still hold.

        Raises TooManyRequestsError: none.
        """
        most = self.table.bound(Scope.GROUP, receive.group, "in_flight")
        if not most:
            return receive
        held = self._limits.in_flight(receive.group)
        if held >= most:
            raise TooManyRequestsError(
                f"{held} messages of group {receive.group} are in flight, at most {most} may be "
                f"({self._limit_name(Scope.GROUP)})"
            )
        return receive._replace(count_max=min(receive.count_max, most - held))

    def _of(self, scope: Scope, name: str, now_ms: int) -> _Buckets:
        if self._version != self.table.version:
            self._version = self.table.version
            self._buckets.clear()
        key = (scope, name)
        known = self._buckets.get(key)
        if known is not None:
            self._buckets.move_to_end(key)
            return known
        if len(self._buckets) >= CLIENTS_MAX:
            self._buckets.popitem(last=False)
        sends_per_s = self.table.bound(scope, name, "sends_per_s")
        bytes_per_s = self.table.bound(scope, name, "bytes_per_s")
        made = _Buckets(
            TokenBucket(sends_per_s, now_ms) if sends_per_s else None,
            TokenBucket(bytes_per_s, now_ms) if bytes_per_s else None,
            sends_per_s,
            bytes_per_s,
        )
        self._buckets[key] = made
        return made

    def _limit_name(self, scope: Scope) -> str:
        parts = self.table.parts
        part = f"; this is one of {parts} shards, which have a part each" if parts > 1 else ""
        return f"see `latermq limit list`, scope {scope.name.lower()}{part}"
