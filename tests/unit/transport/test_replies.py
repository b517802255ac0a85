"""Answers that nobody reads: what they hold is counted, bounded, and free when their call ends."""

import asyncio
import gc
import struct
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latermq_broker.config.config import Config, ServerConfig
from latermq_broker.config.server_transport import Http2Config
from latermq_broker.deferred import Later
from latermq_broker.errors import ConfigError, TooManyRequestsError
from latermq_broker.services.call.handler import Call, Method
from latermq_broker.transport.grpc.reply_memory import SMALL_BYTES, ReplyBudget
from latermq_broker.transport.grpc.server_state import Shared
from latermq_broker.transport.grpc.serving import GrpcConnection
from latermq_broker.transport.slow_readers import PROGRESS_BYTES, SlowReaders
from latermq_broker.transport.unconfirmed import Unconfirmed
from latermq_h2.http2 import frames
from latermq_h2.http2.connection import Connection
from latermq_h2.http2.outbound import CHUNK_BYTES
from support.http2_peer import HELLO, REQUEST, SETTINGS_ACK, Frame, data, headers, parse

KIB: Final = 1 << 10
MIB: Final = 1 << 20
SHUT: Final = frames.frame(frames.SETTINGS, 0, 0, struct.pack(">HI", frames.INITIAL_WINDOW_SIZE, 0))
OPEN: Final = frames.frame(
    frames.SETTINGS, 0, 0, struct.pack(">HI", frames.INITIAL_WINDOW_SIZE, frames.WINDOW_MAX)
) + frames.window_update(0, frames.WINDOW_MAX - frames.WINDOW_DEFAULT)
STALL_MS: Final = 5_000


def kept(bodies: list[bytes]) -> list[bool]:
    """Which of them somebody else holds too."""
    alone = [bytes(10_000)]
    return [sys.getrefcount(bodies[at]) > sys.getrefcount(alone[0]) for at in range(len(bodies))]


class Leased(NamedTuple):
    body: bytes
    stored: Later[None]


def given_back(leased: Leased) -> None:
    """Nothing; who is to be called holds what was leased."""


def message(payload: bytes) -> bytes:
    return struct.pack(">BI", 0, len(payload)) + payload


class Reading:
    """Connections of one broker, and a clock.

    /s/R takes room first, as receives do, and answers with as much as it may, at most a MiB, when
    `answer` is called; /s/P gathers a MiB for a page; /s/I does so for each of many; /s/A answers
    with a few bytes.
    """

    def __init__(self, budget: ReplyBudget) -> None:
        self.now_ms = 1_000
        self.budget = budget
        self.leased = 0
        self.made = 0
        self.open: list[tuple[Later[list[bytes]], int]] = []
        methods = {
            b"/s/R": Method.server_stream(self.receive),
            b"/s/P": Method.unary(self.page, reply_bytes=MIB),
            b"/s/I": Method.server_stream(self.pages, reply_bytes=MIB),
            b"/s/A": Method.unary(lambda request, call: request),
        }
        self.shared = Shared(
            methods=methods, calls_max=100_000, message_bytes_max=MIB, other_bytes_max=MIB,
            assembly_bytes_max=4 * MIB, requests_bytes_max=64 * MIB,
            inflated_bytes_max=1 << 20, request_ms_max=5_000,
            streams_max=1_000, gzip_from_bytes=0,
            now_ms=lambda: self.now_ms, replies=budget,
        )  # fmt: skip

    def receive(self, request: bytes, call: Call) -> Later[list[bytes]]:
        size = min(call.reply_room(), MIB)
        call.reserve_reply(size)
        self.leased += 1
        answer: Later[list[bytes]] = Later()
        self.open.append((answer, size))
        return answer

    def answer(self) -> None:
        answers, self.open = self.open, []
        for later, size in answers:
            later.give([bytes(size)])

    async def page(self, request: bytes, call: Call) -> bytes:
        self.made += 1
        await asyncio.sleep(0)
        return bytes(MIB)

    async def pages(self, request: bytes, call: Call) -> AsyncIterator[bytes]:
        for _ in range(20):
            self.made += 1
            yield bytes(MIB)


