"""What arriving requests hold: counted as held, bounded, given up in order, and given back."""

import asyncio
import gzip
import random
import struct
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

import pytest

from latermq_broker.config.config import Config, ServerConfig
from latermq_broker.config.server_transport import Http2Config, held_bytes_max
from latermq_broker.deferred import Later
from latermq_broker.errors import ConfigError
from latermq_broker.services.call.handler import Call, Method
from latermq_h2.hpack.encoder import literal
from latermq_h2.http2 import frames
from support.grpc_served import Served, message, unsettled
from support.http2_peer import HELLO, OPEN_WINDOWS, REQUEST, SETTINGS_ACK, Frame, data, headers

GREETING = HELLO + SETTINGS_ACK + OPEN_WINDOWS
GZIP = literal(b"grpc-encoding", b"gzip")
KIB, MIB = 1 << 10, 1 << 20
Refusal = Sequence[bytes] | Later[list[bytes]] | None


def packed(payload: bytes) -> bytes:
    """A compressed message."""
    body = gzip.compress(payload)
    return struct.pack(">BI", 1, len(body)) + body


def greeted(served: Served) -> Served:
    served.send(GREETING)
    return served


def begun(stream_id: int, path: bytes = b"/s/M", more: bytes = b"") -> bytes:
    return headers(stream_id, block=REQUEST.replace(b"/s/M", path) + more)


def in_frames(stream_id: int, body: bytes, size: int, *, end: bool = False) -> bytes:
    starts = range(0, len(body), size)
    return b"".join(
        data(stream_id, body[at : at + size], end=end and at + size >= len(body)) for at in starts
    )


def statuses(found: list[Frame]) -> dict[int, bytes]:
    """By stream: the block that has its status."""
    return {
        frame.stream_id: frame.payload
        for frame in found
        if frame.kind == frames.HEADERS and b"grpc-status" in frame.payload
    }


def ended(found: list[Frame], status: bytes, text: bytes = b"") -> list[int]:
    """Streams that ended with a status and a text."""
    return [
        stream_id
        for stream_id, block in statuses(found).items()
        if b"grpc-status\x01" + status in block and text in block
    ]


@pytest.fixture
def traced() -> Iterator[Callable[[], int]]:
    """How many bytes more are allocated than at the start."""
    tracemalloc.start()
    start, _ = tracemalloc.get_traced_memory()
    yield lambda: tracemalloc.get_traced_memory()[0] - start
    tracemalloc.stop()


