"""Calls that are opened and say nothing: few of all, shared by who opens them, and not for ever."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latermq_broker.config.config import ServerConfig
from latermq_broker.config.server_transport import Http2Config
from latermq_broker.deferred import Later
from latermq_broker.errors import ConfigError
from latermq_broker.services.call.handler import Call, Method
from latermq_broker.transport.grpc.call_shares import (
    ADDRESS_MIN,
    ALL,
    CONNECTION_MIN,
    HERE,
    Addresses,
    CallPool,
    Holder,
    owner_of,
)
from latermq_broker.transport.grpc.open_calls import TOO_LONG, TOO_MANY_BEGUN, Shares
from latermq_broker.transport.grpc.server_state import Shared
from latermq_broker.transport.grpc.serving import GrpcConnection
from latermq_broker.transport.unconfirmed import Unconfirmed
from latermq_h2.http2 import frames
from latermq_h2.http2.connection import Connection
from support.http2_peer import (
    HELLO,
    OPEN_WINDOWS,
    REQUEST,
    SETTINGS_ACK,
    Frame,
    data,
    headers,
    parse,
)

CALLS_MAX: Final = 50_000
STREAMS_MAX: Final = 1_000
REQUEST_MS: Final = 20_000
PUBLIC_MS: Final = 600_000
SHUT: Final = frames.frame(frames.SETTINGS, 0, 0, struct.pack(">HI", frames.INITIAL_WINDOW_SIZE, 0))
EMPTY: Final = bytes(5)  # a message without a byte


class Broker:
    """A server whose connections are in memory, and a clock."""

    def __init__(self, calls_max: int = CALLS_MAX, **shares: Any) -> None:
        self.now_ms = 1_000
        self.polls: list[Later[bytes]] = []
        methods = {
            b"/s/M": Method.unary(lambda request, call: request),
            b"/s/P": Method.unary(self.poll),
            b"/s/W": Method.server_stream(self.watch, public=True),
            b"/s/T": Method.bidi_stream(self.talk),
            b"/s/R": Method.bidi_stream(self.refuse),
        }
        self.shared = Shared(
            methods=methods, calls_max=calls_max, message_bytes_max=1 << 20,
            other_bytes_max=1 << 20, assembly_bytes_max=1 << 30, requests_bytes_max=1 << 30,
            request_ms_max=REQUEST_MS, streams_max=STREAMS_MAX, gzip_from_bytes=0,
            now_ms=lambda: self.now_ms, shares=Shares(**shares),
        )  # fmt: skip

    def poll(self, request: bytes, call: Call) -> Later[bytes]:
        self.polls.append(Later())
        return self.polls[-1]

    async def watch(self, request: bytes, call: Call) -> AsyncIterator[bytes]:
        yield b"serving"
        await asyncio.Event().wait()

    async def talk(self, requests: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request

    async def refuse(self, requests: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
        yield b"no"

    @property
    def refused(self) -> dict[str, int]:
        return self.shared.counts.of("refused")

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


class Caller:
    """One connection."""

    def __init__(self, broker: Broker, host: str = "192.0.2.1") -> None:
        self._next_id = 1
        self.serving = GrpcConnection(
            broker.shared, f"{host}:9", "l:2", "c", lambda: None, Unconfirmed(None).add
        )
        limits = Http2Config(streams_max=STREAMS_MAX)
        self.connection = Connection(self.serving, limits, ServerConfig(), broker.now_ms)
        self.serving.serve(self.connection)
        self.send(HELLO + SETTINGS_ACK + OPEN_WINDOWS)

    def send(self, wire: bytes) -> list[Frame]:
        self.serving.receive(wire)
        while self.connection.input_left:
            self.serving.receive(b"")
        return self.taken()

    def taken(self) -> list[Frame]:
        found = b""
        while some := self.connection.take():
            found += some
        return parse(found)

    def bare(self, path: bytes = b"/s/M", count: int = 1) -> list[Frame]:
        """HEADERS, and nothing after them."""
        return self.send(b"".join(self._head(path)[1] for _ in range(count)))

    def ask(self, path: bytes = b"/s/M", count: int = 1) -> list[Frame]:
        """Whole requests, all in one read."""
        heads = [self._head(path) for _ in range(count)]
        return self.send(b"".join(head + data(at, EMPTY, end=True) for at, head in heads))

    @property
    def open(self) -> int:
        return len(self.connection.open)

    def _head(self, path: bytes) -> tuple[int, bytes]:
        stream_id = self._next_id
        self._next_id += 2
        return stream_id, headers(stream_id, block=REQUEST.replace(b"/s/M", path))


def codes(found: list[Frame]) -> list[int]:
    """The gRPC status of each answer, of those with a digit."""
    payloads = [one.payload for one in found if one.kind == frames.HEADERS]
    marks = [(each, each.find(b"grpc-status\x01")) for each in payloads]
    return [int(each[at + 12 : at + 13]) for each, at in marks if at >= 0]


@pytest.mark.parametrize("path", [b"/s/M", b"/s/T"])
async def test_bare_headers_take_few_of_all_calls_and_nothing_from_who_says_what_he_wants(
    path: bytes,
) -> None:
    broker = Broker()
    silent = [Caller(broker, f"192.0.2.{number}") for number in range(56)]
    for caller in silent:
        caller.bare(path, STREAMS_MAX)
        await broker.settle()
    assert broker.shared.calls <= CALLS_MAX // 10
    assert broker.refused[TOO_MANY_BEGUN] > 30_000
    assert min(caller.open for caller in silent) > CALLS_MAX // 10 // 56 - 2
    newcomer = Caller(broker, "198.51.100.1")
    newcomer.ask(b"/s/P", 700)
    assert len(broker.polls) == 700
    newcomer.bare(count=20)  # uploads, too
    assert newcomer.open == 720
    silent[0].taken()
    assert not codes(silent[0].ask(b"/s/P"))
    for caller in [*silent, newcomer]:
        caller.serving.lost()
    assert broker.shared.calls == broker.shared.open.begun.count == 0
    assert len(broker.shared.open.addresses) == 0


async def test_a_request_that_becomes_whole_is_one_of_all() -> None:
    broker = Broker(calls_max=100, apart_min=10)  # 10 of them may be begun
    caller = Caller(broker)
    caller.bare(b"/s/P", 10)
    assert codes(caller.bare(b"/s/P", 1)) == [8]
    assert broker.shared.open.begun.count == 10
    for stream_id in range(1, 21, 2):
        caller.send(data(stream_id, EMPTY, end=True))
    assert broker.shared.open.begun.count == 0
    assert len(broker.polls) == broker.shared.calls == 10
    caller.bare(b"/s/P", 10)
    assert caller.open == 20


async def test_who_has_begun_most_makes_room_for_who_comes() -> None:
    broker = Broker(calls_max=100, apart_min=10)
    crowd = [Caller(broker) for _ in range(4)]
    for caller, count in zip(crowd, (4, 3, 2, 1), strict=True):
        caller.bare(b"/s/P", count)
    elsewhere = Caller(broker, "198.51.100.1")
    elsewhere.bare(b"/s/P", 5)
    assert [caller.open for caller in crowd] == [2, 1, 1, 1]
    assert elsewhere.open == 5
    assert codes(elsewhere.bare(b"/s/P")) == [8]  # each address has half
    assert codes(crowd[0].taken()) == [8, 8]
    assert 1 not in crowd[0].connection.open  # the oldest goes
    assert codes(crowd[0].bare(b"/s/P")) == [8]
    crowd[3].bare(b"/s/P")  # from the same address, and there from who has more
    assert [caller.open for caller in crowd] == [1, 1, 1, 2]


@pytest.mark.parametrize("late", [True, False])
async def test_who_does_not_read_its_refusals_keeps_no_place_by_that(late: bool) -> None:
    broker = Broker(calls_max=100, apart_min=10)
    caller = Caller(broker)
    caller.send(SHUT)
    caller.bare(b"/s/R", 6)
    await broker.settle()
    begun = broker.shared.open.begun
    assert begun.count == 6
    if late:
        broker.now_ms += REQUEST_MS
        broker.shared.open.end_old(broker.now_ms)
        await broker.settle()
        assert begun.count == 0
    others = [Caller(broker, f"198.51.100.{number}") for number in range(9)]
    for other in others:
        other.bare()
        assert begun.count <= 10
    assert [other.open for other in others] == [1] * 9
    assert broker.shared.calls == begun.count
    caller.serving.lost()
    assert broker.shared.calls == 9


async def test_a_stream_is_known_by_its_first_message() -> None:
    broker = Broker(calls_max=100, apart_min=10)
    caller = Caller(broker)
    caller.bare(b"/s/T", 2)
    assert broker.shared.open.begun.count == 2
    caller.send(data(1, EMPTY))
    await broker.settle()
    assert broker.shared.open.begun.count == 1
    broker.now_ms += REQUEST_MS
    broker.shared.open.end_old(broker.now_ms)
    await broker.settle()
    assert codes(caller.taken()) == [4]
    assert broker.refused == {TOO_LONG: 1}
    assert list(caller.connection.open) == [1]


async def test_public_calls_are_few_and_end() -> None:
    broker = Broker(calls_max=2_000)  # 100 of them may be public
    callers = [Caller(broker, f"192.0.2.{number}") for number in range(20)]
    for caller in callers:
        caller.ask(b"/s/W", 50)
        await broker.settle()
    assert broker.shared.calls <= 100
    assert not codes(callers[0].ask(b"/s/P", 50))
    assert len(broker.polls) == 50
    broker.now_ms += PUBLIC_MS - 1
    broker.shared.open.end_old(broker.now_ms)
    assert broker.shared.open.public.count > 50
    broker.now_ms += 1
    broker.shared.open.end_old(broker.now_ms)
    await broker.settle()
    assert broker.shared.open.public.count == 0
    assert broker.shared.calls == 50
    assert not [one for caller in callers for one in caller.serving.answers.running]


async def test_calls_that_wait_are_shared_among_connections_and_addresses() -> None:
    broker = Broker()
    first = Caller(broker)
    first.ask(b"/s/P", STREAMS_MAX)
    assert len(broker.polls) == STREAMS_MAX  # alone it may have all its streams
    others = [Caller(broker) for _ in range(200)]
    for caller in others:
        caller.ask(b"/s/P", STREAMS_MAX)
    assert broker.shared.calls <= CALLS_MAX // 2
    assert broker.refused.keys() == {
        "too many calls of one connection", "too many calls from one address"
    }  # fmt: skip
    elsewhere = Caller(broker, "198.51.100.1")
    before = len(broker.polls)
    elsewhere.ask(b"/s/P", 400)
    assert len(broker.polls) == before + 400


async def test_who_shares_an_address_by_right_is_not_bounded_by_it() -> None:
    for host, shares in (("127.0.0.1", {}), ("192.0.2.1", {"per_address_percent": 0})):
        broker = Broker(calls_max=2_000, **shares)
        for _ in range(400):
            Caller(broker, host).ask(b"/s/P", 4)
        assert len(broker.polls) == 1_600
        assert not broker.refused


def test_shares_shrink_with_what_is_left_but_everybody_may_have_some() -> None:
    pool = CallPool(ALL, CALLS_MAX, STREAMS_MAX, 100, "server.calls_max")
    everywhere, one, other = Holder(bounded=False), Holder(), Holder()

    def take(holder: Holder) -> int:
        count = 0
        while pool.refusal(holder, everywhere) is None:
            pool.enter(holder, everywhere)
            count += 1
        return count

    assert 955 <= take(one) <= 970
    assert 910 <= take(other) <= 940
    for _ in range(CALLS_MAX - pool.count - CONNECTION_MIN):
        pool.enter(Holder(), everywhere)
    last = Holder()
    assert take(last) == CONNECTION_MIN
    refused = pool.refusal(Holder(), everywhere)
    assert refused is not None
    assert refused.reason == "too many calls at once"
    assert "50000" in refused.message
    assert "server.calls_max" in refused.message


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 40),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("MPWTbdrx")), max_size=80),
)
def test_counts_are_what_is_open(calls_max: int, steps: list[tuple[int, str]]) -> None:
    async def run() -> None:
        broker = Broker(calls_max=calls_max)
        hosts = ["127.0.0.1", "192.0.2.1", "192.0.2.1", "2001:db8::1"]
        callers = [Caller(broker, host) for host in hosts]
        for number, step in steps:
            caller = callers[number]
            first = next(iter(caller.connection.open), 0)
            if step == "x":
                caller.serving.lost()
                callers[number] = Caller(broker, hosts[number])
            elif step == "r" and first:
                caller.send(frames.rst_stream(first, frames.ErrorCode.CANCEL))
            elif step == "d" and first and caller.connection.open[first].input_open:
                caller.send(data(first, EMPTY, end=True))
            elif step in "bdr":
                caller.bare(b"/s/P")
            else:
                caller.ask(b"/s/" + step.encode())
            await broker.settle()
            opened = broker.shared.open
            calls = [one.call for each in callers for one in each.connection.open.values()]
            assert opened.all.count == len(calls) <= calls_max
            apart = [call.head.method.public for call in calls if call.is_apart]
            assert (opened.public.count, opened.begun.count) == (
                apart.count(True), apart.count(False)
            )  # fmt: skip
        for each in callers:
            each.serving.lost()
        opened = broker.shared.open
        assert opened.all.count == opened.begun.count == opened.public.count == 0
        assert len(opened.addresses) == 0
        await broker.settle()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("peer", "owner"),
    [
        ("192.0.2.1:7", "192.0.2.1"),
        ("[2001:db8:0:1:2:3:4:5]:7", "2001:db8:0:1::/64"),
        ("[::ffff:192.0.2.1]:7", "192.0.2.1"),
        ("[fe80::1%eth0]:7", "fe80::/64"),
        ("127.0.0.9:7", HERE),
        ("[::1]:7", HERE),
        ("[::ffff:127.0.0.1]:7", HERE),
        ("", ""),
    ],
)
def test_who_counts_as_one(peer: str, owner: str) -> None:
    assert owner_of(peer) == owner


def test_an_address_is_forgotten_with_its_last_connection() -> None:
    addresses = Addresses()
    holders = [addresses.join(f"192.0.2.1:{port}") for port in (1, 2)]
    assert holders[0] is holders[1]
    addresses.leave("192.0.2.1:1", holders[0])
    assert len(addresses) == 1
    addresses.leave("192.0.2.1:2", holders[1])
    assert len(addresses) == 0


def test_an_address_may_have_some_whatever_is_left() -> None:
    pool = CallPool(ALL, 1_000, STREAMS_MAX, 1, "server.calls_max")
    address = Holder()
    for _ in range(ADDRESS_MIN):
        mine = Holder()
        assert pool.refusal(mine, address) is None
        pool.enter(mine, address)
    refused = pool.refusal(Holder(), address)
    assert refused is not None
    assert refused.reason == "too many calls from one address"


@pytest.mark.parametrize(
    "contradictory",
    [
        lambda: ServerConfig(calls_begun_percent=40, calls_public_percent=11),
        lambda: ServerConfig(calls_begun_percent=0),
        lambda: ServerConfig(calls_per_address_percent=-1),
        lambda: ServerConfig(public_call_ms_max=0),
    ],
)
def test_bounds_that_make_no_sense_are_refused(contradictory: Callable[[], Any]) -> None:
    with pytest.raises(ConfigError):
        contradictory()