class Reader:
    """One connection that reads nothing until it opens its windows."""

    def __init__(self, broker: Reading) -> None:
        self._shut = True
        self._next_id = 1
        self.serving = GrpcConnection(
            broker.shared, "192.0.2.1:9", "l:2", "c", lambda: None, Unconfirmed(None).add
        )
        self.connection = Connection(self.serving, Http2Config(), ServerConfig(), broker.now_ms)
        self.serving.serve(self.connection)
        self.serving.receive(HELLO + SETTINGS_ACK + SHUT)
        self.settle()

    def ask(self, path: bytes, payload: bytes = b"") -> list[Frame]:
        wire = headers(self._next_id, block=REQUEST.replace(b"/s/M", path))
        self.serving.receive(wire + data(self._next_id, message(payload), end=True))
        self._next_id += 2
        return self.settle()

    def settle(self) -> list[Frame]:
        """What the shell does at the end of a turn."""
        found = b""
        while taken := self.connection.take():
            found += taken
        self.serving.replies.tell()
        return parse(found)

    def read(self) -> list[Frame]:
        self.serving.receive(OPEN)
        return self.settle()

    def leave(self) -> None:
        self.connection.lost()
        self.serving.replies.forget()

    @property
    def held(self) -> int:
        return self.serving.replies.held


def refused(found: list[Frame]) -> bool:
    """By RESOURCE_EXHAUSTED."""
    return any(b"grpc-status\x018" in one.payload for one in found if one.kind == frames.HEADERS)


async def test_a_connection_that_does_not_read_has_a_bound_and_leases_nothing_beyond_it() -> None:
    broker = Reading(ReplyBudget(64 * MIB, 4 * MIB))
    reader = Reader(broker)
    for _ in range(20):
        reader.ask(b"/s/R")
    assert broker.leased == 4
    broker.answer()
    reader.settle()
    assert reader.held == broker.budget.held_bytes
    assert 4 * MIB <= reader.held < 4 * MIB + KIB
    reader.ask(b"/s/R")
    assert broker.leased == 4
    assert sum(len(one.payload) for one in reader.read() if one.kind == frames.DATA) > 4 * MIB
    assert broker.budget.held_bytes == reader.held == 0
    reader.ask(b"/s/R")
    assert broker.leased == 5


async def test_readers_that_do_not_read_leave_room_for_the_next() -> None:
    broker = Reading(ReplyBudget(16 * MIB, 12 * MIB))
    readers = [Reader(broker) for _ in range(6)]
    for _ in range(30):
        for reader in readers:
            reader.ask(b"/s/R")
        broker.answer()
        for reader in readers:
            reader.settle()
        assert broker.budget.held_bytes <= 16 * MIB + KIB * 6
    assert max(reader.held for reader in readers) < 4 * MIB
    newcomer = Reader(broker)
    before = broker.leased
    newcomer.ask(b"/s/R")
    assert broker.leased == before + 1


async def test_what_is_reserved_ends_with_its_call() -> None:
    broker = Reading(ReplyBudget(8 * MIB, 4 * MIB))
    reader = Reader(broker)
    reader.ask(b"/s/R")
    reader.ask(b"/s/R")
    assert broker.budget.held_bytes == 2 * MIB
    reader.serving.receive(frames.rst_stream(1, frames.ErrorCode.CANCEL))
    reader.settle()
    assert broker.budget.held_bytes == MIB
    reader.leave()
    assert broker.budget.held_bytes == 0
    broker.answer()  # too late
    assert broker.budget.held_bytes == reader.held == 0


async def test_small_answers_go_on_until_they_are_too_many_as_well() -> None:
    broker = Reading(ReplyBudget(8 * MIB, 1 * MIB))
    reader = Reader(broker)
    reader.ask(b"/s/R")
    broker.answer()
    reader.settle()
    assert not refused(reader.ask(b"/s/A", b"ack"))
    counts = [refused(reader.ask(b"/s/A", bytes(10 * KIB))) for _ in range(300)]
    assert counts.index(True) > 90
    assert reader.held < 2 * MIB + 16 * KIB


