"""gRPC calls over a connection in memory: messages, status, deadlines; and header blocks."""

import gzip

import hpack
import pytest

from latermq._connection.lean.blocks import BLOCK_BYTES_MAX, Blocks
from latermq._connection.transport import Metadata
from latermq_h2.grpc_code import GrpcCode
from latermq_h2.hpack.decoder import Decoder
from latermq_h2.hpack.encoder import encode
from latermq_h2.http2 import frames
from latermq_h2.http2.frames import ErrorCode
from support.http2_peer import reset_codes
from support.http2_server_peer import (
    ServerPeer,
    answer,
    data,
    head,
    message,
    trailers,
)

IN_HUFFMAN = hpack.Encoder().encode([(b"grpc-status", b"7"), (b"grpc-message", b"no%21")])


class TestCalls:
    def test_one_message_each_way(self) -> None:
        peer = ServerPeer()
        call = peer.call(b"question")
        block, body = peer.take()
        assert (block.kind, block.flags, block.stream_id) == (frames.HEADERS, 4, 1)
        assert (body.payload, body.flags) == (message(b"question"), frames.END_STREAM)
        peer.send(answer(1, b"reply"))
        assert (call.code, list(call.messages)) == (GrpcCode.OK, [b"reply"])

    def test_many_messages_cut_anywhere(self) -> None:
        bodies = [bytes([index]) * (index * 37) for index in range(32)]
        whole = b"".join(map(message, bodies))
        peer = ServerPeer()
        call = peer.call()
        peer.send(head(1))
        for start in range(0, len(whole), 101):
            peer.send(data(1, whole[start : start + 101]))
        assert not call.ended
        peer.send(trailers(1))
        assert list(call.messages) == bodies

    def test_both_ways(self) -> None:
        peer = ServerPeer()
        call = peer.stream()
        peer.caller.write(call, b"one")
        sent = [one for one in peer.take() if one.kind == frames.DATA]
        assert b"".join(one.payload for one in sent) == message(b"one")
        peer.send(head(1) + data(1, message(b"two")))
        assert peer.caller.read(call) == b"two"
        assert peer.caller.read(call) is None
        peer.caller.cancel(call)
        assert reset_codes(peer.take()) == [(1, ErrorCode.CANCEL)]
        assert call.code == GrpcCode.CANCELLED

    def test_a_reader_that_does_not_read_holds_the_sender_back(self) -> None:
        peer = ServerPeer()
        call = peer.call(timeout_ms=None)
        peer.send(head(1))
        piece = message(bytes(50_000))
        credit = sent = 0
        while sent <= 7 << 19:
            found = peer.send(data(1, piece))
            sent += len(piece)
            credit += sum(int.from_bytes(one.payload, "big") for one in found if one.stream_id == 1)
        assert credit == 0
        while peer.caller.read(call) is not None:
            pass
        (update,) = [one for one in peer.take() if one.stream_id == 1]
        assert int.from_bytes(update.payload, "big") + credit == sent

    @pytest.mark.parametrize(
        ("sent", "status", "details"),
        [
            (trailers(1, encode([(b":status", b"200"), (b"content-type", b"application/grpc"),
                                 (b"grpc-status", b"7"), (b"grpc-message", b"no%21")])),
             GrpcCode.PERMISSION_DENIED, "no!"),
            (head(1) + trailers(1, IN_HUFFMAN), GrpcCode.PERMISSION_DENIED, "no!"),
            (head(1) + trailers(1, encode([(b"grpc-status", b"14")])), GrpcCode.UNAVAILABLE, ""),
            (head(1) + trailers(1, encode([(b"x", b"1")])), GrpcCode.UNKNOWN, "without a status"),
            (head(1) + data(1, message(b"x"), end=True), GrpcCode.UNKNOWN, "without a status"),
            (head(1) + data(1, message(b"x")[:4]) + trailers(1), GrpcCode.INTERNAL, "inside"),
            (head(1) + data(1, b"\x01" + message(b"x")[1:]), GrpcCode.INTERNAL, "compressed"),
            (head(1) + data(1, b"\0\xff\xff\xff\xff"), GrpcCode.RESOURCE_EXHAUSTED, "at most"),
            (head(1, encode([(b":status", b"503")])), GrpcCode.UNAVAILABLE, "HTTP status 503"),
            (head(1, encode([(b":status", b"404")]), end=True), GrpcCode.UNIMPLEMENTED, "404"),
            (head(1, encode([(b":status", b"200"), (b"content-type", b"text/html")])),
             GrpcCode.UNKNOWN, "not gRPC"),
            (head(1) + trailers(1, encode([(b"grpc-status", b"soon")])), -2, ""),
            (frames.rst_stream(1, ErrorCode.CANCEL), GrpcCode.CANCELLED, "CANCEL"),
            (frames.rst_stream(1, 99), GrpcCode.INTERNAL, "99"),
        ],
    )  # fmt: skip
    def test_each_end_has_its_status(self, sent: bytes, status: int, details: str) -> None:
        peer = ServerPeer()
        call = peer.call()
        peer.send(sent)
        assert call.code == status
        assert details in call.details
        assert not call.refused

    def test_an_answer_in_gzip(self) -> None:
        peer = ServerPeer()
        call = peer.call()
        packed = gzip.compress(b"x" * 100)
        block = [(b":status", b"200"), (b"content-type", b"application/grpc")]
        peer.send(
            head(1, encode([*block, (b"grpc-encoding", b"gzip")]))
            + data(1, b"\x01" + message(packed)[1:])
            + trailers(1)
        )
        assert (call.code, list(call.messages)) == (GrpcCode.OK, [b"x" * 100])

    def test_refused_may_be_made_again(self) -> None:
        peer = ServerPeer()
        call = peer.call()
        peer.send(frames.rst_stream(1, ErrorCode.REFUSED_STREAM))
        assert (call.code, call.refused) == (GrpcCode.UNAVAILABLE, True)

    def test_a_lost_connection_may_not(self) -> None:
        peer = ServerPeer()
        call = peer.call()
        peer.caller.lost_why = "reset by peer"
        peer.connection.lost()
        assert (call.code, call.refused) == (GrpcCode.UNAVAILABLE, False)
        assert call.details == "reset by peer"


