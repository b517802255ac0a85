"""The console's sockets: what ends a connection before a page, in clear text and behind TLS."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import httpx
import pytest
import uvicorn

from latermq_broker.transport.tls import _make_own
from latermq_console.server import application, opened
from latermq_console.serving import connections as rules
from latermq_console.serving import listener
from latermq_console.serving.connections import Connections, Phase
from latermq_console.serving.listener import Accepting
from latermq_console.settings import Settings
from latermq_text.listening import bound_sockets
from support.machine import patient

WAIT_S = patient(30)
HEAD = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n"
Files = tuple[str | None, str | None]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines that a test can wait for."""
    monkeypatch.setattr(listener, "SWEEP_S", 0.01)


def late(monkeypatch: pytest.MonkeyPatch, *phases: Phase) -> None:
    for phase in phases:
        monkeypatch.setitem(rules.DEADLINES_S, phase, 0.05)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    pytest.importorskip("cryptography")
    certificate = tmp_path_factory.mktemp("certificate") / "cert.pem"
    key = certificate.with_name("key.pem")
    _make_own(certificate, key)
    return str(certificate), str(key)


@asynccontextmanager
async def serving(files: Files = (None, None)) -> AsyncIterator[tuple[int, Connections]]:
    """A console whose broker nobody answers for; its port, and its connections."""
    async with opened(Settings(endpoint="127.0.0.1:1")) as console:
        config = uvicorn.Config(
            application(console), lifespan="off", log_level="error", http="h11", ws="none",
            ssl_certfile=files[0], ssl_keyfile=files[1],
        )  # fmt: skip
        config.load()
        sockets = bound_sockets("127.0.0.1", 0)
        for each in sockets:
            each.listen(64)
        accepting = Accepting(uvicorn.Server(config), sockets)
        try:
            yield sockets[0].getsockname()[1], accepting._connections
        finally:
            accepting.close()
            await accepting.wait_closed()
            for each in sockets:
                each.close()


async def dial(stack: AsyncExitStack, port: int) -> tuple[asyncio.StreamReader, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    stack.push_async_callback(hang_up, writer)
    return reader, writer


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def told(reader: asyncio.StreamReader) -> bytes:
    """Read until the console has closed."""
    async with asyncio.timeout(WAIT_S):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not true():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"", b""),
        (HEAD, b"HTTP/1.1 408 "),
        (
            b"POST /sign-in HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\n\r\na",
            b"HTTP/1.1 408 ",
        ),
    ],
)
async def test_a_request_that_does_not_come_whole_ends_its_connection(
    monkeypatch: pytest.MonkeyPatch, sent: bytes, answer: bytes
) -> None:
    late(monkeypatch, Phase.HEAD, Phase.BODY)
    async with serving() as (port, connections), AsyncExitStack() as stack:
        reader, writer = await dial(stack, port)
        writer.write(sent)
        assert (await told(reader)).startswith(answer)
        await until(lambda: not len(connections))


async def test_a_reader_that_does_not_read_loses_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late(monkeypatch, Phase.REPLY)
    async with serving() as (port, connections), AsyncExitStack() as stack:
        _, writer = await dial(stack, port)
        writer.transport.pause_reading()
        asked = b"GET /static/console.css HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" * 2_000
        writer.write(asked)
        await until(lambda: writer.transport.is_closing() or not len(connections))
        await until(lambda: not len(connections))


async def test_a_connection_serves_one_request_after_another() -> None:
    async with serving() as (port, connections), AsyncExitStack() as stack:
        reader, writer = await dial(stack, port)
        for _ in range(3):
            writer.write(HEAD)
            await writer.drain()
            writer.write(b"\r\n")
            assert (await reader.readuntil(b"ok\n")).startswith(b"HTTP/1.1 200 ")
        assert [each.phase for each in connections._open] == [Phase.IDLE]
        connections.sweep(1e9)
        assert await told(reader) == b""


async def test_two_lengths_of_a_body_are_refused_and_what_follows_is_not_read() -> None:
    async with serving() as (port, _), AsyncExitStack() as stack:
        reader, writer = await dial(stack, port)
        writer.write(
            b"POST /sign-in HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 4\r\n"
            b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n" + HEAD + b"\r\n"
        )
        answer = await told(reader)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("secure", [False, True])
async def test_silent_sockets_keep_nobody_out(
    monkeypatch: pytest.MonkeyPatch, files: Files, secure: bool
) -> None:
    """As many as there may be connections, and more: whoever speaks is answered."""
    monkeypatch.setattr(rules, "CONNECTIONS_PER_ADDRESS_MAX", 8)
    monkeypatch.setattr(rules, "YOUNG_S", 0.0)
    scheme = "https" if secure else "http"
    context: Any = ssl.create_default_context(cafile=files[0]) if secure else False
    async with (
        serving(files if secure else (None, None)) as (port, connections),
        AsyncExitStack() as stack,
        httpx.AsyncClient(verify=context, timeout=WAIT_S) as client,
    ):
        silent = [await dial(stack, port) for _ in range(20)]
        answer = await client.get(f"{scheme}://127.0.0.1:{port}/healthz")
        assert answer.text == "ok\n"
        assert len(connections) <= 8
        assert await told(silent[0][0]) == b""


async def test_a_handshake_that_does_not_end_ends_its_connection(
    monkeypatch: pytest.MonkeyPatch, files: Files
) -> None:
    late(monkeypatch, Phase.OPENING)
    async with serving(files) as (port, connections), AsyncExitStack() as stack:
        reader, writer = await dial(stack, port)
        writer.write(b"\x16\x03\x01")
        assert await told(reader) == b""
        await until(lambda: not len(connections))
        reader, writer = await dial(stack, port)
        writer.write(HEAD + b"\r\n")  # no TLS at all
        await told(reader)
        await until(lambda: not len(connections))