class TestUnary:
    async def test_a_message_that_is_whole_is_held_until_its_stream_ends(self) -> None:
        served = greeted(Served())
        served.send(begun(1) + in_frames(1, message(bytes(100_000)), 16_000))
        await served.settle()
        assert 100_000 < served.shared.memory.held_bytes < 120_000
        served.send(data(1, b"", end=True))
        assert ended(await served.settle(), b"0") == [1]
        served.check_empty()

    async def test_it_is_not_inflated_before_its_stream_ends(
        self, traced: Callable[[], int]
    ) -> None:
        served = greeted(Served())
        bomb = packed(bytes(MIB))
        for number in range(20):
            stream_id = 2 * number + 1
            served.send(begun(stream_id, more=GZIP) + data(stream_id, bomb))
        await served.settle()
        assert served.shared.memory.waiting == 20
        assert traced() < MIB
        served.serving.lost()
        served.check_empty()

    async def test_small_frames_take_no_more_than_large_ones(
        self, traced: Callable[[], int]
    ) -> None:
        served = greeted(Served())
        body = message(bytes(200_000))[:-1]
        before = traced()
        for at in range(0, len(body), 2):
            served.serving.receive((begun(1) if at == 0 else b"") + data(1, body[at : at + 2]))
            served.connection.take()
        held_bytes = served.shared.memory.held_bytes
        assert traced() - before < held_bytes + 10_000
        assert held_bytes < 230_000
        served.serving.lost()
        served.check_empty()

    async def test_a_frame_that_comes_byte_by_byte(self, traced: Callable[[], int]) -> None:
        served = greeted(Served())
        wire = begun(1) + data(1, message(bytes(16_000)))
        before = traced()
        for at in range(len(wire) - 1):
            served.serving.receive(wire[at : at + 1])
        assert traced() - before < 30_000  # 688,000 as objects of their own
        assert 16_000 < served.shared.memory.held_bytes < 20_000
        served.serving.lost()
        served.check_empty()

    async def test_inflating_stops_where_memory_does(self) -> None:
        served = greeted(Served(requests_bytes_max=500_000))
        served.send(begun(1, more=GZIP) + data(1, packed(bytes(MIB)), end=True))
        [refused] = ended(await served.settle(), b"8", b"http2.requests_bytes_max")
        assert refused == 1
        served.check_empty()

    async def test_others_get_their_turn_between_two_that_inflate_too_far(self) -> None:
        served = greeted(Served())
        bomb = packed(random.Random(1).randbytes(10_000) + bytes(2 * MIB))
        wire = b"".join(
            begun(stream_id, more=GZIP) + data(stream_id, bomb, end=True) for stream_id in (1, 3, 5)
        )
        for left in (True, True, False):
            served.serving.receive(wire)
            assert served.connection.input_left == left
            wire = b""
        assert ended(await served.settle(), b"8", b"inflates beyond") == [1, 3, 5]
        served.check_empty()

    async def test_a_request_counts_until_it_is_answered(self) -> None:
        served = greeted(Served())
        served.send(begun(1, b"/s/W") + data(1, message(b""), end=True))
        assert served.shared.memory.held_bytes == 0  # short ones do not
        served.send(begun(3, b"/s/W") + data(3, message(bytes(10_000)), end=True))
        held = served.shared.memory.held_bytes
        assert held == 10_000
        assert served.shared.memory.waiting == 0
        assert ended(await served.settle(), b"0") == [3]
        unsettled[-2].give(b"")
        await served.settle()
        served.check_empty()


class TestRoom:
    async def test_who_waits_longest_makes_room(self) -> None:
        first = greeted(Served(requests_bytes_max=400_000))
        second = greeted(Served(beside=first))
        part = message(bytes(300_000))[:150_000]
        first.send(begun(1) + in_frames(1, part, 16_000))
        second.send(begun(1) + in_frames(1, part, 16_000))
        second.send(begun(3) + in_frames(3, part, 16_000))
        assert ended(await first.settle(), b"8", b"http2.requests_bytes_max") == [1]
        assert first.serving.origin.held_bytes == 0
        assert not ended(await second.settle(), b"8")
        assert first.shared.memory.held_bytes <= 400_000
        for served in (first, second):
            served.serving.lost()
        for served in (first, second):
            served.check_empty()

    async def test_a_large_request_succeeds_beside_many_that_are_stuck(self) -> None:
        stuck = greeted(Served(requests_bytes_max=2 * MIB))
        part = message(bytes(300_000))[:150_000]
        for number in range(40):
            stuck.send(begun(2 * number + 1) + in_frames(2 * number + 1, part, 16_000))
        served = greeted(Served(beside=stuck))
        served.send(begun(1) + in_frames(1, message(bytes(1_000_000)), 16_000, end=True))
        assert ended(await served.settle(), b"0") == [1]
        assert stuck.shared.memory.held_bytes <= 2 * MIB
        stuck.serving.lost()
        stuck.check_empty()

    async def test_one_connection_has_its_share(self) -> None:
        served = greeted(Served(assembly_bytes_max=400_000))
        part = message(bytes(300_000))[:150_000]
        for stream_id in (1, 3, 5):
            served.send(begun(stream_id) + in_frames(stream_id, part, 16_000))
        assert ended(await served.settle(), b"8", b"http2.assembly_bytes_max") == [5]
        served.serving.lost()
        served.check_empty()

    async def test_heads_alone_count(self) -> None:
        served = greeted(Served(requests_bytes_max=100_000))
        text = literal(b"x-long", b"a" * 5_000)
        for number in range(40):
            served.send(begun(2 * number + 1, more=text))
        assert served.shared.memory.held_bytes <= 100_000
        assert len(ended(await served.settle(), b"8")) > 20
        served.serving.lost()
        served.check_empty()

    async def test_frames_that_are_not_whole_count(self) -> None:
        first = greeted(Served(requests_bytes_max=100_000))
        others = [greeted(Served(beside=first)) for _ in range(20)]
        for served in others:
            served.send(frames.frame(frames.DATA, 0, 1, bytes(10_000))[:-1])
        assert first.shared.memory.held_bytes <= 100_000
        assert sum(served.connection.over for served in others) >= 10
        assert not others[0].connection.over
        for served in others:
            served.serving.lost()
        first.check_empty()


