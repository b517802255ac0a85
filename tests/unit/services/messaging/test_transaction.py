"""Half messages over the wire: SendMessage, EndTransaction, and who is asked how they ended."""

import asyncio
import itertools
from typing import Any, cast

import pytest

from latermq_broker.config.config import CatalogConfig, Config, TransactionConfig
from latermq_broker.engine.state.model import TopicType
from latermq_broker.services.clients.session import ClientKind, CommandStream, Session
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from support.engine_rig import SMALL_STORE, START_MS
from support.messaging import SMALL, Messaging
from support.wire_requests import duration, message, resource

Code = definition_pb2.Code
COMMIT, ROLLBACK = definition_pb2.COMMIT, definition_pb2.ROLLBACK
UNKNOWN = definition_pb2.TRANSACTION_RESOLUTION_UNSPECIFIED
STRICT = Config(store=SMALL_STORE, catalog=CatalogConfig(default_queue_count=1, auto_create=False))


def half(
    name: str = "m-1", *, body: bytes = b"body", first_check_ms: int = 0, topic: str = "orders"
) -> definition_pb2.Message:
    made = message(topic, body, message_id=name, tag="paid", keys=["k-1"], properties={"a": "b"})
    made.system_properties.message_type = definition_pb2.TRANSACTION
    if first_check_ms:
        made.system_properties.orphaned_transaction_recovery_duration.CopyFrom(
            duration(first_check_ms)
        )
    return made


async def begun(broker: Messaging, *halves: definition_pb2.Message) -> list[str]:
    """The transaction ids."""
    response = await broker.send(*halves)
    assert response.status.code == Code.OK, response.status
    return [entry.transaction_id for entry in response.entries]


async def ended(broker: Messaging, name: str, resolution: int, **fields: Any) -> int:
    """The code of an EndTransaction."""
    usual: dict[str, Any] = {"topic": resource("orders"), "message_id": "m-1"}
    request = service_pb2.EndTransactionRequest(
        transaction_id=name, resolution=cast(Any, resolution), **(usual | fields)
    )
    response = await broker.call("EndTransaction", request)
    return cast(int, response.status.code)


class Producer:
    """A client with a telemetry stream, as its session knows it."""

    def __init__(
        self,
        broker: Messaging,
        name: str,
        *topics: str,
        kind: ClientKind = ClientKind.PRODUCER,
        namespace: str = "",
    ) -> None:
        named = [definition_pb2.Resource(name=t, resource_namespace=namespace) for t in topics]
        settings = definition_pb2.Settings(publishing=definition_pb2.Publishing(topics=named))
        self._broker = broker
        self.name = name
        broker.sessions.put(Session(name, kind, "", frozenset(topics), settings, "", "", START_MS))
        self.stream: CommandStream = broker.sessions.open_stream()
        broker.sessions.attach(name, self.stream)

    def leave(self) -> None:
        self._broker.sessions.close_stream(self.name, self.stream)

    async def asked(self) -> list[service_pb2.RecoverOrphanedTransactionCommand]:
        """What came since the last call."""
        self.stream.end()
        commands = [
            service_pb2.TelemetryCommand.FromString(data) async for data in self.stream.commands()
        ]
        return [command.recover_orphaned_transaction_command for command in commands]


async def test_a_half_message_is_answered_with_its_transaction() -> None:
    async with Messaging() as broker:
        response = await broker.send(half("m-1"), half("m-2"))
        first, second = response.entries
        assert (first.message_id, second.message_id) == ("m-1", "m-2")
        assert (first.transaction_id, second.transaction_id) == ("m-1", "m-2")
        assert (first.offset, first.recall_handle) == (0, "")
        assert (await broker.receive()).bodies == []
        assert await ended(broker, first.transaction_id, COMMIT) == Code.OK
        received = await broker.receive()
        (delivered,) = received.messages
        system = delivered.system_properties
        assert (delivered.body, system.message_id, system.tag) == (b"body", "m-1", "paid")
        assert delivered.user_properties["__transactionId__"] == first.transaction_id
        assert system.delivery_attempt == 1


async def test_what_belongs_to_no_transaction_is_answered_with_its_message_id() -> None:
    async with Messaging() as broker:
        response = await broker.send(message("orders", b"body", message_id="m-1"))
        assert response.entries[0].transaction_id == "m-1"


