"""Calls between shards: which of a shard's addresses is called, when its owner changes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

import pytest

from latermq_broker.cluster.peers import PeerError, Peers
from latermq_broker.config.cluster import ClusterConfig
from latermq_broker.config.config import Config, ServerConfig
from latermq_broker.config.replication import ReplicationConfig
from latermq_broker.services.call.handler import Call, Method
from latermq_broker.transport.lean import LeanServer
from support.cluster_process import free_ports
from support.machine import patient

PATH: Final = "/s/M"
SOON_S: Final = patient(10.0)
SHORT_S: Final = 0.5


@pytest.fixture
def addresses() -> list[str]:
    return [f"127.0.0.1:{port}" for port in free_ports(2)]


@pytest.fixture
async def peers(addresses: list[str]) -> AsyncIterator[Peers]:
    cluster = ClusterConfig(shards=(";".join(addresses),))
    peers = Peers(Config(cluster=cluster, replication=ReplicationConfig(kafka="k:1")))
    yield peers
    await peers.close()


async def owner(address: str, answer: bytes = b"", *, wait_s: float = 0.0) -> LeanServer:
    async def handler(data: bytes, call: Call) -> bytes:
        await asyncio.sleep(wait_s)
        return answer

    server = LeanServer({PATH: Method.unary(handler)}, ServerConfig(listen=address))
    await server.start()
    return server


async def answered(peers: Peers, answer: bytes) -> None:
    """Call until this is the answer; a call that the end of a connection meets fails."""
    async with asyncio.timeout(SOON_S):
        while True:
            with suppress(PeerError):
                assert await peers.call(0, PATH, b"", (), SHORT_S) == answer
                return


async def test_whichever_address_answers_is_called(peers: Peers, addresses: list[str]) -> None:
    with pytest.raises(PeerError, match=f"shard 0 at {addresses[0]} or {addresses[1]}: nobody"):
        await peers.call(0, PATH, b"", (), SHORT_S)
    for address in (*addresses, addresses[0]):
        server = await owner(address, address.encode())
        for _ in range(2):
            await answered(peers, address.encode())
        await server.drain(0)


async def test_an_owner_that_is_waited_for(peers: Peers, addresses: list[str]) -> None:
    """As while a standby takes over."""
    call = asyncio.create_task(peers.call(0, PATH, b"", (), SOON_S))
    await asyncio.sleep(SHORT_S)
    server = await owner(addresses[1], b"here")
    assert await call == b"here"
    await server.drain(0)


async def test_an_owner_that_stands_still_is_left(peers: Peers, addresses: list[str]) -> None:
    """Its connection is as it was; the new owner is at the other address."""
    stopped = await owner(addresses[0], wait_s=patient(60))
    with pytest.raises(PeerError, match="shard 0"):
        await peers.call(0, PATH, b"", (), SHORT_S)
    server = await owner(addresses[1], b"new")
    for _ in range(2):
        await answered(peers, b"new")
    for each in (server, stopped):
        await each.drain(0)


async def test_a_call_that_waits_at_an_owner_that_hands_over_is_answered_by_the_next(
    peers: Peers, addresses: list[str]
) -> None:
    old = await owner(addresses[0], b"old")
    assert await peers.call(0, PATH, b"", (), SOON_S) == b"old"
    assert await old.hold(0)
    call = asyncio.create_task(peers.call(0, PATH, b"", (), SOON_S))
    await asyncio.sleep(SHORT_S)
    assert not call.done()
    new = await owner(addresses[1], b"new")
    await old.drain(0)
    assert await call == b"new"
    await new.drain(0)
