"""What every transport does for a handler, shown with a grpc client over a real connection."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio
import pytest

from latermq_broker.config.config import ServerConfig
from latermq_broker.errors import ConfigError
from latermq_broker.services.call.handler import Call, CallAborted, Method, MethodTable
from latermq_broker.transport.grpcio import GrpcioServer
from latermq_broker.transport.lean import LeanServer
from latermq_h2.grpc_code import GrpcCode
from support.machine import patient

TIMEOUT_S = patient(10.0)
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
)


Server = GrpcioServer | LeanServer
ServerClass = type[GrpcioServer] | type[LeanServer]


@pytest.fixture(params=[GrpcioServer, LeanServer], ids=["grpcio", "lean"])
def transport(request: pytest.FixtureRequest) -> ServerClass:
    """Each of them."""
    chosen: ServerClass = request.param
    return chosen


class Client:
    """Raw bytes on one connection."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)

    def unary(self, path: str, request: bytes = b"", **options: Any) -> Any:
        return self.channel.unary_unary(path)(
            request, timeout=options.pop("timeout", TIMEOUT_S), **options
        )

    def stream(self, path: str, request: bytes = b"", **options: Any) -> Any:
        return self.channel.unary_stream(path)(
            request, timeout=options.pop("timeout", TIMEOUT_S), **options
        )

    def bidi(self, path: str, **options: Any) -> Any:
        return self.channel.stream_stream(path)(timeout=TIMEOUT_S, **options)


@asynccontextmanager
async def served(
    transport: ServerClass, methods: MethodTable, listen: str = "127.0.0.1:0", **limits: Any
) -> AsyncIterator[Client]:
    server = transport(methods, ServerConfig(listen=listen, **limits))
    await server.start()
    client = Client(server.address)
    try:
        yield client
    finally:
        await client.channel.close()
        await server.drain(0)