async def test_a_commit_wakes_who_waits_for_a_message() -> None:
    async with Messaging() as broker:
        (name,) = await begun(broker, half())
        waiting = asyncio.ensure_future(broker.receive(wait_ms=5_000))
        await broker.settle()
        assert await ended(broker, name, COMMIT) == Code.OK
        await broker.settle()
        assert (await waiting).bodies == [b"body"]


@pytest.mark.parametrize("source", [0, 1, 2])
@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (COMMIT, COMMIT, Code.OK),
        (ROLLBACK, ROLLBACK, Code.OK),
        (COMMIT, ROLLBACK, Code.INVALID_TRANSACTION_ID),
        (ROLLBACK, COMMIT, Code.INVALID_TRANSACTION_ID),
        (COMMIT, UNKNOWN, Code.OK),
        (UNKNOWN, COMMIT, Code.OK),
    ],
)
async def test_ends_whatever_the_source(first: int, second: int, code: int, source: int) -> None:
    async with Messaging() as broker:
        (name,) = await begun(broker, half())
        assert await ended(broker, name, first, source=source) == Code.OK
        assert await ended(broker, name, second, source=source) == code
        committed = COMMIT in (first, second) and first != ROLLBACK
        assert len((await broker.receive()).messages) == committed


async def test_who_asks_for_nothing_changes_nothing() -> None:
    async with Messaging() as broker:
        (name,) = await begun(broker, half())
        before = broker.log_end
        assert await ended(broker, name, UNKNOWN) == Code.OK
        assert broker.log_end == before
        assert len(broker.engine._state.halves) == 1


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": resource("%")}, Code.INVALID_TRANSACTION_ID),
        ({"topic": resource("")}, Code.ILLEGAL_TOPIC),
        ({"topic": resource("a b")}, Code.ILLEGAL_TOPIC),
        ({"topic": resource("other")}, Code.INVALID_TRANSACTION_ID),
        ({"message_id": "m-2"}, Code.INVALID_TRANSACTION_ID),
        ({"transaction_id": ""}, Code.INVALID_TRANSACTION_ID),
        ({"transaction_id": "  "}, Code.INVALID_TRANSACTION_ID),
        ({"transaction_id": "m-2"}, Code.INVALID_TRANSACTION_ID),
        ({"transaction_id": "old form"}, Code.OK),
        ({"transaction_id": "t-8"}, Code.INVALID_TRANSACTION_ID),
        ({"resolution": 7}, Code.BAD_REQUEST),
        ({"message_id": ""}, Code.OK),
    ],
)
async def test_codes_of_an_end(fields: dict[str, Any], code: int) -> None:
    async with Messaging() as broker:
        (name,) = await begun(broker, half())
        if fields.get("transaction_id") == "old form":
            (open_half,) = broker.engine._state.halves
            fields = {"transaction_id": f"t-{open_half.first:x}"}
        wanted = {"topic": resource("orders"), "message_id": "m-1", "resolution": COMMIT}
        request = service_pb2.EndTransactionRequest(
            **cast(Any, {"transaction_id": name} | wanted | fields)
        )
        response = await broker.call("EndTransaction", request)
        assert response.status.code == code, response.status
        if code != Code.OK:
            assert len(broker.engine._state.halves) == 1


@pytest.mark.parametrize("kind", list(TopicType))
async def test_topics_that_take_half_messages(kind: TopicType) -> None:
    async with Messaging() as broker:
        broker.engine.topics.create("orders", kind, 1, START_MS)
        takes = kind in (TopicType.TRANSACTION, TopicType.MIXED)
        response = await broker.send(half())
        expected = Code.OK if takes else Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        assert response.status.code == expected
        if kind is TopicType.TRANSACTION:
            response = await broker.send(message("orders", b"body"))
            assert response.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


async def test_requests_that_are_refused() -> None:
    async with Messaging() as broker:
        mixed = await broker.send(half(), message("orders", b"body"))
        assert (mixed.status.code, len(mixed.entries)) == (Code.BAD_REQUEST, 0)
        late = await broker.send(half(first_check_ms=3_600_001))
        assert late.status.code == Code.BAD_REQUEST
    async with Messaging(STRICT) as broker:
        assert (await broker.send(half())).status.code == Code.TOPIC_NOT_FOUND
    few = Config(store=SMALL_STORE, transaction=TransactionConfig(half_messages_max=1))
    async with Messaging(few) as broker:
        await begun(broker, half())
        assert (await broker.send(half())).status.code == Code.TOO_MANY_REQUESTS