class TestDeadline:
    async def test_a_request_has_to_be_whole_in_time_whatever_else_comes(self) -> None:
        served = greeted(Served())
        served.send(begun(1))
        served.send(begun(3) + in_frames(3, message(bytes(20_000)), 16_000))
        for _ in range(3):
            served.now_ms += 1_700
            served.send(frames.frame(frames.PING, 0, 0, bytes(8)))
            served.shared.memory.expire()
        found = await served.settle()
        assert ended(found, b"4", b"not whole after 5000 ms (http2.request_ms_max)") == [1, 3]
        assert [f.code for f in found if f.kind == frames.RST_STREAM] == [0, 0]
        assert served.shared.memory.held_bytes == 0
        assert not served.connection.over

    @pytest.mark.parametrize("reset", [True, False])
    async def test_one_that_whoever_asks_may_have_is_no_exception(self, reset: bool) -> None:
        watched = Method.server_stream(lambda request, call: [request], public=True)
        served = greeted(Served(more={b"/s/P": watched}))
        served.send(begun(1, b"/s/P"))
        assert served.shared.memory.waiting == 1
        assert served.shared.memory.held_bytes > 0
        if reset:
            served.send(frames.rst_stream(1, frames.ErrorCode.CANCEL))
            served.check_empty()
        served.now_ms += 5_000
        served.shared.memory.expire()
        assert reset or ended(await served.settle(), b"4", b"not whole") == [1]
        served.check_empty()

    async def test_what_waits_is_forgotten_though_nothing_is_held(self) -> None:
        served = greeted(Served())
        served.send(begun(1))
        [stream] = served.connection.open.values()
        served.shared.memory.waits(stream.call, 0)
        served.now_ms += 5_000
        served.shared.memory.expire()
        served.check_empty()

    async def test_not_before(self) -> None:
        served = greeted(Served())
        served.send(begun(1))
        served.now_ms += 4_999
        served.shared.memory.expire()
        served.send(data(1, message(b"x"), end=True))
        assert ended(await served.settle(), b"0") == [1]
        served.check_empty()

    async def test_a_message_of_a_stream_too(self) -> None:
        served = greeted(Served())
        served.send(begun(1, b"/s/B") + data(1, message(b"x") + message(b"yyyyyy")[:-4]))
        await served.settle()
        for _ in range(3):
            served.now_ms += 2_000
            served.send(data(1, b"y"))
            await served.settle()
            served.shared.memory.expire()
        assert served.shared.memory.held_bytes == 0
        assert served.shared.calls == 0

    async def test_a_stream_that_is_silent_between_messages_has_none(self) -> None:
        served = greeted(Served())
        served.send(begun(1, b"/s/B") + data(1, message(b"x")))
        await served.settle()
        served.now_ms += 1_000_000
        served.shared.memory.expire()
        assert not served.connection.over
        assert served.shared.calls == 1
        served.send(data(1, message(b"y"), end=True))
        assert ended(await served.settle(), b"0") == [1]


