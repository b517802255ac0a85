"""Clients that keep a broker busy until it dies, and write every promise into the ledger.

Each worker is a loop of calls on one connection. The first call that fails with a gRPC error ends
the worker: the broker is gone, and what that call asked for stays of unknown outcome.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

import grpc

from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2_grpc
from latermq_proto.latermq.v1 import failure_pb2, topic_pb2, topic_pb2_grpc
from support import wire_requests
from support.anew_client import Anew, Caller
from support.ledger import Delivery, Ledger
from support.ledger_sends import Outcome
from support.machine import patient
from support.wire_client import now_ms

TOPIC: Final = "load"
WORKERS: Final = "workers"  # the group that does everything to its messages
AUDIT: Final = "audit"  # the group that reads everything once, in the end
ATTEMPTS_MAX: Final = 4
LADDER_MS: Final = (150, 300)
LEASES_MS: Final = (300, 500, 900)
DELAYS_MS: Final = (20, 150, 700, 2_000)
FAR_MS: Final = 3_600_000  # not due before the test ends
PUSH_LEASE_MS: Final = 60_000
CALL_TIMEOUT_S: Final = patient(20.0)
SENDERS: Final = 3
SIMPLE_CONSUMERS: Final = 3
PUSH_CLIENT: Final = "push@1@0@crash"

Code = definition_pb2.Code


class Held(NamedTuple):
    """A message that this client holds."""

    message_id: str
    attempt: int
    handle: str


class Load:
    """One connection's workers, for one life of the broker.

    Args:
        topics: names that `CreateTopic` was acknowledged for are added to it.
        anew: a client with a topic of its own.
    """

    def __init__(
        self, endpoint: str, ledger: Ledger, rng: random.Random, topics: set[str], anew: Anew
    ) -> None:
        self._ledger = ledger
        self._rng = rng
        self._topics = topics
        self._anew = anew
        self._channel = grpc.aio.insecure_channel(endpoint, wire_requests.CHANNEL_OPTIONS)
        self._stub = service_pb2_grpc.MessagingServiceStub(self._channel)
        self._stopping = False
        self._caller = Caller(self._channel, "anew@1@0@crash", CALL_TIMEOUT_S)
        self.errors = self._caller.errors  # answers that no broker should give

    async def run(self, until: Awaitable[None]) -> None:
        """Work until `until` is done, which ends the broker; then let every call end."""
        workers = [self._loop(self._send) for _ in range(SENDERS)]
        workers += [self._loop(self._consume) for _ in range(SIMPLE_CONSUMERS)]
        workers += [self._loop(self._push), self._create_topic(), self._loop(self._make_anew)]
        tasks = [asyncio.ensure_future(worker) for worker in workers]
        await until
        self._stopping = True
        await asyncio.gather(*tasks)
        await self._channel.close()

    async def _loop(self, work: Callable[[], Awaitable[None]]) -> None:
        while not self._stopping:
            try:
                await work()
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    self.errors.append(f"{work.__name__}: {error.code()} {error.details()}")
                return
            await asyncio.sleep(self._rng.random() * 0.01)

    async def _make_anew(self) -> None:
        await self._anew.step(self._caller)

    async def _call(
        self,
        method: Callable[..., Any],
        request: object,
        client_id: str = "load@1@0@crash",
        *more: tuple[str, str | bytes],
    ) -> Any:
        headers = wire_requests.metadata(client_id, *more)
        return await method(request, metadata=headers, timeout=CALL_TIMEOUT_S)

    async def _create_topic(self) -> None:
        name = f"made-{self._ledger.life}"
        stub = topic_pb2_grpc.TopicsStub(self._channel)
        try:
            answer = await self._call(stub.CreateTopic, topic_pb2.CreateTopicRequest(name=name))
        except grpc.aio.AioRpcError:
            return
        if answer.status.code == Code.OK:
            self._topics.add(name)

    # --- sending -------------------------------------------------------------------------------

    async def _send(self) -> None:
        """One call with one to five messages, a third of them delayed, some of them big."""
        rng = self._rng
        messages = []
        asked: dict[str, tuple[bytes, int]] = {}
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            body = rng.randbytes(rng.choice((20, 300, 3_000, 3_000, 40_000)))
            due_ms = 0
            if rng.random() < 0.3:
                due_ms = now_ms() + rng.choice((*DELAYS_MS, FAR_MS))
            message = wire_requests.message(TOPIC, body, tag="t", deliver_at_ms=due_ms)
            asked[message.system_properties.message_id] = (body, due_ms)
            messages.append(message)
        self._ledger.sending(asked, now_ms())
        answer = await self._call(self._stub.SendMessage, wire_requests.send(messages))
        stored = answer.status.code == Code.OK
        if not stored and answer.status.code != Code.TOO_MANY_REQUESTS:
            self.errors.append(f"send: {answer.status}")
        ids = [message.system_properties.message_id for message in messages]
        self._ledger.sent(ids, Outcome.DONE if stored else Outcome.REFUSED)

    # --- consuming -----------------------------------------------------------------------------

    async def _receive(self, lease_ms: int, *, push: bool) -> list[Held]:
        request = wire_requests.receive(
            TOPIC,
            WORKERS,
            count_max=self._rng.choice((1, 4, 16)),
            invisible_ms=lease_ms,
            wait_ms=200,
            auto_renew=push,
        )
        client_id = PUSH_CLIENT if push else "simple@1@0@crash"
        asked_ms = now_ms()
        call = self._stub.ReceiveMessage(
            request, metadata=wire_requests.metadata(client_id), timeout=CALL_TIMEOUT_S
        )
        received, broker_ms = [], 0
        async for element in call:
            if element.HasField("message"):
                received.append((element.message, now_ms()))
            elif element.HasField("delivery_timestamp"):
                broker_ms = wire_requests.timestamp_ms(element.delivery_timestamp)
            elif element.status.code not in (Code.OK, Code.MESSAGE_NOT_FOUND):
                self.errors.append(f"receive: {element.status}")
        held = []
        for message, at_ms in received:
            system = message.system_properties
            delivery = Delivery(
                system.message_id,
                message.body,
                system.delivery_attempt,
                system.receipt_handle,
                asked_ms,
                broker_ms,
                at_ms,
                PUSH_LEASE_MS if push else lease_ms,
            )
            self._ledger.delivered(WORKERS, delivery)
            held.append(Held(system.message_id, system.delivery_attempt, system.receipt_handle))
        return held

    async def _consume(self) -> None:
        """A simple consumer: acknowledges most, extends, nacks, forwards or forgets the others."""
        rng = self._rng
        lease_ms = rng.choice(LEASES_MS)
        to_ack = []
        for held in await self._receive(lease_ms, push=False):
            dice = rng.random()
            if dice < 0.55:
                to_ack.append(held)
            elif dice < 0.67:
                await self._change(held, rng.choice(LEASES_MS), nack=False)
            elif dice < 0.77:
                await self._change(held, 0, nack=True)
            elif dice < 0.82:
                await self._forward(held)
            elif dice < 0.86:
                await asyncio.sleep(lease_ms / 1000 + 0.05)
                await self._ack([held])  # too late, or just not
        await self._ack(to_ack)
        if to_ack and rng.random() < 0.2:
            await self._ack(to_ack)  # again, as clients do

    async def _push(self) -> None:
        """A push consumer: acknowledges or nacks; what it holds when it dies is freed later."""
        to_ack = []
        for held in await self._receive(0, push=True):
            if self._rng.random() < 0.75:
                to_ack.append(held)
            else:
                await self._change(held, 100, nack=True, client_id=PUSH_CLIENT)
        await self._ack(to_ack)

    async def _ack(self, held: Sequence[Held]) -> None:
        if not held:
            return
        for one in held:
            self._ledger.acking(WORKERS, one.message_id)
        request = wire_requests.ack(TOPIC, WORKERS, [one.handle for one in held])
        answer = await self._call(self._stub.AckMessage, request)
        at_ms = now_ms()
        if len(answer.entries) != len(held):
            self.errors.append(f"ack: {len(answer.entries)} entries for {len(held)} handles")
        for one, entry in zip(held, answer.entries, strict=False):
            accepted = entry.status.code == Code.OK
            if not accepted and entry.status.code != Code.INVALID_RECEIPT_HANDLE:
                self.errors.append(f"ack: {entry.status}")
            self._ledger.acked(WORKERS, one.message_id, one.handle, accepted=accepted, at_ms=at_ms)

    async def _change(
        self, held: Held, invisible_ms: int, *, nack: bool, client_id: str = "load@1@0@crash"
    ) -> None:
        """Extend the lease and then acknowledge, or nack with a failure: the ladder decides."""
        wait_ms = LADDER_MS[min(held.attempt, len(LADDER_MS)) - 1] if nack else invisible_ms
        failure = failure_pb2.Failure(class_name="Crash", text="on purpose").SerializeToString()
        more = (("latermq-failure-bin", failure),) if nack else ()
        asked_ms = now_ms()
        self._ledger.waiting(WORKERS, held.message_id, asked_ms, wait_ms)
        request = wire_requests.change_invisible(TOPIC, WORKERS, held.handle, invisible_ms)
        answer = await self._call(self._stub.ChangeInvisibleDuration, request, client_id, *more)
        if answer.status.code == Code.INVALID_RECEIPT_HANDLE:
            return  # its lease had ended
        if answer.status.code != Code.OK:
            self.errors.append(f"change: {answer.status}")
            return
        handle = answer.receipt_handle
        self._ledger.waits(WORKERS, held.message_id, asked_ms, wait_ms, handle)
        if not nack and self._rng.random() < 0.7:
            await self._ack([held._replace(handle=handle)])

    async def _forward(self, held: Held) -> None:
        self._ledger.forwarding(WORKERS, held.message_id)
        request = wire_requests.forward(TOPIC, WORKERS, held.handle)
        answer = await self._call(self._stub.ForwardMessageToDeadLetterQueue, request)
        if answer.status.code == Code.OK:
            self._ledger.forwarded(WORKERS, held.message_id)
        elif answer.status.code != Code.INVALID_RECEIPT_HANDLE:
            self.errors.append(f"forward: {answer.status}")
