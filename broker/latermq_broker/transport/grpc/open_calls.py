"""Which calls are open, counted as `shares` has them: all, and apart those that are not known.

A call is known once its request is whole, or its stream's first message came: then its handler asks
who it is, where that is asked. What is still unknown after the read that opened it is counted apart
until then; a public one for as long as it lasts. A stream that says nothing, and a public call, end
when their time is over; requests that are not whole have `RequestMemory`'s deadline. When too many
were begun, the one who has most of them, by address and then by connection, loses its oldest.
"""

from dataclasses import dataclass
from typing import Final

from latermq_broker.transport.grpc.call import LeanCall
from latermq_broker.transport.grpc.call_shares import (
    ALL,
    PUBLIC,
    Addresses,
    CallPool,
    Holder,
    Ranking,
    Refused,
)
from latermq_broker.transport.grpc.counts import REFUSED, Counts
from latermq_h2.grpc_code import GrpcCode

TOO_LONG: Final = "open for too long"
TOO_MANY_BEGUN: Final = "too many calls without a whole request"
NOWHERE: Final = Holder()  # the address of a connection that has had no call


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Divides `server.calls_max` among kinds of calls and among addresses."""

    begun_percent: int = 10
    apart_min: int = 100  # of each kind that is counted apart, however few calls there may be
    public_percent: int = 5
    per_address_percent: int = 100
    public_ms_max: int = 600_000


class Timed:
    """Calls of one kind that end when their time is over.

    Args:
        setting: that says so.
    """

    def __init__(self, ms_max: int, setting: str, counts: Counts) -> None:
        self._ms_max = ms_max
        self._setting = setting
        self._counts = counts
        self._since_ms: dict[LeanCall, int] = {}  # in order

    def add(self, call: LeanCall, now_ms: int) -> None:
        self._since_ms[call] = now_ms

    def remove(self, call: LeanCall) -> None:
        self._since_ms.pop(call, None)

    def end_old(self, now_ms: int) -> None:
        """End those whose time is over; call now and then."""
        old: list[LeanCall] = []
        for call, since_ms in self._since_ms.items():
            if now_ms - since_ms < self._ms_max:
                break
            old.append(call)
        for call in old:
            self._counts.add(REFUSED, TOO_LONG)
            text = f"open for {self._ms_max} ms ({self._setting})"
            call.origin.give_up(call, GrpcCode.DEADLINE_EXCEEDED, text)


class BegunCalls:
    """Calls that are not known yet.

    Args:
        streams: ends those that are streams; requests have a deadline elsewhere.
    """

    def __init__(self, count_max: int, streams: Timed, counts: Counts) -> None:
        self.count = 0
        self._count_max = count_max
        self._streams = streams
        self._counts = counts
        self._addresses = Ranking()

    @property
    def is_crowded(self) -> bool:
        """Tell whether a stream's handler must wait for its first message: most would be ended."""
        return 2 * self.count > self._count_max

    def add(self, call: LeanCall, mine: Holder, address: Holder, now_ms: int) -> Refused | None:
        """Count it; if that is one too many, end another, or say why it may not stay."""
        if self.count >= self._count_max:
            refused = self._make_room(mine, address)
            if refused is not None:
                return refused
        self.count += 1
        mine.begun[call] = None
        if address.ranked is None:
            address.ranked = Ranking()
        address.ranked.up(mine)
        self._addresses.up(address)
        if call.is_bidi:
            self._streams.add(call, now_ms)
        return None

    def remove(self, call: LeanCall, mine: Holder, address: Holder) -> None:
        """Take out a call: it is known, or over."""
        assert address.ranked is not None
        self.count -= 1
        del mine.begun[call]
        address.ranked.down(mine)
        self._addresses.down(address)
        self._streams.remove(call)

    def _make_room(self, mine: Holder, address: Holder) -> Refused | None:
        """End the oldest call of who has most, unless that is who comes."""
        text = (
            f"{self.count} calls have no whole request, at most {self._count_max} may be open "
            "(server.calls_begun_percent), and most of them are"
        )
        most = self._addresses.first()
        if most.rank <= address.rank:
            most = address
        assert most.ranked is not None
        victim = most.ranked.first()
        if most is address and victim.rank <= mine.rank:
            return Refused(TOO_MANY_BEGUN, f"{text} on this connection: {mine.rank}")
        call: LeanCall = next(iter(victim.begun))
        self._counts.add(REFUSED, TOO_MANY_BEGUN)
        text = f"{text} from where this one is: {most.rank}"
        call.origin.give_up(call, GrpcCode.RESOURCE_EXHAUSTED, text)
        return None


