"""A consumer makes neither its topic nor its group, and does not bring back what was deleted."""

import asyncio

import pytest

from latermq_broker.engine.state.model import TopicType
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from support.engine_rig import START_MS
from support.fake_call import FakeCall
from support.messaging import Messaging, received
from support.wire_requests import message, receive, resource

Code = definition_pb2.Code


def groups(broker: Messaging) -> list[str]:
    return [group.name for group in broker.engine.catalog.groups()]


async def poll(broker: Messaging, client_id: str = "a@1", wait_ms: int = 0) -> list[bytes]:
    """One receive of this client, to its end."""
    request = receive("orders", "billing", wait_ms=wait_ms)
    call = FakeCall(client_id=client_id)
    return received(await broker.stream("ReceiveMessage", request, call)).bodies


async def test_who_waits_for_what_is_not_there_gets_what_comes_from_the_beginning() -> None:
    async with Messaging() as broker:
        waiting = asyncio.ensure_future(poll(broker, wait_ms=20_000))
        await broker.settle()
        assert groups(broker) == []
        broker.engine.topics.create("orders", TopicType.FIFO, 2, START_MS)
        broker.engine.groups.create(
            "billing", fifo=True, max_attempts=3, backoff=None, now_ms=START_MS
        )
        one = message("orders", b"first")
        one.system_properties.message_group = "a"
        await broker.send(one)
        assert await waiting == [b"first"]
        group = broker.engine.catalog.group("billing")
        assert group is not None
        assert (group.fifo, group.max_attempts) == (True, 3)


async def test_a_send_to_a_new_topic_reaches_who_waited_for_it() -> None:
    async with Messaging() as broker:
        waiting = [asyncio.ensure_future(poll(broker, name, 20_000)) for name in ("a@1", "b@1")]
        await broker.settle()
        await broker.send(message("orders", b"1"))
        await broker.settle()
        assert sorted(task.result() for task in waiting if task.done()) == [[b"1"]]
        assert groups(broker) == ["billing"]
        broker.parked.drain()
        await asyncio.gather(*waiting)


@pytest.mark.parametrize("waits", [False, True])
async def test_a_deleted_group_stays_deleted_while_its_consumers_live(waits: bool) -> None:
    async with Messaging() as broker:
        await broker.send(message("orders", b"1"))
        assert await poll(broker) == [b"1"]
        waiting = asyncio.ensure_future(poll(broker, wait_ms=20_000 if waits else 0))
        await broker.settle()
        broker.engine.groups.delete("billing", START_MS)
        await broker.send(message("orders", b"2"))
        await broker.settle()
        assert groups(broker) == []
        again = asyncio.ensure_future(poll(broker, wait_ms=20_000))
        await broker.settle()
        assert groups(broker) == []
        broker.engine.groups.create(
            "billing", fifo=False, max_attempts=3, backoff=None, now_ms=START_MS
        )
        broker.pump.leased()
        await broker.settle()
        got = [task.result() for task in (waiting, again) if task.done()]
        assert [b"1", b"2"] in got  # from the beginning
        broker.parked.drain()
        await asyncio.gather(waiting, again)


async def test_consumers_of_a_deleted_group_are_told_until_it_is_created() -> None:
    async def said() -> tuple[int, str]:
        elements = await broker.stream("ReceiveMessage", receive("orders", "billing"), call)
        status = received(elements).status
        return status.code, status.message

    async with Messaging() as broker:
        call = FakeCall(client_id="a@1")
        await broker.send(message("orders", b"1"))
        assert await poll(broker) == [b"1"]
        nothing = await said()
        assert nothing == (Code.MESSAGE_NOT_FOUND, "no message within the polling time")
        broker.engine.groups.delete("billing", START_MS)
        assert await said() == (Code.MESSAGE_NOT_FOUND, "GROUP_DELETED")
        broker.engine.groups.create(
            "billing", fifo=False, max_attempts=3, backoff=None, now_ms=START_MS
        )
        assert await poll(broker) == [b"1"]
        assert await said() == nothing


async def test_a_consumer_that_comes_later_makes_the_group_and_helps_the_others() -> None:
    async with Messaging() as broker:
        await broker.send(message("orders", b"1"))
        assert await poll(broker) == [b"1"]
        broker.engine.groups.delete("billing", START_MS)
        waiting = asyncio.ensure_future(poll(broker, wait_ms=20_000))
        await broker.settle()
        assert await poll(broker, "later@1") == [b"1"]
        await broker.send(message("orders", b"2"))
        assert await waiting == [b"2"]


async def test_a_deleted_topic_is_made_by_the_next_send_only() -> None:
    async with Messaging() as broker:
        await broker.send(message("orders", b"1"))
        waiting = asyncio.ensure_future(poll(broker, wait_ms=20_000))
        assert await waiting == [b"1"]
        waiting = asyncio.ensure_future(poll(broker, wait_ms=20_000))
        await broker.settle()
        broker.engine.topics.delete("orders", START_MS)
        assert await poll(broker, "b@1") == []
        assert broker.engine.catalog.topic("orders") is None
        await broker.send(message("orders", b"2"))
        assert await waiting == [b"2"]


async def test_a_lite_subscription_does_not_bring_a_deleted_group_back() -> None:
    async with Messaging() as broker:
        broker.engine.topics.create("chat", TopicType.LITE, 0, START_MS)
        request = service_pb2.SyncLiteSubscriptionRequest(
            action=definition_pb2.PARTIAL_ADD,
            topic=resource("chat"),
            group=resource("agents"),
            lite_topic_set=["room"],
        )
        assert (await broker.call("SyncLiteSubscription", request)).status.code == Code.OK
        asked = receive("chat", "agents", wait_ms=0)
        assert not received(await broker.stream("ReceiveMessage", asked)).messages
        broker.engine.groups.delete("agents", START_MS)
        status = (await broker.call("SyncLiteSubscription", request)).status
        assert status.code == Code.ILLEGAL_CONSUMER_GROUP
        assert "was deleted while this client read it" in status.message
        assert not received(await broker.stream("ReceiveMessage", asked)).messages
        assert groups(broker) == []
