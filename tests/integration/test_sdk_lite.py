"""Lite topics with our client against a real broker: order, shares, kill -9."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

import latermq
from latermq_proto.latermq.v1 import group_pb2, topic_pb2
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wire_client import WireClient, require_ok

WAIT = timedelta(seconds=5)


@pytest.fixture
def parent(operator: WireClient, name: str) -> str:
    operator.create_topic(name, type=topic_pb2.LITE)
    return name


async def chat(mq: latermq.Client, parent: str, *bodies: str) -> None:
    """Each into the lite topic that it begins with."""
    for body in bodies:
        await mq.send(parent, body.encode(), lite_topic=body[0])


async def heard(consumer: latermq.LiteSimpleConsumer, count: int) -> list[str]:
    """Bodies, acknowledged."""
    found: list[str] = []
    async with asyncio.timeout(patient(30)):
        while len(found) < count:
            for delivery in await consumer.receive(8, wait=WAIT):
                found.append(delivery.body.decode())
                await delivery.ack()
    return found


async def test_simple_reads_what_it_chose(sdk_broker: BrokerProcess, parent: str) -> None:
    async with latermq.connect(sdk_broker.endpoint) as mq:
        await chat(mq, parent, "a0", "b0", "a1", "a2", "c0")
        async with mq.lite_simple_consumer(parent, group=parent) as consumer:
            await consumer.subscribe("a", begin=latermq.Begin(new_only=True))
            await consumer.subscribe("b")
            assert await heard(consumer, 1) == ["b0"]
            await chat(mq, parent, "a3")
            assert await heard(consumer, 1) == ["a3"]
            await consumer.unsubscribe("a")
            await chat(mq, parent, "a4", "b1")
            assert await heard(consumer, 1) == ["b1"]
            with pytest.raises(latermq.errors.IllegalMessageError):
                await consumer.subscribe("no blanks")
            assert consumer.lite_topics == {"b"}
        stranger = mq.lite_simple_consumer("elsewhere", group=parent)
        with pytest.raises(latermq.errors.RequestError, match="not of elsewhere"):
            await stranger.subscribe("a")


async def test_an_exclusive_group(
    sdk_broker: BrokerProcess, operator: WireClient, parent: str
) -> None:
    wanted = group_pb2.Group(name=parent, lite_topics_of=parent, lite_exclusive=True)
    require_ok(
        operator.call(operator.groups.CreateGroup, group_pb2.CreateGroupRequest(group=wanted))
    )
    taken: asyncio.Queue[str] = asyncio.Queue()
    async with latermq.connect(sdk_broker.endpoint) as mq, asyncio.timeout(patient(30)):
        one = mq.lite_simple_consumer(parent, group=parent, taken=taken.put_nowait)
        await one.subscribe("a", "b")
        two = mq.lite_simple_consumer(parent, group=parent)
        await two.subscribe("b")
        assert await taken.get() == "b"
        assert one.lite_topics == {"a"}
        await chat(mq, parent, "b0", "a0")
        assert await heard(two, 1) == ["b0"]
        assert await heard(one, 1) == ["a0"]


async def test_a_killed_broker_is_told_again(tmp_path: Path) -> None:
    """Both kinds go on with what they had subscribed to, without waiting for the next 30 s."""
    config = "[server]\npolling_ms_min = 100\npolling_ms_max = 2000\n"
    with BrokerProcess(tmp_path / "data", config=config) as broker:
        broker.start()
        with WireClient(broker.endpoint) as operator:
            operator.create_topic("chat", type=topic_pb2.LITE)
        async with latermq.connect(broker.endpoint) as mq, asyncio.timeout(patient(40)):
            push = mq.lite_push_consumer("chat", group="pushed")
            simple = mq.lite_simple_consumer("chat", group="asked")
            for consumer in (push, simple):
                await consumer.subscribe("a")
            await chat(mq, "chat", "a0")
            async with await anext(push) as delivery:
                assert delivery.body == b"a0"
            assert await heard(simple, 1) == ["a0"]
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            await chat(mq, "chat", "b0", "a1")
            async with await anext(push) as delivery:
                assert delivery.body == b"a1"
            assert await heard_at_last(simple) == ["a1"]


async def heard_at_last(consumer: latermq.LiteSimpleConsumer) -> list[str]:
    """From a broker that is coming up again."""
    while True:
        try:
            return await heard(consumer, 1)
        except latermq.errors.UnavailableError:
            await asyncio.sleep(0.2)


def test_for_threads(sdk_broker: BrokerProcess, parent: str) -> None:
    with latermq.sync.connect(sdk_broker.endpoint) as mq:
        mq.send(parent, b"a0", lite_topic="a")
        consumer = mq.lite_push_consumer(parent, group=parent)
        consumer.subscribe("a")
        with next(consumer) as delivery:
            assert (delivery.body, delivery.lite_topic) == (b"a0", "a")
        consumer.unsubscribe("a")
        assert consumer.lite_topics == frozenset()
        consumer.close()
        simple = mq.lite_simple_consumer(parent, group=parent)
        simple.subscribe("a", "b")
        assert simple.lite_topics == {"a", "b"}
        mq.send(parent, b"b0", lite_topic="b")
        [one] = simple.receive(wait=WAIT)
        assert one.body == b"b0"
        one.ack()
        simple.close()
