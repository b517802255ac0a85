"""Each way to make a server work for nothing ends with the listed code, and nothing is left."""

import struct
import tracemalloc
from collections.abc import Iterator

import pytest

from latermq_h2.hpack.encoder import integer, literal
from latermq_h2.http2 import frames
from latermq_h2.http2.control import KEEPALIVE_PING
from latermq_h2.http2.frames import ErrorCode
from latermq_h2.http2.limits import TURN_FRAMES_MAX, TURN_HEADER_WORK_MAX
from support.http2_peer import (
    HELLO,
    OPEN_WINDOWS,
    REQUEST,
    SETTINGS_ACK,
    Echo,
    Peer,
    data,
    goaway_code,
    headers,
    parse,
    reset_codes,
)

CALM = ErrorCode.ENHANCE_YOUR_CALM
PING = frames.frame(frames.PING, 0, 0, b"12345678")
PING_ACK = frames.frame(frames.PING, frames.ACK, 0, b"12345678")
CLOSED = headers(1) + data(1, b"", end=True) + data(1, b"x" * 300)  # refused, then dropped
GOING = frames.goaway(0, 0)
GREASE = frames.frame(0xBB, 7, 0, b"x")
MEMORY_BYTES_MAX = 4 << 20


def resets(count: int) -> Iterator[bytes]:
    for number in range(count):
        stream_id = 2 * number + 1
        yield headers(stream_id) + frames.rst_stream(stream_id, ErrorCode.CANCEL)


def continuations(count: int, size: int) -> Iterator[bytes]:
    yield frames.frame(frames.HEADERS, 0, 1, REQUEST)
    for _ in range(count):
        yield frames.frame(frames.CONTINUATION, 0, 1, literal(b"x", b"y" * size))


def new_fields(seed: int, count: int = 300) -> bytes:
    return b"".join(literal(b"x-%d" % n, b"%d" % seed) for n in range(count))


def known_fields(stream_id: int, count: int) -> Iterator[bytes]:
    """A block of so many references to the static table."""
    yield frames.frame(frames.HEADERS, 1, stream_id, REQUEST)
    yield frames.frame(frames.CONTINUATION, 0, stream_id, b"\x90" * count)
    yield frames.frame(frames.CONTINUATION, 4, stream_id, b"\x90")


def floods() -> dict[str, tuple[Iterator[bytes], ErrorCode]]:
    priority = frames.frame(frames.PRIORITY, 0, 5, b"\0\0\0\0\x10")
    settings = frames.frame(frames.SETTINGS, 0, 0)
    many_settings = frames.frame(frames.SETTINGS, 0, 0, struct.pack(">HI", 99, 1) * 33)
    malformed = literal(b":bad", b"")
    return {
        "rapid reset": (resets(5_000), CALM),
        "continuations": (continuations(9, 10), CALM),
        "large continuations": (continuations(8, 16_000), CALM),
        "pings": (iter([PING] * 5), CALM),
        "ping flood in one read": (iter([PING * 20_000]), CALM),
        "settings": (iter([settings] * 2_000), CALM),
        "settings entries": (iter([many_settings]), CALM),
        "priorities": (iter([priority] * 2_000), CALM),
        "unknown frames": (iter([GREASE] * 2_000), CALM),
        "window updates": (iter([frames.window_update(0, 1)] * 2_000), CALM),
        "window updates of a stream": (
            iter([headers(1), *[frames.window_update(1, 1)] * 2_000]), CALM
        ),
        "empty data in a row": (iter([headers(1), *[data(1, b"")] * 11]), CALM),
        "empty data in all": (iter([headers(1), *[data(1, b"") + data(1, b"x")] * 101]), CALM),
        "malformed requests": (
            (headers(2 * n + 1, block=malformed) for n in range(2_000)), CALM
        ),
        "goaways": (iter([frames.goaway(0, 0)] * 2_000), CALM),
        "small data": (iter([headers(1), data(1, b"x") * 2_000]), CALM),
        "small data in all streams": (
            (headers(2 * n + 1) + data(2 * n + 1, b"x" * 255) * 20 for n in range(200)), CALM
        ),
        "small data under padding": (
            iter([headers(1), *[frames.frame(0, 8, 1, b"\xff" + bytes(300))] * 2_000]), CALM
        ),
        "small data on a closed stream": (iter([CLOSED, data(1, b"x") * 2_000]), CALM),
        "empty data on a closed stream": (iter([CLOSED, data(1, b"") * 2_000]), CALM),
        "headers on a closed stream": (
            iter([CLOSED, *[headers(1, end=True)] * 2_000]), CALM
        ),
        "answers to no ping": (iter([PING_ACK * 2_000]), CALM),
        "answers to no settings": (iter([SETTINGS_ACK * 2_000]), CALM),
        "new header fields": (
            (headers(2 * n + 1, end=True, block=REQUEST + new_fields(n)) for n in range(30)), CALM
        ),
        "far too many new header fields": (
            iter([headers(1, block=REQUEST + new_fields(0, 513))]), CALM
        ),
        "far too many known header fields": (iter(known_fields(1, 16_380)), CALM),
        "known header fields": (
            (block for n in range(3) for block in known_fields(2 * n + 1, 15_000)), CALM
        ),
        "requests after goaway": (iter([headers(1), GOING, *[headers(3)] * 2_000]), CALM),
    }  # fmt: skip


