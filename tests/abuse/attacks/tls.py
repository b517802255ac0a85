"""Handshakes that are begun and left: number 5."""

import asyncio
import ssl
from contextlib import suppress
from typing import Final

from abuse.peer import Target, insecure
from abuse.siege import Attack, Case

SOCKETS: Final = 900  # within `http2.connections_per_address_max`
HOLD_S: Final = 4.0
BEGUN: Final = b"\x16\x03\x01\x02\x00\x01"  # 6 bytes of a ClientHello


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = insecure().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def greetings(said: bytes, *, addresses: int = 1, renewed: bool = False) -> Attack:
    """Sockets that say this much and no more; `renewed`: each that is closed is opened again."""

    async def attack(target: Target) -> str:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + HOLD_S
        closed = 0

        async def one(number: int) -> None:
            nonlocal closed
            source = f"127.0.2.{1 + number % addresses}"
            while loop.time() < until_s:
                try:
                    reader, writer = await asyncio.open_connection(
                        target.host, target.port, local_addr=(source, 0)
                    )
                except OSError:
                    await asyncio.sleep(0.1)
                    continue
                writer.write(said)
                with suppress(TimeoutError, ConnectionError):
                    async with asyncio.timeout_at(until_s):
                        while await reader.read(65_536):
                            pass
                closed += loop.time() < until_s
                writer.transport.abort()
                if not renewed:
                    return

        async with asyncio.TaskGroup() as tasks:
            for number in range(SOCKETS):
                tasks.create_task(one(number))
                if number % 100 == 99:
                    await asyncio.sleep(0.02)
        return f"{closed} closed"

    return attack


CASES: Final = (
    Case(
        number=5,
        name="client-hello-begun",
        what="900 sockets with 6 bytes of a ClientHello",
        attack=greetings(BEGUN),
    ),
    Case(
        number=5,
        name="client-hello-begun-renewed",
        what="the same from 100 addresses, each opened anew when it is closed",
        attack=greetings(BEGUN, addresses=100, renewed=True),
    ),
    Case(
        number=5,
        name="client-hello-whole",
        what="900 whole ClientHellos whose answer is not answered",
        attack=greetings(client_hello()),
        always=False,
    ),
    Case(
        number=5,
        name="nothing-said",
        what="900 sockets that say nothing",
        attack=greetings(b""),
        always=False,
    ),
)
