"""Calls on connections in memory: what handlers see, what callers get, and that nothing is left."""

import asyncio
import random
import struct
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any

import pytest

from latermq_broker.config import ServerConfig
from latermq_broker.config_transport import Http2Config
from latermq_broker.services.later import Later
from latermq_broker.services.seam import Call, CallAborted, Method
from latermq_broker.transport.grpc_server.serving import GrpcConnection, Shared
from latermq_h2.grpc_code import GrpcCode
from latermq_h2.hpack.decoder import Decoder
from latermq_h2.hpack.encoder import literal
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


def later(request: bytes, call: Call) -> Awaitable[bytes]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[bytes] = loop.create_future()

    def answer() -> None:
        if not future.cancelled():
            future.set_result(request)

    loop.call_soon(answer)
    return future


def settled(request: bytes, call: Call) -> Later[bytes]:
    """Of an empty request never; of "!" with an error; else in the next turn."""
    answer = Later(request)
    if request == b"!":
        answer.fail(CallAborted(GrpcCode.NOT_FOUND, "no"))
    elif request:
        asyncio.get_running_loop().call_soon(answer.release)
    unsettled.append(answer)
    return answer


unsettled: list[Later[bytes]] = []


async def coroutine(request: bytes, call: Call) -> bytes:
    await asyncio.sleep(0)
    return request


async def each(request: bytes, call: Call) -> AsyncIterator[bytes]:
    for number in range(20):
        yield b"%d" % number * 1_000
        if number % 7 == 0:
            await asyncio.sleep(0)