def receive_all(peer: Peer, wire: bytes) -> None:
    """As `Peer.send`, but nobody takes the answers."""
    peer.connection.receive(wire, peer.now_ms)
    while peer.connection.input_left:
        peer.connection.receive(b"", peer.now_ms)


@pytest.mark.parametrize("name", floods())
def test_a_flood_is_ended(name: str) -> None:
    flood, code = floods()[name]
    peer = Peer(Echo(answers=False))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        found = None
        for piece in flood:
            found = goaway_code(peer.send(piece))
            if found is not None and peer.connection.over:
                break
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    if name == "goaways":
        assert peer.connection.over
        return
    assert found == code
    assert peer.connection.over
    assert not peer.connection.open
    assert peer.connection.next_deadline() is None
    assert most - before < MEMORY_BYTES_MAX


def test_data_on_a_closed_stream_is_refused_once_and_then_dropped() -> None:
    peer = Peer()
    peer.send(headers(1, end=True))
    assert reset_codes(peer.send(data(1, b"x"))) == [(1, ErrorCode.STREAM_CLOSED)]
    assert peer.send(data(1, b"x") * 500) == []


class TestHonestClientsAreLeftAlone:
    def test_calls_earn_what_they_cost(self) -> None:
        """Five thousand calls a second, each with its window update, ping and cancel beside it."""
        peer = Peer()
        peer.send(OPEN_WINDOWS)
        for number in range(20_000):
            one, two = 4 * number + 1, 4 * number + 3
            wire = headers(one) + data(one, b"x" * 100, end=True) + headers(two)
            wire += frames.rst_stream(two, 8) + PING + frames.window_update(0, 10)
            if number % 5 == 0:
                peer.now_ms += 1
            peer.send(wire)
            assert not peer.connection.over, peer.connection.fault

    def test_many_long_polls_are_cancelled_again_and_again(self) -> None:
        """Many consumers on one connection whose deadlines are shorter than their polls."""
        peer = Peer(Echo(answers=False))
        for turn in range(20):
            polls = [2 * (turn * 900 + number) + 1 for number in range(900)]
            peer.send(b"".join(headers(poll, end=True) for poll in polls))
            peer.now_ms += 1_000
            peer.send(b"".join(frames.rst_stream(poll, ErrorCode.CANCEL) for poll in polls))
            assert not peer.connection.over, (turn, peer.connection.fault)

    def test_pings_with_traffic_or_far_apart(self) -> None:
        peer = Peer(idle_ms_max=0)
        for number in range(50):
            peer.send(PING + headers(2 * number + 1, end=True))
            peer.now_ms += 1
        for _ in range(50):
            peer.now_ms += 10_000
            peer.send(PING)
        assert not peer.connection.over

    def test_a_slow_body_in_single_bytes(self) -> None:
        peer = Peer()
        peer.send(headers(1))
        for _ in range(200):
            peer.send(data(1, b"x") * 100)
            peer.now_ms += 1_000
        answer = peer.send(data(1, b"", end=True))
        assert sum(len(f.payload) for f in answer if f.kind == frames.DATA) == 20_000


