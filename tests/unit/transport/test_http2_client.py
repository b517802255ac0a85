"""The client's side: every kind of frame in every state of a stream; cut anywhere; mutated."""

import random
import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latermq_h2.hpack.encoder import encode, literal
from latermq_h2.http2 import frames
from latermq_h2.http2.frames import ErrorCode
from support.http2_peer import goaway_code, reset_codes
from support.http2_server_peer import (
    HEAD,
    SETTINGS,
    SETTINGS_ACK,
    TRAILERS,
    ServerPeer,
    answer,
    data,
    head,
    message,
    trailers,
)

Verdict = tuple[str, int] | None
GONE: Callable[[ErrorCode], Verdict] = lambda code: ("connection", int(code))  # noqa: E731
PROTOCOL, CLOSED = ErrorCode.PROTOCOL_ERROR, ErrorCode.STREAM_CLOSED
RESET: Verdict = ("stream", int(PROTOCOL))

# How stream 1 comes to be in each state.
STATES: dict[str, Callable[[ServerPeer], None]] = {
    "idle": lambda peer: None,
    "waiting": lambda peer: _call(peer),
    "headed": lambda peer: _call(peer, head(1)),
    "open": lambda peer: _stream(peer, head(1)),
    "answered": lambda peer: _call(peer, answer(1, b"x")),
    "reset by us": lambda peer: peer.caller.cancel(peer.call()),
}
FRAMES = {
    "DATA": data(1, message(b"x")),
    "DATA with END_STREAM": data(1, message(b"x"), end=True),
    "HEADERS": head(1),
    "HEADERS with END_STREAM": head(1, end=True),
    "1xx": head(1, encode([(b":status", b"100")])),
    "trailers": trailers(1),
    "trailers without END_STREAM": head(1, TRAILERS),
    "a request's HEADERS": head(1, encode([(b":method", b"POST")])),
    "PRIORITY": frames.frame(frames.PRIORITY, 0, 1, b"\0\0\0\0\x01"),
    "RST_STREAM": frames.rst_stream(1, 8),
    "RST_STREAM of 3 bytes": frames.frame(frames.RST_STREAM, 0, 1, b"abc"),
    "SETTINGS": frames.frame(frames.SETTINGS, 0, 1),
    "PUSH_PROMISE": frames.frame(frames.PUSH_PROMISE, 4, 1, b"\0\0\0\x02" + HEAD),
    "PING": frames.frame(frames.PING, 0, 1, b"12345678"),
    "GOAWAY": frames.frame(frames.GOAWAY, 0, 1, bytes(8)),
    "WINDOW_UPDATE": frames.window_update(1, 10),
    "WINDOW_UPDATE of 0": frames.window_update(1, 0),
    "WINDOW_UPDATE too large": frames.window_update(1, frames.WINDOW_MAX),
    "CONTINUATION": frames.frame(frames.CONTINUATION, 4, 1, TRAILERS),
    "unknown": frames.frame(0x55, 0xFF, 1, b"?"),
}
ALWAYS: dict[str, Verdict] = {
    "PRIORITY": None, "RST_STREAM of 3 bytes": GONE(ErrorCode.FRAME_SIZE_ERROR),
    "SETTINGS": GONE(PROTOCOL), "PUSH_PROMISE": GONE(PROTOCOL), "PING": GONE(PROTOCOL),
    "GOAWAY": GONE(PROTOCOL), "CONTINUATION": GONE(PROTOCOL), "unknown": None,
}  # fmt: skip
OF_STREAMS = [kind for kind in FRAMES if kind not in ALWAYS]
HARMLESS = dict.fromkeys(OF_STREAMS)
TABLE: dict[str, dict[str, Verdict]] = {
    "idle": dict.fromkeys(OF_STREAMS, GONE(PROTOCOL)),
    "waiting": HARMLESS | {
        "DATA": RESET, "DATA with END_STREAM": RESET, "trailers": RESET,
        "trailers without END_STREAM": RESET, "a request's HEADERS": RESET,
        "WINDOW_UPDATE of 0": RESET, "WINDOW_UPDATE too large": RESET,
    },
    "headed": HARMLESS | {
        "HEADERS": RESET, "HEADERS with END_STREAM": RESET, "1xx": RESET,
        "trailers without END_STREAM": RESET, "a request's HEADERS": RESET,
        "WINDOW_UPDATE of 0": RESET, "WINDOW_UPDATE too large": RESET,
    },
    "open": HARMLESS | {
        "HEADERS": RESET, "HEADERS with END_STREAM": RESET, "1xx": RESET,
        "trailers without END_STREAM": RESET, "a request's HEADERS": RESET,
        "WINDOW_UPDATE of 0": RESET, "WINDOW_UPDATE too large": RESET,
        # The answer is whole: we take the rest of the request back.
        "trailers": ("stream", int(ErrorCode.CANCEL)),
        "DATA with END_STREAM": ("stream", int(ErrorCode.CANCEL)),
    },
    "answered": dict.fromkeys(OF_STREAMS, GONE(CLOSED)) | {
        "RST_STREAM": None, "WINDOW_UPDATE": None, "WINDOW_UPDATE of 0": None,
        "WINDOW_UPDATE too large": None,
    },
    "reset by us": HARMLESS,
}  # fmt: skip


