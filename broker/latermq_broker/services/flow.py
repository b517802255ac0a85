"""Flow control: who sends, waits or holds more than its limit is told TOO_MANY_REQUESTS.

The message names the limit, how it can be seen, and for rates when to come again. Without limits a
call costs one look at a flag. Rates are counted by client, from the first call after a limit was
set on; buckets of clients that have not called for the longest time are given up first, full again.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from latermq_broker.delivery.token_bucket import TokenBucket
from latermq_broker.engine.limits import LimitAdmin
from latermq_broker.engine.model import ReceiveRequest
from latermq_broker.errors import TooManyRequestsError
from latermq_broker.store.limits import Scope

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
        self._buckets: OrderedDict[str, _Buckets] = OrderedDict()
        self._version = -1

    def admit_send(self, client_id: str, count: int, size: int, now_ms: int) -> None:
        """Call when `table.sends` is set, before a send of `count` messages in `size` bytes.

        Raises TooManyRequestsError.
        """
        buckets = self._of(client_id, now_ms)
        for bucket, most, what in (
            (buckets.sends, buckets.sends_per_s, "messages per second"),
            (buckets.bytes, buckets.bytes_per_s, "bytes per second"),
        ):
            if bucket is not None and (wait_ms := bucket.wait_ms(now_ms)):
                raise TooManyRequestsError(
                    f"client {client_id} may send {most} {what} ({_told(Scope.CLIENT)}); "
                    f"again in {wait_ms} ms"
                )
        if buckets.sends is not None:
            buckets.sends.take(count)
        if buckets.bytes is not None:
            buckets.bytes.take(size)

    def admit_poll(self, client_id: str, group: str, of_client: int, of_group: int) -> None:
        """Call when `table.polls` is set, before one more waits. Raises TooManyRequestsError."""
        for scope, name, waiting in (
            (Scope.CLIENT, client_id, of_client),
            (Scope.GROUP, group, of_group),
        ):
            most = self.table.bound(scope, name, "parked_polls")
            if most and waiting >= most:
                raise TooManyRequestsError(
                    f"{waiting} receives of {scope.name.lower()} {name} wait, at most {most} may "
                    f"({_told(scope)})"
                )

    def fitted(self, wanted: ReceiveRequest) -> ReceiveRequest:
        """Call when `table.in_flight` is set: as many as the group may still hold.

        Raises TooManyRequestsError: none.
        """
        most = self.table.bound(Scope.GROUP, wanted.group, "in_flight")
        if not most:
            return wanted
        held = self._limits.in_flight(wanted.group)
        if held >= most:
            raise TooManyRequestsError(
                f"{held} messages of group {wanted.group} are in flight, at most {most} may be "
                f"({_told(Scope.GROUP)})"
            )
        return wanted._replace(count_max=min(wanted.count_max, most - held))

    def _of(self, client_id: str, now_ms: int) -> _Buckets:
        if self._version != self.table.version:
            self._version = self.table.version
            self._buckets.clear()
        known = self._buckets.get(client_id)
        if known is not None:
            self._buckets.move_to_end(client_id)
            return known
        if len(self._buckets) >= CLIENTS_MAX:
            self._buckets.popitem(last=False)
        sends_per_s = self.table.bound(Scope.CLIENT, client_id, "sends_per_s")
        bytes_per_s = self.table.bound(Scope.CLIENT, client_id, "bytes_per_s")
        made = _Buckets(
            TokenBucket(sends_per_s, now_ms) if sends_per_s else None,
            TokenBucket(bytes_per_s, now_ms) if bytes_per_s else None,
            sends_per_s,
            bytes_per_s,
        )
        self._buckets[client_id] = made
        return made


def _told(scope: Scope) -> str:
    return f"see `latermq limit list`, scope {scope.name.lower()}"