class TestBounded:
    def test_a_frame_too_long_is_refused_by_its_head(self) -> None:
        peer = Peer()
        answer = peer.send(frames.head(frames.DATA, 0, 1, 16_385))
        assert goaway_code(answer) == ErrorCode.FRAME_SIZE_ERROR

    def test_too_many_streams(self) -> None:
        peer = Peer(Echo(answers=False), streams_max=10)
        answer = peer.send(b"".join(headers(2 * n + 1) for n in range(15)))
        assert reset_codes(answer) == [(2 * n + 1, ErrorCode.REFUSED_STREAM) for n in range(10, 15)]
        late = b"".join(data(2 * n + 1, b"x" * 100, end=True) for n in range(10, 15))
        assert peer.send(late) == []
        assert len(peer.connection.open) == 10

    def test_a_header_list_too_large_is_still_decoded(self) -> None:
        peer = Peer()
        bomb = b"\x40\x01n" + integer(4_000, 7) + b"v" * 4_000
        peer.send(headers(1, end=True, block=REQUEST + bomb))
        answer = peer.send(headers(3, end=True, block=REQUEST + b"\xbe" * 15_000))
        assert goaway_code(answer) is None
        assert peer.sink.records[3].head.path == b""
        peer.send(headers(5, end=True, block=REQUEST + b"\xbe"))
        assert peer.sink.records[5].fields[-1][0] == b"n"

    def test_answers_that_are_not_taken_pause_reading(self) -> None:
        peer = Peer(control_burst=100_000, ping_strikes_max=100_000)
        receive_all(peer, PING * 1_001)
        assert peer.connection.congested
        receive_all(peer, PING * 9_100)
        assert peer.connection.over
        assert goaway_code(peer.take()) == CALM

    def test_a_peer_that_never_reads(self) -> None:
        """Its window is open, but nobody takes what is ready: at most 1 MB is made ready."""
        peer = Peer(Echo(answer=bytes(64 << 10)))
        peer.send(OPEN_WINDOWS)
        for number in range(200):
            peer.connection.receive(headers(2 * number + 1, end=True), peer.now_ms)
        assert peer.connection.congested
        assert peer.connection.outbound.size < (1 << 20) + (200 << 10)
        assert sum(len(f.payload) for f in peer.take() if f.kind == frames.DATA) == 200 * (64 << 10)

    @pytest.mark.parametrize("after", [b"", HELLO[:10], HELLO[:24]])
    def test_a_client_that_does_not_say_hello(self, after: bytes) -> None:
        peer = Peer(hello=False)
        peer.send(after)
        assert goaway_code(peer.wait(9_000)) is None
        assert goaway_code(peer.wait(1_001)) is not None
        assert peer.connection.over

    def test_settings_that_are_not_acknowledged(self) -> None:
        peer = Peer(hello=False)
        peer.send(HELLO)
        assert goaway_code(peer.wait(10_001)) == ErrorCode.SETTINGS_TIMEOUT

    def test_headers_half_sent(self) -> None:
        peer = Peer()
        peer.send(frames.frame(frames.HEADERS, 0, 1, REQUEST))
        assert goaway_code(peer.wait(10_001)) == CALM

    def test_a_stream_whose_window_stays_shut(self) -> None:
        peer = Peer(Echo(answer=b"x" * 100))
        shut = frames.frame(
            frames.SETTINGS, 0, 0, struct.pack(">HI", frames.INITIAL_WINDOW_SIZE, 0)
        )
        peer.send(shut + headers(1, end=True))
        answer = peer.wait(125_000)
        assert reset_codes(answer) == [(1, ErrorCode.CANCEL)]
        assert peer.sink.records[1].reset_code == ErrorCode.CANCEL
        assert not peer.connection.open

    @pytest.mark.parametrize(
        "text", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b"PRI * HTTP/2.1"]
    )
    def test_what_is_not_http2(self, text: bytes) -> None:
        peer = Peer(hello=False)
        assert goaway_code(peer.send(text)) == ErrorCode.PROTOCOL_ERROR

    def test_each_wrong_byte_of_the_preface(self) -> None:
        for position in range(len(frames.PREFACE)):
            wrong = bytearray(frames.PREFACE)
            wrong[position] ^= 1
            peer = Peer(hello=False)
            assert goaway_code(peer.send(bytes(wrong))) == ErrorCode.PROTOCOL_ERROR


