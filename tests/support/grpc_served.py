"""Calls on one connection in memory: a handler of each kind, and who asks them."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any

from latermq_broker.config.config import ServerConfig
from latermq_broker.config.server_transport import Http2Config
from latermq_broker.deferred import Later
from latermq_broker.services.call.handler import Call, CallAborted, Method
from latermq_broker.transport.grpc.server_state import Shared
from latermq_broker.transport.grpc.serving import GrpcConnection
from latermq_broker.transport.unconfirmed import Unconfirmed
from latermq_h2.grpc_code import GrpcCode
from latermq_h2.hpack.decoder import Decoder
from latermq_h2.http2 import frames
from latermq_h2.http2.connection import Connection
from support.http2_peer import (
    HELLO,
    OPEN_WINDOWS,
    REQUEST,
    SETTINGS_ACK,
    Frame,
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
    """Answer an empty request never, "!" with an error, others in the next turn."""
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
    """One connection with the methods above, or with those that a test adds.

    Args:
        beside: another connection of the same server.
        peer: its socket, where the kernel is to be asked what arrived.
        more: methods.
    """

    def __init__(
        self,
        beside: "Served | None" = None,
        peer: socket.socket | None = None,
        more: dict[bytes, Method] | None = None,
        **shared: Any,
    ) -> None:
        self.now_ms = 1_000
        options: dict[str, Any] = {
            "calls_max": 100, "message_bytes_max": 1 << 21, "other_bytes_max": 1 << 20,
            "assembly_bytes_max": 4 << 20, "inflated_bytes_max": 1 << 20,
            "requests_bytes_max": 8 << 20, "request_ms_max": 5_000,
            "streams_max": 100, "gzip_from_bytes": 0,
        }  # fmt: skip
        methods = METHODS | (more or {})
        self.shared = Shared(methods=methods, now_ms=lambda: self.now_ms, **(options | shared))
        if beside is not None:
            self.shared = beside.shared
        self.unconfirmed = Unconfirmed(peer)
        self.serving = GrpcConnection(
            self.shared, "p:1", "l:2", "c", lambda: None, self.unconfirmed.add
        )
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
        assert self.serving.origin.held_bytes == self.shared.memory.held_bytes == 0
        assert self.shared.memory.waiting == 0


def message(payload: bytes) -> bytes:
    return struct.pack(">BI", 0, len(payload)) + payload