async def test_where_all_is_full_small_answers_go_to_those_who_read() -> None:
    broker = Reading(ReplyBudget(2 * MIB, 2 * MIB))
    slow = [Reader(broker) for _ in range(8)]
    for reader in slow:
        for _ in range(100):
            reader.ask(b"/s/A", bytes(10 * KIB))
    assert broker.budget.held_bytes < 2 * MIB + 8 * (SMALL_BYTES + 11 * KIB)
    assert not refused(Reader(broker).ask(b"/s/A", b"x"))


async def test_pages_reserve_what_they_gather() -> None:
    broker = Reading(ReplyBudget(8 * MIB, 3 * MIB))
    reader = Reader(broker)
    answers = [reader.ask(b"/s/P") for _ in range(10)]
    assert [refused(found) for found in answers].count(False) == 3
    for _ in range(10):
        await asyncio.sleep(0)
    assert broker.made == 3
    reader.read()
    assert broker.budget.held_bytes == 0


async def test_streams_of_pages_wait_for_room_and_go_on_when_it_is_there() -> None:
    broker = Reading(ReplyBudget(8 * MIB, 3 * MIB))
    readers = [Reader(broker) for _ in range(3)]
    for reader in readers:
        for _ in range(5):
            reader.ask(b"/s/I")

    async def turns() -> None:
        for _ in range(20):
            await asyncio.sleep(0)
            for each in readers:
                each.settle()

    await turns()
    assert broker.budget.held_bytes < 5 * MIB + KIB  # half of it, and what was begun before that
    for reader in readers[1:]:
        reader.leave()
    readers[0].read()
    for _ in range(100):
        await turns()
    assert not [one for one in readers[0].connection.open.values() if one.call is not None]
    assert broker.made >= 100
    assert broker.budget.held_bytes == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("RRRPAcxr")), max_size=60))
def test_the_count_is_what_the_connections_hold(steps: list[tuple[int, str]]) -> None:
    async def run() -> None:
        broker = Reading(ReplyBudget(8 * MIB, 3 * MIB))
        readers = [Reader(broker) for _ in range(4)]
        for number, step in steps:
            reader = readers[number]
            if step == "x":
                reader.leave()
                readers[number] = Reader(broker)
            elif step == "c" and reader.connection.open:
                first = next(iter(reader.connection.open))
                reader.serving.receive(frames.rst_stream(first, frames.ErrorCode.CANCEL))
                reader.settle()
            elif step == "r":
                broker.answer()
                reader.read()
            else:
                reader.ask(b"/s/" + step.encode(), bytes(100))
            await asyncio.sleep(0)
            for each in readers:
                each.settle()
            assert broker.budget.held_bytes == sum(each.held for each in readers)
        for each in readers:
            each.leave()
        assert broker.budget.held_bytes == 0

    asyncio.run(run())


async def test_an_answer_is_free_when_its_call_is_reset_without_a_search_for_circles() -> None:
    bodies: list[bytes] = []

    def elements(leased: Leased, _: None) -> list[bytes]:
        return [b"x", leased.body]

    def receive(stored: list[Later[None]], request: bytes, call: Call) -> Later[list[bytes]]:
        leased = Leased(bytes(MIB), Later())
        bodies.append(leased.body)
        stored.append(leased.stored)
        call.on_cancel(partial(given_back, leased))
        return leased.stored.then(lambda _: written(stored)).mapped(partial(elements, leased))

    def written(stored: list[Later[None]]) -> Later[None]:
        stored.append(Later())
        return stored[-1]

    stored: list[Later[None]] = []
    broker = Reading(ReplyBudget())
    broker.shared.methods = {b"/s/R": Method.server_stream(partial(receive, stored))}
    reader = Reader(broker)
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            reader.ask(b"/s/R")
        while stored:
            stored.pop(0).release()
        reader.settle()
        assert reader.held > 3 * MIB
        assert kept(bodies) == [True] * 3
        for stream_id in (1, 3, 5):
            reader.serving.receive(frames.rst_stream(stream_id, frames.ErrorCode.CANCEL))
        reader.settle()
        assert kept(bodies) == [False] * 3
    finally:
        gc.enable()


