"""Every kind of frame in every state of a stream; cut anywhere; mutated; in any order."""

import random
import struct
from collections.abc import Callable

import hyperframe.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latermq_h2.hpack.encoder import encode, literal
from latermq_h2.http2 import frames
from latermq_h2.http2.connection import GOING_MS_MAX
from latermq_h2.http2.connection_base import EXCUSED_MS, LATE_MS_MAX
from latermq_h2.http2.frames import ConnectionFault, ErrorCode
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

# What an answer to a frame is: nothing, the end of its stream, or the end of the connection.
Verdict = tuple[str, int] | None
GONE: Callable[[ErrorCode], Verdict] = lambda code: ("connection", int(code))  # noqa: E731
RESET: Callable[[ErrorCode], Verdict] = lambda code: ("stream", int(code))  # noqa: E731
PROTOCOL, CLOSED = ErrorCode.PROTOCOL_ERROR, ErrorCode.STREAM_CLOSED

STATES = {
    "idle": b"",
    "open": headers(1),
    "half-closed (remote)": headers(1, end=True),  # the sink of this table does not answer
    "closed by the client": headers(1) + frames.rst_stream(1, 8),
    "reset by us": headers(1, block=literal(b":bad", b"")),
    "left out": headers(3),
}
TRAILERS = literal(b"x-t", b"1")
FRAMES = {
    "DATA": data(1, b"x"),
    "DATA with END_STREAM": data(1, b"x", end=True),
    "HEADERS": headers(1),
    "HEADERS with END_STREAM": headers(1, end=True),
    "trailers": headers(1, end=True, block=TRAILERS),
    "PRIORITY": frames.frame(frames.PRIORITY, 0, 1, b"\0\0\0\0\x01"),
    "PRIORITY on itself": frames.frame(frames.PRIORITY, 0, 1, b"\0\0\0\x01\x01"),
    "RST_STREAM": frames.rst_stream(1, 8),
    "RST_STREAM of 3 bytes": frames.frame(frames.RST_STREAM, 0, 1, b"abc"),
    "SETTINGS": frames.frame(frames.SETTINGS, 0, 1),
    "PUSH_PROMISE": frames.frame(frames.PUSH_PROMISE, 4, 1, b"\0\0\0\x02" + REQUEST),
    "PING": frames.frame(frames.PING, 0, 1, b"12345678"),
    "GOAWAY": frames.frame(frames.GOAWAY, 0, 1, bytes(8)),
    "WINDOW_UPDATE": frames.window_update(1, 10),
    "WINDOW_UPDATE of 0": frames.window_update(1, 0),
    "WINDOW_UPDATE too large": frames.window_update(1, frames.WINDOW_MAX),
    "CONTINUATION": frames.frame(frames.CONTINUATION, 4, 1, TRAILERS),
    "unknown": frames.frame(0x55, 0xFF, 1, b"?"),
}
ALWAYS: dict[str, Verdict] = {
    "PRIORITY": None, "PRIORITY on itself": GONE(PROTOCOL),
    "RST_STREAM of 3 bytes": GONE(ErrorCode.FRAME_SIZE_ERROR), "SETTINGS": GONE(PROTOCOL),
    "PUSH_PROMISE": GONE(PROTOCOL), "PING": GONE(PROTOCOL), "GOAWAY": GONE(PROTOCOL),
    "CONTINUATION": GONE(PROTOCOL), "unknown": None,
}  # fmt: skip
TABLE: dict[str, dict[str, Verdict]] = {
    "idle": {
        "DATA": GONE(PROTOCOL), "DATA with END_STREAM": GONE(PROTOCOL), "HEADERS": None,
        "HEADERS with END_STREAM": None, "trailers": RESET(PROTOCOL), "RST_STREAM": GONE(PROTOCOL),
        "WINDOW_UPDATE": GONE(PROTOCOL), "WINDOW_UPDATE of 0": GONE(PROTOCOL),
        "WINDOW_UPDATE too large": GONE(PROTOCOL),
    },
    "open": {
        "DATA": None, "DATA with END_STREAM": None, "HEADERS": RESET(PROTOCOL),
        "HEADERS with END_STREAM": RESET(PROTOCOL), "trailers": None, "RST_STREAM": None,
        "WINDOW_UPDATE": None, "WINDOW_UPDATE of 0": RESET(PROTOCOL),
        "WINDOW_UPDATE too large": RESET(ErrorCode.FLOW_CONTROL_ERROR),
    },
    "half-closed (remote)": {
        "DATA": RESET(CLOSED), "DATA with END_STREAM": RESET(CLOSED), "HEADERS": GONE(CLOSED),
        "HEADERS with END_STREAM": GONE(CLOSED), "trailers": GONE(CLOSED), "RST_STREAM": None,
        "WINDOW_UPDATE": None, "WINDOW_UPDATE of 0": RESET(PROTOCOL),
        "WINDOW_UPDATE too large": RESET(ErrorCode.FLOW_CONTROL_ERROR),
    },
    "closed by the client": {
        "DATA": RESET(CLOSED), "DATA with END_STREAM": RESET(CLOSED), "HEADERS": GONE(CLOSED),
        "HEADERS with END_STREAM": GONE(CLOSED), "trailers": GONE(CLOSED), "RST_STREAM": None,
        "WINDOW_UPDATE": None, "WINDOW_UPDATE of 0": None, "WINDOW_UPDATE too large": None,
    },
    "reset by us": {
        "DATA": None, "DATA with END_STREAM": None, "HEADERS": None,
        "HEADERS with END_STREAM": None, "trailers": None, "RST_STREAM": None,
        "WINDOW_UPDATE": None, "WINDOW_UPDATE of 0": None, "WINDOW_UPDATE too large": None,
    },
    "left out": {
        "DATA": RESET(CLOSED), "DATA with END_STREAM": RESET(CLOSED), "HEADERS": GONE(PROTOCOL),
        "HEADERS with END_STREAM": GONE(PROTOCOL), "trailers": GONE(PROTOCOL), "RST_STREAM": None,
        "WINDOW_UPDATE": None, "WINDOW_UPDATE of 0": None, "WINDOW_UPDATE too large": None,
    },
}  # fmt: skip


