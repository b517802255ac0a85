"""The one gate of all that adds messages to the log on somebody's behalf: limits of what they send.

    SendMessage, RunSchedule ──► admit: refused beyond the limit, and nothing is done
    ticks of a user's schedules ─► wait_ms: they wait, or are missed, as the schedule says
    redrive to a topic ──────────► room: it goes on at the user's rate

Rates are counted by client and by user, from the first call after a limit was set on; buckets of
those that have not sent for the longest time are given up first, full again. A half message counts
when it is sent, not again when its transaction ends. Without limits it costs one look at a flag.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from latermq_broker.catalog.limits import Limits, Scope
from latermq_broker.catalog.token_bucket import TokenBucket
from latermq_broker.errors import TooManyRequestsError

CLIENTS_MAX: Final = 50_000
UNBOUNDED: Final = 1 << 40  # messages, where nothing limits them


class _Buckets(NamedTuple):
    sends: TokenBucket | None
    bytes: TokenBucket | None
    sends_per_s: int
    bytes_per_s: int


class SendGate:
    """Counts messages and bytes of clients and users. A user is named by its access key."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._buckets: OrderedDict[tuple[Scope, str], _Buckets] = OrderedDict()
        self._version = -1

    @property
    def version(self) -> int:
        """Return another number after each change of a limit."""
        return self._limits.version

    def admit(self, client_id: str, user: str, count: int, size: int, now_ms: int) -> None:
        """Count `count` messages in `size` bytes that are about to be stored.

        Args:
            user: "": the call is nobody's.

        Raises:
            TooManyRequestsError: the client or the user has sent all that it may.
        """
        if not self._limits.sends:
            return
        taken = [self._admitted(Scope.CLIENT, client_id, now_ms)]
        if user:
            taken.append(self._admitted(Scope.USER, user, now_ms))
        for buckets in taken:
            _take(buckets, count, size)

    def wait_ms(self, user: str, now_ms: int) -> int:
        """Return for how long the user may not send; 0: it may."""
        if not user or not self._limits.sends:
            return 0
        buckets = self._of(Scope.USER, user, now_ms)
        waits = [each.wait_ms(now_ms) for each in (buckets.sends, buckets.bytes) if each]
        return max(waits, default=0)

    def room(self, user: str, now_ms: int) -> int:
        """Count the messages that the user may send now; 1 at a time where bytes are limited."""
        if self.wait_ms(user, now_ms):
            return 0
        if not user or not self._limits.sends:
            return UNBOUNDED
        buckets = self._of(Scope.USER, user, now_ms)
        if buckets.bytes is not None:
            return 1
        return UNBOUNDED if buckets.sends is None else buckets.sends.whole(now_ms)

    def take(self, user: str, count: int, size: int, now_ms: int) -> None:
        """Count what was stored on the user's behalf, once `wait_ms` or `room` allowed it."""
        if user and self._limits.sends:
            _take(self._of(Scope.USER, user, now_ms), count, size)

    def _admitted(self, scope: Scope, name: str, now_ms: int) -> _Buckets:
        """Return the buckets of a client or user that has something left.

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
                    f"({limit_name(self._limits, scope)}); again in {wait_ms} ms"
                )
        return buckets

    def _of(self, scope: Scope, name: str, now_ms: int) -> _Buckets:
        if self._version != self._limits.version:
            self._version = self._limits.version
            self._buckets.clear()
        key = (scope, name)
        known = self._buckets.get(key)
        if known is not None:
            self._buckets.move_to_end(key)
            return known
        if len(self._buckets) >= CLIENTS_MAX:
            self._buckets.popitem(last=False)
        sends_per_s = self._limits.bound(scope, name, "sends_per_s")
        bytes_per_s = self._limits.bound(scope, name, "bytes_per_s")
        made = _Buckets(
            TokenBucket(sends_per_s, now_ms) if sends_per_s else None,
            TokenBucket(bytes_per_s, now_ms) if bytes_per_s else None,
            sends_per_s,
            bytes_per_s,
        )
        self._buckets[key] = made
        return made


def _take(buckets: _Buckets, count: int, size: int) -> None:
    if buckets.sends is not None:
        buckets.sends.take(count)
    if buckets.bytes is not None:
        buckets.bytes.take(size)


def limit_name(limits: Limits, scope: Scope) -> str:
    """Name where a limit can be seen."""
    part = f"; this is one of {limits.parts} shards, which have a part each"
    shown = part if limits.parts > 1 else ""
    return f"see `latermq limit list`, scope {scope.name.lower()}{shown}"