class TestAdmission:
    """A method that is asked before anything of a request is kept."""

    def served(self, asked: list[str], refusal: Refusal) -> Served:
        def admit(call: Call) -> Refusal:
            asked.append(call.path)
            return refusal

        def handler(request: bytes, call: Call) -> bytes:
            asked.append("handled")
            return b"ok"

        return greeted(Served(more={b"/s/A": Method.unary(handler, admit=admit)}))

    async def test_who_is_not_let_in_is_answered_before_the_request_is(self) -> None:
        asked: list[str] = []
        served = self.served(asked, [b"no"])
        served.send(begun(1, b"/s/A", GZIP) + data(1, packed(bytes(MIB))[:500]))
        found = await served.settle()
        assert [f.payload for f in found if f.kind == frames.DATA] == [message(b"no")]
        assert [f.code for f in found if f.kind == frames.RST_STREAM] == [0]
        served.send(data(1, bytes(1_000), end=True))
        assert asked == ["/s/A"]
        served.check_empty()

    @pytest.mark.parametrize("piece", [b"", b"\0"])  # in the same read as the head
    async def test_a_refusal_may_be_kept_back_and_nothing_else_is(self, piece: bytes) -> None:
        asked: list[str] = []
        refusal = Later([b"no"])
        served = self.served(asked, refusal)
        served.send(begun(1, b"/s/A") + (data(1, piece) if piece else b""))
        assert not ended(await served.settle(), b"0")
        served.send(data(1, message(b"abc"), end=True))  # a whole request is not run
        assert not ended(await served.settle(), b"0")
        assert served.shared.memory.held_bytes == 0
        refusal.release()
        found = await served.settle()
        assert [f.payload for f in found if f.kind == frames.DATA] == [message(b"no")]
        assert asked == ["/s/A"]
        served.check_empty()

    async def test_who_leaves_before_a_kept_back_refusal_gets_none(self) -> None:
        refusal = Later([b"no"])
        served = self.served([], refusal)
        served.send(begun(1, b"/s/A"))
        served.send(frames.rst_stream(1, frames.ErrorCode.CANCEL))
        refusal.release()
        assert not [f for f in await served.settle() if f.kind in (frames.DATA, frames.HEADERS)]
        served.check_empty()

    async def test_a_bare_head_is_answered_too(self) -> None:
        asked: list[str] = []
        served = self.served(asked, [b"no"])
        served.send(begun(1, b"/s/A"))
        assert ended(await served.settle(), b"0") == [1]
        served.check_empty()

    async def test_who_is_let_in_is_asked_for_once(self) -> None:
        asked: list[str] = []
        served = self.served(asked, None)
        served.send(begun(1, b"/s/A"))
        served.send(in_frames(1, message(b"abc"), 1, end=True))
        assert ended(await served.settle(), b"0") == [1]
        assert asked == ["/s/A", "handled"]
        served.check_empty()

    async def test_a_request_that_comes_at_once_is_for_the_handler_to_refuse(self) -> None:
        asked: list[str] = []
        served = self.served(asked, [b"no"])
        served.send(begun(1, b"/s/A") + data(1, message(b"x"), end=True))
        assert asked == ["handled"]
        served.check_empty()

    async def test_a_refusal_that_does_not_get_out_is_not_given_twice(self) -> None:
        asked: list[str] = []
        served = self.served(asked, [b"no"])
        no_window = struct.pack(">HI", frames.INITIAL_WINDOW_SIZE, 0)
        served.send(frames.frame(frames.SETTINGS, 0, 0, no_window))
        served.send(begun(1, b"/s/A"))
        served.send(data(1, message(b"x"), end=True))
        assert asked == ["/s/A"]
        served.serving.lost()
        served.check_empty()