async def failure(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return failed.value.code(), failed.value.details() or ""


class TestAdmission:
    """A method that is asked before the request of a call is kept."""

    LARGE = bytes(3 << 20)

    def methods(self, handled: list[bytes]) -> MethodTable:
        def admit(call: Call) -> Sequence[bytes] | None:
            return None if call.metadata("who") else [b"who are you"]

        def one(request: bytes, call: Call) -> bytes:
            handled.append(request)
            return b"welcome"

        def some(request: bytes, call: Call) -> list[bytes]:
            handled.append(request)
            return [b"well", b"come"]

        stream = replace(Method.server_stream(some), admit=admit)
        return {"/s/M": Method.unary(one, admit=admit), "/s/S": stream}

    async def test_who_may_not_come_in(self, transport: ServerClass) -> None:
        handled: list[bytes] = []
        async with served(transport, self.methods(handled)) as client:
            for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
                options = {"compression": compression}
                assert await client.unary("/s/M", self.LARGE, **options) == b"who are you"
                answers = [each async for each in client.stream("/s/S", self.LARGE, **options)]
                assert answers == [b"who are you"]
        assert handled == []

    async def test_who_may(self, transport: ServerClass) -> None:
        handled: list[bytes] = []
        async with served(transport, self.methods(handled)) as client:
            options = {"metadata": (("who", "me"),)}
            assert await client.unary("/s/M", self.LARGE, **options) == b"welcome"
            answers = [each async for each in client.stream("/s/S", self.LARGE, **options)]
            assert answers == [b"well", b"come"]
        assert handled == [self.LARGE] * 2


class TestUnary:
    async def test_an_answer_now_or_later(self, transport: ServerClass) -> None:
        async def later(request: bytes, call: Call) -> bytes:
            await asyncio.sleep(0)
            return request + b" later"

        table = {"/s/Now": Method.unary(lambda request, call: request + b" now"),
                 "/s/Later": Method.unary(later)}  # fmt: skip
        async with served(transport, table) as client:
            assert await client.unary("/s/Now", b"x") == b"x now"
            assert await client.unary("/s/Later", b"x") == b"x later"

    async def test_large_messages_both_ways(self, transport: ServerClass) -> None:
        async with served(
            transport, {"/s/Echo": Method.unary(lambda request, call: request, large=True)}
        ) as client:
            body = bytes(20 << 20)
            assert await client.unary("/s/Echo", body) == body

    async def test_an_unknown_path_is_unimplemented(self, transport: ServerClass) -> None:
        async with served(transport, {}) as client:
            assert (await failure(client.unary("/s/None")))[0] is grpc.StatusCode.UNIMPLEMENTED

    async def test_an_abort_carries_its_code_and_text(self, transport: ServerClass) -> None:
        def refuse(request: bytes, call: Call) -> bytes:
            raise CallAborted(GrpcCode.INVALID_ARGUMENT, "settings: größer")

        async with served(transport, {"/s/No": Method.unary(refuse)}) as client:
            code, text = await failure(client.unary("/s/No"))
            assert (code, text) == (grpc.StatusCode.INVALID_ARGUMENT, "settings: größer")

    async def test_a_bug_leaks_nothing(self, transport: ServerClass) -> None:
        def fail(request: bytes, call: Call) -> bytes:
            raise KeyError("secret")

        async with served(transport, {"/s/Bug": Method.unary(fail)}) as client:
            code, text = await failure(client.unary("/s/Bug"))
            assert code is grpc.StatusCode.UNKNOWN
            assert "secret" not in text


class TestStreams:
    async def test_a_list_an_awaitable_list_and_an_iterator(self, transport: ServerClass) -> None:
        async def later(request: bytes, call: Call) -> Sequence[bytes]:
            await asyncio.sleep(0)
            return [b"1", b"2"]

        async def each(request: bytes, call: Call) -> AsyncIterator[bytes]:
            for element in (b"1", b"2"):
                yield element

        table = {
            "/s/Now": Method.server_stream(lambda request, call: [b"1", b"2"]),
            "/s/Later": Method.server_stream(later),
            "/s/Each": Method.server_stream(each),
            "/s/None": Method.server_stream(lambda request, call: []),
        }
        async with served(transport, table) as client:
            for path in ("/s/Now", "/s/Later", "/s/Each"):
                assert [element async for element in client.stream(path)] == [b"1", b"2"]
            assert [element async for element in client.stream("/s/None")] == []

    async def test_a_parked_call_is_a_future_that_someone_resolves(
        self, transport: ServerClass
    ) -> None:
        parked: list[asyncio.Future[Sequence[bytes]]] = []

        def park(request: bytes, call: Call) -> Awaitable[Sequence[bytes]]:
            parked.append(asyncio.get_running_loop().create_future())
            return parked[-1]

        async with served(transport, {"/s/Park": Method.server_stream(park)}) as client:
            call = client.stream("/s/Park")
            await until(lambda: bool(parked))
            parked[0].set_result([b"at last"])
            assert [element async for element in call] == [b"at last"]

    async def test_both_directions_with_headers_before_the_first_element(
        self, transport: ServerClass
    ) -> None:
        async def double(requests: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
            async for request in requests:
                yield request * 2

        async with served(transport, {"/s/Double": Method.bidi_stream(double)}) as client:
            call = client.bidi("/s/Double")
            await asyncio.wait_for(call.initial_metadata(), TIMEOUT_S)
            for request in (b"a", b"b"):
                await call.write(request)
                assert await call.read() == request * 2
            await call.done_writing()
            assert await call.read() is grpc.aio.EOF

    async def test_an_abort_after_some_elements(self, transport: ServerClass) -> None:
        async def some(request: bytes, call: Call) -> AsyncIterator[bytes]:
            yield b"1"
            raise CallAborted(GrpcCode.UNAVAILABLE, "going down")

        async with served(transport, {"/s/Some": Method.server_stream(some)}) as client:
            call = client.stream("/s/Some")
            assert await call.read() == b"1"
            assert (await failure(call.read()))[0] is grpc.StatusCode.UNAVAILABLE


class TestCall:
    async def test_shows_metadata_addresses_and_deadline(self, transport: ServerClass) -> None:
        seen: dict[str, Any] = {}

        def look(request: bytes, call: Call) -> bytes:
            seen.update(
                path=call.path,
                peer=call.peer,
                local=call.local,
                text=call.metadata("x-text"),
                binary=call.metadata_bin("x-data-bin"),
                crossed=(call.metadata("x-data-bin"), call.metadata_bin("x-text")),
                missing=(call.metadata("x-none"), call.metadata_bin("x-none-bin")),
                remaining_ms=call.remaining_ms(),
                cancelled=call.cancelled,
            )
            return b""

        metadata = (("x-text", "first"), ("x-text", "second"), ("x-data-bin", b"\x00\xff"))
        async with served(transport, {"/s/Look": Method.unary(look)}) as client:
            await client.unary("/s/Look", metadata=metadata, timeout=5)
            assert seen["path"] == "/s/Look"
            host, _, port = seen["peer"].rpartition(":")
            assert host == "127.0.0.1"
            assert port.isdigit()
            assert seen["local"].startswith("127.0.0.1:")
            assert seen["text"] == "first"
            assert seen["binary"] == b"\x00\xff"
            assert seen["crossed"] == (None, None)
            assert seen["missing"] == (None, None)
            assert 3_000 < seen["remaining_ms"] <= 5_100  # grpc rounds it up a little
            assert not seen["cancelled"]
            await client.channel.unary_unary("/s/Look")(b"")
            assert seen["remaining_ms"] is None

    async def test_an_ipv6_peer_is_in_brackets(self, transport: ServerClass) -> None:
        seen: list[str] = []

        def look(request: bytes, call: Call) -> bytes:
            seen.append(call.peer)
            return b""

        async with served(transport, {"/s/Look": Method.unary(look)}, "[::1]:0") as client:
            await client.unary("/s/Look")
            assert seen[0].startswith("[::1]:")


class TestCancel:
    @pytest.mark.parametrize("how", ["cancel", "deadline", "connection"])
    async def test_a_caller_who_goes_while_it_waits_is_noticed(
        self, transport: ServerClass, how: str
    ) -> None:
        calls: list[Call] = []
        cancelled: list[str] = []
        parked: list[asyncio.Future[Sequence[bytes]]] = []

        def park(request: bytes, call: Call) -> Awaitable[Sequence[bytes]]:
            calls.append(call)
            call.on_cancel(lambda: cancelled.append("once"))
            parked.append(asyncio.get_running_loop().create_future())
            return parked[-1]

        async with served(transport, {"/s/Park": Method.server_stream(park)}) as client:
            call = client.stream("/s/Park", timeout=0.2 if how == "deadline" else TIMEOUT_S)
            await until(lambda: bool(calls))
            if how == "cancel":
                call.cancel()
            elif how == "connection":
                await client.channel.close(None)
            await until(lambda: bool(cancelled))
            assert cancelled == ["once"]
            assert calls[0].cancelled
            assert parked[0].cancelled()
            calls[0].on_cancel(lambda: cancelled.append("late"))
            assert cancelled == ["once", "late"]

    async def test_a_whole_reply_is_no_cancel(self, transport: ServerClass) -> None:
        cancelled: list[str] = []

        def answer(request: bytes, call: Call) -> Sequence[bytes]:
            call.on_cancel(lambda: cancelled.append("never"))
            return [b"1"] * 3

        async with served(transport, {"/s/Three": Method.server_stream(answer)}) as client:
            assert len([element async for element in client.stream("/s/Three")]) == 3
        assert cancelled == []

    async def test_an_iterator_is_closed_when_its_caller_goes(self, transport: ServerClass) -> None:
        ended = asyncio.Event()

        async def endless(requests: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
            try:
                yield b"1"
                await asyncio.sleep(3_600)
            finally:
                ended.set()

        async with served(transport, {"/s/Endless": Method.bidi_stream(endless)}) as client:
            call = client.bidi("/s/Endless")
            assert await call.read() == b"1"
            call.cancel()
            await asyncio.wait_for(ended.wait(), TIMEOUT_S)


class TestPort:
    async def test_a_port_in_use_is_refused_and_not_shared(self, transport: ServerClass) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            server = transport({}, ServerConfig(listen=address))
            with pytest.raises(ConfigError, match=f"cannot listen on {address}: Address already"):
                await server.start()
            await server.drain(0)

    async def test_two_servers_on_one_port(self, transport: ServerClass) -> None:
        first = transport({}, ServerConfig(listen="127.0.0.1:0"))
        await first.start()
        second = transport({}, ServerConfig(listen=first.address))
        with pytest.raises(ConfigError, match="Address already in use"):
            await second.start()
        await second.drain(0)
        await first.drain(0)

    @pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
    async def test_an_address_that_is_not_ours(self, transport: ServerClass, host: str) -> None:
        server = transport({}, ServerConfig(listen=f"{host}:0"))
        with pytest.raises(ConfigError, match="cannot listen on"):
            await server.start()
        await server.drain(0)

    async def test_the_ipv6_wildcard_takes_ipv4_too(self, transport: ServerClass) -> None:
        server = transport(
            {"/s/Echo": Method.unary(lambda request, call: request)}, ServerConfig(listen="[::]:0")
        )
        await server.start()
        port = server.address.rpartition(":")[2]
        for host in ("127.0.0.1", "[::1]"):
            client = Client(f"{host}:{port}")
            assert await client.unary("/s/Echo", b"x") == b"x"
            await client.channel.close()
        await server.drain(0)


class TestDrain:
    async def test_running_calls_finish_and_new_ones_are_refused(
        self, transport: ServerClass
    ) -> None:
        running = asyncio.Event()
        go_on = asyncio.Event()

        async def slow(request: bytes, call: Call) -> bytes:
            running.set()
            await go_on.wait()
            return b"done"

        server = transport({"/s/Slow": Method.unary(slow)}, ServerConfig(listen="127.0.0.1:0"))
        await server.start()
        client = Client(server.address)
        call = client.unary("/s/Slow")
        await running.wait()
        draining = asyncio.create_task(server.drain(5_000))
        await asyncio.sleep(0.1)
        assert (await failure(client.unary("/s/Slow")))[0] is grpc.StatusCode.UNAVAILABLE
        assert not draining.done()
        go_on.set()
        assert await call == b"done"
        assert await asyncio.wait_for(draining, TIMEOUT_S)
        await client.channel.close()

    async def test_the_rest_is_cancelled_when_the_grace_is_over(
        self, transport: ServerClass
    ) -> None:
        running = asyncio.Event()
        cancelled: list[str] = []

        async def stuck(request: bytes, call: Call) -> bytes:
            call.on_cancel(lambda: cancelled.append("once"))
            running.set()
            await asyncio.sleep(3_600)
            return b""

        server = transport({"/s/Stuck": Method.unary(stuck)}, ServerConfig(listen="127.0.0.1:0"))
        await server.start()
        client = Client(server.address)
        call = asyncio.ensure_future(failure(client.unary("/s/Stuck")))
        await running.wait()
        await asyncio.wait_for(server.drain(100), TIMEOUT_S)
        assert cancelled == ["once"]
        await call
        await client.channel.close()


async def until(happened: Any) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not happened():
            await asyncio.sleep(0.005)


class TestMetadata:
    async def test_headers_and_trailers_with_an_answer_and_with_a_status(
        self, transport: ServerClass
    ) -> None:
        def say(request: bytes, call: Call) -> bytes:
            assert ("x-ask-bin", b"\0\xff") in call.all_metadata()
            call.extra.add_header("x-head", "one")
            call.extra.add_trailer("x-tail-bin", b"\0\xff")
            if request:
                raise CallAborted(GrpcCode.ABORTED, "no")
            return b"said"

        async def late(requests: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
            async for _ in requests:
                yield say(b"", call)

        table = {
            "/s/Say": Method.unary(say),
            "/s/Late": Method.bidi_stream(late, headers_first=False),
        }
        asked = (("x-ask-bin", b"\0\xff"),)
        async with served(transport, table) as client:
            streaming = client.bidi("/s/Late", metadata=asked)
            await streaming.write(b"")
            assert await streaming.read() == b"said"
            await streaming.done_writing()
            for call in (
                client.unary("/s/Say", metadata=asked),
                client.unary("/s/Say", b"!", metadata=asked),
                streaming,
            ):
                assert ("x-head", "one") in tuple(await call.initial_metadata())
                assert ("x-tail-bin", b"\0\xff") in tuple(await call.trailing_metadata())

    @pytest.mark.parametrize("encoding", list(grpc.Compression), ids=lambda one: one.name)
    async def test_compressed_requests_and_answers(
        self, transport: ServerClass, encoding: grpc.Compression
    ) -> None:
        def pack(request: bytes, call: Call) -> bytes:
            call.extra.compress = True
            return request

        async with served(transport, {"/s/Pack": Method.unary(pack)}) as client:
            body = bytes(100_000)
            assert await client.unary("/s/Pack", body, compression=encoding) == body

    async def test_a_bomb_inflates_to_no_more_than_the_limit(self, transport: ServerClass) -> None:
        methods = {"/s/Echo": Method.unary(lambda request, call: request)}
        async with served(transport, methods, request_bytes_max=5 << 20) as client:
            for encoding in (grpc.Compression.Gzip, grpc.Compression.Deflate):
                call = client.unary("/s/Echo", bytes(6 << 20), compression=encoding)
                code, _ = await failure(call)
                assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