async def test_what_was_read_of_a_large_answer_is_free_while_the_rest_waits() -> None:
    bodies: list[bytes] = []

    def receive(request: bytes, call: Call) -> list[bytes]:
        bodies.extend(bytes(CHUNK_BYTES) for _ in range(8))
        return list(bodies)

    broker = Reading(ReplyBudget())
    broker.shared.methods = {b"/s/R": Method.server_stream(receive)}
    reader = Reader(broker)
    reader.ask(b"/s/R")
    reader.serving.receive(frames.window_update(0, 4 * MIB))
    reader.serving.receive(frames.window_update(1, 4 * CHUNK_BYTES))
    reader.settle()
    assert kept(bodies) == [False] * 3 + [True] * 5


class SlowReader:
    def __init__(self, held_bytes: int) -> None:
        self.held_bytes = held_bytes
        self.taken_bytes = 0
        self.ended = False

    def end_unread(self) -> None:
        self.ended = True
        self.held_bytes = 0


class Caller:
    """Waits for room as a stream's call does."""

    def __init__(self) -> None:
        self.cancelled = False
        self.woken = 0
        self.reserved = 0
        self._room = asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        self.woken += 1
        self._room.set_result(None)

    async def more_room(self) -> None:
        self._room = asyncio.get_running_loop().create_future()
        await self._room

    def reserve_reply(self, bytes_count: int) -> None:
        self.reserved += bytes_count


async def test_who_goes_away_while_it_waits_for_room_is_forgotten() -> None:
    budget = ReplyBudget(8 * MIB, 4 * MIB)
    replies = Reader(Reading(budget)).serving.replies
    budget.change(5 * MIB)
    callers = [Caller() for _ in range(100)]
    tasks = [asyncio.create_task(replies.wait(each, KIB)) for each in callers]
    await asyncio.sleep(0)
    budget.tell_some(1)  # it looks again, and waits behind the others
    await asyncio.sleep(0)
    assert list(budget.waiting) == [*callers[1:], callers[0]]
    for task in tasks[:-1]:
        task.cancel()
    await asyncio.gather(*tasks[:-1], return_exceptions=True)
    assert list(budget.waiting) == callers[-1:]
    budget.change(-5 * MIB)
    await tasks[-1]
    assert not budget.waiting
    assert [each.reserved for each in callers] == [0] * 99 + [KIB]


def test_who_does_not_read_is_ended_while_room_is_short_and_only_then() -> None:
    clock = [0]
    ended: list[object] = []
    budget = ReplyBudget(8 * MIB, 4 * MIB)
    readers = SlowReaders(budget, STALL_MS, lambda: clock[0], ended.append)
    stuck, slow, small = SlowReader(3 * MIB), SlowReader(3 * MIB), SlowReader(SMALL_BYTES)
    for reader in (stuck, slow, small):
        readers.watch(reader)
        readers.watch(reader)
    budget.held_bytes = 4 * MIB
    for clock[0] in range(0, 20_000, 1_000):
        readers.look()
    assert not ended
    assert len(readers) == 2
    budget.held_bytes = 5 * MIB
    for clock[0] in range(20_000, 30_000, 1_000):
        slow.taken_bytes += PROGRESS_BYTES // 4
        readers.look()
        if not ended:
            slow.taken_bytes += PROGRESS_BYTES // 4
    assert ended[0] is stuck
    assert stuck.ended
    assert not small.ended


@pytest.mark.parametrize(
    ("contradictory", "names"),
    [
        (lambda: Http2Config(reply_bytes_max=MIB - 1), "http2.reply_bytes_max"),
        (
            lambda: Config(server=ServerConfig(reply_bytes_max=32 * MIB - 1)),
            "server.reply_bytes_max",
        ),
    ],
)
def test_bounds_that_contradict_each_other_are_refused(
    contradictory: Callable[[], Any], names: str
) -> None:
    with pytest.raises(ConfigError, match=names):
        contradictory()


async def test_the_refusal_names_what_waits_and_what_may() -> None:
    broker = Reading(ReplyBudget(64 * MIB, 2 * MIB))
    reader = Reader(broker)
    reader.ask(b"/s/R")
    reader.ask(b"/s/R")
    with pytest.raises(TooManyRequestsError, match=rf"^{2 * MIB} bytes .* at most {2 * MIB} may"):
        reader.serving.replies.check()
