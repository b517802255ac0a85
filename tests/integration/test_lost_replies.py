"""A reply that went to the kernel whole, and never to its client: another client gets the message.

The peers are plain sockets, or TLS on one. One reads nothing and breaks off with a reset; one has
read all it was sent, and said so, before it does.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
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
TLS: Final = "[tls]\nenabled = true\n"
SILENT_S: Final = (3.0, 6.0, 12.0, 24.0)  # under TLS it takes two looks, a second apart, to be sure

pytestmark = pytest.mark.skipif(
    os.environ.get("LATERMQ_SERVER_TRANSPORT", "lean") != "lean",
    reason="gRPC does not tell what went out",
)


async def peer_of(broker: BrokerProcess) -> socket.socket:
    """Connect with a buffer that is soon full, and ask as a push consumer does."""
    peer = with_a_small_buffer()
    peer.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(peer, address_of(broker))
    await loop.sock_sendall(peer, asked())
    return peer


async def peer_under_tls(broker: BrokerProcess) -> ssl.SSLSocket:
    """Do the same under TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    peer = context.wrap_socket(with_a_small_buffer())

    def ask() -> None:
        peer.settimeout(patient(20))
        peer.connect(address_of(broker))
        peer.sendall(asked())

    await asyncio.to_thread(ask)
    return peer


@contextmanager
def one_message(directory: Path, config: str = "") -> Iterator[tuple[BrokerProcess, WireClient]]:
    """Start a broker that has a message for a group, and connect another of its consumers."""
    with BrokerProcess(directory, config=config) as broker:
        broker.start()
        with WireClient(broker.endpoint, "other@1@0@test") as other:
            other.create_topic("orders")
            other.create_group("billing", 3)
            other.send(wire_requests.message("orders", BODY))
            yield broker, other


def with_a_small_buffer() -> socket.socket:
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    return peer


def address_of(broker: BrokerProcess) -> tuple[str, int]:
    host, _, port = broker.endpoint.rpartition(":")
    return host, int(port)


def asked() -> bytes:
    """Write all that a push consumer says until it has asked for messages."""
    request = wire_requests.receive("orders", "billing", auto_renew=True).SerializeToString()
    call = head(1, f"{MESSAGING}/ReceiveMessage") + body(1, request)
    return HELLO + OPEN_WINDOWS + SETTINGS_ACK + call


def break_off(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_LINGER)
    peer.close()


async def leased(operator: WireClient, count: int = 1) -> None:
    """Wait until so many messages are with somebody."""
    async with asyncio.timeout(patient(20)):
        while in_hand(operator) < count:
            await asyncio.sleep(0.02)


def in_hand(operator: WireClient) -> int:
    """Count what is leased."""
    wanted = pending_pb2.PendingFilter(kind=pending_pb2.IN_FLIGHT)
    request = pending_pb2.ListPendingRequest(filter=wanted)
    return len(operator.call(operator.pending.ListPending, request).messages)


async def test_a_reply_that_its_client_never_got_goes_to_another(tmp_path: Path) -> None:
    with one_message(tmp_path / "data") as (broker, other):
        peer = await peer_of(broker)
        await leased(other)
        break_off(peer)
        (again,) = other.receive("orders", "billing", wait_ms=15_000).messages
        assert again.system_properties.delivery_attempt == 1  # the lost one does not count
        other.ack("orders", "billing", again.system_properties.receipt_handle)

        # One that has read all keeps it, however its connection ends.
        other.send(wire_requests.message("orders", BODY))
        peer = await peer_of(broker)
        await leased(other)
        await read_all(peer)
        break_off(peer)
        assert not other.receive("orders", "billing", wait_ms=1_500).messages
        assert in_hand(other) == 1


async def test_under_tls_a_reply_that_was_not_read_for_seconds_goes_to_another(
    tmp_path: Path,
) -> None:
    with one_message(tmp_path / "data", TLS) as (broker, other):
        for before, silent_s in enumerate(SILENT_S):  # a broker that stands still looks later
            peer = await peer_under_tls(broker)
            await leased(other, before + 1)
            await asyncio.sleep(silent_s)
            break_off(peer)
            again = other.receive("orders", "billing", wait_ms=8_000).messages
            if again:
                break
            other.send(wire_requests.message("orders", BODY))
        assert [one.system_properties.delivery_attempt for one in again] == [1]


async def test_under_tls_a_reply_that_was_read_stays_with_who_read_it(tmp_path: Path) -> None:
    with one_message(tmp_path / "data", TLS) as (broker, other):
        peer = await peer_under_tls(broker)
        await leased(other)

        def read() -> None:
            found = 0
            while found < len(BODY):
                found += len(peer.recv(65_536))

        await asyncio.to_thread(read)
        await asyncio.sleep(SILENT_S[0])
        break_off(peer)
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