def _call(peer: ServerPeer, sent: bytes = b"") -> None:
    peer.call()
    peer.send(sent)


def _stream(peer: ServerPeer, sent: bytes = b"") -> None:
    peer.stream()
    peer.send(sent)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("kind", FRAMES)
def test_each_frame_in_each_state(state: str, kind: str) -> None:
    peer = ServerPeer()
    STATES[state](peer)
    peer.take()
    found = peer.send(FRAMES[kind])
    code, codes = goaway_code(found), reset_codes(found)
    verdict: Verdict = None
    if code is not None:
        verdict = ("connection", code)
    elif codes:
        verdict = ("stream", codes[-1][1])
    assert verdict == (ALWAYS[kind] if kind in ALWAYS else TABLE[state][kind])


def test_the_greeting() -> None:
    peer = ServerPeer(greet=False)
    settings_frame, window = peer.hello
    entries = dict(struct.iter_unpack(">HI", settings_frame.payload))
    assert entries[frames.ENABLE_PUSH] == 0
    assert entries[frames.INITIAL_WINDOW_SIZE] == 4 << 20
    assert window.kind == frames.WINDOW_UPDATE
    assert not peer.connection.accepts
    peer.send(SETTINGS)
    assert peer.connection.accepts


def test_a_server_that_does_not_greet_is_left() -> None:
    peer = ServerPeer(greet=False)
    assert goaway_code(peer.wait(10_000)) == PROTOCOL
    assert peer.connection.over


@pytest.mark.parametrize(
    ("greeting", "code"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ErrorCode.FRAME_SIZE_ERROR),
        (SETTINGS_ACK, PROTOCOL),
        (frames.frame(frames.PING, 0, 0, bytes(8)), PROTOCOL),
        (frames.frame(frames.SETTINGS, 0, 0, bytes(5)), ErrorCode.FRAME_SIZE_ERROR),
        (frames.settings([(frames.ENABLE_PUSH, 1)]), PROTOCOL),
        (frames.settings([(frames.INITIAL_WINDOW_SIZE, 1 << 31)]), ErrorCode.FLOW_CONTROL_ERROR),
        (frames.settings([(frames.MAX_FRAME_SIZE, 1)]), PROTOCOL),
    ],
)
def test_what_is_no_greeting(greeting: bytes, code: ErrorCode) -> None:
    peer = ServerPeer(greet=False)
    assert goaway_code(peer.send(greeting)) == code
    assert peer.connection.over


