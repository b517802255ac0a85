"""What only the lean transport has: TLS and clear text on one port, PROXY, limits, compression."""

import asyncio
import errno
import gc
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import pytest

import latermq
from latermq_broker.config.config import ServerConfig
from latermq_broker.config.server_transport import ClientCertificates, Http2Config, TlsConfig
from latermq_broker.errors import ConfigError
from latermq_broker.services.call.handler import Call, Method, MethodTable
from latermq_broker.transport import listener
from latermq_broker.transport.lean import LeanServer
from latermq_cli.connection.connection import Connection
from latermq_cli.terminal.failures import CommandError
from latermq_h2.http2 import frames
from latermq_proto.latermq.v1 import broker_pb2
from support.broker_process import BrokerProcess
from support.http2_peer import HELLO, OPEN_WINDOWS, REQUEST, headers
from support.machine import patient

TIMEOUT_S = patient(10.0)
LARGE = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1),
         ("grpc.use_local_subchannel_pool", 1))  # fmt: skip


def peer_of(request: bytes, call: Call) -> bytes:
    return f"{call.peer} {call.local}".encode()


def commanded(address: str) -> None:
    """Ask as a command does."""
    with Connection(address) as broker:
        broker.call(broker.brokers.GetBroker, broker_pb2.GetBrokerRequest())


ECHO: MethodTable = {
    "/s/M": Method.unary(lambda request, call: request),
    "/s/Peer": Method.unary(peer_of),
    "/s/Certificate": Method.unary(lambda request, call: (call.certificate_name or "-").encode()),
}


@asynccontextmanager
async def lean(
    methods: MethodTable = ECHO, *, directory: Path = Path("data"), tls: TlsConfig | None = None,
    **http2: Any,
) -> AsyncIterator[LeanServer]:  # fmt: skip
    config = ServerConfig(listen="127.0.0.1:0", data_dir=str(directory))
    server = LeanServer(methods, config, Http2Config(**http2), tls)
    await server.start()
    try:
        yield server
    finally:
        await server.drain(0)


