"""A reply that went to the kernel whole, and never to its client: another client gets the message.

The peers are plain sockets. One reads nothing and breaks off with a reset; one has read all it was
sent, and said so, before it does.
"""

import asyncio
import os
import socket
from pathlib import Path
from typing import Final

import pytest

from latermq_h2.http2 import frames
from latermq_proto.latermq.v1 import pending_pb2
from support import wire_requests
from support.broker_process import BrokerProcess
from support.hostile import MESSAGING, RESET_LINGER, body, head
from support.http2_peer import HELLO, OPEN_WINDOWS, SETTINGS_ACK
from support.machine import patient
from support.wire_client import WireClient

BODY: Final = bytes(200_000)  # more than the peer's buffer takes, less than the broker's
BUFFER_BYTES: Final = 4_096
PONG: Final = b"all read"


async def peer_of(broker: BrokerProcess) -> socket.socket:
    """Connect with a buffer that is soon full, and ask as a push consumer does."""
    host, _, port = broker.endpoint.rpartition(":")
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    peer.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(peer, (host, int(port)))
    request = wire_requests.receive("orders", "billing", auto_renew=True).SerializeToString()
    asked = head(1, f"{MESSAGING}/ReceiveMessage") + body(1, request)
    await loop.sock_sendall(peer, HELLO + OPEN_WINDOWS + SETTINGS_ACK + asked)
    return peer


async def leased(operator: WireClient) -> None:
    """Wait until somebody has the message."""
    async with asyncio.timeout(patient(20)):
        while not in_hand(operator):
            await asyncio.sleep(0.02)


def in_hand(operator: WireClient) -> int:
    """Count what is leased."""
    wanted = pending_pb2.PendingFilter(kind=pending_pb2.IN_FLIGHT)
    request = pending_pb2.ListPendingRequest(filter=wanted)
    return len(operator.call(operator.pending.ListPending, request).messages)


@pytest.mark.skipif(
    os.environ.get("LATERMQ_SERVER_TRANSPORT", "lean") != "lean",
    reason="gRPC does not tell what went out",
)
async def test_a_reply_that_its_client_never_got_goes_to_another(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.start()
        with WireClient(broker.endpoint, "other@1@0@test") as other:
            other.create_topic("orders")
            other.create_group("billing", 3)
            other.send(wire_requests.message("orders", BODY))
            peer = await peer_of(broker)
            await leased(other)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_LINGER)
            peer.close()
            (again,) = other.receive("orders", "billing", wait_ms=15_000).messages
            assert again.system_properties.delivery_attempt == 1  # the lost one does not count
            other.ack("orders", "billing", again.system_properties.receipt_handle)

            # One that has read all keeps it, however its connection ends.
            other.send(wire_requests.message("orders", BODY))
            peer = await peer_of(broker)
            await leased(other)
            await read_all(peer)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_LINGER)
            peer.close()
            assert not other.receive("orders", "billing", wait_ms=1_500).messages
            assert in_hand(other) == 1


async def read_all(peer: socket.socket) -> None:
    """Read the reply, and the answer to a ping sent behind it: by then it is acknowledged."""
    loop = asyncio.get_running_loop()
    found = b""
    async with asyncio.timeout(patient(20)):
        while len(found) < len(BODY):
            found += await loop.sock_recv(peer, 65_536)
        await loop.sock_sendall(peer, frames.frame(frames.PING, 0, 0, PONG))
        while PONG not in found:
            found += await loop.sock_recv(peer, 65_536)
        await loop.sock_sendall(peer, frames.frame(frames.PING, 0, 0, bytes(8)))
