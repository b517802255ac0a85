"""`compat.strict`, row by row of docs/compatibility.md: RocketMQ's bounds, in its words."""

import asyncio
from dataclasses import replace
from typing import Final

import pytest

from latermq_broker.config.config import CompatConfig, DeliveryConfig
from latermq_broker.engine.state.model import TopicType
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from support.messaging import SMALL, Messaging
from support.wire_requests import duration, message, receive, resource

Code: Final = definition_pb2.Code
STRICT: Final = replace(SMALL, compat=CompatConfig(strict=True))
HOUR_MS: Final = 3_600_000
NO_ROUTE: Final = "CODE: 17  DESC: No topic route info in name server for the topic: "


def made(broker: Messaging) -> None:
    """Topic orders, which strict brokers do not make on first use."""
    broker.engine.topics.create("orders", TopicType.MIXED, 1, broker.time_ms)


@pytest.mark.parametrize(
    ("invisible_ms", "text"),
    [
        (9_999, "the invisibleTime is too small. min is 10000"),
        (0, "the invisibleTime is too small. min is 10000"),
        (-1, "the invisibleTime is too small. min is 10000"),
        (12 * HOUR_MS + 1, "the invisibleTime is too large. max is 43200000"),
        (10_000, ""),
        (12 * HOUR_MS, ""),
    ],
)
async def test_strict_lease_of_a_receive(invisible_ms: int, text: str) -> None:
    async with Messaging(STRICT) as broker:
        made(broker)
        await broker.send(message("orders", b"a"))
        got = await broker.receive(invisible_ms=invisible_ms)
        if text:
            assert (got.status.code, got.status.message) == (Code.ILLEGAL_INVISIBLE_TIME, text)
            assert got.bodies == []
        else:
            assert got.bodies == [b"a"]


async def test_strict_leaves_renewed_leases_alone() -> None:
    async with Messaging(STRICT) as broker:
        made(broker)
        await broker.send(message("orders", b"a"))
        assert (await broker.receive(auto_renew=True)).bodies == [b"a"]


@pytest.mark.parametrize(
    ("invisible_ms", "text"),
    [
        (0, ""),
        (1, ""),
        (-1, "the invisibleTime is too small. min is 0"),
        (12 * HOUR_MS + 1, "the invisibleTime is too large. max is 43200000"),
    ],
)
async def test_strict_change_of_a_lease(invisible_ms: int, text: str) -> None:
    async with Messaging(STRICT) as broker:
        made(broker)
        await broker.send(message("orders", b"a"))
        (one,) = (await broker.receive()).messages
        request = service_pb2.ChangeInvisibleDurationRequest(
            topic=resource("orders"),
            group=resource("billing"),
            receipt_handle=one.system_properties.receipt_handle,
            invisible_duration=duration(invisible_ms),
        )
        response = await broker.call("ChangeInvisibleDuration", request)
        if text:
            assert response.status.code == Code.ILLEGAL_INVISIBLE_TIME
            assert response.status.message == text
            assert response.receipt_handle == request.receipt_handle
        else:
            assert response.status.code == Code.OK


@pytest.mark.parametrize(("delay_ms", "stands"), [(24 * HOUR_MS, True), (24 * HOUR_MS + 1, False)])
async def test_strict_delay(delay_ms: int, stands: bool) -> None:
    async with Messaging(STRICT) as broker:
        made(broker)
        end = broker.log_end
        sent = await broker.send(message("orders", b"a", deliver_at_ms=broker.time_ms + delay_ms))
        if stands:
            assert sent.status.code == Code.OK
            return
        assert sent.status.code == Code.ILLEGAL_DELIVERY_TIME
        assert sent.status.message == (
            "the max delay time of message is too large, max is 86400000"
        )
        assert broker.log_end == end


async def test_strict_short_polls_wait_five_seconds() -> None:
    async with Messaging(STRICT) as broker:
        made(broker)
        waiting = asyncio.ensure_future(broker.receive(wait_ms=1))
        await broker.settle()
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await broker.send(message("orders", b"a"))
        assert (await waiting).bodies == [b"a"]


async def test_strict_unknown_topics_are_refused_everywhere() -> None:
    async with Messaging(STRICT) as broker:
        end = broker.log_end
        refused = (await broker.send(message("nowhere", b"a"))).status
        assert (refused.code, refused.message) == (Code.TOPIC_NOT_FOUND, NO_ROUTE + "nowhere")
        refused = await broker.receive_status(receive("nowhere", "billing", wait_ms=0))
        assert (refused.code, refused.message) == (Code.TOPIC_NOT_FOUND, NO_ROUTE + "nowhere")
        assert broker.log_end == end


async def test_strict_groups_are_made_on_first_use_all_the_same() -> None:
    async with Messaging(STRICT) as broker:
        made(broker)
        await broker.send(message("orders", b"a"))
        assert (await broker.receive(group="new")).bodies == [b"a"]


async def test_strict_does_not_widen_what_is_configured_tighter() -> None:
    delivery = DeliveryConfig(invisible_ms_max=20_000, delay_ms_max=1_000)
    async with Messaging(replace(STRICT, delivery=delivery)) as broker:
        made(broker)
        got = await broker.receive(invisible_ms=20_001)
        assert got.status.message == "the invisibleTime is too large. max is 20000"
        late = message("orders", b"a", deliver_at_ms=broker.time_ms + 1_001)
        assert (await broker.send(late)).status.code == Code.ILLEGAL_DELIVERY_TIME


async def test_without_it_bounds_are_wide_and_unknown_topics_are_made() -> None:
    async with Messaging() as broker:
        sent = await broker.send(message("orders", b"a"))
        assert sent.status.code == Code.OK
        assert (await broker.receive(invisible_ms=1)).bodies == [b"a"]
        late = message("orders", b"b", deliver_at_ms=broker.time_ms + 48 * HOUR_MS)
        assert (await broker.send(late)).status.code == Code.OK