def client_hello() -> bytes:
    """The first message of a TLS client, whole."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2"])
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def port_of(server: LeanServer) -> int:
    return int(server.address.rpartition(":")[2])


def own_pem(directory: Path) -> bytes:
    return (directory / "tls" / "certificate.pem").read_bytes()


async def call(channel: Any, path: str = "/s/M", request: bytes = b"x", **options: Any) -> bytes:
    async with channel:
        answer: bytes = await channel.unary_unary(path)(request, timeout=TIMEOUT_S, **options)
        return answer


async def over_tls(server: LeanServer, pem: bytes, *pair: bytes, path: str = "/s/M") -> bytes:
    credentials = grpc.ssl_channel_credentials(pem, *pair)
    return await call(
        grpc.aio.secure_channel(f"localhost:{port_of(server)}", credentials, options=LARGE), path
    )


async def in_clear(server: LeanServer, path: str = "/s/M") -> bytes:
    return await call(grpc.aio.insecure_channel(server.address, options=LARGE), path)


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not happened():
            await asyncio.sleep(0.005)


class TestTls:
    async def test_one_port_serves_both(self, tmp_path: Path) -> None:
        pytest.importorskip("cryptography")
        async with lean(directory=tmp_path, tls=TlsConfig(enabled=True)) as server:
            assert await over_tls(server, own_pem(tmp_path)) == b"x"
            assert await in_clear(server) == b"x"
        assert (tmp_path / "tls" / "key.pem").stat().st_mode & 0o077 == 0

    async def test_the_certificate_of_the_first_start_is_kept(self, tmp_path: Path) -> None:
        pytest.importorskip("cryptography")
        for _ in range(2):
            async with lean(directory=tmp_path, tls=TlsConfig(enabled=True)):
                pem = own_pem(tmp_path)
        assert own_pem(tmp_path) == pem

    async def test_clear_text_can_be_refused(self, tmp_path: Path) -> None:
        pytest.importorskip("cryptography")
        tls = TlsConfig(enabled=True, clear_text=False)
        async with lean(directory=tmp_path, tls=tls) as server:
            assert await over_tls(server, own_pem(tmp_path)) == b"x"
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await in_clear(server)
            assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
            with pytest.raises(CommandError, match="but one with TLS: say --tls, or --ca FILE"):
                await asyncio.to_thread(commanded, server.address)
            async with latermq.connect(server.address, tls=False) as mq:
                with pytest.raises(latermq.errors.UnavailableError, match="if it serves TLS only"):
                    await mq.send("orders", b"x")

    @pytest.mark.parametrize("protocols", [[], ["http/1.1"]])
    async def test_without_h2_there_is_nothing_to_talk_about(
        self, tmp_path: Path, protocols: list[str], caplog: pytest.LogCaptureFixture
    ) -> None:
        pytest.importorskip("cryptography")
        async with lean(directory=tmp_path, tls=TlsConfig(enabled=True)) as server:
            context = ssl.create_default_context(cadata=own_pem(tmp_path).decode())
            if protocols:
                context.set_alpn_protocols(protocols)
            try:
                reader, writer = await asyncio.open_connection(
                    "localhost", port_of(server), ssl=context
                )
                assert await reader.read() == b""
                writer.close()
            except (ConnectionError, ssl.SSLError):
                pass  # refused during the handshake: as good
            await until(lambda: bool(caplog.records))
        [line] = [each for each in caplog.records if each.name == "latermq.transport"]
        assert line.getMessage() in ("connection refused", "connection not accepted")
        if not protocols:
            assert line.__dict__["reason"] == "TLS without h2 by ALPN: a gRPC client asks for it"

    async def test_half_a_handshake_is_given_up(self, tmp_path: Path) -> None:
        pytest.importorskip("cryptography")
        tls = TlsConfig(enabled=True, handshake_ms_max=300)
        async with lean(directory=tmp_path, tls=tls) as server:
            for first in (b"", b"\x16\x03\x01\x02\x00\x01"):
                reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
                writer.write(first)
                async with asyncio.timeout(TIMEOUT_S):
                    with suppress(ConnectionError):
                        await reader.read()
                writer.close()
            assert await over_tls(server, own_pem(tmp_path)) == b"x"

    @pytest.mark.parametrize("whole", [False, True])
    async def test_silent_handshakes_keep_nobody_out(self, tmp_path: Path, whole: bool) -> None:
        """Far more of them than places, and none of them is due before the test is over."""
        pytest.importorskip("cryptography")
        tls = TlsConfig(enabled=True, handshake_ms_max=600_000, handshakes_max=2)
        async with lean(directory=tmp_path, tls=tls) as server:
            hello = client_hello() if whole else client_hello()[:6]
            silent = []
            for _ in range(20):
                reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
                writer.write(hello)
                silent.append((reader, writer))
            if whole:  # the first places are taken
                assert await silent[0][0].read(1) == b"\x16"
            async with asyncio.timeout(TIMEOUT_S):
                assert await over_tls(server, own_pem(tmp_path)) == b"x"
            for _, writer in silent:
                writer.close()

    async def test_silent_connections_keep_nobody_out(self, tmp_path: Path) -> None:
        """Their address is full; who comes next takes the place of the oldest of them."""
        pytest.importorskip("cryptography")
        tls = TlsConfig(enabled=True, handshake_ms_max=600_000)
        async with lean(directory=tmp_path, tls=tls, connections_per_address_max=5) as server:
            silent = [
                await asyncio.open_connection("127.0.0.1", port_of(server)) for _ in range(10)
            ]
            assert await over_tls(server, own_pem(tmp_path)) == b"x"
            async with asyncio.timeout(TIMEOUT_S):
                for reader, _ in silent[:6]:  # closed for later ones
                    with suppress(ConnectionError):
                        assert await reader.read() == b""
            for _, writer in silent:
                writer.close()

    async def test_a_hello_in_single_bytes(self, tmp_path: Path) -> None:
        pytest.importorskip("cryptography")
        async with lean(directory=tmp_path, tls=TlsConfig(enabled=True)) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
            for byte in client_hello():
                writer.write(bytes((byte,)))
                await asyncio.sleep(0)
            async with asyncio.timeout(TIMEOUT_S):
                assert await reader.read(1) == b"\x16"
            writer.close()

    async def test_a_new_certificate_is_used_without_a_restart(self, tmp_path: Path) -> None:
        pytest.importorskip("cryptography")
        for name in ("old", "new"):
            async with lean(directory=tmp_path / name, tls=TlsConfig(enabled=True)):
                pass
        old, new = (tmp_path / name / "tls" for name in ("old", "new"))
        tls = TlsConfig(
            enabled=True, certificate=str(old / "certificate.pem"), key=str(old / "key.pem")
        )
        async with lean(tls=tls) as server:
            assert await over_tls(server, own_pem(tmp_path / "old")) == b"x"
            new_pem = own_pem(tmp_path / "new")
            for name in ("certificate.pem", "key.pem"):
                (old / name).write_bytes((new / name).read_bytes())
            await asyncio.sleep(1.1)
            assert await over_tls(server, new_pem) == b"x"
            (old / "certificate.pem").write_bytes(b"broken")
            await asyncio.sleep(1.1)
            assert await over_tls(server, new_pem) == b"x"

    async def test_client_certificates(self, tmp_path: Path) -> None:
        pytest.importorskip("cryptography")
        async with lean(directory=tmp_path / "client", tls=TlsConfig(enabled=True)):
            pass
        client = tmp_path / "client" / "tls"
        tls = TlsConfig(
            enabled=True,
            client_ca=str(client / "certificate.pem"),
            client_certificates=ClientCertificates.REQUIRED,
        )
        async with lean(directory=tmp_path, tls=tls) as server:
            pair = (client / "key.pem").read_bytes(), (client / "certificate.pem").read_bytes()
            assert await over_tls(server, own_pem(tmp_path), *pair) == b"x"
            named = await over_tls(server, own_pem(tmp_path), *pair, path="/s/Certificate")
            assert named.decode() == socket.gethostname()[:64]
            with pytest.raises(grpc.aio.AioRpcError):
                await over_tls(server, own_pem(tmp_path))
        async with lean(directory=tmp_path, tls=TlsConfig(enabled=True)) as server:
            named = await over_tls(server, own_pem(tmp_path), *pair, path="/s/Certificate")
            assert named == b"-"  # nobody has verified it

    async def test_files_that_are_none(self, tmp_path: Path) -> None:
        tls = TlsConfig(enabled=True, certificate=str(tmp_path / "no"), key=str(tmp_path / "no"))
        with pytest.raises(ConfigError, match=r"tls\.certificate"):
            LeanServer({}, ServerConfig(listen="127.0.0.1:0"), tls=tls)


class TestProxy:
    async def answer(self, server: LeanServer, header: bytes) -> bytes:
        """What a raw client gets, its header before the preface."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        block = REQUEST.replace(b"/s/M", b"/s/P").replace(b"\x04/s/P", b"\x07/s/Peer")
        writer.write(header[:3])
        await asyncio.sleep(0.02)
        writer.write(header[3:] + HELLO + headers(1, block=block))
        writer.write(frames.frame(frames.DATA, 1, 1, bytes(5)))
        found = b""
        async with asyncio.timeout(TIMEOUT_S):
            while b"grpc-status" not in found:
                data = await reader.read(65_536)
                if not data:
                    break
                found += data
        writer.close()
        return found

    async def test_a_trusted_balancer_is_believed(self) -> None:
        line = b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 8081\r\n"
        async with lean(proxy_from="127.0.0.0/8") as server:
            assert b"192.0.2.7:4711 192.0.2.1:8081" in await self.answer(server, line)
            assert b"127.0.0.1:" in await self.answer(server, b"")

    async def test_anybody_else_is_not(self) -> None:
        line = b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 8081\r\n"
        async with lean(proxy_from="192.0.2.0/24") as server:
            assert b"192.0.2.7" not in await self.answer(server, line)