class TestFlowControl:
    def test_a_request_waits_for_the_window(self) -> None:
        peer = ServerPeer()
        peer.call(bytes(100_000))
        sent = [len(one.payload) for one in peer.take() if one.kind == frames.DATA]
        assert sum(sent) == frames.WINDOW_DEFAULT
        found = peer.send(frames.window_update(0, 100_000) + frames.window_update(1, 100_000))
        pieces = [one for one in found if one.kind == frames.DATA]
        assert sum(sent) + sum(len(one.payload) for one in pieces) == 100_005
        assert pieces[-1].flags & frames.END_STREAM

    def test_settings_are_acknowledged_before_what_they_allow_is_sent(self) -> None:
        """Who hears of it after the data resets the stream: grpc-core does."""
        peer = ServerPeer()
        peer.send(frames.window_update(0, 1 << 20))
        peer.call(bytes(200_000))
        peer.take()
        wider = frames.settings([(frames.INITIAL_WINDOW_SIZE, 1 << 20)])
        found = [one.kind for one in peer.send(wider)]
        assert frames.DATA in found
        assert found.index(frames.SETTINGS) < found.index(frames.DATA)

    def test_settings_move_the_windows_of_open_streams(self) -> None:
        peer = ServerPeer()
        peer.send(frames.window_update(0, 1 << 20))
        peer.call(bytes(100_000))
        peer.take()
        small = frames.settings([(frames.INITIAL_WINDOW_SIZE, 0)])
        assert all(one.kind != frames.DATA for one in peer.send(small))  # the window is negative
        large = frames.settings([(frames.INITIAL_WINDOW_SIZE, 100_005)])
        rest = [len(one.payload) for one in peer.send(large) if one.kind == frames.DATA]
        assert sum(rest) == 100_005 - frames.WINDOW_DEFAULT

    def test_frames_as_large_as_the_server_takes(self) -> None:
        peer = ServerPeer()
        windows = [(frames.MAX_FRAME_SIZE, 1 << 20), (frames.INITIAL_WINDOW_SIZE, 1 << 20)]
        peer.send(frames.settings(windows) + frames.window_update(0, 1 << 20))
        peer.call(bytes(100_000))
        sizes = [len(one.payload) for one in peer.take() if one.kind == frames.DATA]
        assert max(sizes) == 64 << 10
        assert sum(sizes) == 100_005

    def test_more_than_the_stream_window(self) -> None:
        peer = ServerPeer(stream_window_bytes=65_535)
        call = peer.call()
        peer.send(head(1))
        for _ in range(3):
            peer.send(data(1, bytes(16_000)))
        found = peer.send(data(1, bytes(16_000)) + data(1, bytes(60_000)))
        assert reset_codes(found) == [(1, PROTOCOL)] or goaway_code(found) is not None
        assert call.ended

    def test_more_than_the_connection_window(self) -> None:
        peer = ServerPeer(stream_window_bytes=1 << 20, connection_window_bytes=65_535)
        peer.call()
        peer.send(head(1))
        peer.connection.hold()
        found = peer.send(frames.frame(frames.DATA, 0, 1, bytes(65_536)))
        assert goaway_code(found) == ErrorCode.FLOW_CONTROL_ERROR

    def test_what_was_read_is_given_back(self) -> None:
        peer = ServerPeer(stream_window_bytes=100_000, connection_window_bytes=200_000)
        peer.call(timeout_ms=None)
        peer.send(head(1))
        updates = [0, 0]
        for _ in range(100):
            for one in peer.send(data(1, bytes(5) * 2_000)):
                assert one.kind == frames.WINDOW_UPDATE
                updates[one.stream_id] += int.from_bytes(one.payload, "big")
        assert updates[0] > 900_000
        assert updates[1] > 900_000