async def double(requests: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request * 2


def fails(request: bytes, call: Call) -> Sequence[bytes]:
    if request:
        raise CallAborted(GrpcCode.NOT_FOUND, "no")
    raise KeyError("secret")


def list_of(request: bytes) -> list[bytes]:
    return [request, request]


METHODS = {
    b"/s/M": Method.unary(lambda request, call: request),
    b"/s/L": Method.unary(later),
    b"/s/X": Method.unary(lambda request, call: request, large=True),
    b"/s/C": Method.unary(coroutine),
    b"/s/W": Method.unary(settled),
    b"/s/S": Method.server_stream(lambda request, call: settled(request, call).mapped(list_of)),
    b"/s/E": Method.server_stream(each),
    b"/s/B": Method.bidi_stream(double),
    b"/s/F": Method.server_stream(fails),
}


class Served:
    """One connection with the methods above."""

    def __init__(self, **shared: Any) -> None:
        self.now_ms = 1_000
        options: dict[str, Any] = {
            "calls_max": 100, "message_bytes_max": 1 << 21, "other_bytes_max": 1 << 20,
            "assembly_bytes_max": 4 << 20,
            "streams_max": 100, "gzip_from_bytes": 0,
        }  # fmt: skip
        self.shared = Shared(methods=METHODS, now_ms=lambda: self.now_ms, **(options | shared))
        self.serving = GrpcConnection(self.shared, "p:1", "l:2", "c", lambda: None)
        connection = Connection(self.serving, Http2Config(), ServerConfig(), self.now_ms)
        self.serving.serve(connection)
        self.connection = connection
        self.decoder = Decoder(1 << 16)

    def send(self, wire: bytes) -> None:
        self.serving.receive(wire)
        while self.connection.input_left:
            self.serving.receive(b"")

    async def settle(self) -> list[Frame]:
        """Let the handlers run; frames that came out."""
        found = b""
        for _ in range(60):
            await asyncio.sleep(0)
            while taken := self.connection.take():
                found += taken
        return parse(found)

    async def ask(self, path: bytes, wire: bytes) -> tuple[dict[bytes, bytes], bytes]:
        """Fields and body of the answer to the call on stream 1, and what it ends with."""
        self.send(HELLO + SETTINGS_ACK + OPEN_WINDOWS)
        self.send(headers(1, block=REQUEST.replace(b"/s/M", path)) + wire)
        fields: dict[bytes, bytes] = {}
        body = b""
        for found in await self.settle():
            if found.stream_id == 1 and found.kind == frames.HEADERS:
                fields |= {n: v for n, v, _, _ in self.decoder.decode(found.payload)[0]}
            elif found.stream_id == 1 and found.kind == frames.DATA:
                body += found.payload
        return fields, body

    def check_empty(self) -> None:
        assert self.shared.calls == 0
        assert not self.connection.open
        assert not self.serving.answers.running
        assert self.serving.assembly_bytes == 0


def message(payload: bytes) -> bytes:
    return struct.pack(">BI", 0, len(payload)) + payload


@pytest.mark.parametrize(
    ("path", "request_bytes", "status", "body"),
    [
        (b"/s/M", message(b"x"), b"0", message(b"x")),
        (b"/s/L", message(b"x"), b"0", message(b"x")),
        (b"/s/C", message(b"x"), b"0", message(b"x")),
        (b"/s/W", message(b"x"), b"0", message(b"x")),
        (b"/s/W", message(b"!"), b"5", b""),
        (b"/s/S", message(b"x"), b"0", message(b"x") * 2),
        (b"/s/B", message(b"x") + message(b"y"), b"0", message(b"xx") + message(b"yy")),
        (b"/s/B", b"", b"0", b""),
        (b"/s/F", message(b"x"), b"5", b""),
        (b"/s/F", message(b""), b"2", b""),
        (b"/s/M", b"", b"12", b""),
        (b"/s/M", message(b"x") * 2, b"12", b""),
        (b"/s/M", message(b"xyz")[:-1], b"13", b""),
        (b"/s/M", struct.pack(">BI", 0, 1 << 21), b"8", b""),
        (b"/s/M", b"\x01" + message(b"x")[1:], b"13", b""),
    ],
)
async def test_one_call_cut_anywhere(
    path: bytes, request_bytes: bytes, status: bytes, body: bytes
) -> None:
    for cut in {0, 1, len(request_bytes) // 2, len(request_bytes)}:
        served = Served()
        wire = data(1, request_bytes[:cut]) + data(1, request_bytes[cut:], end=True)
        fields, found = await served.ask(path, wire)
        assert fields[b"grpc-status"] == status
        assert found == body
        assert b"secret" not in fields.get(b"grpc-message", b"")
        served.check_empty()


async def test_an_answer_that_comes_when_nobody_waits_for_it_any_more() -> None:
    served = Served()
    served.send(HELLO + SETTINGS_ACK + OPEN_WINDOWS)
    served.send(headers(1, block=REQUEST.replace(b"/s/M", b"/s/W")))
    served.send(data(1, message(b""), end=True) + frames.rst_stream(1, frames.ErrorCode.CANCEL))
    await served.settle()
    unsettled[-1].give(b"too late")
    assert not [frame for frame in await served.settle() if frame.stream_id == 1]
    served.check_empty()


async def test_calls_beyond_the_limit() -> None:
    served = Served(calls_max=2)
    served.send(HELLO + SETTINGS_ACK + OPEN_WINDOWS)
    served.send(headers(1) + headers(3) + headers(5))
    answers = await served.settle()
    [refused] = [found for found in answers if found.kind == frames.HEADERS]
    assert refused.stream_id == 5
    assert b"grpc-status\x018" in refused.payload
    served.connection.lost()
    served.check_empty()


async def test_a_method_with_large_requests_takes_more_than_the_others() -> None:
    large = message(bytes(1_500_000))
    wire = b"".join(
        data(1, large[at : at + 16_000], end=at + 16_000 >= len(large))
        for at in range(0, len(large), 16_000)
    )
    served = Served()
    fields, _ = await served.ask(b"/s/M", wire)
    assert fields[b"grpc-status"] == b"8"
    served.check_empty()
    served = Served()
    fields, body = await served.ask(b"/s/X", wire)
    assert (fields[b"grpc-status"], len(body)) == (b"0", len(large))


async def test_what_was_refused_is_counted() -> None:
    served = Served(calls_max=1)
    served.send(HELLO + SETTINGS_ACK + OPEN_WINDOWS)
    served.send(headers(1) + headers(3))
    unknown = REQUEST.replace(b"/s/M", b"/s/?")
    served.send(headers(5, block=unknown) + data(1, b"", end=True))
    await served.settle()
    assert served.shared.counts.facts() == {
        "calls": 1,
        "connections": 0,
        "status": {"UNIMPLEMENTED": 1},
        "refused": {"too many calls at once": 1, "unknown method": 1},
    }


async def test_requests_that_are_never_whole_are_bounded() -> None:
    served = Served(assembly_bytes_max=100_000)
    served.send(HELLO + SETTINGS_ACK + OPEN_WINDOWS)
    start = struct.pack(">BI", 0, 1 << 20) + bytes(16_379)
    for number in range(10):
        served.send(headers(2 * number + 1) + data(2 * number + 1, start))
    refused = [found for found in await served.settle() if found.kind == frames.HEADERS]
    assert len(refused) == 4
    assert served.serving.assembly_bytes <= 100_000
    served.connection.lost()
    served.check_empty()


async def test_work_is_done_in_portions() -> None:
    served = Served(streams_max=1_000)
    served.send(HELLO + SETTINGS_ACK + OPEN_WINDOWS)
    call = b"".join(
        headers(2 * n + 1) + data(2 * n + 1, message(b"x"), end=True) for n in range(90)
    )
    served.serving.receive(call)
    assert served.connection.input_left
    assert sum(f.kind == frames.DATA for f in parse(served.connection.take())) == 64
    served.serving.receive(b"")
    assert not served.connection.input_left
    assert sum(f.kind == frames.DATA for f in parse(served.connection.take())) == 26


@pytest.mark.parametrize("seed", range(150))
async def test_whatever_comes_nothing_is_left(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(seed)
    served = Served()
    wire = bytearray(HELLO + SETTINGS_ACK + OPEN_WINDOWS)
    for number in range(rng.randint(1, 12)):
        stream_id = 2 * number + 1
        block = REQUEST.replace(b"/s/M", rng.choice([*METHODS, b"/s/?"]))
        if rng.random() < 0.3:
            block += literal(b"grpc-timeout", rng.choice([b"1m", b"10S", b"0m"]))
        wire += headers(stream_id, block=block)
        for _ in range(rng.randint(0, 3)):
            body = message(rng.randbytes(rng.choice([0, 10, 5_000])))
            wire += data(stream_id, body[: rng.choice([3, len(body), len(body)])])
        wire += rng.choice([data(stream_id, b"", end=True), frames.rst_stream(stream_id, 8), b""])
    for _ in range(rng.choice([0, 0, 1, 4])):
        at = rng.randrange(len(HELLO), len(wire))
        wire[at : at + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 3))
    position = 0
    while position < len(wire):
        step = rng.randint(1, 3_000)
        served.send(bytes(wire[position : position + step]))
        position += step
        if rng.random() < 0.5:
            await asyncio.sleep(0)
            served.connection.take()
    served.connection.lost()
    await served.settle()
    served.check_empty()