class TestDeadlines:
    def test_each_at_its_time(self) -> None:
        peer = ServerPeer()
        calls = [peer.call(timeout_ms=ms) for ms in (300, 100, 200)]
        peer.wait(150)
        assert [call.ended for call in calls] == [False, True, False]
        assert reset_codes(peer.wait(200)) == [(5, ErrorCode.CANCEL), (1, ErrorCode.CANCEL)]
        assert {call.code for call in calls} == {GrpcCode.DEADLINE_EXCEEDED}

    def test_an_answer_in_time_is_one(self) -> None:
        peer = ServerPeer()
        call = peer.call(timeout_ms=100)
        peer.send(answer(1, b"x"))
        assert peer.wait(200) == []
        assert call.code == GrpcCode.OK

    def test_what_comes_late_is_dropped(self) -> None:
        peer = ServerPeer()
        call = peer.call(timeout_ms=100)
        peer.wait(100)
        assert peer.send(answer(1, b"late")) == []
        assert (call.code, list(call.messages)) == (GrpcCode.DEADLINE_EXCEEDED, [])


class TestBlocks:
    def fields(self, block: bytes) -> list[tuple[bytes, bytes]]:
        return [entry[:2] for entry in Decoder(1 << 16).decode(block)[0]]

    def test_a_block(self) -> None:
        blocks = Blocks("http", "broker:1", "me/1")
        metadata: Metadata = [("x-a", "1"), ("x-b-bin", b"\x00\xff"), ("x-mq-request-id", "7")]
        for _ in range(2):  # from what was learned, the second time
            assert self.fields(blocks.block("/s/M", metadata, 3_000)) == [
                (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/s/M"),
                (b":authority", b"broker:1"), (b"te", b"trailers"),
                (b"content-type", b"application/grpc"), (b"user-agent", b"me/1"),
                (b"grpc-timeout", b"3000m"), (b"x-a", b"1"), (b"x-b-bin", b"AP8"),
                (b"x-mq-request-id", b"7"),
            ]  # fmt: skip

    def test_timeouts_stay_within_eight_digits(self) -> None:
        blocks = Blocks("http", "b:1", "me/1")
        assert (b"grpc-timeout", b"99999999m") in self.fields(blocks.block("/s/M", (), 10**12))
        assert (b"grpc-timeout", b"1m") in self.fields(blocks.block("/s/M", (), -5))

    @pytest.mark.parametrize(
        ("name", "value"),
        [("X-A", "1"), ("", "1"), ("x-a", "a\r\nb"), ("x-a", "ö"), ("x-ö", "1"), ("x-a", b"1")],
    )
    def test_what_may_not_travel(self, name: str, value: str | bytes) -> None:
        with pytest.raises(ValueError, match="header"):
            Blocks("http", "b:1", "me/1").block("/s/M", [(name, value)], None)

    def test_more_than_a_frame_takes(self) -> None:
        with pytest.raises(ValueError, match=f"at most {BLOCK_BYTES_MAX}"):
            Blocks("http", "b:1", "me/1").block("/s/M", [("x-a", "a" * BLOCK_BYTES_MAX)], None)

    def test_what_is_kept_is_bounded(self) -> None:
        blocks = Blocks("http", "b:1", "me/1")
        for index in range(2_000):
            blocks.block(f"/s/{index}", [("x-a", str(index))], index)
        kept = (blocks._heads, blocks._timeouts, blocks._fields)
        assert all(0 < len(one) <= 512 for one in kept)