class TestGoingAway:
    def test_open_calls_end_and_nothing_new_begins(self) -> None:
        peer = ServerPeer()
        call = peer.call()
        peer.send(frames.goaway(frames.STREAM_ID_MAX, 0))
        assert not peer.connection.accepts
        assert not peer.connection.over
        peer.send(answer(1, b"done") + frames.goaway(1, 0))
        assert (call.code, list(call.messages)) == (0, [b"done"])
        assert peer.connection.over

    def test_what_is_left_out_may_be_made_again(self) -> None:
        peer = ServerPeer()
        first, second = peer.call(), peer.call()
        peer.send(frames.goaway(1, 0))
        assert (first.ended, second.ended, second.refused) == (False, True, True)

    @pytest.mark.parametrize("sent", [b"", head(1), head(1) + data(1, message(b"x")[:3])])
    def test_in_every_state(self, sent: bytes) -> None:
        peer = ServerPeer()
        call = peer.call()
        peer.send(sent + frames.goaway(0, int(ErrorCode.ENHANCE_YOUR_CALM), "slower"))
        assert call.code == 14
        assert call.refused is (sent == b"")  # once an answer began, its caller must decide
        assert peer.connection.over
        assert "slower" in peer.connection.farewell

    def test_without_calls(self) -> None:
        peer = ServerPeer()
        peer.send(frames.goaway(0, 0))
        assert peer.connection.over

    def test_a_broken_one(self) -> None:
        peer = ServerPeer()
        assert goaway_code(peer.send(frames.frame(frames.GOAWAY, 0, 0, bytes(7)))) == 6

    def test_ids_are_used_up(self) -> None:
        peer = ServerPeer()
        peer.connection.streams.last_id = frames.STREAM_ID_MAX - 2
        call = peer.call()
        assert call.stream.id == frames.STREAM_ID_MAX
        assert not peer.connection.accepts
        peer.send(answer(frames.STREAM_ID_MAX, b"last"))
        assert call.code == 0
        assert peer.connection.over


def test_as_many_streams_as_the_server_serves() -> None:
    peer = ServerPeer()
    peer.send(frames.settings([(frames.MAX_CONCURRENT_STREAMS, 2)]))
    peer.call()
    peer.call()
    assert not peer.connection.accepts
    peer.send(answer(1, b""))
    assert peer.connection.accepts


class TestKeepalive:
    def test_silence_is_looked_into(self) -> None:
        peer = ServerPeer()
        call = peer.call(timeout_ms=None)
        (ping,) = [one for one in peer.wait(60_000) if one.kind == frames.PING]
        peer.send(frames.frame(frames.PING, frames.ACK, 0, ping.payload))
        peer.wait(50_000)
        assert not peer.connection.over
        peer.wait(25_000)
        assert peer.connection.over
        assert "not even a PING" in call.details

    def test_a_call_without_an_answer_is_looked_into_at_once(self) -> None:
        peer = ServerPeer()
        peer.call(timeout_ms=3_000)
        open_call = peer.call(timeout_ms=None)
        pings = [one for one in peer.wait(3_000) if one.kind == frames.PING]
        assert len(pings) == 1
        assert not peer.connection.accepts  # the next try waits for another connection
        peer.wait(1_999)
        assert not peer.connection.over
        peer.wait(1)
        assert peer.connection.over
        assert "not even a PING" in open_call.details

    def test_a_peer_that_answers_the_ping_is_kept(self) -> None:
        peer = ServerPeer()
        for timeouts in range(10):
            peer.call(timeout_ms=3_000)
            pings = [one for one in peer.wait(3_000) if one.kind == frames.PING]
            assert len(pings) == (timeouts % 4 == 0)  # at most one in ten seconds
            for ping in pings:
                peer.send(frames.frame(frames.PING, frames.ACK, 0, ping.payload))
            assert peer.connection.accepts
        peer.wait(62_000)
        assert peer.connection.accepts  # the usual keepalive has just begun

    def test_a_peer_that_was_heard_a_moment_ago_is_not_suspect(self) -> None:
        peer = ServerPeer()
        peer.call(timeout_ms=3_000)
        peer.call()
        peer.wait(2_500)
        peer.send(answer(3, b""))
        assert not [one for one in peer.wait(500) if one.kind == frames.PING]

    def test_pings_are_answered(self) -> None:
        peer = ServerPeer()
        for _ in range(100):
            (ack,) = peer.send(frames.frame(frames.PING, 0, 0, b"12345678"))
            assert (ack.flags, ack.payload) == (frames.ACK, b"12345678")

    @pytest.mark.parametrize(
        "frame",
        [
            frames.frame(frames.PING, 0, 0, bytes(8)),
            frames.frame(frames.SETTINGS, 0, 0),
            frames.frame(0x42, 0, 0),
            data(1, b""),
            head(1, encode([(b":status", b"103")])),
        ],
    )
    def test_a_flood_is_ended(self, frame: bytes) -> None:
        peer = ServerPeer()
        peer.call()
        if frame == data(1, b""):
            peer.send(head(1))
        assert goaway_code(peer.send(frame * 2_000)) == ErrorCode.ENHANCE_YOUR_CALM


