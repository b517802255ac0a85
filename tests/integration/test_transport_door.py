"""New connections beyond a rate wait, and whoever else comes is served: over sockets."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from latermq_broker.config.config import ServerConfig
from latermq_broker.config.server_transport import Http2Config, TlsConfig
from latermq_broker.services.call.handler import Method, MethodTable
from latermq_broker.transport import door
from latermq_broker.transport.grpc.counts import CONNECTION
from latermq_broker.transport.lean import LeanServer
from support.broker_process import BrokerProcess
from support.http2_peer import HELLO, data, headers
from support.machine import patient
from support.wire_client import WireClient

METHODS: Final[MethodTable] = {"/s/M": Method.unary(lambda request, call: request)}
CALL: Final = HELLO + headers(1) + data(1, bytes(5), end=True)
TIMEOUT_S: Final = patient(10.0)
STRICT: Final[dict[str, Any]] = {"connects_per_address_burst": 2, "connects_per_address_per_s": 1}
NEVER: Final[dict[str, Any]] = {"connects_per_address_burst": 1, "connects_per_address_per_s": 1}


@asynccontextmanager
async def serving(
    directory: Path, *, handshake_ms_max: int = 10_000, **http2: Any
) -> AsyncIterator[LeanServer]:
    config = ServerConfig(listen="127.0.0.1:0", data_dir=str(directory))
    server = LeanServer(
        METHODS, config, Http2Config(**http2), TlsConfig(handshake_ms_max=handshake_ms_max)
    )
    await server.start()
    try:
        yield server
    finally:
        await server.drain(0)


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not happened():
            await asyncio.sleep(0.005)


class Client:
    """A connection that has called once."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    @classmethod
    async def come(cls, server: LeanServer, source: str, header: bytes = b"") -> "Client":
        host, _, port = server.address.rpartition(":")
        client = cls(*await asyncio.open_connection(host, int(port), local_addr=(source, 0)))
        client.writer.write(header + CALL)
        return client

    async def answered(self) -> bool:
        """Wait for the call's answer. Raises TimeoutError; False: the connection was closed."""
        found = b""
        async with asyncio.timeout(TIMEOUT_S):
            while b"grpc-status" not in found:
                try:
                    piece = await self._reader.read(65_536)
                except ConnectionError:  # closed before all that was said was read
                    return False
                if not piece:
                    return False
                found += piece
        return True


