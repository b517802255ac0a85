"""A client that moves offsets, changes its filter, and makes its topic and its group anew.

It has both for itself and asks one thing after another, so that its ledger knows what each answer
is about; beside it goes the load of others. What a deleted topic leaves are dead letters: it
redrives them into the one that has the name now.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import grpc.aio

from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2, service_pb2_grpc
from latermq_proto.latermq.v1 import (
    dead_letter_pb2,
    dead_letter_pb2_grpc,
    group_pb2,
    group_pb2_grpc,
    queue_pb2,
    queue_pb2_grpc,
    topic_pb2,
    topic_pb2_grpc,
)
from support import wire_requests
from support.ledger import Delivery, Ledger, may_be_spent
from support.ledger_sends import Outcome
from support.wire_client import now_ms

TOPIC: Final = "anew"
GROUP: Final = "anew-workers"
ATTEMPTS_MAX: Final = 3
LADDER_MS: Final = (100,)
LEASE_MS: Final = 300
WAIT_MS: Final = 50
QUIET_ROUNDS: Final = 4
TYPES: Final = (topic_pb2.MIXED, topic_pb2.MIXED, topic_pb2.NORMAL, topic_pb2.PRIORITY)

Code = definition_pb2.Code


@dataclass
class Caller:
    """A connection, by which it asks."""

    channel: grpc.aio.Channel
    client_id: str
    timeout_s: float
    errors: list[str] = field(default_factory=list)  # answers that no broker should give

    async def call(self, method: Callable[..., Any], request: object) -> Any:
        headers = wire_requests.metadata(self.client_id)
        return await method(request, metadata=headers, timeout=self.timeout_s)

    def streamed(self, method: Callable[..., Any], request: object) -> Any:
        """The answers of a stream, one by one."""
        headers = wire_requests.metadata(self.client_id)
        return method(request, metadata=headers, timeout=self.timeout_s)

    def received(self, request: object) -> Any:
        stub = service_pb2_grpc.MessagingServiceStub(self.channel)
        return self.streamed(stub.ReceiveMessage, request)

    async def messaging(self, name: str, request: object) -> Any:
        stub = service_pb2_grpc.MessagingServiceStub(self.channel)
        return await self.call(getattr(stub, name), request)

    async def topics(self, name: str, request: object) -> Any:
        return await self.call(getattr(topic_pb2_grpc.TopicsStub(self.channel), name), request)

    async def groups(self, name: str, request: object) -> Any:
        return await self.call(getattr(group_pb2_grpc.GroupsStub(self.channel), name), request)

    def wrong(self, what: str, answer: Any) -> None:
        self.errors.append(f"anew, {what}: {answer.status}")


class Held(NamedTuple):
    message_id: str
    attempt: int  # 0: a crash may have forgotten it
    handle: str
    void: bool = False  # its lease was withdrawn


class Anew:
    """It lives on from one life of the broker to the next."""

    def __init__(self, rng: random.Random, retention_ms: int) -> None:
        self.ledger = Ledger({GROUP: ATTEMPTS_MAX}, retention_ms)
        self._rng = rng
        self._held: list[Held] = []
        self._type = topic_pb2.MIXED
        self._tags: frozenset[str] | None = None
        self._life = 0  # in which it looked what is there
        self._caller: Caller
        self.counts: Counter[str] = Counter()
        weights = {
            self._send: 16, self._receive: 18, self._ack: 10, self._forward: 5, self._filter: 2,
            self._move: 6, self._redrive: 4, self._make_topic: 3, self._make_group: 2,
        }  # fmt: skip
        self._actions: list[Callable[[], Awaitable[None]]] = list(weights)
        self._weights = list(weights.values())

    async def step(self, caller: Caller) -> str:
        """Ask one thing; tell which."""
        self._caller = caller
        if self._life != self.ledger.life:
            await self._look()
            return "look"
        [action] = self._rng.choices(self._actions, self._weights)
        await action()
        name = action.__name__.strip("_")
        self.counts[name] += 1
        return name

    async def finish(self, caller: Caller, old_ms: int) -> None:
        """Take what there is, and see whether something is missing.

        Args:
            old_ms: what was sent before may have expired, and every letter, too.
        """
        self._caller, self._tags = caller, None
        if self._life != self.ledger.life:
            await self._look()
        quiet = 0
        while quiet < QUIET_ROUNDS:
            await self._receive()
            quiet = 0 if self._held else quiet + 1
            while self._held:
                await self._ack()
            if quiet:
                await asyncio.sleep(LEASE_MS / 1_000)
        for (_, message_id), progress in self.ledger.progress.items():
            spent = may_be_spent(self.ledger, GROUP, message_id)
            progress.dead = progress.forward is not None or spent
        messages = self.ledger.messages.items()
        gone = frozenset(name for name, message in messages if message.sent_ms < old_ms)
        self.ledger.check_drained(GROUP, now_ms(), gone)

    async def _look(self) -> None:
        """What is there after a start tells what the last life did."""
        request = topic_pb2.GetTopicRequest(name=TOPIC)
        answer, _ = await asyncio.gather(
            self._caller.topics("GetTopic", request), self._create_group()
        )
        if answer.status.code not in (Code.OK, Code.TOPIC_NOT_FOUND):
            self._caller.wrong("GetTopic", answer)
        self.ledger.found_topic(answer.topic.epoch)
        self._type = answer.topic.type or topic_pb2.MIXED
        self._held = [held._replace(attempt=0, void=False) for held in self._held]
        self._life = self.ledger.life

    # --- clients -------------------------------------------------------------------------------

    async def _send(self) -> None:
        messages, asked, tags = [], {}, {}
        for _ in range(self._rng.choice((1, 1, 3))):
            body = self._rng.randbytes(self._rng.choice((20, 300)))
            delayed = self._type == topic_pb2.MIXED and self._rng.random() < 0.3
            due_ms = now_ms() + self._rng.choice((20, 300)) if delayed else 0
            tag = self._rng.choice("aab")
            message = wire_requests.message(TOPIC, body, tag=tag, deliver_at_ms=due_ms)
            system = message.system_properties
            if self._type == topic_pb2.PRIORITY:
                system.message_type, system.priority = definition_pb2.PRIORITY, 1
            asked[system.message_id], tags[system.message_id] = (body, due_ms), tag
            messages.append(message)
        self.ledger.sending(asked, now_ms(), tags=tags)
        answer = await self._caller.messaging("SendMessage", wire_requests.send(messages))
        stored = answer.status.code == Code.OK
        if not stored:
            self._caller.wrong("send", answer)
        self.ledger.sent(asked, Outcome.DONE if stored else Outcome.REFUSED)

    async def _receive(self) -> None:
        tags, asked_ms, broker_ms = self._tags, now_ms(), 0
        self.ledger.receiving(GROUP, tags, asked_ms + WAIT_MS)
        request = wire_requests.receive(
            TOPIC, GROUP, count_max=self._rng.choice((1, 8)), invisible_ms=LEASE_MS,
            wait_ms=WAIT_MS, tags="||".join(tags or "*"),
        )  # fmt: skip
        received = []
        async for element in self._caller.received(request):
            if element.HasField("message"):
                received.append((element.message, now_ms()))
            elif element.HasField("delivery_timestamp"):
                broker_ms = wire_requests.timestamp_ms(element.delivery_timestamp)
        for message, at_ms in received:
            system = message.system_properties
            times = (asked_ms, broker_ms, at_ms, LEASE_MS)
            attempt, handle = system.delivery_attempt, system.receipt_handle
            delivery = Delivery(system.message_id, message.body, attempt, handle, *times)
            self.ledger.delivered(GROUP, delivery)
            self._held.append(Held(system.message_id, attempt, handle))
        del self._held[:-30]

    async def _ack(self) -> None:
        if (held := self._take()) is None:
            return
        if not held.void:
            self.ledger.acking(GROUP, held.message_id)
        request = wire_requests.ack(TOPIC, GROUP, [held.handle])
        answer = await self._caller.messaging("AckMessage", request)
        accepted = bool(answer.entries) and answer.entries[0].status.code == Code.OK
        if held.void:
            self.ledger.acked_void(GROUP, held.message_id, accepted=accepted)
            return
        handle = held.handle if held.attempt else ""
        self.ledger.acked(GROUP, held.message_id, handle, accepted=accepted, at_ms=now_ms())

    async def _forward(self) -> None:
        held = self._take()
        if held is None or held.void or not held.attempt:
            return
        self.ledger.forwarding(GROUP, held.message_id)
        request = wire_requests.forward(TOPIC, GROUP, held.handle)
        answer = await self._caller.messaging("ForwardMessageToDeadLetterQueue", request)
        if answer.status.code == Code.OK:
            self.ledger.forwarded(GROUP, held.message_id)

    def _take(self) -> Held | None:
        if not self._held:
            return None
        return self._held.pop(self._rng.randrange(len(self._held)))

    async def _filter(self) -> None:
        self._tags = self._rng.choice((None, None, frozenset("a"), frozenset("b")))

    # --- offsets -------------------------------------------------------------------------------

    async def _move(self) -> None:
        """To what GetOffset told, or one past it, or back before it."""
        described = await self._caller.topics("GetTopic", topic_pb2.GetTopicRequest(name=TOPIC))
        if described.status.code != Code.OK:
            return  # it is made on its first use
        ends = self._rng.choice(described.topic.queues)
        queue = definition_pb2.MessageQueue(topic=wire_requests.resource(TOPIC), id=ends.queue_id)
        request = service_pb2.GetOffsetRequest(
            group=wire_requests.resource(GROUP), message_queue=queue
        )
        told = await self._caller.messaging("GetOffset", request)
        if told.status.code != Code.OK:
            return  # it has never read the queue
        if (names := await self._names(ends)) is None:
            return
        first = ends.earliest_offset
        at = told.offset
        self.ledger.told_offset(GROUP, names[: at - first])
        to = self._rng.choice((at, at, at + 1, self._rng.randint(first, max(first, at))))
        if to > first + len(names):
            return
        update = service_pb2.UpdateOffsetRequest(
            group=wire_requests.resource(GROUP), message_queue=queue, offset=to
        )
        if to >= at:
            skipped = names[at - first : to - first]
            self.ledger.skipping(GROUP, skipped)
            if await self._moved(update):
                self.ledger.skipped(GROUP, skipped)
            return
        again = names[to - first :]
        self.ledger.rewinding(GROUP, again, await self._letters())
        if await self._moved(update):
            self.ledger.rewound(GROUP, again)
            self._withdraw(again)

    async def _moved(self, update: service_pb2.UpdateOffsetRequest) -> bool:
        answer = await self._caller.messaging("UpdateOffset", update)
        if answer.status.code not in (Code.OK, Code.ILLEGAL_OFFSET):
            self._caller.wrong("UpdateOffset", answer)
        return bool(answer.status.code == Code.OK)

    async def _names(self, ends: topic_pb2.QueueRange) -> list[str] | None:
        """Message ids of what is there in a queue; None: the first expired just now."""
        request = queue_pb2.ReadQueueRequest(
            topic=TOPIC, queue_id=ends.queue_id, start_offset=ends.earliest_offset,
            end_offset=ends.next_offset, columns=["message_id"],
        )  # fmt: skip
        stub = queue_pb2_grpc.QueuesStub(self._caller.channel)
        names: list[str] = []
        async for page in self._caller.streamed(stub.ReadQueue, request):
            names += [row.message_id for row in page.rows]
            if page.status.code == Code.ILLEGAL_OFFSET:
                return None
            if page.status.code not in (Code.OK, Code.CODE_UNSPECIFIED):
                self._caller.wrong("ReadQueue", page)
        return names

    def _withdraw(self, names: Iterable[str]) -> None:
        known = set(names)
        self._held = [
            held._replace(void=bool(held.attempt)) if held.message_id in known else held
            for held in self._held
        ]

    # --- what is made anew ---------------------------------------------------------------------

    async def _make_topic(self) -> None:
        answer = await self._caller.topics("GetTopic", topic_pb2.GetTopicRequest(name=TOPIC))
        if epoch := answer.topic.epoch:
            self.ledger.deleting_topic(epoch, {GROUP: await self._letters()})
            deleted = await self._caller.topics(
                "DeleteTopic", topic_pb2.DeleteTopicRequest(name=TOPIC)
            )
            if deleted.status.code != Code.OK:
                self._caller.wrong("DeleteTopic", deleted)
            self.ledger.deleted_topic(epoch)
            self._withdraw(held.message_id for held in self._held)
        self._type = self._rng.choice(TYPES)
        request = topic_pb2.CreateTopicRequest(
            name=TOPIC, type=self._type, queue_count=self._rng.randint(2, 4)
        )
        made = await self._caller.topics("CreateTopic", request)
        if made.status.code != Code.OK:
            self._caller.wrong("CreateTopic", made)
        self.ledger.made_topic(made.topic.epoch)
        await self._redrive()

    async def _make_group(self) -> None:
        self.ledger.remaking_group(GROUP, "plain", await self._letters(), 0)
        request = group_pb2.DeleteGroupRequest(name=GROUP)
        deleted = await self._caller.groups("DeleteGroup", request)
        if deleted.status.code != Code.OK:
            self._caller.wrong("DeleteGroup", deleted)
        await self._create_group()
        self.ledger.remade_group(GROUP, "plain", 0)
        self._withdraw(held.message_id for held in self._held)

    async def _create_group(self) -> None:
        group = group_pb2.Group(name=GROUP, max_attempts=ATTEMPTS_MAX)
        group.backoff.ladder.delays_ms.extend(LADDER_MS)
        answer = await self._caller.groups("CreateGroup", group_pb2.CreateGroupRequest(group=group))
        if answer.status.code != Code.OK:
            self._caller.wrong("CreateGroup", answer)

    async def _redrive(self) -> None:
        """One letter; where it may not go back, nothing has happened."""
        found = await self._dead_letters()
        if not found:
            return
        letter = self._rng.choice(found)
        progress = self.ledger.of(GROUP, letter.message_id)
        before = replace(progress)
        count = sum(other.message_id == letter.message_id for other in found)
        self.ledger.redriving(GROUP, letter.message_id, count)
        request = dead_letter_pb2.RedriveDeadLettersRequest(group=GROUP)
        request.filter.queue_offsets.append(letter.queue_offset)
        stub = dead_letter_pb2_grpc.DeadLettersStub(self._caller.channel)
        changed = 0
        async for step in self._caller.streamed(stub.RedriveDeadLetters, request):
            changed = step.changed_count
        if changed:
            self.ledger.redriven(GROUP, letter.message_id)
            self._withdraw([letter.message_id])
        else:
            self.ledger.progress[GROUP, letter.message_id] = before

    async def _dead_letters(self) -> list[Any]:
        stub = dead_letter_pb2_grpc.DeadLettersStub(self._caller.channel)
        request = dead_letter_pb2.ListDeadLettersRequest(group=GROUP, page_size=1_000)
        answer = await self._caller.call(stub.ListDeadLetters, request)
        return list(answer.letters)

    async def _letters(self) -> Counter[str]:
        return Counter(letter.message_id for letter in await self._dead_letters())