async def test_half_messages_among_others_stay_half() -> None:
    """However alike a producer's messages are, byte by byte."""
    async with Messaging() as broker:
        for n in range(4):
            plain = half(f"m-{n}")
            plain.system_properties.message_type = definition_pb2.NORMAL
            assert (await broker.send(plain)).entries[0].transaction_id == f"m-{n}"
            (name,) = await begun(broker, half(f"h-{n}"))
            assert name == f"h-{n}"
        received = await broker.receive()
        ids = [one.system_properties.message_id for one in received.messages]
        assert ids == ["m-0", "m-1", "m-2", "m-3"]


# --- checks -----------------------------------------------------------------------------------


async def test_a_producer_is_asked_with_the_whole_message() -> None:
    async with Messaging() as broker:
        (name,) = await begun(broker, half(first_check_ms=10_000))
        producer = Producer(broker, "p-1", "orders", namespace="shop")
        await broker.advance(9_999)
        broker.transactions.check_orphans()
        await broker.advance(1)
        broker.transactions.check_orphans()
        broker.transactions.check_orphans()
        (asked,) = await producer.asked()
        assert asked.transaction_id == name
        system = asked.message.system_properties
        assert asked.message.topic == definition_pb2.Resource(
            name="orders", resource_namespace="shop"
        )
        assert (asked.message.body, asked.message.user_properties["a"]) == (b"body", "b")
        assert (system.message_id, system.tag, list(system.keys)) == ("m-1", "paid", ["k-1"])
        assert system.body_digest.checksum
        assert system.message_type == definition_pb2.TRANSACTION
        assert await ended(broker, name, COMMIT, source=definition_pb2.SOURCE_SERVER_CHECK) == 20000


async def test_only_producers_of_the_topic_with_a_stream_are_asked() -> None:
    async with Messaging() as broker:
        await begun(broker, half())
        others = [
            Producer(broker, "p-1", "mails"),
            Producer(broker, "c-1", "orders", kind=ClientKind.PUSH_CONSUMER),
        ]
        away = Producer(broker, "p-2", "orders")
        away.leave()
        await broker.advance(60_000)
        before = broker.log_end
        broker.transactions.check_orphans()
        assert broker.log_end == before  # nobody was there: nothing is counted
        assert [await other.asked() for other in others] == [[], []]
        back = Producer(broker, "p-2", "orders", "mails")
        broker.transactions.check_orphans()
        assert len(await back.asked()) == 1


async def test_the_question_goes_round() -> None:
    async with Messaging() as broker:
        await begun(broker, half())
        producers = [Producer(broker, f"p-{n}", "orders") for n in range(3)]
        seen: list[str] = []
        for _ in range(6):
            await broker.advance(30_000)
            broker.transactions.check_orphans()
            (one,) = broker.engine._state.halves
            seen.append(one.asked_client)
        assert all(before != after for before, after in itertools.pairwise(seen))
        assert set(seen) == {"p-0", "p-1", "p-2"}
        assert sum([len(await producer.asked()) for producer in producers]) == 6


async def test_who_does_not_read_is_passed_over() -> None:
    async with Messaging() as broker:
        producers = [Producer(broker, f"p-{n}", "orders") for n in range(2)]
        await begun(broker, *(half(f"m-{n}") for n in range(40)))
        await broker.advance(6_000)
        broker.transactions.check_orphans()
        assert [len(await producer.asked()) for producer in producers] == [16, 16]
        assert len(broker.engine.transactions.waiting("orders", 100)) == 8


async def test_a_round_is_bounded_in_bytes() -> None:
    large = Config(store=SMALL.store, catalog=SMALL.catalog)
    async with Messaging(large) as broker:
        producer = Producer(broker, "p-1", "orders")
        await begun(broker, *(half(f"m-{n}", body=bytes(60_000)) for n in range(4)))
        await broker.advance(6_000)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("latermq_broker.services.messaging.transaction.CHECK_BYTES_MAX", 100_000)
            broker.transactions.check_orphans()
        assert len(await producer.asked()) == 2


async def test_of_two_with_one_message_id_the_newest_ends_first_and_each_ends() -> None:
    async with Messaging() as broker:
        for _ in range(2):
            await begun(broker, half())
        assert await ended(broker, "m-1", COMMIT) == Code.OK
        assert await ended(broker, "m-1", COMMIT) == Code.OK
        assert await ended(broker, "m-1", COMMIT) == Code.OK  # a repeat
        assert len((await broker.receive()).messages) == 2