CONVERSATION = (
    SETTINGS
    + SETTINGS_ACK
    + head(1, encode([(b":status", b"100")]))
    + answer(3, b"three")
    + head(1)
    + data(1, message(b"one")[:4])
    + frames.frame(frames.PING, 0, 0, b"12345678")
    + data(1, message(b"one")[4:] + message(b"more" * 1_000))
    + frames.settings([(frames.INITIAL_WINDOW_SIZE, 70_000)])
    + frames.window_update(0, 1_000_000)
    + trailers(1, encode([(b"grpc-status", b"5"), (b"grpc-message", b"n%C3%B6")]))
    + frames.rst_stream(5, 7)
    + frames.frame(frames.HEADERS, frames.END_STREAM, 7, HEAD[:3])
    + frames.frame(frames.CONTINUATION, frames.END_HEADERS, 7, HEAD[3:] + TRAILERS)
    + frames.goaway(7, 0, "bye")
)


def converse(pieces: list[bytes]) -> list[object]:
    peer = ServerPeer(greet=False)
    peer.connection.receive(SETTINGS, peer.now_ms)
    calls = [peer.call(bytes(80_000), None) for _ in range(5)]
    out = peer.connection.take()
    for piece in pieces:
        peer.connection.receive(piece, peer.now_ms)
    while taken := peer.connection.take():
        out += taken
    ends: list[object] = [(c.code, c.details, c.refused, tuple(c.messages)) for c in calls]
    return [*ends, out, peer.connection.over, peer.connection.farewell]


WHOLE = converse([CONVERSATION])


def test_the_conversation() -> None:
    assert [end[0] for end in WHOLE[:5]] == [5, 0, 14, 0, 14]  # type: ignore[index]
    assert WHOLE[0][1] == "nö"  # type: ignore[index]
    assert WHOLE[2][2] is True  # type: ignore[index]


@given(st.lists(st.integers(0, len(CONVERSATION)), max_size=30).map(sorted))
@settings(max_examples=150)
def test_cut_anywhere_it_is_the_same(cuts: list[int]) -> None:
    ends = zip([0, *cuts], [*cuts, len(CONVERSATION)], strict=True)
    assert converse([CONVERSATION[start:end] for start, end in ends]) == WHOLE


def test_byte_by_byte_it_is_the_same() -> None:
    assert converse([bytes((byte,)) for byte in CONVERSATION]) == WHOLE


@given(st.integers(0, 1 << 60))
@settings(max_examples=400)
def test_mutated_it_ends_in_order(seed: int) -> None:
    """Whatever comes, no exception, and every call has ended once the connection has."""
    draw = random.Random(seed)
    mutated = bytearray(CONVERSATION)
    for _ in range(draw.randint(1, 8)):
        at = draw.randrange(len(mutated))
        if draw.random() < 0.5:
            mutated[at] = draw.randrange(256)
        else:
            del mutated[at : at + draw.randint(1, 12)]
    peer = ServerPeer(greet=False)
    peer.connection.receive(SETTINGS, peer.now_ms)
    calls = [peer.call() for _ in range(5)]
    peer.send(bytes(mutated))
    peer.connection.lost()
    assert all(call.ended for call in calls)
    assert not peer.connection.open


def test_a_field_that_must_not_be() -> None:
    peer = ServerPeer()
    call = peer.call()
    found = peer.send(head(1, HEAD + literal(b"connection", b"close")))
    assert reset_codes(found) == [(1, PROTOCOL)]
    assert call.ended
