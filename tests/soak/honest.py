"""Clients that keep to the rules, and write down what they were promised.

Producers send at once and delayed; consumers acknowledge, give back, forward to the dead letters or
let the lease run out; others give up calls, run into deadlines and drop telemetry streams. One with
a topic of its own moves offsets, changes its filter, and makes topic and group anew. In the
end every promised message must have been acknowledged, or be a dead letter, and none may have come
after its acknowledgement, or before its time.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
import grpc.aio

from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2, service_pb2_grpc
from support import wire_requests
from support.anew_client import Anew, Caller
from support.machine import patient
from support.wire_client import now_ms

OK: Final = definition_pb2.Code.OK
GROUP: Final = "workers"
UNDERTAKERS: Final = "undertakers"
ATTEMPTS_MAX: Final = 3
LEASE_MS: Final = 1_500
DELAY_MS_MAX: Final = 4_000
BODY_BYTES: Final = 1_000
POLL_MS: Final = 1_000
CALL_S: Final = patient(15.0)


@dataclass
class Ledger:
    """Promised, and what became of it; message id → due time of those that are still owed."""

    owed: dict[str, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    forwarded: dict[str, int] = field(default_factory=dict)  # id → the attempt that was the last
    settled: dict[str, int] = field(default_factory=dict)  # lately: id → attempt, oldest first

    def promised(self, message_id: str, due_ms: int) -> None:
        self.owed[message_id] = due_ms
        self.counts["sent"] += 1

    def came(self, message_id: str, attempt: int, due_ms: int, at_ms: int) -> None:
        """An attempt before the settled one only waited here for longer than its lease."""
        self.counts["delivered"] += 1
        if attempt > self.settled.get(message_id, attempt):
            self.broken.append(f"{message_id} came after its acknowledgement")
        if due_ms > at_ms:
            self.broken.append(f"{message_id} came {due_ms - at_ms} ms early")

    def over(self, message_id: str, attempt: int, how: str) -> None:
        if self.owed.pop(message_id, None) is None:
            self.broken.append(f"{message_id} is {how}, and nobody is owed it")
        self.counts[how] += 1
        self.settled[message_id] = attempt
        if len(self.settled) > 50_000:
            del self.settled[next(iter(self.settled))]


class Honest:
    """All of them on one broker. Each round is one small story; it may raise RpcError."""

    def __init__(self, endpoint: str, topic: str, seed: int, retention_ms: int) -> None:
        self.ledger = Ledger()
        self._endpoint = endpoint
        self._topic = topic
        self._chance = random.Random(seed)
        self._number = 0
        self._channels = [self._channel() for _ in range(4)]
        self._anew = Anew(random.Random(seed), retention_ms)
        self._caller = Caller(self._channels[0], "soak@anew@0@x", CALL_S)

    @property
    def rounds(self) -> dict[str, tuple[Callable[[], Awaitable[str]], float]]:
        """With the pause between two of one kind, in seconds."""
        return {
            "sends, at once and delayed": (self.send, 0.02),
            "receives": (self.receive, 0.02),
            "dead letters received": (self.bury, 0.3),
            "calls given up": (self.give_up, 0.1),
            "deadlines": (self.run_late, 0.1),
            "telemetry streams dropped": (self.drop_telemetry, 0.25),
            "filler for retention": (self.fill, 0.1),
            "offsets, filters, and what is made anew": (self.make_anew, 0.3),
        }

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()

    async def settle(self, seconds: float) -> None:
        """Take what is still owed."""
        try:
            async with asyncio.timeout(seconds):
                await self._anew.finish(self._caller, now_ms() - self._anew.ledger.retention_ms)
        except TimeoutError:
            self.ledger.broken.append("what was made anew does not end")
        self.ledger.broken += [*self._caller.errors, *self._anew.ledger.violations]
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.ledger.owed:
                    await asyncio.gather(self.receive(), self.bury())

    async def send(self) -> str:
        messages = []
        for _ in range(self._chance.choice((1, 1, 1, 5))):
            delayed = self._chance.random() < 0.3
            due_ms = now_ms() + self._chance.randrange(1, DELAY_MS_MAX) if delayed else 0
            content = self._chance.randbytes(8) * (BODY_BYTES // 8)
            messages.append(
                wire_requests.message(
                    self._topic, content, deliver_at_ms=due_ms, properties={"due": str(due_ms)}
                )
            )
        ids = [message.system_properties.message_id for message in messages]
        for message in messages:  # it may come before its answer does
            self.ledger.promised(
                message.system_properties.message_id, int(message.user_properties["due"])
            )
        answer = await self._call("SendMessage", wire_requests.send(messages))
        if answer.status.code != OK:
            for message_id in ids:
                self.ledger.owed.pop(message_id, None)
            return f"refused: {answer.status.code}"
        return "sent"

    async def receive(self) -> str:
        asked = wire_requests.receive(self._topic, GROUP, wait_ms=POLL_MS, invisible_ms=LEASE_MS)
        messages = await self._received(asked)
        for message in messages:
            await self._treat(message)
        return "some" if messages else "none"

    async def _treat(self, message: definition_pb2.Message) -> None:
        system, ledger = message.system_properties, self.ledger
        attempt, due_ms = system.delivery_attempt, int(message.user_properties["due"])
        ledger.came(system.message_id, attempt, due_ms, now_ms())
        handle, fate = system.receipt_handle, self._chance.random()
        if fate < 0.05:
            ledger.counts["leases left to expire"] += 1
        elif fate < 0.15:
            request = wire_requests.change_invisible(self._topic, GROUP, handle, 300)
            await self._call("ChangeInvisibleDuration", request)
            ledger.counts["given back"] += 1
        elif fate < 0.18:
            dead = wire_requests.forward(self._topic, GROUP, handle)
            answer = await self._call("ForwardMessageToDeadLetterQueue", dead)
            if answer.status.code == OK:
                ledger.forwarded[system.message_id] = attempt
                ledger.counts["forwarded"] += 1
            else:  # as below
                ledger.counts["forwarded too late"] += 1
        else:
            answer = await self._call("AckMessage", wire_requests.ack(self._topic, GROUP, [handle]))
            if answer.entries and answer.entries[0].status.code == OK:
                ledger.over(system.message_id, attempt, "acknowledged")
            else:  # it took longer than the lease: it comes again
                ledger.counts["acknowledged too late"] += 1

    async def bury(self) -> str:
        topic = f"%DLQ%{GROUP}"
        asked = wire_requests.receive(topic, UNDERTAKERS, wait_ms=100, invisible_ms=30_000)
        messages = await self._received(asked)
        for message in messages:
            handle = message.system_properties.receipt_handle
            answer = await self._call("AckMessage", wire_requests.ack(topic, UNDERTAKERS, [handle]))
            if answer.entries[0].status.code == OK:
                message_id = message.system_properties.message_id
                last = self.ledger.forwarded.pop(message_id, ATTEMPTS_MAX)
                self.ledger.over(message_id, last, "dead")
        return "some" if messages else "none"

    async def give_up(self) -> str:
        """A receive, cancelled before or after it could be answered."""
        call = self._receiving(f"{self._topic}-quiet", 5_000)
        await asyncio.sleep(self._chance.random() * 0.2)
        call.cancel()
        with suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
            async for _ in call:
                pass
        return "cancelled"

    async def run_late(self) -> str:
        """A receive whose deadline is before the end of its wait."""
        call = self._receiving(f"{self._topic}-quiet", 5_000, self._chance.uniform(0.005, 0.3))
        try:
            async for _ in call:
                pass
        except grpc.aio.AioRpcError as error:
            return str(error.code().name)
        return "answered in time"

    async def drop_telemetry(self) -> str:
        """Say who it is, hear the answer, and go in one of three ways."""
        channel = self._channel()
        self._number += 1
        client_id = f"soak@{self._number % 50}@0@telemetry"
        subscription = definition_pb2.Subscription(group=wire_requests.resource(GROUP))
        settings = definition_pb2.Settings(
            client_type=definition_pb2.ClientType.SIMPLE_CONSUMER, subscription=subscription
        )
        stream = service_pb2_grpc.MessagingServiceStub(channel).Telemetry(
            metadata=wire_requests.metadata(client_id), timeout=CALL_S
        )
        try:
            await stream.write(service_pb2.TelemetryCommand(settings=settings))
            await stream.read()
            await asyncio.sleep(self._chance.random() * 0.5)
            how = self._chance.choice(("cancelled", "ended", "connection closed"))
            if how == "cancelled":
                stream.cancel()
            elif how == "ended":
                await stream.done_writing()
            return how
        finally:
            await channel.close()

    async def fill(self) -> str:
        """Makes the log roll; nobody reads it."""
        filler = wire_requests.message(f"{self._topic}-filler", bytes(4_096))
        await self._call("SendMessage", wire_requests.send([filler] * 20))
        return "sent"

    async def make_anew(self) -> str:
        try:
            return await self._anew.step(self._caller)
        except grpc.aio.AioRpcError:
            self._anew.ledger.crashed()  # whether it happened, is not known
            raise

    def _receiving(self, topic: str, wait_ms: int, timeout_s: float = CALL_S) -> Any:
        request = wire_requests.receive(topic, "idlers", wait_ms=wait_ms)
        return self._stub().ReceiveMessage(
            request, metadata=wire_requests.metadata("soak@idler@0@x"), timeout=timeout_s
        )

    async def _received(self, request: Any) -> list[definition_pb2.Message]:
        call = self._stub().ReceiveMessage(
            request, metadata=wire_requests.metadata("soak@worker@0@x"), timeout=CALL_S
        )
        return [element.message async for element in call if element.HasField("message")]

    async def _call(self, method: str, request: Any) -> Any:
        call = getattr(self._stub(), method)
        return await call(
            request, metadata=wire_requests.metadata("soak@worker@0@x"), timeout=CALL_S
        )

    def _stub(self) -> Any:
        return service_pb2_grpc.MessagingServiceStub(self._chance.choice(self._channels))

    def _channel(self) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(self._endpoint, options=wire_requests.CHANNEL_OPTIONS)
