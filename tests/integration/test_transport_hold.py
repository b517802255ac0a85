"""A server before it goes: it has calls wait, and says whether all that was answered went out."""

import asyncio

import grpc
import grpc.aio
import pytest

from integration.test_transport_lean import LARGE, TIMEOUT_S, port_of, until
from latermq_broker.config.config import ServerConfig
from latermq_broker.config.server_transport import Http2Config
from latermq_broker.services.call.handler import Call, Method
from latermq_broker.transport.lean import LeanServer
from latermq_h2.http2 import frames
from support.http2_peer import HELLO, OPEN_WINDOWS, headers


async def test_calls_wait_while_a_server_holds_them_and_are_not_begun() -> None:
    """On connections that are open and on new ones; what was begun is answered."""
    begun: list[bytes] = []
    answer = asyncio.Event()

    async def handler(request: bytes, call: Call) -> bytes:
        begun.append(request)
        await answer.wait()
        return request

    server = LeanServer({"/s/M": Method.unary(handler)}, ServerConfig(listen="127.0.0.1:0"))
    await server.start()
    once = (*LARGE, ("grpc.enable_retries", 0))
    async with (
        grpc.aio.insecure_channel(server.address, once) as channel,
        grpc.aio.insecure_channel(server.address, once) as new_one,
    ):
        first = channel.unary_unary("/s/M")(b"first", timeout=TIMEOUT_S)
        await until(lambda: begun == [b"first"])
        holding = asyncio.create_task(server.hold(round(TIMEOUT_S * 1_000)))
        await asyncio.sleep(0)
        waiting = [
            each.unary_unary("/s/M")(b"no", timeout=TIMEOUT_S) for each in (channel, new_one)
        ]
        await new_one.channel_ready()
        assert not holding.done()
        answer.set()
        assert await first == b"first"
        assert await holding
        await asyncio.sleep(0.1)
        assert not any(each.done() for each in waiting)
        assert server.connections == 2
        await server.drain(0)
        for each in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(each, grpc.aio.AioRpcError)
            assert each.code() is grpc.StatusCode.UNAVAILABLE
    assert begun == [b"first"]
    assert server.connections == 0


async def test_a_server_that_holds_waits_no_longer_than_it_is_told() -> None:
    async def handler(request: bytes, call: Call) -> bytes:
        begun.set()
        await asyncio.Event().wait()
        return request

    begun = asyncio.Event()
    server = LeanServer({"/s/M": Method.unary(handler)}, ServerConfig(listen="127.0.0.1:0"))
    await server.start()
    async with grpc.aio.insecure_channel(server.address, LARGE) as channel:
        first = channel.unary_unary("/s/M")(b"x", timeout=TIMEOUT_S)
        await begun.wait()
        assert await server.hold(0)
        with pytest.raises(grpc.aio.AioRpcError, match="the broker is going down"):
            await first
        await server.drain(0)


@pytest.mark.parametrize("how", ["reads", "drains", "holds"])
async def test_a_drain_says_whether_all_that_was_answered_went_out(how: str) -> None:
    """More than kernel and transport hold, to a peer with windows as large as they get."""
    answer = bytes(16 << 20)
    server = LeanServer(
        {"/s/M": Method.unary(lambda request, call: answer)},
        ServerConfig(listen="127.0.0.1:0"),
        Http2Config(output_bytes_max=len(answer)),
    )
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server), limit=1)
    call = headers(1) + frames.frame(frames.DATA, frames.END_STREAM, 1, bytes(5))
    writer.write(HELLO + OPEN_WINDOWS + call)
    await reader.readexactly(1)  # the asyncio stream stops reading once it has two
    await until(lambda: server.counts.calls == 1)
    if how == "reads":
        draining = asyncio.create_task(server.drain(int(TIMEOUT_S * 1_000)))
        while await reader.read(1 << 20):
            pass
        assert await draining
    elif how == "holds":
        assert not await server.hold(0)
        await server.drain(0)
    else:
        assert not await server.drain(0)
    writer.close()