class TestLimits:
    async def test_connections_of_one_address(self) -> None:
        async with lean(connections_per_address_max=2) as server:
            held = [await asyncio.open_connection("127.0.0.1", port_of(server)) for _ in range(2)]
            await asyncio.sleep(0.05)
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
            for _, other in held:
                other.close()
            await asyncio.sleep(0.1)
            assert await in_clear(server) == b"x"

    async def test_many_calls_at_once(self) -> None:
        gate = asyncio.Event()

        async def wait(request: bytes, call: Call) -> bytes:
            await gate.wait()
            return request

        async with (
            lean({"/s/M": Method.unary(wait)}) as server,
            grpc.aio.insecure_channel(server.address, options=LARGE) as channel,
        ):
            calls = [channel.unary_unary("/s/M")(b"%d" % n) for n in range(1_500)]
            await asyncio.sleep(1)
            gate.set()
            assert await asyncio.gather(*calls) == [b"%d" % n for n in range(1_500)]

    async def test_a_generator_that_never_waits_and_a_reader_that_never_reads(self) -> None:
        made = 0

        async def endless(request: bytes, call: Call) -> AsyncIterator[bytes]:
            nonlocal made
            while True:
                made += 1
                yield bytes(16 << 10)

        async with lean({"/s/M": Method.server_stream(endless)}) as server:
            with socket.create_connection(("127.0.0.1", port_of(server))) as silent:
                silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
                call = headers(1) + frames.frame(frames.DATA, 1, 1, bytes(5))
                silent.sendall(HELLO + OPEN_WINDOWS + call)
                await asyncio.sleep(0.5)
                before = made
                await asyncio.sleep(0.5)
                assert made == before  # it waits, and others are served
                assert made * (16 << 10) < 16 << 20

    async def test_a_deadline_while_the_request_is_still_coming(self) -> None:
        async with lean() as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
            timeout = b"\x00\x0cgrpc-timeout\x04200m"
            writer.write(HELLO + headers(1, block=REQUEST + timeout))
            writer.write(frames.frame(frames.DATA, 0, 1, struct.pack(">BI", 0, 100)))
            found = b""
            async with asyncio.timeout(TIMEOUT_S):
                while b"grpc-status\x014" not in found:
                    found += await reader.read(65_536)
            writer.close()