def verdict(answer: list[object]) -> Verdict:
    code = goaway_code(answer)  # type: ignore[arg-type]
    if code is not None:
        return ("connection", code)
    codes = reset_codes(answer)  # type: ignore[arg-type]
    return ("stream", codes[-1][1]) if codes else None


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("kind", FRAMES)
def test_each_frame_in_each_state(state: str, kind: str) -> None:
    peer = Peer(Echo(answers=False))
    peer.send(STATES[state])
    expected = ALWAYS[kind] if kind in ALWAYS else TABLE[state][kind]
    assert verdict(list(peer.send(FRAMES[kind]))) == expected
    assert peer.connection.over == (expected is not None and expected[0] == "connection")


class TestHeads:
    @pytest.mark.parametrize(
        "fields",
        [
            [(b":method", b"POST"), (b":scheme", b"http")],
            [(b":method", b"POST"), (b":path", b"/")],
            [(b":scheme", b"http"), (b":path", b"/")],
            [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"")],
            [(b":method", b"POST"), (b":method", b"POST"), (b":scheme", b"h"), (b":path", b"/")],
            [(b"x", b"y"), (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/")],
            [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/"), (b":status", b"200")],
            [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/"), (b"X-Y", b"1")],
            [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/"), (b"te", b"gzip")],
            [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/"), (b"upgrade", b"1")],
            [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/"), (b"x", b"a\nb")],
            [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/"),
             (b"content-length", b"-1")],
            [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/"),
             (b"content-length", b"1"), (b"content-length", b"2")],
        ],
    )  # fmt: skip
    def test_malformed_ones_end_their_stream_only(self, fields: list[tuple[bytes, bytes]]) -> None:
        peer = Peer()
        for stream_id in (1, 3):
            answer = peer.send(headers(stream_id, end=True, block=encode(fields)))
            assert reset_codes(answer) == [(stream_id, PROTOCOL)]
        assert not peer.sink.records
        peer.send(headers(5, end=True))
        assert peer.sink.records[5].completed

    def test_content_length_must_match(self) -> None:
        block = REQUEST + literal(b"content-length", b"3")
        for pieces in ([b"ab"], [b"ab", b"cd"]):
            peer = Peer()
            wire = b"".join(data(1, piece) for piece in pieces[:-1])
            wire += data(1, pieces[-1], end=True)
            assert reset_codes(peer.send(headers(1, block=block) + wire)) == [(1, PROTOCOL)]
        peer = Peer()
        peer.send(headers(1, block=block) + data(1, b"abc", end=True))
        assert peer.sink.records[1].completed

    @pytest.mark.parametrize("stream_id", [0, 2])
    def test_ids_that_are_not_a_clients(self, stream_id: int) -> None:
        assert goaway_code(Peer().send(headers(stream_id))) == PROTOCOL


class TestPadding:
    def test_counts_for_the_window_and_is_cut_off(self) -> None:
        peer = Peer()
        padded = hyperframe.frame.DataFrame(1, b"abc", flags=["PADDED", "END_STREAM"])
        padded.pad_length = 200
        peer.send(headers(1) + padded.serialize())
        assert peer.sink.records[1].body == b"abc"

    @pytest.mark.parametrize("payload", [b"", b"\x01", b"\x05abcd"])
    def test_too_long(self, payload: bytes) -> None:
        peer = Peer()
        peer.send(headers(1))
        wire = frames.frame(frames.DATA, frames.PADDED, 1, payload)
        assert goaway_code(peer.send(wire)) in (PROTOCOL, ErrorCode.FRAME_SIZE_ERROR)


class TestWindowsIn:
    def test_a_stream_that_sends_too_much(self) -> None:
        class Greedy(Echo):
            """Never gives anything back."""

            def received(self, stream: object, data: bytes, ended: bool) -> None:
                pass

        peer = Peer(Greedy(), stream_window_bytes=64 << 10)
        peer.send(headers(1))
        for _ in range(4):
            assert reset_codes(peer.send(data(1, b"x" * 16_384))) == []
        assert reset_codes(peer.send(data(1, b"x"))) == [(1, ErrorCode.FLOW_CONTROL_ERROR)]

    def test_a_message_larger_than_any_window(self) -> None:
        peer = Peer()
        allowed = {1: 1 << 20, 0: 16 << 20}
        total = 40 << 20
        peer.send(headers(1))
        sent = 0
        while sent < total:
            assert min(allowed.values()) >= 16_384, "deadlock"
            answer = peer.send(data(1, bytes(16_384), end=sent + 16_384 == total))
            sent += 16_384
            for stream_id in allowed:
                allowed[stream_id] -= 16_384
            for found in answer:
                if found.kind == frames.WINDOW_UPDATE:
                    allowed[found.stream_id] += int.from_bytes(found.payload, "big")
        assert len(peer.sink.records[1].body) == total


def conversation(seed: int) -> bytes:
    """A client with several calls, settings, pings, padding, trailers and cancels."""
    rng = random.Random(seed)
    wire = HELLO + SETTINGS_ACK + OPEN_WINDOWS
    stream_id = -1
    for _ in range(rng.randint(3, 12)):
        stream_id += 2
        match rng.randrange(6):
            case 0:
                wire += headers(stream_id, end=True)
            case 1:
                wire += headers(stream_id) + data(stream_id, rng.randbytes(50_000)[:16_384])
                wire += data(stream_id, b"rest", end=True)
            case 2:
                block = REQUEST + literal(b"x-long", b"v" * 300)
                wire += frames.frame(frames.HEADERS, 0, stream_id, block[:100])
                wire += frames.frame(frames.CONTINUATION, 4, stream_id, block[100:])
                wire += headers(stream_id, end=True, block=TRAILERS)
            case 3:
                wire += headers(stream_id) + frames.rst_stream(stream_id, 8)
            case 4:
                wire += frames.frame(frames.PING, 0, 0, rng.randbytes(8)) + headers(stream_id)
                wire += frames.frame(frames.DATA, 9, stream_id, b"\x03abc\0\0\0")
            case _:
                wire += headers(stream_id) + frames.window_update(stream_id, 5)
                wire += data(stream_id, b"", end=True)
    return wire


def answers(wire: bytes, cuts: list[int]) -> tuple[bytes, dict[int, tuple[bytes, bool]]]:
    peer = Peer(hello=False)
    out = b""
    for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        peer.connection.receive(wire[start:end], peer.now_ms)
        out += peer.connection.take()
    seen = {sid: (bytes(r.body), r.ended) for sid, r in peer.sink.records.items()}
    return out, seen


def by_stream(out: bytes) -> dict[int, tuple[bytes, list[tuple[int, int, bytes]]]]:
    """What each stream got, in order; who goes first depends on when output is taken."""
    found: dict[int, tuple[bytes, list[tuple[int, int, bytes]]]] = {}
    for each in parse(out):
        body, others = found.get(each.stream_id, (b"", []))
        if each.kind == frames.DATA:
            body += each.payload
        else:
            others.append((each.kind, each.flags, each.payload))
        found[each.stream_id] = (body, others)
    return found


@pytest.mark.parametrize("seed", range(30))
def test_any_chunking_gives_the_same_bytes(seed: int) -> None:
    wire = conversation(seed)
    whole = answers(wire, [])
    rng = random.Random(seed)
    for _ in range(10):
        cuts = sorted(rng.sample(range(1, len(wire)), rng.randint(1, 20)))
        found = answers(wire, cuts)
        assert found[1] == whole[1]
        assert by_stream(found[0]) == by_stream(whole[0])


def test_byte_by_byte() -> None:
    wire = conversation(7)[:6_000]
    assert answers(wire, list(range(1, len(wire)))) == answers(wire, [])


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 1 << 30), st.data())
def test_mutations_never_escape(seed: int, draw: st.DataObject) -> None:
    """Whatever comes: no exception, and in the end no stream, no timer."""
    rng = random.Random(seed)
    wire = bytearray(conversation(seed))
    for _ in range(draw.draw(st.integers(0, 6))):
        at = rng.randrange(24, len(wire))
        match rng.randrange(4):
            case 0:
                wire[at] = rng.randrange(256)
            case 1:
                del wire[at : at + rng.randint(1, 30)]
            case 2:
                wire[at:at] = rng.randbytes(rng.randint(1, 30))
            case _:
                source = rng.randrange(24, len(wire))
                wire[at:at] = wire[source : source + rng.randint(1, 200)]
    check_survives(bytes(wire), rng)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 255), st.integers(0, 9),
                          st.binary(max_size=40)), max_size=30))  # fmt: skip
