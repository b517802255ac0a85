"""The client's transports against a server that misbehaves: each failure is one of our errors.

The server is grpc.aio's own, in this process; it answers bytes with bytes.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Final

import grpc
import grpc.aio
import pytest

import latermq
from latermq._connection.transport import Transport
from latermq._connection.transports import chosen
from latermq._values.endpoints import Endpoints
from latermq.codes import Code
from latermq.errors import (
    BadRequestError,
    ForbiddenError,
    RequestTimeoutError,
    ServerError,
    UnauthorizedError,
    UnavailableError,
    UnsupportedError,
)
from support.machine import patient

PATH: Final = "/test/Call"
SOON_S: Final = patient(10.0)


class Server(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Every path goes to `answer`, of the kind the test sets."""

    def __init__(self) -> None:
        self.answer: Any = None
        self.headers: dict[str, Any] = {}

    def service(self, details: Any) -> Any:
        self.headers = dict(details.invocation_metadata)
        return self.answer


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, Endpoints]]:
    handler = Server()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([handler])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield handler, Endpoints.parse(f"127.0.0.1:{port}")
    await server.stop(None)


@pytest.fixture(params=["lean", "grpcio"])
def connect(request: pytest.FixtureRequest) -> Callable[[Endpoints], Transport]:
    return chosen(request.param)


@pytest.fixture
async def transport(
    server: tuple[Server, Endpoints], connect: Callable[[Endpoints], Transport]
) -> AsyncIterator[Transport]:
    transport = connect(server[1])
    yield transport
    await transport.close()


def unary(behaviour: Callable[[bytes, Any], Any]) -> Any:
    return grpc.unary_unary_rpc_method_handler(behaviour)


def abort(code: grpc.StatusCode) -> Any:
    async def behaviour(request: bytes, context: Any) -> bytes:
        await context.abort(code, "why")
        raise AssertionError

    return unary(behaviour)


async def test_bytes_and_headers(server: tuple[Server, Endpoints], transport: Transport) -> None:
    async def echo(request: bytes, context: Any) -> bytes:
        return request * 2

    server[0].answer = unary(echo)
    headers: list[tuple[str, str | bytes]] = [("x-a", "1"), ("x-b-bin", b"\x00\xff")]
    assert await transport.unary(PATH, b"ab", headers, SOON_S) == b"abab"
    assert server[0].headers["x-a"] == "1"
    assert server[0].headers["x-b-bin"] == b"\x00\xff"


@pytest.mark.parametrize(
    ("code", "error", "status"),
    [
        (grpc.StatusCode.UNAVAILABLE, UnavailableError, 0),
        (grpc.StatusCode.CANCELLED, UnavailableError, 0),
        (
            grpc.StatusCode.DEADLINE_EXCEEDED,
            RequestTimeoutError,
            Code.REQUEST_TIMEOUT,
        ),
        (grpc.StatusCode.INVALID_ARGUMENT, BadRequestError, Code.BAD_REQUEST),
        (grpc.StatusCode.UNAUTHENTICATED, UnauthorizedError, Code.UNAUTHORIZED),
        (grpc.StatusCode.PERMISSION_DENIED, ForbiddenError, Code.FORBIDDEN),
        (grpc.StatusCode.UNIMPLEMENTED, UnsupportedError, Code.NOT_IMPLEMENTED),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, ServerError, Code.INTERNAL_ERROR),
        (grpc.StatusCode.UNKNOWN, ServerError, Code.INTERNAL_ERROR),
    ],
    ids=lambda value: getattr(value, "name", None),
)
async def test_each_status_has_its_error(
    server: tuple[Server, Endpoints],
    transport: Transport,
    code: grpc.StatusCode,
    error: type[latermq.LaterMQError],
    status: int,
) -> None:
    server[0].answer = abort(code)
    with pytest.raises(error) as raised:
        await transport.unary(PATH, b"", (), SOON_S)
    assert raised.value.code == status


async def test_no_answer_in_time(server: tuple[Server, Endpoints], transport: Transport) -> None:
    async def sleep(request: bytes, context: Any) -> bytes:
        await asyncio.sleep(100)
        return b""

    server[0].answer = unary(sleep)
    with pytest.raises(RequestTimeoutError, match=r"127\.0\.0\.1"):
        await transport.unary(PATH, b"", (), 0.2)


async def test_nobody_listens(connect: Callable[[Endpoints], Transport]) -> None:
    transport = connect(Endpoints.parse("127.0.0.1:1"))
    with pytest.raises(UnavailableError, match=r"no broker answers at 127\.0\.0\.1:1"):
        await transport.unary(PATH, b"", (), 0.3)
    await transport.close()


