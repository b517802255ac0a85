"""FIFO over the wire: what is taken, what is answered, who is woken."""

import asyncio
from dataclasses import replace
from typing import Any, Final

import pytest

from latermq_broker.config.config import DeliveryConfig
from latermq_broker.config.core_bounds import ScanBounds
from latermq_broker.engine.state.model import OnDead, TopicType
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from support.engine_rig import START_MS
from support.messaging import SMALL, Messaging, received
from support.wire_requests import forward, message, receive, timestamp

Code: Final = definition_pb2.Code


def ordered(body: bytes, group: str = "customer-7", topic: str = "orders") -> Any:
    made = message(topic, body)
    made.system_properties.message_group = group
    made.system_properties.message_type = definition_pb2.FIFO
    return made


def fifo_group(broker: Messaging, on_dead: OnDead = OnDead.SKIP) -> None:
    broker.engine.groups.create(
        "billing", fifo=True, max_attempts=0, backoff=None, on_dead=on_dead, now_ms=START_MS
    )


async def test_types_and_message_groups_fit_together() -> None:
    async with Messaging() as broker:
        broker.engine.topics.create("orders", TopicType.FIFO, 2, START_MS)
        broker.engine.topics.create("any", TopicType.MIXED, 2, START_MS)
        broker.engine.topics.create("plain", TopicType.NORMAL, 2, START_MS)
        conflict = Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        assert (await broker.send(ordered(b"x"))).status.code == Code.OK
        assert (await broker.send(ordered(b"x", topic="any"))).status.code == Code.OK
        assert (await broker.send(message("orders", b"x"))).status.code == conflict
        assert (await broker.send(ordered(b"x", topic="plain"))).status.code == conflict
        for topic in ("orders", "any"):
            late = ordered(b"x", topic=topic)
            late.system_properties.delivery_timestamp.CopyFrom(timestamp(START_MS + 5_000))
            assert (await broker.send(late)).status.code == conflict


async def test_what_is_delivered_says_its_message_group_and_place() -> None:
    async with Messaging() as broker:
        fifo_group(broker)
        sent = await broker.send(ordered(b"1"), ordered(b"other", "customer-8"), ordered(b"2"))
        got = await broker.receive()
        by_body = {one.body: one.system_properties for one in got.messages}
        mine = by_body[b"1"], by_body[b"2"]
        assert {one.message_group for one in mine} == {"customer-7"}
        assert {one.message_type for one in mine} == {definition_pb2.FIFO}
        assert [one.queue_offset for one in mine] == [
            sent.entries[0].offset,
            sent.entries[2].offset,
        ]
        assert mine[0].queue_id == mine[1].queue_id


async def test_an_ack_wakes_who_waits_for_the_next() -> None:
    async with Messaging() as broker:
        fifo_group(broker)
        await broker.send(ordered(b"1"))
        (first,) = (await broker.receive()).messages
        await broker.send(ordered(b"2"))
        waiting = asyncio.ensure_future(broker.receive(wait_ms=20_000))
        await broker.settle()
        assert not waiting.done()
        await broker.ack(first.system_properties.receipt_handle)
        await broker.settle()
        assert waiting.result().bodies == [b"2"]


async def test_a_message_behind_many_blocked_ones_is_found_while_waiting() -> None:
    bounds = ScanBounds(ordered_entries_max=2)
    async with Messaging(replace(SMALL, delivery=DeliveryConfig(bounds=bounds))) as broker:
        fifo_group(broker)
        await broker.send(ordered(b"1"))
        await broker.receive()
        for _ in range(12):
            await broker.send(ordered(b"behind"))
        await broker.send(ordered(b"free", "customer-8"))
        waiting = asyncio.ensure_future(broker.receive(wait_ms=20_000))
        for _ in range(3):
            await broker.settle()
        assert waiting.result().bodies == [b"free"]


async def test_a_repeated_attempt_id_brings_the_same_reply() -> None:
    request = receive("orders", "billing", wait_ms=0)
    request.attempt_id = "try-1"
    async with Messaging() as broker:
        fifo_group(broker)
        await broker.send(ordered(b"1"))
        for _ in range(2):
            (got,) = received(await broker.stream("ReceiveMessage", request)).messages
            assert (got.body, got.system_properties.delivery_attempt) == (b"1", 1)
        request.attempt_id = "try-2"
        assert not received(await broker.stream("ReceiveMessage", request)).messages
        await broker.ack(got.system_properties.receipt_handle)


@pytest.mark.parametrize(("on_dead", "then"), [(OnDead.SKIP, [b"2"]), (OnDead.PARK, [])])
async def test_forwarding_skips_or_parks(on_dead: OnDead, then: list[bytes]) -> None:
    async with Messaging() as broker:
        fifo_group(broker, on_dead)
        await broker.send(ordered(b"1"))
        (first,) = (await broker.receive()).messages
        await broker.send(ordered(b"2"))
        ask = forward("orders", "billing", first.system_properties.receipt_handle)
        for _ in range(2):
            answer = await broker.call("ForwardMessageToDeadLetterQueue", ask)
            assert answer.status.code == Code.OK
        assert (await broker.receive()).bodies == then


async def test_a_group_without_order_takes_ordered_messages_as_they_come() -> None:
    async with Messaging() as broker:
        for body in (b"1", b"2"):
            await broker.send(ordered(body))
        assert [(await broker.receive(count_max=1)).bodies for _ in "12"] == [[b"1"], [b"2"]]
