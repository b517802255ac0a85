"""What is made on first use is made by a request that stands; one that is refused makes nothing."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from latermq_broker.config.config import CatalogConfig, LiteConfig, ServerConfig, TransactionConfig
from latermq_broker.engine.state.model import TopicType
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from support.engine_rig import START_MS
from support.messaging import SMALL, Messaging
from support.wire_requests import ack, change_invisible, forward, message, receive, resource

Code: Final = definition_pb2.Code
NO_GROUPS: Final = replace(SMALL, catalog=CatalogConfig(group_count_max=1))
NO_WAIT: Final = replace(SMALL, server=ServerConfig(parked_receives_per_group_max=1))
LITTLE: Final = replace(
    SMALL,
    lite=LiteConfig(subscriptions_per_client_max=1, subscriptions_max=1),
    transaction=TransactionConfig(half_messages_max=1),
)


def made(broker: Messaging) -> tuple[set[str], set[str]]:
    catalog = broker.engine.catalog
    return {one.name for one in catalog.topics()}, {one.name for one in catalog.groups()}


def filtered(kind: int, expression: str) -> Mapping[str, Any]:
    return {"filter_expression": definition_pb2.FilterExpression(type=kind, expression=expression)}


@pytest.mark.parametrize(
    ("group", "fields", "code"),
    [
        ("bad group", {}, Code.ILLEGAL_CONSUMER_GROUP),
        ("g", filtered(definition_pb2.SQL, "a >"), Code.ILLEGAL_FILTER_EXPRESSION),
        ("g", {"auto_renew": False}, Code.ILLEGAL_INVISIBLE_TIME),
    ],
)
async def test_a_receive(group: str, fields: Mapping[str, Any], code: int) -> None:
    async with Messaging() as broker:
        request = receive("new", group, auto_renew=True, wait_ms=0)
        for name, value in fields.items():
            if isinstance(value, bool):
                setattr(request, name, value)
            else:
                getattr(request, name).CopyFrom(value)
        assert (await broker.receive_status(request)).code == code
        assert made(broker) == (set(), set())


async def test_a_receive_of_one_group_too_many() -> None:
    async with Messaging(NO_GROUPS) as broker:
        broker.engine.ensure_group("one", START_MS)
        status = await broker.receive_status(receive("new", "two", wait_ms=0))
        assert status.code == Code.TOO_MANY_REQUESTS
        assert made(broker) == (set(), {"one"})


async def test_a_receive_of_an_unknown_group_where_none_is_made() -> None:
    config = replace(SMALL, catalog=CatalogConfig(auto_create=False, auto_create_groups=False))
    async with Messaging(config) as broker:
        broker.engine.topics.create("orders", TopicType.MIXED, 0, START_MS)
        status = await broker.receive_status(receive("orders", "g", wait_ms=0))
        assert status.code == Code.CONSUMER_GROUP_NOT_FOUND
        status = await broker.receive_status(receive("new", "g", wait_ms=0))
        assert status.code == Code.TOPIC_NOT_FOUND
        assert made(broker) == ({"orders"}, set())


async def test_a_receive_that_may_not_wait() -> None:
    async with Messaging(NO_WAIT) as broker:
        first = asyncio.create_task(broker.receive(group="g", wait_ms=5_000))
        await broker.settle()
        status = await broker.receive_status(receive("new", "g", wait_ms=5_000))
        assert status.code == Code.TOO_MANY_REQUESTS
        assert made(broker) == (set(), set())
        broker.parked.drain()
        assert not (await first).messages


@pytest.mark.parametrize("names", [["a", "b"], ["c"], ["no such name"]])
async def test_a_lite_subscription(names: list[str]) -> None:
    async with Messaging(LITTLE) as broker:
        broker.engine.topics.create("chat", TopicType.LITE, 0, START_MS)
        request = service_pb2.SyncLiteSubscriptionRequest(
            action=definition_pb2.PARTIAL_ADD,
            topic=resource("chat"),
            group=resource("agents"),
            lite_topic_set=names,
        )
        code = (await broker.call("SyncLiteSubscription", request)).status.code
        ok = names == ["c"]
        assert (code == Code.OK) == ok
        assert made(broker) == ({"chat"}, {"agents"} if ok else set())


@pytest.mark.parametrize("kind", [definition_pb2.PRIORITY, definition_pb2.LITE])
async def test_a_send_that_does_not_fit_a_new_topic(kind: int) -> None:
    async with Messaging() as broker:
        one = message("new", b"x")
        if kind == definition_pb2.PRIORITY:
            one.system_properties.priority = 1
        else:
            one.system_properties.lite_topic = "room"
        code = (await broker.send(message("new", b"x"), one)).status.code
        assert code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        assert made(broker) == (set(), set())


async def test_one_half_message_too_many() -> None:
    async with Messaging(LITTLE) as broker:
        for topic, code in (("orders", Code.OK), ("new", Code.TOO_MANY_REQUESTS)):
            one = message(topic, b"x")
            one.system_properties.message_type = definition_pb2.TRANSACTION
            assert (await broker.send(one)).status.code == code
        assert made(broker) == ({"orders"}, set())


async def test_settling_what_is_nobody_s() -> None:
    async with Messaging() as broker:
        for rpc, request in (
            ("AckMessage", ack("new", "g", ["h"])),
            ("ChangeInvisibleDuration", change_invisible("new", "g", "h", 1)),
            ("ForwardMessageToDeadLetterQueue", forward("new", "g", "h")),
        ):
            assert (await broker.call(rpc, request)).status.code != Code.OK
        assert made(broker) == (set(), set())
