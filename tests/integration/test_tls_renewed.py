"""TLS files that are renewed in place: read again for the next connection, by whoever dials."""

import logging
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

import latermq
from latermq._connection.grpcio import GrpcTransport
from latermq._connection.lean.transport import LeanTransport
from latermq._connection.transport import Transport
from latermq._values.endpoints import Endpoints
from latermq._values.tls import Tls, TlsFiles
from latermq_broker.cluster.peers import PeerError, Peers
from latermq_broker.config.cluster import ClusterConfig
from latermq_broker.config.config import Config, ServerConfig
from latermq_broker.config.replication import ReplicationConfig
from latermq_broker.config.server_transport import TlsConfig
from latermq_broker.services.call.handler import Call, Method
from latermq_broker.transport.lean import LeanServer
from support.cluster_process import free_ports
from support.machine import patient

pytest.importorskip("cryptography")
PATH: Final = "/s/M"
SOON_S: Final = patient(10.0)


async def echo(data: bytes, call: Call) -> bytes:
    return data


@asynccontextmanager
async def server(home: Path, port: int) -> AsyncIterator[Path]:
    """A server that makes itself a certificate in that directory; yields the certificate's file."""
    config = ServerConfig(listen=f"127.0.0.1:{port}", data_dir=str(home))
    running = LeanServer({PATH: Method.unary(echo)}, config, tls=TlsConfig(enabled=True))
    await running.start()
    try:
        yield home / "tls" / "certificate.pem"
    finally:
        await running.drain(0)


@pytest.mark.parametrize("make", [LeanTransport, GrpcTransport])
async def test_a_client_trusts_the_authority_that_its_file_has_now(
    tmp_path: Path, make: Callable[[Endpoints, Tls], Transport]
) -> None:
    (port,) = free_ports(1)
    ca = tmp_path / "ca.pem"
    async with server(tmp_path / "a", port) as certificate:
        shutil.copy(certificate, ca)
        transport = make(Endpoints.parse(f"localhost:{port}"), Tls(ca=ca))
        assert await transport.unary(PATH, b"1", (), SOON_S) == b"1"
    async with server(tmp_path / "b", port) as certificate:
        with pytest.raises(latermq.LaterMQError):
            await transport.unary(PATH, b"2", (), 0.5)
        shutil.copy(certificate, ca)
        assert await transport.unary(PATH, b"3", (), SOON_S) == b"3"
    await transport.close()


async def test_shards_trust_the_authority_that_their_file_has_now(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    ca = tmp_path / "ca.pem"
    cluster = ClusterConfig(shards=(f"localhost:{port}",), ca=str(ca))
    async with server(tmp_path / "a", port) as certificate:
        shutil.copy(certificate, ca)
        peers = Peers(Config(cluster=cluster, replication=ReplicationConfig(kafka="k:1")))
        assert await peers.call(0, PATH, b"1", (), SOON_S) == b"1"
    async with server(tmp_path / "b", port) as certificate:
        with pytest.raises(PeerError):
            await peers.call(0, PATH, b"2", (), 0.5)
        shutil.copy(certificate, ca)
        assert await peers.call(0, PATH, b"3", (), SOON_S) == b"3"
    await peers.close()


async def test_a_pair_that_does_not_fit_keeps_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pairs = []
    for name, port in zip("ab", free_ports(2), strict=True):
        async with server(tmp_path / name, port) as certificate:
            pairs.append((certificate, certificate.with_name("key.pem")))
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    for source, target in zip(pairs[0], (certificate, key), strict=True):
        shutil.copy(source, target)
    caplog.set_level(logging.INFO, logger="latermq.client")
    files = TlsFiles(Tls(certificate=certificate, key=key))
    before = files.context
    assert not files.renew()
    shutil.copy(pairs[1][0], certificate)  # and not yet its key
    assert not files.renew()
    assert not files.renew()
    assert files.context is before
    assert caplog.text.count("going on with those before") == 1
    shutil.copy(pairs[1][1], key)
    assert files.renew()
    assert files.context is not before
    key.unlink()
    assert not files.renew()
