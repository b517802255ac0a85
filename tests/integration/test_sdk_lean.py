"""The SDK's own transport over real sockets: peers that misbehave, TLS, restarts and kills."""

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

import latermq
from latermq._connection.lean.transport import LeanTransport
from latermq._values.endpoints import Endpoints
from latermq_broker.config.config import ServerConfig
from latermq_broker.config.server_transport import ClientCertificates, TlsConfig
from latermq_broker.services.call.handler import Method, MethodTable
from latermq_broker.transport.lean import LeanServer
from latermq_h2.http2 import frames
from support.broker_process import BrokerProcess
from support.cluster_process import free_ports
from support.http2_server_peer import SETTINGS, answer, data, head, message
from support.machine import patient

PATH: Final = "/s/M"
SOON_S: Final = patient(10.0)
ECHO: Final[MethodTable] = {PATH: Method.unary(lambda request, call: request)}
Script = Callable[[int, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def scripted(script: Script) -> AsyncIterator[LeanTransport]:
    """A transport to a server that does what the script says; it is given each connection's
    number."""
    count = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        try:
            await script(count, reader, writer)
        except ConnectionError:
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport = LeanTransport(Endpoints.parse(f"127.0.0.1:{port}"))
    try:
        yield transport
    finally:
        await transport.close()
        server.close()


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(SETTINGS)
    await reader.readuntil(b"SM\r\n\r\n")


async def heard(reader: asyncio.StreamReader, request: bytes) -> None:
    await reader.readuntil(message(request))


class TestPeersThatMisbehave:
    async def test_one_that_never_greets(self) -> None:
        async def silent(
            number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            await reader.read()

        async with scripted(silent) as transport:
            with pytest.raises(latermq.errors.UnavailableError, match="no broker answers"):
                await transport.unary(PATH, b"x", (), 0.3)

    @pytest.mark.parametrize(
        "said",
        [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", frames.frame(frames.PING, 0, 0, bytes(8))],
    )
    async def test_one_that_does_not_speak_http2(self, said: bytes) -> None:
        async def other(
            number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            writer.write(said)
            await writer.drain()

        async with scripted(other) as transport:
            with pytest.raises(latermq.errors.UnavailableError, match="no broker answers"):
                await transport.unary(PATH, b"x", (), 0.5)

    async def test_one_that_hangs_up_in_the_middle_once(self) -> None:
        async def moody(
            number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            await greet(reader, writer)
            await heard(reader, b"x")
            writer.write(answer(1, b"y") if number == 2 else head(1) + data(1, message(b"y")[:3]))
            await writer.drain()
            if number == 2:
                await reader.read()

        async with scripted(moody) as transport:
            with pytest.raises(latermq.errors.UnavailableError, match="closed the connection"):
                await transport.unary(PATH, b"x", (), SOON_S)
            assert await transport.unary(PATH, b"x", (), SOON_S) == b"y"

    @pytest.mark.parametrize(
        "refusal", [frames.goaway(0, 0), frames.rst_stream(1, 7)], ids=["GOAWAY", "REFUSED_STREAM"]
    )
    async def test_what_nobody_looked_at_is_called_again(self, refusal: bytes) -> None:
        async def refuse_once(
            number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            await greet(reader, writer)
            await heard(reader, b"x")
            if number == 1:
                writer.write(refusal)
                if refusal != frames.goaway(0, 0):
                    await heard(reader, b"x")
                    writer.write(answer(3, b"y"))
            else:
                writer.write(answer(1, b"y"))
            await reader.read()

        async with scripted(refuse_once) as transport:
            assert await transport.unary(PATH, b"x", (), SOON_S) == b"y"

    async def test_one_that_refuses_for_ever(self) -> None:
        calls = 0

        async def refuse(
            number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            nonlocal calls
            await greet(reader, writer)
            while True:
                await heard(reader, b"x")
                writer.write(frames.rst_stream(2 * calls + 1, 7))
                calls += 1

        async with scripted(refuse) as transport:
            with pytest.raises(latermq.errors.UnavailableError, match="refused"):
                await transport.unary(PATH, b"x", (), 1.0)  # the time that it may try in
        assert 2 <= calls <= 10  # not as fast as it can

    async def test_the_loop_was_busy_while_it_hung_up(self) -> None:
        """The end of the old connection was not read yet when the next call begins."""

        async def leave_at_once(
            number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            await greet(reader, writer)
            await heard(reader, b"x")
            writer.write(answer(1, b"%d" % number))
            if number == 1:
                gone.set()
                await asyncio.sleep(0.05)  # until the answer was read; then this side closes
            else:
                await reader.read()

        gone = asyncio.Event()
        async with scripted(leave_at_once) as transport:
            assert await transport.unary(PATH, b"x", (), SOON_S) == b"1"
            shell = transport._shell
            assert shell is not None
            shell._transport.pause_reading()  # as if the loop did not get to it
            await asyncio.sleep(0.2)
            assert await transport.unary(PATH, b"x", (), SOON_S) == b"2"


@asynccontextmanager
async def lean_server(directory: Path, tls: TlsConfig) -> AsyncIterator[LeanServer]:
    config = ServerConfig(listen="127.0.0.1:0", data_dir=str(directory))
    server = LeanServer(ECHO, config, tls=tls)
    await server.start()
    try:
        yield server
    finally:
        await server.drain(0)


async def one_call(endpoint: str, tls: latermq.Tls, timeout: float = SOON_S) -> bytes:
    transport = LeanTransport(Endpoints.parse(endpoint), tls)
    try:
        return await transport.unary(PATH, b"x" * 100_000, (), timeout)
    finally:
        await transport.close()


class TestTls:
    async def test_a_given_authority(self, tmp_path: Path) -> None:
        pytest.importorskip("cryptography")
        async with lean_server(tmp_path, TlsConfig(enabled=True)) as server:
            port = server.address.rpartition(":")[2]
            ca = tmp_path / "tls" / "certificate.pem"
            tls = latermq.Tls(ca=ca)
            assert await one_call(f"localhost:{port}", tls) == b"x" * 100_000
            named = latermq.Tls(ca=ca, server_name="localhost")
            assert await one_call(f"127.0.0.1:{port}", named) == b"x" * 100_000

    async def test_nobody_we_trust(self, tmp_path: Path) -> None:
        pytest.importorskip("cryptography")
        async with lean_server(tmp_path, TlsConfig(enabled=True)) as server:
            port = server.address.rpartition(":")[2]
            with pytest.raises(latermq.errors.UnavailableError, match=r"(?i)certificate"):
                await one_call(f"localhost:{port}", latermq.Tls(), 0.5)

    async def test_our_own_certificate(self, tmp_path: Path) -> None:
        pytest.importorskip("cryptography")
        first = TlsConfig(enabled=True)
        async with lean_server(tmp_path, first):  # makes a certificate
            pem, key = tmp_path / "tls" / "certificate.pem", tmp_path / "tls" / "key.pem"
        asks = TlsConfig(
            enabled=True, client_certificates=ClientCertificates.REQUIRED, client_ca=str(pem)
        )
        async with lean_server(tmp_path, asks) as server:
            endpoint = f"localhost:{server.address.rpartition(':')[2]}"
            ours = latermq.Tls(ca=pem, certificate=pem, key=key)
            assert await one_call(endpoint, ours) == b"x" * 100_000
            with pytest.raises(latermq.errors.UnavailableError):
                await one_call(endpoint, latermq.Tls(ca=pem), 0.5)

    async def test_a_server_without_http2(self, tmp_path: Path) -> None:
        pytest.importorskip("cryptography")
        async with lean_server(tmp_path, TlsConfig(enabled=True)):
            pem, key = tmp_path / "tls" / "certificate.pem", tmp_path / "tls" / "key.pem"
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pem, key)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(latermq.errors.UnavailableError, match="does not speak HTTP/2"):
            await one_call(f"localhost:{port}", latermq.Tls(ca=pem), 0.5)
        server.close()


@pytest.mark.parametrize("waits", [True, False])
async def test_of_several_addresses_the_one_that_answers(waits: bool) -> None:
    """As of an owner and its standby: the port of one of them is open."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    transport = LeanTransport(Endpoints.parse(";".join(addresses)), waits=waits)
    try:
        for address in reversed(addresses):
            server = LeanServer(ECHO, ServerConfig(listen=address))
            await server.start()
            assert await transport.unary(PATH, b"x", (), SOON_S) == b"x"
            await server.drain(0)
    finally:
        await transport.close()


async def test_a_restart_under_load_fails_no_call() -> None:
    """Servers on one socket, one after the other; nobody accepts while one says GOAWAY twice."""
    server = LeanServer(ECHO, ServerConfig(listen="127.0.0.1:0"))
    await server.start()
    config = ServerConfig(listen=server.address)
    transport = LeanTransport(Endpoints.parse(server.address))
    answered, going_on = 0, True

    async def keep_calling() -> None:
        nonlocal answered
        while going_on:
            assert await transport.unary(PATH, b"x", (), SOON_S) == b"x"
            answered += 1

    callers = [asyncio.create_task(keep_calling()) for _ in range(32)]
    for _ in range(4):
        await asyncio.sleep(0.2)
        following = LeanServer(ECHO, config)
        sockets = [one.dup() for one in server.sockets]
        server.leave_port()
        await server.drain(5_000)
        await following.start(sockets)
        server = following
    before = answered
    await asyncio.sleep(0.2)
    going_on = False
    await asyncio.gather(*callers)
    assert answered > before
    await transport.close()
    await server.drain(1_000)


async def sends_and_receives(
    broker: BrokerProcess,
    name: str,
    disturb: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]],
) -> tuple[set[bytes], set[bytes], Counter[bytes]]:
    """Send while `disturb` runs, then receive all; (sent, refused, received how often).

    Args:
        disturb: given what waits until a good deal more was sent.
    """
    sent: set[bytes] = set()
    failed: set[bytes] = set()
    over = False
    async with latermq.connect(
        broker.endpoint, transport="lean", request_timeout=timedelta(seconds=patient(15))
    ) as mq:

        async def keep_sending(worker: int) -> None:
            index = 0
            while not over:
                body = b"%d-%d" % (worker, index)
                index += 1
                try:
                    await mq.send(name, body)
                except latermq.LaterMQError:
                    failed.add(body)
                else:
                    sent.add(body)

        senders = [asyncio.create_task(keep_sending(worker)) for worker in range(16)]

        async def sending() -> None:
            enough = len(sent) + 200
            async with asyncio.timeout(patient(60)):
                while len(sent) < enough:
                    await asyncio.sleep(0.01)

        await disturb(sending)
        over = True
        await asyncio.gather(*senders)
        found: Counter[bytes] = Counter()
        async with mq.simple_consumer(name, group=name) as consumer, asyncio.timeout(patient(60)):
            while set(found) < sent or len(found) < len(sent):
                deliveries = await consumer.receive(32, wait=timedelta(seconds=2))
                found.update(delivery.body for delivery in deliveries)
                await asyncio.gather(*(delivery.ack() for delivery in deliveries))
                if not deliveries:
                    break
    return sent, failed, found


async def test_a_broker_that_restarts_in_order(tmp_path: Path) -> None:
    """No send fails, nothing is lost, nothing is there twice."""
    with BrokerProcess(tmp_path / "data") as broker:
        broker.start()

        async def restart(sending: Callable[[], Awaitable[None]]) -> None:
            for _ in range(2):
                await sending()
                await asyncio.to_thread(broker.terminate)
                await asyncio.to_thread(broker.start)
            await sending()

        sent, failed, found = await sends_and_receives(broker, "orders", restart)
    assert failed == set()
    assert set(found) == sent
    assert max(found.values()) == 1


async def test_a_broker_that_is_killed(tmp_path: Path) -> None:
    """What was acknowledged is there. Twice only what was under way, for it is sent again."""
    with BrokerProcess(tmp_path / "data") as broker:
        broker.start()
        kills = 2

        async def kill(sending: Callable[[], Awaitable[None]]) -> None:
            for _ in range(kills):
                await sending()
                await asyncio.to_thread(broker.kill)
                await asyncio.to_thread(broker.start)
            await sending()

        sent, failed, found = await sends_and_receives(broker, "orders", kill)
    assert sent - set(found) == set()
    assert set(found) - sent - failed == set()
    twice = [body for body, count in found.items() if count > 1]
    assert len(twice) <= 16 * kills
