"""A producer and a consumer of message groups, who write every promise into their own ledger."""

import asyncio
import random
from typing import Final

import grpc

from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.latermq.v1 import group_pb2
from support import wire_requests
from support.anew_client import Caller
from support.ledger import Delivery, Ledger
from support.ledger_sends import Outcome
from support.wire_client import Received, WireClient, now_ms, require_ok

TOPIC: Final = "in-order"
GROUP: Final = "in-order-workers"
KEYS: Final = ("ann", "bob", "cyd")
ATTEMPTS_MAX: Final = 1_000
LEASE_MS: Final = 400
BATCH: Final = 8

Code = definition_pb2.Code


class Ordered:
    """It lives on from one owner to the next."""

    def __init__(self, rng: random.Random) -> None:
        self.ledger = Ledger({GROUP: ATTEMPTS_MAX})
        self._rng = rng
        self._reply = 0

    @staticmethod
    def make_names(endpoint: str) -> None:
        """Make the group that keeps the order; the topic is made by the first message."""
        with WireClient(endpoint) as wire:
            group = group_pb2.Group(name=GROUP, fifo=True, max_attempts=ATTEMPTS_MAX)
            request = group_pb2.CreateGroupRequest(group=group)
            require_ok(wire.call(wire.groups.CreateGroup, request))

    async def run(self, endpoint: str, over: asyncio.Future[None], timeout_s: float) -> list[str]:
        """Work until `over`, or until a call fails; return the answers that nobody should give."""
        async with grpc.aio.insecure_channel(endpoint, wire_requests.CHANNEL_OPTIONS) as channel:
            caller = Caller(channel, "ordered@1@0@cluster", timeout_s)
            try:
                while not over.done():
                    await (self._send(caller) if self._rng.random() < 0.5 else self._take(caller))
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    caller.errors.append(f"in order: {error.code()} {error.details()}")
            await over
            return caller.errors

    def read_back(self, endpoint: str) -> None:
        """Take what there is, in order, and see whether something is missing."""
        with WireClient(endpoint) as wire:
            while True:
                asked_ms = now_ms()
                got = wire.receive(TOPIC, GROUP, invisible_ms=30_000, wait_ms=2 * LEASE_MS)
                if not got.messages:
                    break
                handles = self._delivered(got, asked_ms, 30_000)
                require_ok(wire.ack(TOPIC, GROUP, *handles.values()))
                self._acked(handles, dict.fromkeys(handles, True))
        self.ledger.check_drained(GROUP, now_ms())

    async def _send(self, caller: Caller) -> None:
        key, body = self._rng.choice(KEYS), self._rng.randbytes(40)
        message = wire_requests.message(TOPIC, body)
        system = message.system_properties
        system.message_group, system.message_type = key, definition_pb2.MessageType.FIFO
        self.ledger.sending({system.message_id: (body, 0)}, keys={system.message_id: key})
        answer = await caller.messaging("SendMessage", wire_requests.send([message]))
        if answer.status.code == Code.OK:
            self.ledger.sent([system.message_id], Outcome.DONE)
        else:
            caller.wrong("send in order", answer)

    async def _take(self, caller: Caller) -> None:
        """Receive some, and acknowledge most: what is not comes again, before what is behind it."""
        request = wire_requests.receive(
            TOPIC, GROUP, count_max=BATCH, invisible_ms=LEASE_MS, wait_ms=100
        )
        asked_ms, messages, broker_ms = now_ms(), [], 0
        async for element in caller.received(request):
            if element.HasField("message"):
                messages.append(element.message)
            elif element.HasField("delivery_timestamp"):
                broker_ms = wire_requests.timestamp_ms(element.delivery_timestamp)
        got = Received(definition_pb2.Status(), messages, now_ms(), broker_ms)
        handles = self._delivered(got, asked_ms, LEASE_MS)
        if not handles or self._rng.random() < 0.1:
            return
        for message_id in handles:
            self.ledger.acking(GROUP, message_id)
        answer = await caller.messaging(
            "AckMessage", wire_requests.ack(TOPIC, GROUP, list(handles.values()))
        )
        accepted = [entry.status.code == Code.OK for entry in answer.entries]
        self._acked(handles, dict(zip(handles, accepted, strict=True)))

    def _delivered(self, got: Received, asked_ms: int, lease_ms: int) -> dict[str, str]:
        """Write down what came; return the handles by message."""
        self._reply += 1
        handles: dict[str, str] = {}
        for message in got.messages:
            system = message.system_properties
            handles[system.message_id] = system.receipt_handle
            self.ledger.delivered(
                GROUP,
                Delivery(
                    system.message_id, message.body, system.delivery_attempt,
                    system.receipt_handle, asked_ms, got.broker_ms, got.at_ms, lease_ms,
                    self._reply,
                ),
            )  # fmt: skip
        return handles

    def _acked(self, handles: dict[str, str], accepted: dict[str, bool]) -> None:
        for message_id, good in accepted.items():
            self.ledger.acked(GROUP, message_id, handles[message_id], accepted=good, at_ms=now_ms())