class TestStream:
    async def test_messages_are_inflated_one_at_a_time(self, traced: Callable[[], int]) -> None:
        gate = asyncio.Event()
        read: list[int] = []

        async def slow(requests: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
            async for request in requests:
                read.append(len(request))
                await gate.wait()
            yield b""

        served = greeted(Served(more={b"/s/I": Method.bidi_stream(slow)}))
        bombs = packed(bytes(MIB)) * 100
        served.send(begun(1, b"/s/I", GZIP) + in_frames(1, bombs, 16_000, end=True))
        await served.settle()
        assert read == [MIB]
        assert traced() < 2 * MIB
        assert MIB < served.shared.memory.held_bytes < 2 * MIB
        gate.set()
        for _ in range(5):
            await served.settle()
        assert read == [MIB] * 100
        served.check_empty()

    async def test_many_small_messages_wait_as_they_came(self, traced: Callable[[], int]) -> None:
        async def deaf(requests: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
            await asyncio.Event().wait()
            yield b""

        served = greeted(Served(more={b"/s/D": Method.bidi_stream(deaf)}))
        served.send(begun(1, b"/s/D") + in_frames(1, message(b"ab") * 100_000, 16_000))
        await served.settle()
        assert traced() < 1.3 * 700_000
        served.serving.lost()
        await served.settle()
        served.check_empty()

    async def test_who_does_not_read_holds_no_more_than_a_connection_may(self) -> None:
        async def deaf(requests: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
            await asyncio.Event().wait()
            yield b""

        served = greeted(
            Served(more={b"/s/D": Method.bidi_stream(deaf)}, assembly_bytes_max=500_000)
        )
        for stream_id in range(1, 21, 2):
            body = message(bytes(100)) * 1_000
            served.send(begun(stream_id, b"/s/D") + in_frames(stream_id, body, 16_000))
        await served.settle()
        assert served.serving.origin.held_bytes <= 500_000
        assert served.shared.calls == 4
        served.serving.lost()
        await served.settle()
        served.check_empty()


@pytest.mark.parametrize("seed", range(60))
async def test_two_connections_with_little_memory_leave_nothing(seed: int) -> None:
    rng = random.Random(seed)
    first = greeted(Served(requests_bytes_max=60_000, assembly_bytes_max=45_000))
    both = [first, greeted(Served(beside=first))]
    for number in range(rng.randint(5, 30)):
        served, stream_id = rng.choice(both), 2 * number + 1
        path = rng.choice([b"/s/M", b"/s/W", b"/s/B", b"/s/E", b"/s/X"])
        zipped = rng.random() < 0.3
        body = bytes(rng.choice([1, 5_000, 20_000, 60_000]))
        wire = (packed(body) if zipped else message(body))[: rng.choice([None, None, 3, 4_000])]
        served.send(begun(stream_id, path, GZIP if zipped else b""))
        served.send(in_frames(stream_id, wire, 16_000, end=rng.random() < 0.5))
        if rng.random() < 0.3:
            first.now_ms += rng.choice([0, 2_000, 6_000])
            first.shared.memory.expire()
        if rng.random() < 0.5:
            await asyncio.sleep(0)
            served.connection.take()
        assert first.shared.memory.held_bytes <= 60_000
        assert first.shared.memory.held_bytes == sum(
            each.serving.origin.held_bytes for each in both
        )
    for served in both:
        served.serving.lost()
        await served.settle()
    first.check_empty()


class TestLimits:
    def test_the_largest_request_fits(self) -> None:
        enough = held_bytes_max(ServerConfig().request_bytes_max)
        Config(http2=Http2Config(assembly_bytes_max=enough, requests_bytes_max=enough))
        for http2 in (
            Http2Config(assembly_bytes_max=enough - 1),
            Http2Config(requests_bytes_max=enough - 1),
        ):
            with pytest.raises(ConfigError, match=f"must be at least {enough}: a request of"):
                Config(http2=http2)