def test_any_frames_never_escape(drawn: list[tuple[int, int, int, bytes]]) -> None:
    wire = HELLO + b"".join(frames.frame(*each) for each in drawn)
    check_survives(wire, random.Random(0))


def check_survives(wire: bytes, rng: random.Random) -> None:
    peer = Peer(hello=False)
    position = 0
    while position < len(wire):
        step = rng.randint(1, 4_000)
        peer.send(wire[position : position + step])
        position += step
        if rng.random() < 0.2:
            peer.wait(rng.choice([1, 1_000, 30_000]))
    peer.wait(600_000)
    peer.connection.lost()
    assert not peer.connection.open
    assert not peer.connection.outbound.waiting
    assert peer.connection.outbound.queued_bytes == 0
    assert peer.connection.next_deadline() is None
    for record in peer.sink.records.values():
        assert record.completed != (record.reset_code is not None)


class TestLife:
    def test_shutdown_in_two_steps(self) -> None:
        peer = Peer(Echo(answers=False))
        peer.send(headers(1, end=True))
        peer.connection.shut_down(peer.now_ms)
        first = peer.take()
        assert [f.kind for f in first] == [frames.GOAWAY, frames.PING]
        assert first[0].payload[:4] == b"\x7f\xff\xff\xff"
        peer.send(headers(3, end=True))  # not known yet to the client: accepted
        ping_ack = frames.frame(frames.PING, frames.ACK, 0, first[1].payload)
        [second] = peer.send(ping_ack)
        assert struct.unpack(">II", second.payload[:8]) == (3, 0)
        peer.send(headers(5, end=True))
        assert 5 not in peer.sink.records
        outbound = peer.connection.outbound
        for stream in list(peer.connection.open.values()):
            assert not peer.connection.over
            outbound.send_whole(stream, b"\x88", (b"x",), 1, b"\x88")
        assert peer.connection.over
        assert peer.connection.next_deadline() is None

    def test_calls_that_wait_are_left_out_by_the_goaway_that_ends_it(self) -> None:
        """However many: nobody is to be sent away before the last who was begun is answered."""
        peer = Peer(Echo(answers=False))
        peer.send(headers(1) + headers(3, end=True))
        peer.connection.begin_no_more()
        assert peer.send(b"".join(headers(each, end=True) for each in range(5, 20_001, 2))) == []
        assert peer.send(headers(20_001) + data(20_001, b"later", end=True)) == []
        assert peer.send(frames.rst_stream(20_001, 8)) == []
        assert peer.connection.open.keys() == {1, 3}
        peer.send(data(1, b"of a call that was begun", end=True))
        assert peer.sink.records[1].ended
        outbound = peer.connection.outbound
        for stream in list(peer.connection.open.values()):
            outbound.send_whole(stream, b"\x88", (b"x",), 1, b"\x88")
        peer.take()
        assert not peer.connection.over
        peer.connection.fail(ConnectionFault(ErrorCode.NO_ERROR, "going down"))
        [goaway] = peer.take()
        assert struct.unpack(">II", goaway.payload[:8]) == (3, 0)
        assert peer.sink.records.keys() == {1, 3}

    def test_the_second_step_does_not_wait_for_ever(self) -> None:
        peer = Peer()
        peer.connection.shut_down(peer.now_ms)
        peer.take()
        assert not peer.wait(GOING_MS_MAX - 1)
        assert goaway_code(peer.wait(1)) == 0
        assert peer.connection.over

    def test_a_loop_that_stood_still_reads_before_it_takes_the_second_step(self) -> None:
        peer = Peer(Echo(answers=False))
        peer.send(headers(1, end=True))
        peer.connection.shut_down(peer.now_ms)
        peer.take()
        peer.now_ms += GOING_MS_MAX + LATE_MS_MAX + 1
        peer.connection.on_timer(peer.now_ms)
        assert not peer.take()
        peer.send(headers(3, end=True))  # was in the socket all the time
        assert 3 in peer.sink.records
        [second] = peer.wait(EXCUSED_MS)
        assert struct.unpack(">II", second.payload[:8]) == (3, 0)

    def test_keepalive(self) -> None:
        peer = Peer(Echo(answers=False), idle_ms_max=0)
        peer.send(headers(1))
        [ping] = peer.wait(60_000, alive=False)
        assert (ping.kind, ping.flags) == (frames.PING, 0)
        peer.wait(10_000, alive=False)
        peer.send(frames.frame(frames.PING, frames.ACK, 0, ping.payload))
        assert [f.kind for f in peer.wait(70_000, alive=False)] == [frames.PING]
        assert goaway_code(peer.wait(20_001, alive=False)) == 0
        assert peer.sink.records[1].reset_code is not None

    def test_idle_connections_are_let_go_and_used_ones_kept(self) -> None:
        peer = Peer(Echo(answers=False))
        peer.send(headers(1))
        peer.wait(500_000)
        assert not peer.connection.over
        peer.send(frames.rst_stream(1, 8))
        peer.wait(110_000)
        assert not peer.connection.over
        assert goaway_code(peer.wait(140_000)) == 0
        assert peer.connection.over

    def test_old_age(self) -> None:
        peer = Peer(age_ms_max=5_000)
        assert goaway_code(peer.wait(5_001 + GOING_MS_MAX)) == 0
        assert peer.connection.over

    def test_a_goaway_from_the_client_lets_calls_finish(self) -> None:
        peer = Peer(Echo(answers=False))
        peer.send(headers(1, end=True) + frames.goaway(0, 0))
        assert not peer.connection.over
        outbound = peer.connection.outbound
        outbound.send_whole(peer.connection.open[1], b"\x88", (b"x",), 1, b"\x88")
        assert peer.connection.over

    def test_an_answer_before_the_request_is_whole(self) -> None:
        peer = Peer()
        peer.send(headers(1))
        stream = peer.connection.open[1]
        peer.connection.outbound.send_whole(stream, b"\x88", (b"x",), 1, b"\x88")
        assert reset_codes(peer.take()) == [(1, ErrorCode.NO_ERROR)]
        assert peer.send(data(1, b"late") + data(1, b"", end=True)) == []
