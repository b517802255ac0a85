"""What a handler says beside its answer, compression by its choice, and who has gone."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import Any

import hpack
import pytest

from latermq_broker.config.config import ServerConfig
from latermq_broker.config.server_transport import Http2Config
from latermq_broker.services.call.handler import Call, CallAborted, Method
from latermq_broker.transport.grpc.metadata import METADATA_BYTES_MAX, AnswerExtra
from latermq_broker.transport.grpc.server_state import Shared
from latermq_broker.transport.grpc.serving import GrpcConnection
from latermq_broker.transport.unconfirmed import Unconfirmed
from latermq_h2.grpc_code import GrpcCode
from latermq_h2.hpack.decoder import Decoder
from latermq_h2.hpack.encoder import literal
from latermq_h2.http2 import frames
from latermq_h2.http2.connection import Connection
from support.http2_peer import HELLO, OPEN_WINDOWS, REQUEST, SETTINGS_ACK, data, headers, parse

MESSAGE = b"\0\0\0\0\1x"


def says(request: bytes, call: Call) -> bytes:
    call.extra.add_header("x-head", "one")
    call.extra.add_trailer("x-tail-bin", b"\0\xff")
    return request


def packs(request: bytes, call: Call) -> bytes:
    call.extra.compress = True
    return request * 1_000


def refuses(request: bytes, call: Call) -> bytes:
    says(request, call)
    raise CallAborted(GrpcCode.ABORTED, "no")


def echoes(request: bytes, call: Call) -> bytes:
    return repr(call.all_metadata(("x-",))).encode()


def reads(request: bytes, call: Call) -> bytes:
    return repr((call.metadata("x-a"), call.metadata_bin("x-b-bin"), call.metadata("x-c"))).encode()


async def late(requests: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
    async for request in requests:
        call.extra.add_header("x-head", "late")
        call.extra.compress = True
        yield request
    call.extra.add_trailer("x-tail-bin", b"\0\xff")


def packs_all(request: bytes, call: Call) -> list[bytes]:
    says(request, call)
    call.extra.compress = True
    return [request * 1_000] * 2


METHODS = {
    b"/s/Says": Method.unary(says),
    b"/s/Packs": Method.unary(packs),
    b"/s/Refuses": Method.unary(refuses),
    b"/s/Echoes": Method.unary(echoes),
    b"/s/Reads": Method.unary(reads),
    b"/s/All": Method.server_stream(packs_all),
    b"/s/Late": Method.bidi_stream(late, headers_first=False),
}
GZIP = literal(b"grpc-accept-encoding", b"identity, gzip")


class Served:
    """One connection in memory."""

    def __init__(self) -> None:
        self.shared = Shared(
            methods=METHODS, now_ms=lambda: 1, calls_max=9, message_bytes_max=9_999,
            other_bytes_max=9_999, assembly_bytes_max=9_999, requests_bytes_max=9_999,
            inflated_bytes_max=9_999, request_ms_max=9_999, streams_max=9, gzip_from_bytes=0,
        )  # fmt: skip
        self.serving = GrpcConnection(
            self.shared, "p:1", "l:2", "c", lambda: None, Unconfirmed(None).add
        )
        self.connection = Connection(self.serving, Http2Config(), ServerConfig(), 1)
        self.serving.serve(self.connection)
        self.serving.receive(HELLO + SETTINGS_ACK + OPEN_WINDOWS)

    async def ask(self, path: bytes, more: bytes = b"") -> tuple[list[dict[bytes, bytes]], bytes]:
        """Each block of fields, and the body."""
        block = REQUEST.replace(literal(b":path", b"/s/M"), literal(b":path", path)) + more
        self.serving.receive(headers(1, block=block) + data(1, MESSAGE, end=True))
        found = b""
        for _ in range(20):
            await asyncio.sleep(0)
            found += self.connection.take()
        decoder, blocks, body = Decoder(1 << 16), [], b""
        for frame in parse(found):
            if frame.kind == frames.HEADERS:
                blocks.append({n: v for n, v, _, _ in decoder.decode(frame.payload)[0]})
            elif frame.kind == frames.DATA:
                body += frame.payload
        return blocks, body


async def test_headers_and_trailers_of_a_handler() -> None:
    [head, tail], body = await Served().ask(b"/s/Says")
    assert (head[b":status"], head[b"x-head"], body) == (b"200", b"one", MESSAGE)
    assert (tail[b"grpc-status"], tail[b"x-tail-bin"]) == (b"0", b"AP8")


async def test_they_go_out_with_a_status_too() -> None:
    [head, tail], body = await Served().ask(b"/s/Refuses")
    assert (head[b":status"], head[b"x-head"], body) == (b"200", b"one", b"")
    assert tail == {b"grpc-status": b"10", b"grpc-message": b"no", b"x-tail-bin": b"AP8"}


@pytest.mark.parametrize("path", [b"/s/Packs", b"/s/All"])
async def test_a_handler_has_its_answer_compressed_for_who_takes_it(path: bytes) -> None:
    [head, _], body = await Served().ask(path, GZIP)
    assert head[b"grpc-encoding"] == b"gzip"
    assert body[0] == 1
    assert gzip.decompress(body[5 : 5 + int.from_bytes(body[1:5])]) == b"x" * 1_000
    [head, _], body = await Served().ask(path)
    assert b"grpc-encoding" not in head
    assert body.startswith(b"\0\0\0\3\xe8xx")


async def test_a_stream_may_say_its_headers_with_its_first_element() -> None:
    [head, tail], body = await Served().ask(b"/s/Late", GZIP)
    assert (head[b"x-head"], head[b"grpc-encoding"], body[0]) == (b"late", b"gzip", 1)
    assert tail == {b"grpc-status": b"0", b"x-tail-bin": b"AP8"}


@pytest.mark.parametrize("in_huffman", [False, True])
async def test_all_metadata_of_a_request(in_huffman: bool) -> None:
    said = [(b"x-a", b"1"), (b"x-b-bin", b"AP8=,AP8"), (b"x-a", b"2"), (b"x-c-bin", b"!")]
    more = hpack.Encoder().encode(said, huffman=in_huffman)
    _, body = await Served().ask(b"/s/Echoes", more)
    binary = ("x-b-bin", b"\0\xff")
    assert body[5:] == repr([("x-a", "1"), binary, binary, ("x-a", "2")]).encode()
    _, body = await Served().ask(b"/s/Reads", more)
    assert body[5:] == repr(("1", b"\0\xff", None)).encode()


@pytest.mark.parametrize(
    ("name", "value"),
    [("grpc-status", "0"), ("Upper", "x"), ("", "x"), ("te", "x"), ("a b", "x"), ("x", b"bytes"),
     ("x-bin", "text"), ("x", "ä"), ("x", " x"), ("x", "\n"), ("x", "y" * METADATA_BYTES_MAX)],
)  # fmt: skip
def test_what_is_no_metadata_is_refused(name: str, value: Any) -> None:
    extra = AnswerExtra()
    for add in (extra.add_header, extra.add_trailer):
        with pytest.raises(ValueError, match=name or "cannot be a name"):
            add(name, value)
    assert (extra.headers, extra.trailers) == ([], [])


def test_the_rich_status_is_the_one_reserved_name_that_is_taken() -> None:
    extra = AnswerExtra()
    extra.add_trailer("grpc-status-details-bin", b"\1")
    assert extra.trailer_block().endswith(b"AQ")