class OpenCalls:
    """Counts the open calls of one server, by kind and by address, and refuses above the bounds."""

    def __init__(
        self, calls_max: int, streams_max: int, request_ms_max: int, shares: Shares, counts: Counts
    ) -> None:
        self.addresses = Addresses()
        self.counts = counts
        address = shares.per_address_percent
        alone_max = streams_max * 5 // 4  # so that one alone may have all its streams
        self.all = CallPool(ALL, calls_max, alone_max, address, "server.calls_max")
        self.silent = Timed(request_ms_max, "http2.request_ms_max", counts)
        apart_min = min(shares.apart_min, calls_max)
        begun_max = max(apart_min, calls_max * shares.begun_percent // 100)
        self.begun = BegunCalls(begun_max, self.silent, counts)
        public_max = max(apart_min, calls_max * shares.public_percent // 100)
        setting = "server.calls_public_percent"
        self.public = CallPool(PUBLIC, public_max, alone_max, address, setting)
        self.lasting = Timed(shares.public_ms_max, "server.public_call_ms_max", counts)

    def end_old(self, now_ms: int) -> None:
        """End what was opened and says nothing, or lasts; call now and then."""
        self.silent.end_old(now_ms)
        self.lasting.end_old(now_ms)


class ConnectionCalls:
    """Counts the open calls of one connection; its first call joins those of its address."""

    __slots__ = ("_address", "_mine", "_peer", "_server")

    def __init__(self, server: OpenCalls, peer: str) -> None:
        self._server = server
        self._peer = peer
        self._mine = Holder()
        self._address = NOWHERE

    def open(self) -> Refused | None:
        """Count one more call, or say why it may not be."""
        if self._address is NOWHERE:
            self._address = self._server.addresses.join(self._peer)
        return self._enter(self._server.all)

    def set_apart(self, call: LeanCall, now_ms: int) -> Refused | None:
        """Count a call apart that is not known yet, or say why it may not stay."""
        if call.is_apart:
            return None
        server = self._server
        if call.head.method.public:
            refused = self._enter(server.public)
            if refused is None:
                server.lasting.add(call, now_ms)
        else:
            refused = server.begun.add(call, self._mine, self._address, now_ms)
            if refused is not None:
                server.counts.add(REFUSED, refused.reason)
        call.is_apart = refused is None
        return refused

    def know(self, call: LeanCall) -> None:
        """Count a call as known: its request is whole, or a first message came."""
        if call.head.method.public:
            return
        call.known = True
        if call.is_apart:
            self._put_back(call)

    def close(self, call: LeanCall) -> None:
        """Count a call out: it is over."""
        self._server.all.leave(self._mine, self._address)
        if call.is_apart:
            self._put_back(call)

    def leave(self) -> None:
        """Leave the address when the connection and its calls are over; again does nothing."""
        if self._address is not NOWHERE:
            self._server.addresses.leave(self._peer, self._address)
            self._address = NOWHERE

    def _enter(self, pool: CallPool) -> Refused | None:
        refused = pool.refusal(self._mine, self._address)
        if refused is None:
            pool.enter(self._mine, self._address)
        else:
            self._server.counts.add(REFUSED, refused.reason)
        return refused

    def _put_back(self, call: LeanCall) -> None:
        call.is_apart = False
        if call.head.method.public:
            self._server.public.leave(self._mine, self._address)
            self._server.lasting.remove(call)
        else:
            self._server.begun.remove(call, self._mine, self._address)