class TestCompression:
    async def test_both_ways(self) -> None:
        seen: list[int] = []

        def echo(request: bytes, call: Call) -> bytes:
            seen.append(len(request))
            return request

        async with lean({"/s/M": Method.unary(echo)}, gzip_reply_bytes_min=1_000) as server:
            for size in (10, 100_000):
                channel = grpc.aio.insecure_channel(
                    server.address, options=LARGE, compression=grpc.Compression.Gzip
                )
                assert await call(channel, request=bytes(size)) == bytes(size)
            assert seen == [10, 100_000]

    async def test_a_bomb(self) -> None:
        channel_options = (*LARGE,)
        config = ServerConfig(listen="127.0.0.1:0", request_bytes_max=5 << 20)
        server = LeanServer({"/s/M": Method.unary(lambda data, call: data, large=True)}, config)
        await server.start()
        channel = grpc.aio.insecure_channel(
            server.address, options=channel_options, compression=grpc.Compression.Gzip
        )
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await call(channel, request=bytes(50 << 20))
        assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await server.drain(0)


async def test_nothing_is_left_behind() -> None:
    """Calls of every kind, ended in every way: no call counted, no task, no timer."""

    async def slow(request: bytes, call: Call) -> bytes:
        await asyncio.sleep(0.02)
        return request

    async def stream(request: bytes, call: Call) -> AsyncIterator[bytes]:
        for _ in range(3):
            await asyncio.sleep(0.01)
            yield request

    async def bidi(requests: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request

    table = {"/s/U": Method.unary(slow), "/s/S": Method.server_stream(stream),
             "/s/B": Method.bidi_stream(bidi)}  # fmt: skip
    async with lean(table) as server:
        for timeout in (5.0, 0.01):
            async with grpc.aio.insecure_channel(server.address, options=LARGE) as channel:
                calls: list[Any] = []
                for _ in range(50):
                    calls.append(channel.unary_unary("/s/U")(b"x", timeout=timeout))
                    calls.append(channel.unary_stream("/s/S")(b"x", timeout=timeout))
                    calls.append(channel.stream_stream("/s/B")(timeout=timeout))
                await asyncio.sleep(0.015)
                for number, each in enumerate(calls):
                    if number % 2:
                        each.cancel()
                await asyncio.sleep(0.2)
        del calls, each  # grpc keeps a connection while somebody holds a call
        gc.collect()
        await until(lambda: server.connections == 0)
        assert server.calls == 0
        gc.collect()
        own = [task for task in asyncio.all_tasks() if "GrpcConnection" in repr(task)]
        assert own == []


async def test_a_restart_under_load_refuses_no_call() -> None:
    """Servers on one socket, one after the other; nobody accepts while one drains."""
    server = LeanServer(ECHO, ServerConfig(listen="127.0.0.1:0"))
    await server.start()
    config = ServerConfig(listen=server.address)
    answered = 0
    going_on = True

    async def keep_calling() -> None:
        nonlocal answered
        async with grpc.aio.insecure_channel(server.address, options=LARGE) as channel:
            while going_on:
                assert await channel.unary_unary("/s/M")(b"x", timeout=TIMEOUT_S) == b"x"
                answered += 1

    callers = [asyncio.create_task(keep_calling()) for _ in range(8)]
    for _ in range(3):
        await asyncio.sleep(0.3)
        following = LeanServer(ECHO, config)
        sockets = [one.dup() for one in server.sockets]
        server.leave_port()
        await server.drain(5_000)
        await following.start(sockets)
        server = following
    before = answered
    await asyncio.sleep(0.3)
    going_on = False
    await asyncio.gather(*callers)
    assert answered > before
    await server.drain(1_000)


def test_a_broker_chooses_it_by_its_configuration(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    text = '[server]\ntransport = "lean"\n[tls]\nenabled = true\n'
    with BrokerProcess(tmp_path / "data", config=text) as broker:
        broker.start()
        pem = (tmp_path / "data" / "tls" / "certificate.pem").read_bytes()
        port = broker.endpoint.rpartition(":")[2]
        for channel in (
            grpc.insecure_channel(broker.endpoint),
            grpc.secure_channel(f"localhost:{port}", grpc.ssl_channel_credentials(pem)),
        ):
            with channel:
                check = channel.unary_unary("/grpc.health.v1.Health/Check")
                assert check(b"", timeout=TIMEOUT_S) == b"\x08\x01"
        assert broker.terminate().code == 0
        broker.start()
        assert (tmp_path / "data" / "tls" / "certificate.pem").read_bytes() == pem


async def test_a_process_without_descriptors_says_so_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lean() as server:
        [listening] = server._listener._sockets

        class NoDescriptor:
            def accept(self) -> None:
                raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(listener, "ACCEPT_PAUSE_S", 0)
        for _ in range(20):
            server._listener._accept(cast(socket.socket, NoDescriptor()))
            await asyncio.sleep(0)
        lines = [each for each in caplog.records if each.levelname == "ERROR"]
        assert [each.getMessage() for each in lines] == ["no more connections for a moment"]
        assert listening.fileno() >= 0
        assert await in_clear(server) == b"x"