class TestRate:
    async def test_an_address_beyond_its_rate_waits_and_others_do_not(self, tmp_path: Path) -> None:
        async with serving(tmp_path, **STRICT) as server:
            many = [await Client.come(server, "127.0.0.2") for _ in range(4)]
            assert await many[0].answered()
            assert await many[1].answered()
            other = await Client.come(server, "127.0.0.3")
            assert await other.answered()
            assert server._listener._door.count == 2  # still unread
            assert await many[2].answered()  # a second later
            for client in (*many, other):
                client.writer.close()

    async def test_who_waits_for_its_turn_is_not_late(self, tmp_path: Path) -> None:
        async with serving(tmp_path, handshake_ms_max=100, **STRICT) as server:
            clients = [await Client.come(server, "127.0.0.2") for _ in range(3)]
            for client in clients:
                assert await client.answered()
                client.writer.close()
            assert server.counts.of(CONNECTION) == {}

    async def test_behind_a_balancer_it_is_the_headers_address(self, tmp_path: Path) -> None:
        def header(address: str) -> bytes:
            return f"PROXY TCP4 {address} 192.0.2.1 4711 8081\r\n".encode()

        async with serving(tmp_path, proxy_from="127.0.0.9", **NEVER) as server:
            first = await Client.come(server, "127.0.0.9", header("198.51.100.1"))
            assert await first.answered()
            second = await Client.come(server, "127.0.0.9", header("198.51.100.1"))
            await until(lambda: server._listener._door.count == 1)
            others = [
                await Client.come(server, "127.0.0.9", header(f"198.51.100.{number}"))
                for number in range(2, 5)
            ]
            for each in others:
                assert await each.answered()
            seats = server._listener.seats
            assert seats.of("127.0.0.9") == 0
            assert seats.of("198.51.100.1") == 2
            for client in (first, second, *others):
                client.writer.close()

    async def test_connections_behind_a_balancer_are_bounded_by_their_own_address(
        self, tmp_path: Path
    ) -> None:
        header = b"PROXY TCP4 198.51.100.%d 192.0.2.1 4711 8081\r\n"
        async with serving(
            tmp_path, proxy_from="127.0.0.9", connections_per_address_max=1
        ) as server:
            clients = []
            for number in (1, 2, 3):
                clients.append(await Client.come(server, "127.0.0.9", header % number))
                assert await clients[-1].answered()
            beyond = await Client.come(server, "127.0.0.9", header % 1)
            assert not await beyond.answered()
            assert server.counts.of(CONNECTION) == {"too many connections": 1}
            for client in (*clients, beyond):
                client.writer.close()

    async def test_0_is_no_bound(self, tmp_path: Path) -> None:
        free: dict[str, Any] = {"connects_per_s": 0, "connects_per_address_per_s": 0}
        async with serving(tmp_path, connects_burst=1, **free) as server:
            clients = [await Client.come(server, "127.0.0.2") for _ in range(50)]
            for client in clients:
                assert await client.answered()
                client.writer.close()

    async def test_other_rates_are_taken_on_while_it_runs(self, tmp_path: Path) -> None:
        async with serving(tmp_path, **NEVER) as server:
            clients = [await Client.come(server, "127.0.0.2") for _ in range(20)]
            await until(lambda: server._listener._door.count >= 18)
            server.reconfigure(Http2Config())
            for client in clients:
                assert await client.answered()
                client.writer.close()

    async def test_who_waits_is_let_go_at_a_stop(self, tmp_path: Path) -> None:
        async with serving(tmp_path, **NEVER) as server:
            clients = [await Client.come(server, "127.0.0.2") for _ in range(5)]
            await until(lambda: server._listener._door.count >= 3)
        await until(lambda: server._listener.seats.count == 0)
        assert server._listener._door.count == 0
        for client in clients:
            client.writer.close()


class TestCrowd:
    async def test_who_left_is_not_read_and_who_stayed_is_served(self, tmp_path: Path) -> None:
        async with serving(tmp_path, **STRICT) as server:
            left = [await Client.come(server, "127.0.0.2") for _ in range(40)]
            for client in left:
                client.writer.transport.abort()
            stayed = await Client.come(server, "127.0.0.2")
            assert await stayed.answered()
            assert server.counts.of(CONNECTION)["left before its turn"] >= 30
            stayed.writer.close()

    async def test_a_full_door_leaves_the_rest_to_the_kernel(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(door, "WAITING_MAX", 3)
        if door.__file__.endswith(".so"):
            pytest.skip("its constants are compiled in")
        strict: dict[str, Any] = {"connects_burst": 1, "connects_per_s": 5}
        async with serving(tmp_path, **strict) as server:
            clients = [await Client.come(server, f"127.0.0.{2 + n}") for n in range(8)]
            await until(lambda: server._listener._is_shut)
            for client in clients:
                assert await client.answered()
                client.writer.close()
            assert server.counts.of(CONNECTION) == {}


@pytest.mark.skipif(
    os.environ.get("LATERMQ_SERVER_TRANSPORT", "lean") != "lean", reason="the lean transport's"
)
def test_a_thousand_clients_of_one_address_come_back_at_once(tmp_path: Path) -> None:
    """As after a restart of the broker, behind one NAT."""
    with BrokerProcess(tmp_path / "data") as broker, ExitStack() as stack:
        broker.start()
        host, _, port = broker.endpoint.rpartition(":")
        clients = []
        for _ in range(900):
            client = socket.create_connection(
                (host, int(port)), timeout=TIMEOUT_S, source_address=("127.0.0.2", 0)
            )
            clients.append(stack.enter_context(client))
            client.sendall(HELLO)
        for client in clients:
            assert client.recv(1)  # its SETTINGS
        with WireClient(broker.endpoint) as wire:
            assert wire is not None
