"""ReceiveMessage: its rules, and what a delivered message carries."""

import asyncio
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latermq_broker.config.config import CatalogConfig
from latermq_broker.engine.state.model import TopicType
from latermq_broker.services.messaging.receive import ELEMENT_BYTES
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from support.engine_rig import START_MS
from support.fake_call import FakeCall
from support.messaging import SMALL, Messaging, received
from support.wire_requests import duration, message, receive

Code: Final = definition_pb2.Code
HOUR_MS: Final = 3_600_000


@pytest.mark.parametrize(
    ("topic", "group", "code"),
    [
        ("", "g", Code.ILLEGAL_TOPIC),
        ("a b", "g", Code.ILLEGAL_TOPIC),
        ("TBW102", "g", Code.ILLEGAL_TOPIC),
        ("orders", "", Code.ILLEGAL_CONSUMER_GROUP),
        ("orders", "g" * 121, Code.ILLEGAL_CONSUMER_GROUP),
        ("orders", "CID_RMQ_SYS_x", Code.ILLEGAL_CONSUMER_GROUP),
        ("%DLQ%nobody", "g", Code.TOPIC_NOT_FOUND),
    ],
)
async def test_names(topic: str, group: str, code: int) -> None:
    async with Messaging() as broker:
        assert (await broker.receive_status(receive(topic, group))).code == code
        assert broker.engine.catalog.topic_count() == 0


async def test_clients_without_settings_that_filter_differently_are_noted() -> None:
    async with Messaging() as broker:
        for client_id, tags in (("c1", "a"), ("c2", "b"), ("c2", "b")):
            got = await broker.receive(tags=tags, call=FakeCall(client_id=client_id))
            assert got.status.code == Code.MESSAGE_NOT_FOUND
        [(topic, uses)] = broker.sessions.filters.unequal("billing")
        assert (topic, [tuple(use) for use in uses]) == ("orders", [("a", 1), ("b", 1)])
        await broker.receive(tags="b", call=FakeCall(client_id="c1"))
        assert not list(broker.sessions.filters.unequal("billing"))


async def test_what_is_missing_is_waited_for_or_refused() -> None:
    async with Messaging() as broker:
        got = await broker.receive()
        assert got.status.code == Code.MESSAGE_NOT_FOUND
        assert broker.engine.catalog.group("billing") is None
        assert broker.engine.catalog.topic("orders") is None
        await broker.send(message("orders", b"x"))
        assert (await broker.receive()).bodies == [b"x"]
        assert broker.engine.catalog.group("billing") is not None
    only_groups = replace(SMALL, catalog=CatalogConfig(auto_create=False))
    async with Messaging(only_groups) as broker:
        assert (await broker.receive_status(receive("orders", "g"))).code == Code.TOPIC_NOT_FOUND
        assert broker.engine.catalog.group("g") is None
        broker.engine.topics.create("orders", TopicType.MIXED, 1, START_MS)
        assert (await broker.receive(group="g")).status.code == Code.MESSAGE_NOT_FOUND
        assert broker.engine.catalog.group("g") is None
    strict = replace(SMALL, catalog=CatalogConfig(auto_create=False, auto_create_groups=False))
    async with Messaging(strict) as broker:
        assert (await broker.receive_status(receive("orders", "g"))).code == Code.TOPIC_NOT_FOUND
        broker.engine.topics.create("orders", TopicType.MIXED, 1, START_MS)
        code = (await broker.receive_status(receive("orders", "g"))).code
        assert code == Code.CONSUMER_GROUP_NOT_FOUND


@pytest.mark.parametrize(
    ("ms", "fine"), [(0, False), (1, True), (12 * HOUR_MS, True), (12 * HOUR_MS + 1, False)]
)
async def test_the_lease_has_bounds(ms: int, fine: bool) -> None:
    async with Messaging() as broker:
        got = await broker.receive(invisible_ms=ms)
        assert got.status.code == (Code.MESSAGE_NOT_FOUND if fine else Code.ILLEGAL_INVISIBLE_TIME)


async def test_no_lease_at_all_is_no_lease_of_zero() -> None:
    request = receive("orders", "g", wait_ms=0)
    request.ClearField("invisible_duration")
    async with Messaging() as broker:
        assert (await broker.receive_status(request)).code == Code.ILLEGAL_INVISIBLE_TIME
        request.invisible_duration.seconds = -(2**63)
        assert (await broker.receive_status(request)).code == Code.ILLEGAL_INVISIBLE_TIME


async def test_with_auto_renew_the_brokers_lease_counts() -> None:
    async with Messaging() as broker:
        await broker.send(message("orders", b"x"))
        request = receive("orders", "billing", auto_renew=True, wait_ms=0)
        request.invisible_duration.CopyFrom(duration(3))  # C++ sends one, and means nothing
        got = received(await broker.stream("ReceiveMessage", request))
        assert got.bodies == [b"x"]
        await broker.advance(59_999)
        assert not (await broker.receive()).messages


@pytest.mark.parametrize(("asked", "given_"), [(-5, 1), (0, 1), (1, 1), (32, 32), (10_000, 32)])
async def test_the_batch_has_a_cap(asked: int, given_: int) -> None:
    async with Messaging() as broker:
        await broker.send(*(message("orders", b"x") for _ in range(40)))
        assert len((await broker.receive(count_max=asked)).messages) == given_


