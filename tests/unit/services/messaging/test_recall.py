"""RecallMessage, code by code; one winner between a recall and the timer."""

from typing import Any

import pytest

from latermq_broker.engine.state.model import TopicType
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from support.engine_rig import START_MS
from support.messaging import Messaging
from support.wire_requests import message, resource

Code = definition_pb2.Code
WAIT_MS = 10_000


async def delayed(broker: Messaging) -> str:
    """The recall handle."""
    made = message("orders", b"body", message_id="m-1", deliver_at_ms=broker.time_ms + WAIT_MS)
    response = await broker.send(made)
    return response.entries[0].recall_handle


async def recalled(broker: Messaging, handle: str, topic: str = "orders") -> Any:
    request = service_pb2.RecallMessageRequest(topic=resource(topic), recall_handle=handle)
    return await broker.call("RecallMessage", request)


async def test_what_is_recalled_is_never_delivered() -> None:
    async with Messaging() as broker:
        response = await recalled(broker, await delayed(broker))
        assert (response.status.code, response.message_id) == (Code.OK, "m-1")
        await broker.advance(WAIT_MS)
        assert (await broker.receive()).messages == []


@pytest.mark.parametrize("times", [1, 2])
async def test_only_once_and_not_after_delivery(times: int) -> None:
    async with Messaging() as broker:
        handle = await delayed(broker)
        if times == 1:
            await broker.advance(WAIT_MS)
        else:
            await recalled(broker, handle)
        response = await recalled(broker, handle)
        assert (response.status.code, response.message_id) == (Code.NOT_FOUND, "")
        assert "delivered or recalled already" in response.status.message
        assert len((await broker.receive()).messages) == (times == 1)


async def test_at_the_very_moment_either_wins_never_both() -> None:
    for early_ms in (-1, 0, 1):
        async with Messaging() as broker:
            handle = await delayed(broker)
            await broker.advance(WAIT_MS + early_ms)
            won = (await recalled(broker, handle)).status.code == Code.OK
            await broker.advance(1_000)
            assert len((await broker.receive()).messages) == (not won)


@pytest.mark.parametrize(
    ("topic", "handle", "code"),
    [
        ("", "", Code.ILLEGAL_TOPIC),
        ("a b", "", Code.ILLEGAL_TOPIC),
        ("nowhere", "", Code.TOPIC_NOT_FOUND),
        ("orders", "", Code.BAD_REQUEST),
        ("orders", "m-1", Code.BAD_REQUEST),
        ("orders", "t-40", Code.BAD_REQUEST),
        ("orders", "r-1", Code.BAD_REQUEST),
        ("orders", "d-1-" + "f" * 17, Code.BAD_REQUEST),
        ("orders", "d-1-8", Code.NOT_FOUND),
        ("mails", "handle", Code.NOT_FOUND),
        ("normal", "handle", Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ("fifo", "handle", Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ("transaction", "handle", Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ("%DLQ%billing", "handle", Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ],
)
async def test_codes(topic: str, handle: str, code: int) -> None:
    async with Messaging() as broker:
        own = await delayed(broker)
        topics = broker.engine.topics
        topics.create("mails", TopicType.DELAY, 1, START_MS)
        for kind in (TopicType.NORMAL, TopicType.FIFO, TopicType.TRANSACTION):
            topics.create(kind.name.lower(), kind, 1, START_MS)
        broker.engine.ensure_group("billing", START_MS)
        broker.engine.ensure_topic("%DLQ%billing", START_MS)
        response = await recalled(broker, own if handle == "handle" else handle, topic)
        assert response.status.code == code, response.status
        assert broker.engine.topics.describe("orders").delayed_count == 1


async def test_a_handle_holds_over_a_restart() -> None:
    async with Messaging() as broker:
        handle = await delayed(broker)
        files = broker.files
    broker.engine.close(broker.time_ms)
    async with Messaging(files=files) as broker:
        assert (await recalled(broker, handle)).status.code == Code.OK


@pytest.mark.parametrize(
    ("how", "restarted"),
    [("expedited", "no")]  # a start delivers it
    + [
        (how, end)
        for how in ("postponed", "sooner", "twice")
        for end in ("no", "drained", "killed")
    ],
)
async def test_whose_time_was_moved_is_recalled_by_the_handle_of_its_send(
    how: str, restarted: str
) -> None:
    async with Messaging() as broker:
        handle = await delayed(broker)
        if restarted != "no":
            broker.engine.checkpoints.take(broker.time_ms)
        pending, now_ms = broker.engine.pending, broker.time_ms
        if how == "expedited":
            pending.expedite(handle, now_ms)
        else:
            pending.postpone(handle, now_ms + (5_000 if how == "sooner" else 60_000), now_ms)
        if how == "twice":
            pending.postpone(handle, now_ms + 90_000, now_ms)
        files = broker.files
        if restarted == "no":
            assert (await recalled(broker, handle)).status.code == Code.OK
            assert (await recalled(broker, handle)).status.code == Code.NOT_FOUND
            await broker.advance(100_000)
            assert (await broker.receive()).messages == []
            return
    if restarted == "drained":
        broker.engine.close(broker.time_ms)
    else:
        broker.engine.write()
        broker.engine.abandon()
    async with Messaging(files=files) as broker:
        assert (await recalled(broker, handle)).status.code == Code.OK
        await broker.advance(100_000)
        assert (await broker.receive()).messages == []
