"""What is counted is what is open: after storms of connects, limits, time-outs and stops all counts
of the transport are back at nothing, with both event loops, in clear text and under TLS."""

import asyncio
import random
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
import uvloop

from latermq_broker.config.config import ServerConfig
from latermq_broker.config.server_transport import Http2Config, TlsConfig
from latermq_broker.services.call.handler import Method, MethodTable
from latermq_broker.transport.lean import LeanServer
from support.http2_peer import HELLO, OPEN_WINDOWS, data, headers
from support.machine import patient

LIMIT: Final = 20
STORMERS: Final = 8
CONNECTS: Final = 40  # of each
RESET: Final = struct.pack("ii", 1, 0)
METHODS: Final[MethodTable] = {"/s/M": Method.unary(lambda request, call: request)}
LOOPS: Final = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def insecure() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


class Storm:
    """Clients in threads that come, say a part of what they should, and leave as they like."""

    def __init__(self, address: str, *, tls: bool, seed: int) -> None:
        host, _, port = address.rpartition(":")
        self._where = host, int(port)
        self._tls = insecure() if tls else None
        self._seed = seed

    def run(self) -> None:
        threads = [threading.Thread(target=self._come, args=(n,)) for n in range(STORMERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _come(self, number: int) -> None:
        chance = random.Random(self._seed * 1_000 + number)
        held: list[socket.socket] = []
        for _ in range(CONNECTS):
            with suppress(OSError):
                held.append(self._one(chance))
            if len(held) > chance.randint(0, 6):
                self._leave(held.pop(chance.randrange(len(held))), chance)
        for each in held:
            self._leave(each, chance)

    def _one(self, chance: random.Random) -> socket.socket:
        connection = socket.create_connection(self._where, timeout=patient(5))
        try:
            said = chance.randrange(6)
            if said == 0:
                return connection  # says nothing
            if self._tls is not None and said == 1:
                connection.sendall(b"\x16\x03\x01\x02\x00\x01")  # a part of a first message
                return connection
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection)
            connection.sendall(HELLO[: chance.randrange(len(HELLO))] if said == 2 else HELLO)
            if said >= 4:
                connection.sendall(OPEN_WINDOWS + headers(1))
                connection.sendall(
                    data(1, b"\0\0\0\0\x05hello"[: 10 if said == 4 else 7], end=said == 4)
                )
            return connection
        except OSError:
            connection.close()
            raise

    def _leave(self, connection: socket.socket, chance: random.Random) -> None:
        if chance.random() < 0.4:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        connection.close()


def server_in(directory: Path, *, tls: bool) -> LeanServer:
    config = ServerConfig(listen="127.0.0.1:0", data_dir=str(directory))
    http2 = Http2Config(connections_per_address_max=LIMIT, connections_max=LIMIT + 5)
    wanted = TlsConfig(enabled=tls, handshake_ms_max=300, handshakes_max=3)
    return LeanServer(METHODS, config, http2, wanted)


def counted(server: LeanServer) -> dict[str, Any]:
    """Everything that is counted up by one event and down by another."""
    listener, shared = server._listener, server._shared
    return {
        "seats": listener.seats.count,
        "seats by address": dict(listener.seats._of_host),
        "connections": server.connections,
        "greetings": len(listener._greetings),
        "passing": len(listener._passing),
        "handshakes": listener._handshakes._going_count,
        "handshakes waiting": listener._handshakes.waiting,
        "calls": server.calls,
        "replies": shared.replies.held_bytes,
        "replies waited for": len(shared.replies.waiting),
        "requests": shared.memory.held_bytes,
        "behind": shared.behind,
        "deadlines": shared.counts.deadline_timers,
    }


NOTHING: Final = {
    "seats": 0, "seats by address": {}, "connections": 0, "greetings": 0, "passing": 0,
    "handshakes": 0, "handshakes waiting": False, "calls": 0, "replies": 0,
    "replies waited for": 0, "requests": 0, "behind": 0, "deadlines": 0,
}  # fmt: skip


def in_loop(new_loop: Callable[[], asyncio.AbstractEventLoop], main: Any) -> None:
    """Run it, and fail for anything that a callback of the loop raised."""
    faults: list[dict[str, Any]] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        await main()
        await asyncio.sleep(0.1)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(watched())
    assert faults == []


async def settled(server: LeanServer) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(patient(20)):
            while counted(server) != NOTHING:
                await asyncio.sleep(0.05)
    assert counted(server) == NOTHING


@pytest.mark.parametrize("tls", [False, True], ids=["clear", "tls"])
@pytest.mark.parametrize("loop", LOOPS)
class TestStorm:
    def test_who_left_is_not_counted(self, loop: str, tls: bool, tmp_path: Path) -> None:
        async def main() -> None:
            server = server_in(tmp_path, tls=tls)
            await server.start()
            for seed in range(3):
                storm = asyncio.create_task(
                    asyncio.to_thread(Storm(server.address, tls=tls, seed=seed).run)
                )
                while not storm.done():
                    assert server._listener.seats.of("127.0.0.1") <= LIMIT
                    await asyncio.sleep(0.01)
                await storm
                await settled(server)
            assert await server.drain(1_000)

        in_loop(LOOPS[loop], main)

    def test_a_stop_in_the_storm_leaves_nothing(self, loop: str, tls: bool, tmp_path: Path) -> None:
        async def main() -> None:
            server = server_in(tmp_path, tls=tls)
            await server.start()
            storm = asyncio.create_task(
                asyncio.to_thread(Storm(server.address, tls=tls, seed=7).run)
            )
            while server.counts.connections < LIMIT:
                await asyncio.sleep(0.001)
            await server.drain(200)
            await settled(server)
            await storm

        in_loop(LOOPS[loop], main)

    def test_many_in_one_turn_are_within_the_limit(
        self, loop: str, tls: bool, tmp_path: Path
    ) -> None:
        """The loop stands while they come, so that all are accepted at once."""

        async def main() -> None:
            server = server_in(tmp_path, tls=tls)
            await server.start()
            host, _, port = server.address.rpartition(":")
            crowd = [socket.create_connection((host, int(port))) for _ in range(3 * LIMIT)]
            for each in crowd:
                with suppress(OSError):
                    each.sendall(HELLO)
            for _ in range(20):
                await asyncio.sleep(0.01)
                assert server._listener.seats.of("127.0.0.1") <= LIMIT
            for each in crowd:
                each.close()
            await settled(server)
            assert await server.drain(1_000)

        in_loop(LOOPS[loop], main)