async def test_any_queue_id_and_broker_stand_for_all_queues() -> None:
    config = replace(SMALL, catalog=CatalogConfig(default_queue_count=4))
    async with Messaging(config) as broker:
        for _ in range(8):
            await broker.send(message("orders", b"x"))
        queue_ids = set()
        for queue_id, name in ((-1, ""), (3, "elsewhere"), (99, "latermq-0"), (0, "")):
            request = receive("orders", "billing", count_max=2, wait_ms=0)
            request.message_queue.id = queue_id
            request.message_queue.broker.name = name
            got = received(await broker.stream("ReceiveMessage", request))
            assert len(got.messages) == 2
            queue_ids |= {one.system_properties.queue_id for one in got.messages}
        assert queue_ids == {0, 1, 2, 3}


async def test_filters() -> None:
    async with Messaging() as broker:
        for tag in ("a", "b", "", "c"):
            await broker.send(message("orders", tag.encode() or b"none", tag=tag))
        assert (await broker.receive(group="g1", tags="a || c")).bodies == [b"a", b"c"]
        assert (await broker.receive(group="g1", tags="*")).bodies == []  # the others are passed
        assert len((await broker.receive(group="g2", tags="")).bodies) == 4
        request = receive("orders", "g3", wait_ms=0)
        request.ClearField("filter_expression")  # Java's lite consumer
        assert len((received(await broker.stream("ReceiveMessage", request))).messages) == 4
        got = await broker.receive(group="g4", tags=" || ")
        assert got.status.code == Code.ILLEGAL_FILTER_EXPRESSION
        request.filter_expression.type = definition_pb2.SQL
        request.filter_expression.expression = "TAGS > 'a'"
        status = await broker.receive_status(request)
        assert status.code == Code.ILLEGAL_FILTER_EXPRESSION
        assert "at character 8" in status.message


async def test_the_topic_comes_back_as_it_was_asked_for() -> None:
    request = receive("orders", "billing", wait_ms=0)
    async with Messaging() as broker:
        await broker.send(message("orders", b"x"))
        [got] = received(await broker.stream("ReceiveMessage", request)).messages
        assert got.topic == request.message_queue.topic


async def test_a_dead_letter_names_its_origin() -> None:
    async with Messaging() as broker:
        await broker.send(message("orders", b"x", message_id="the-one"))
        broker.engine.groups.create(
            "billing", fifo=False, max_attempts=1, backoff=None, now_ms=START_MS
        )
        await broker.receive(invisible_ms=1_000)
        await broker.advance(1_000)
        [dead] = (await broker.receive("%DLQ%billing", "auditors")).messages
        assert dead.topic.name == "%DLQ%billing"
        system = dead.system_properties
        assert system.dead_letter_queue.topic == "orders"
        assert system.dead_letter_queue.message_id == system.message_id == "the-one"
        assert system.delivery_attempt == 1
        await broker.send(message("%DLQ%billing", b"by hand"))
        [sent] = (await broker.receive("%DLQ%billing", "auditors")).messages
        assert not sent.system_properties.HasField("dead_letter_queue")


async def test_without_a_client_id() -> None:
    async with Messaging() as broker:
        request = receive("orders", "billing")
        assert (await broker.receive_status(request, FakeCall(client_id=""))).code == (
            Code.CLIENT_ID_REQUIRED
        )


@settings(max_examples=150, deadline=None)
@given(data=st.data())
async def test_junk_is_answered(data: st.DataObject) -> None:
    request = bytearray(receive("orders", "billing", wait_ms=1).SerializeToString())
    for _ in range(data.draw(st.integers(0, 4))):
        request[data.draw(st.integers(0, len(request) - 1))] = data.draw(st.integers(0, 255))
    request += data.draw(st.binary(max_size=20))
    async with Messaging() as broker:
        call = FakeCall(remaining_ms=1)
        got = received(await broker.stream("ReceiveMessage", bytes(request), call))
        assert Code.BAD_REQUEST <= got.status.code != Code.INTERNAL_ERROR


async def test_who_has_not_read_what_it_was_answered_leases_nothing() -> None:
    async with Messaging() as broker:
        await broker.send(message("orders", b"x"))
        slow = FakeCall()
        slow.room_bytes = 0
        elements = await broker.stream("ReceiveMessage", receive("orders", "g"), slow)
        assert elements[0].status.code == Code.TOO_MANY_REQUESTS
        assert broker.engine.catalog.group("g") is None
        assert (await broker.receive("orders", "g")).bodies == [b"x"]


async def test_a_reply_is_as_large_as_there_is_room_for_but_has_one_message() -> None:
    async with Messaging() as broker:
        for _ in range(4):
            await broker.send(message("orders", bytes(1_000)))
        call = FakeCall()
        call.room_bytes = 2_500
        got = received(await broker.stream("ReceiveMessage", receive("orders", "g"), call))
        assert len(got.bodies) == 2
        assert 2_000 < call.reserved_bytes < 2_500 + 2 * ELEMENT_BYTES
        call = FakeCall()
        call.room_bytes = 1
        got = received(await broker.stream("ReceiveMessage", receive("orders", "g"), call))
        assert len(got.bodies) == 1
        assert call.room_bytes < 0


async def test_one_that_waits_and_has_no_room_left_leaves_the_message_to_the_next() -> None:
    async with Messaging() as broker:
        await broker.receive("orders", "g")
        slow, other = FakeCall(), FakeCall()
        request = receive("orders", "g", wait_ms=20_000)
        first = asyncio.ensure_future(broker.stream("ReceiveMessage", request, slow))
        await broker.settle()
        second = asyncio.ensure_future(broker.stream("ReceiveMessage", request, other))
        await broker.settle()
        slow.room_bytes = 0
        await broker.send(message("orders", b"x"))
        assert (await first)[0].status.code == Code.TOO_MANY_REQUESTS
        assert received(await second).bodies == [b"x"]
        assert other.reserved_bytes
