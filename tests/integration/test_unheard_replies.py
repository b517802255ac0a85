"""A reply that something between took, and that never came to its client, which lives on.

The client's connection ends before anything of it proves that it has the reply. It speaks on over
another connection, so the broker renews what it holds: but not the messages of that reply.
"""

import asyncio
import os
from pathlib import Path
from typing import Final

import pytest

from latermq_h2.http2 import frames
from latermq_h2.http2.control import PROOF_PING
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from support import wire_requests
from support.broker_process import BrokerProcess
from support.hostile import MESSAGING, body, head
from support.http2_peer import HELLO, OPEN_WINDOWS, SETTINGS_ACK
from support.machine import patient
from support.wire_client import WireClient, require_ok

LEASE_MS: Final = 4_000
CONFIG: Final = f"[delivery]\nauto_renew_lease_ms = {LEASE_MS}\n"
CLIENT: Final = "hostile@1@0@soak"
MARK: Final = b"the reply that got lost"


class Peer:
    """One connection of a push consumer, whose reply is taken whole."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker

    async def take(self, attempt_id: str, *, proves: bool) -> None:
        """Ask for messages, take the reply, and close in order; answer the PING if it `proves`."""
        host, _, port = self._broker.endpoint.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        waiting = wire_requests.receive("empty", "billing", wait_ms=20_000)
        request = wire_requests.receive("orders", "billing", auto_renew=True, attempt_id=attempt_id)
        writer.write(HELLO + OPEN_WINDOWS + SETTINGS_ACK)
        for number, asked in ((1, waiting), (3, request)):
            call = head(number, f"{MESSAGING}/ReceiveMessage")
            writer.write(call + body(number, asked.SerializeToString()))
        found = b""
        wanted = PROOF_PING if proves else MARK
        async with asyncio.timeout(patient(20)):
            while wanted not in found:
                found += await reader.read(65_536)
        if proves:
            writer.write(frames.frame(frames.PING, frames.ACK, 0, PROOF_PING))
            writer.write(frames.frame(frames.PING, 0, 0, b"the last"))
            async with asyncio.timeout(patient(20)):
                while b"the last" not in found:
                    found += await reader.read(65_536)
        writer.close()


async def comes_again(client: WireClient, attempt_id: str, for_s: float) -> list[int]:
    """Wait for the message as long, with heartbeats; tell as which attempt it came."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + for_s
    while loop.time() < end_s:
        await asyncio.to_thread(client.heartbeat, "billing")
        got = await asyncio.to_thread(
            client.receive, "orders", "billing", auto_renew=True, attempt_id=attempt_id, wait_ms=500
        )
        if got.messages:
            handles = [one.system_properties.receipt_handle for one in got.messages]
            client.ack("orders", "billing", *handles)
            return [one.system_properties.delivery_attempt for one in got.messages]
    return []


@pytest.mark.parametrize("fifo", [False, True])
async def test_a_lease_nobody_proved_to_have_ends_by_itself(tmp_path: Path, fifo: bool) -> None:
    with BrokerProcess(tmp_path / "data", config=CONFIG) as broker:
        broker.start()
        with WireClient(broker.endpoint, CLIENT) as client:
            prepare(client, fifo=fifo)
            await Peer(broker).take("try-1", proves=False)
            assert await comes_again(client, "try-2", patient(20)) == [2]


@pytest.mark.parametrize("fifo", [False, True])
async def test_the_same_attempt_id_brings_it_at_once(tmp_path: Path, fifo: bool) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.start()
        with WireClient(broker.endpoint, CLIENT) as client:
            prepare(client, fifo=fifo)
            await Peer(broker).take("try-1", proves=False)
            assert await comes_again(client, "try-1", patient(20)) == [1]


@pytest.mark.skipif(
    os.environ.get("LATERMQ_SERVER_TRANSPORT", "lean") != "lean", reason="it asks for no proof"
)
async def test_who_has_read_the_reply_keeps_it(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", config=CONFIG) as broker:
        broker.start()
        with WireClient(broker.endpoint, CLIENT) as client:
            prepare(client, fifo=False)
            await Peer(broker).take("try-1", proves=True)
            assert await comes_again(client, "try-2", 2 * LEASE_MS / 1_000) == []


def prepare(client: WireClient, *, fifo: bool) -> None:
    """Make the topic and the group, announce the consumer, and send the message."""
    client.create_topic("orders", type=2 if fifo else 0)
    client.create_topic("empty")
    client.create_group("billing", 17, fifo=fifo)
    client.announce_push_consumer("orders", "billing")
    sent = wire_requests.message("orders", MARK)
    if fifo:
        sent.system_properties.message_group = "a"
        sent.system_properties.message_type = definition_pb2.MessageType.FIFO
    require_ok(client.send(sent))