class TestTurns:
    """One read does not keep the loop, whatever is in it; nothing of it is lost."""

    def test_so_many_frames_and_others_are_served(self) -> None:
        peer = Peer(Echo(answers=False), streams_max=10_000)
        wire = b"".join(headers(2 * n + 1) + data(2 * n + 1, b"", end=True) for n in range(1_000))
        seen = []
        peer.connection.receive(wire, peer.now_ms)
        while peer.connection.input_left:
            seen.append(len(peer.sink.records))
            peer.connection.receive(b"", peer.now_ms)
        assert seen == [number * TURN_FRAMES_MAX // 2 for number in range(1, len(seen) + 1)]
        assert len(peer.sink.records) == 1_000
        assert all(record.ended for record in peer.sink.records.values())

    def test_what_came_meanwhile_follows_in_order(self) -> None:
        peer = Peer(Echo(answers=False))
        wire = b"".join(headers(2 * n + 1, end=True) for n in range(600))
        for start in range(0, len(wire), 7_001):  # reading is not paused here
            peer.connection.receive(wire[start : start + 7_001], peer.now_ms)
        while peer.connection.input_left:
            peer.connection.receive(b"", peer.now_ms)
        assert list(peer.sink.records) == [2 * n + 1 for n in range(600)]

    def test_new_header_fields_end_a_turn_sooner(self) -> None:
        peer = Peer(Echo(answers=False), header_work_burst=100_000)
        wire = b"".join(
            headers(2 * n + 1, end=True, block=REQUEST + new_fields(n, 100)) for n in range(20)
        )
        turns = 1
        peer.connection.receive(wire, peer.now_ms)
        while peer.connection.input_left:
            turns += 1
            peer.connection.receive(b"", peer.now_ms)
        assert turns >= 20 * 100 // TURN_HEADER_WORK_MAX
        assert len(peer.sink.records) == 20

    def test_a_thousand_calls_at_once_with_new_fields_each(self) -> None:
        peer = Peer(Echo(answers=False))
        for number in range(1_000):
            block = REQUEST + new_fields(number, 10)
            peer.send(headers(2 * number + 1, block=block) + data(2 * number + 1, b"12345") * 2)
        assert not peer.connection.over, peer.connection.fault


class TestALoopThatStoodStill:
    """What the peer sent in time is read before a deadline of its is held against it."""

    def test_settings_acknowledged_in_time_and_read_late(self) -> None:
        peer = Peer(hello=False)
        peer.send(HELLO)
        peer.now_ms += 15_000
        peer.connection.on_timer(peer.now_ms)
        assert not peer.connection.over
        peer.send(SETTINGS_ACK)
        assert goaway_code(peer.wait(60_000)) is None
        assert not peer.connection.over

    def test_it_is_excused_once(self) -> None:
        peer = Peer(hello=False)
        peer.send(HELLO)
        peer.now_ms += 15_000
        peer.connection.on_timer(peer.now_ms)
        peer.now_ms += 3_000
        peer.connection.on_timer(peer.now_ms)
        assert goaway_code(peer.take()) == ErrorCode.SETTINGS_TIMEOUT

    def test_a_keepalive_answered_in_time_and_read_late(self) -> None:
        peer = Peer(Echo(answers=False), idle_ms_max=0)
        peer.send(headers(1))
        for _ in range(3):  # each deadline may be late
            peer.wait(60_000, alive=False)
            peer.now_ms += 30_000
            peer.connection.on_timer(peer.now_ms)
            assert not peer.connection.over
            peer.send(frames.frame(frames.PING, frames.ACK, 0, KEEPALIVE_PING))

    def test_input_that_waits_for_its_turn_counts_as_heard_soon(self) -> None:
        peer = Peer(hello=False)
        many = headers(1) + data(1, b"x" * 300) * TURN_FRAMES_MAX
        peer.connection.receive(HELLO + many + SETTINGS_ACK, peer.now_ms)
        assert peer.connection.input_left
        peer.now_ms += 10_000
        peer.connection.on_timer(peer.now_ms)
        assert not peer.connection.over
        peer.send(b"")
        assert goaway_code(peer.wait(30_000)) is None


class TestFairness:
    def test_one_stalled_stream_among_many(self) -> None:
        """Stream 1 gets no window; the others finish, in turn."""
        peer = Peer(Echo(answer=b"x" * 1_000))
        small = frames.frame(
            frames.SETTINGS, 0, 0, struct.pack(">HI", frames.INITIAL_WINDOW_SIZE, 1)
        )
        peer.send(small + frames.window_update(0, 1 << 20))
        peer.send(b"".join(headers(2 * n + 1, end=True) for n in range(100)))
        for n in range(1, 100):
            peer.send(frames.window_update(2 * n + 1, 999))
        done = [sid for sid, record in peer.sink.records.items() if record.completed]
        assert done == [2 * n + 1 for n in range(1, 100)]
        peer.send(frames.window_update(1, 999))
        assert peer.sink.records[1].completed

    def test_a_window_of_one_byte(self) -> None:
        peer = Peer(Echo(answer=bytes(range(50))))
        peer.send(frames.frame(frames.SETTINGS, 0, 0, struct.pack(">HI", 4, 1)))
        got = [f for f in peer.send(headers(1, end=True)) if f.kind == frames.DATA]
        while not peer.sink.records[1].completed:
            got += [f for f in peer.send(frames.window_update(1, 1)) if f.kind == frames.DATA]
        assert b"".join(f.payload for f in got) == bytes(range(50))
        assert all(len(f.payload) == 1 for f in got)

    def test_windows_may_go_negative_and_come_back(self) -> None:
        peer = Peer(Echo(answer=bytes(100_000)))
        first = peer.send(headers(1, end=True))
        assert sum(len(f.payload) for f in first if f.kind == frames.DATA) == 65_535
        peer.send(frames.window_update(0, 1 << 20))
        shrink = frames.frame(frames.SETTINGS, 0, 0, struct.pack(">HI", 4, 1_000))
        assert [f.kind for f in peer.send(shrink)] == [frames.SETTINGS]
        assert peer.connection.open[1].window == 1_000 - 65_535
        rest = peer.send(frames.window_update(1, 200_000))
        assert sum(len(f.payload) for f in rest if f.kind == frames.DATA) == 100_000 - 65_535

    def test_turns_are_taken_by_frames(self) -> None:
        peer = Peer(Echo(answer=bytes(100_000)))
        peer.send(OPEN_WINDOWS)
        got = peer.send(headers(1, end=True) + headers(3, end=True))
        order = [f.stream_id for f in got if f.kind == frames.DATA]
        assert order[:6] == [1, 3, 1, 3, 1, 3]


def test_parse_is_strict() -> None:
    with pytest.raises(AssertionError):
        parse(PING[:-1])