async def test_our_own_cancellation_stays_one(
    server: tuple[Server, Endpoints], transport: Transport
) -> None:
    async def sleep(request: bytes, context: Any) -> bytes:
        await asyncio.sleep(100)
        return b""

    server[0].answer = unary(sleep)
    calling = asyncio.create_task(transport.unary(PATH, b"", (), SOON_S))
    await asyncio.sleep(0.1)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling


async def test_a_stream_that_breaks_keeps_what_came(
    server: tuple[Server, Endpoints], transport: Transport
) -> None:
    async def break_off(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"
        await context.abort(grpc.StatusCode.UNAVAILABLE, "why")

    server[0].answer = grpc.unary_stream_rpc_method_handler(break_off)
    answers = transport.server_stream(PATH, b"", (), SOON_S)
    assert [await anext(answers), await anext(answers)] == [b"one", b"two"]
    with pytest.raises(UnavailableError):
        await anext(answers)


async def test_a_stream_that_is_left_is_cancelled(
    server: tuple[Server, Endpoints], transport: Transport
) -> None:
    cancelled = asyncio.Event()

    async def endless(request: bytes, context: Any) -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"one"
                await asyncio.sleep(0.01)
        finally:
            cancelled.set()

    server[0].answer = grpc.unary_stream_rpc_method_handler(endless)
    answers = transport.server_stream(PATH, b"", (), SOON_S)
    assert await anext(answers) == b"one"
    await answers.aclose()
    await asyncio.wait_for(cancelled.wait(), SOON_S)


async def test_both_ways(server: tuple[Server, Endpoints], transport: Transport) -> None:
    async def echo(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            if request == b"end":
                return
            if request == b"break":
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "why")
            yield request * 2

    server[0].answer = grpc.stream_stream_rpc_method_handler(echo)
    stream = transport.bidi_stream(PATH, ())
    await stream.write(b"ab")
    assert await stream.read() == b"abab"
    await stream.write(b"end")
    assert await stream.read() is None
    broken = transport.bidi_stream(PATH, ())
    await broken.write(b"break")
    with pytest.raises(BadRequestError):
        await broken.read()
    with pytest.raises(latermq.LaterMQError):
        await broken.write(b"more")
    broken.cancel()


async def test_a_server_that_leaves_and_comes_back(
    connect: Callable[[Endpoints], Transport],
) -> None:
    async def echo(request: bytes, context: Any) -> bytes:
        return request

    async def serve(port: int) -> tuple[Any, int]:
        handler = Server()
        handler.answer = unary(echo)
        server = grpc.aio.server()
        server.add_generic_rpc_handlers([handler])
        port = server.add_insecure_port(f"127.0.0.1:{port}")
        await server.start()
        return server, port

    server, port = await serve(0)
    transport = connect(Endpoints.parse(f"127.0.0.1:{port}"))
    assert await transport.unary(PATH, b"one", (), SOON_S) == b"one"
    await server.stop(None)
    with pytest.raises(UnavailableError):
        await transport.unary(PATH, b"two", (), 0.3)
    server, _ = await serve(port)
    assert await transport.unary(PATH, b"three", (), SOON_S) == b"three"
    await transport.close()
    await server.stop(None)


class Firewall:
    """Forwards TCP; `forget` drops what is sent on its connections, and keeps them open."""

    def __init__(self, endpoints: Endpoints) -> None:
        self._to = endpoints.addresses[0]
        self._age = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> tuple[asyncio.Server, Endpoints]:
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        return server, Endpoints.parse(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")

    def forget(self) -> None:
        self._age += 1

    def end(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far, out = await asyncio.open_connection(*self._to)
        self._writers += writer, out
        age = self._age

        async def pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                while data := await source.read(1 << 16):
                    if age == self._age:
                        sink.write(data)
            sink.close()

        await asyncio.gather(pipe(reader, out), pipe(far, writer))


async def test_a_connection_that_was_forgotten_on_the_way(
    server: tuple[Server, Endpoints], connect: Callable[[Endpoints], Transport]
) -> None:
    """The first call without an answer is the last one on it, and what else it carries ends."""

    async def echo(request: bytes, context: Any) -> bytes:
        if request == b"park":
            parked.set()
            await asyncio.sleep(100)
        return request

    parked = asyncio.Event()
    server[0].answer = unary(echo)
    firewall = Firewall(server[1])
    listening, endpoints = await firewall.start()
    transport = connect(endpoints)
    assert await transport.unary(PATH, b"one", (), SOON_S) == b"one"
    parking = asyncio.create_task(transport.unary(PATH, b"park", (), None))
    await parked.wait()
    firewall.forget()
    with pytest.raises(RequestTimeoutError):
        await transport.unary(PATH, b"two", (), 1.5)
    assert await transport.unary(PATH, b"three", (), SOON_S) == b"three"
    with pytest.raises(UnavailableError):
        await parking
    await transport.close()
    listening.close()
    firewall.end()
