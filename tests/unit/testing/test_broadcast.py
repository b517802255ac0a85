"""Broadcasts: every consumer gets every message, once, and the broker keeps nothing of it."""

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

import latermq
from latermq import Delivery, Message
from latermq._connection.session import Session
from latermq._values.endpoints import Endpoints
from latermq._values.route import Route
from latermq.admin import AsyncAdmin
from latermq.testing import HeldBroker
from latermq_proto.latermq.v1 import group_pb2, topic_pb2


def groups(broker: HeldBroker) -> list[str]:
    listed = broker.call(AsyncAdmin.groups.ListGroups, group_pb2.ListGroupsRequest())
    return [each.name for each in listed.groups]


async def test_everyone_gets_everything_from_its_start_on(
    latermq_time: HeldBroker, caplog: pytest.LogCaptureFixture
) -> None:
    got: Counter[tuple[int, str]] = Counter()
    apps = [latermq.App(), latermq.App()]

    def listen(number: int) -> None:
        @apps[number].listener("prices", group="cache", tags="eu", broadcast=True, concurrency=2)
        async def learn(price: str, delivery: Delivery) -> None:
            assert (delivery.attempt, delivery.group) == (1, "cache")
            got[number, price] += 1
            if price == "bad":
                raise ValueError("no price")

    for number in range(2):
        listen(number)
    async with latermq_time.connect() as mq:
        await mq.send("prices", b"before", tag="eu")
        async with latermq_time.working(apps[0]):
            await mq.send("prices", b"1", tag="eu")
            await latermq_time.settle()
            async with latermq_time.working(apps[1]):
                await mq.send_batch("prices", [Message(b"2", tag="eu"), Message(b"us", tag="us")])
                await mq.send("prices", b"later", tag="eu", delay=timedelta(minutes=5))
                await mq.send("prices", b"bad", tag="eu")
                await latermq_time.advance("1h")
                assert latermq_time.pending() == []
    both = [(number, price) for price in ("2", "later", "bad") for number in range(2)]
    assert got == Counter([(0, "1"), *both])
    assert groups(latermq_time) == []
    warnings = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert [each.getMessage().split(" failed")[1] for each in warnings] == [
        ", topic prices: ValueError: no price"
    ] * 2


async def test_a_queue_that_has_another_address_is_read_on(
    latermq_time: HeldBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not again from the beginning, and not twice."""
    query = Session._query_route
    asked = 0

    async def other(self: Session, topic: str) -> Route:
        nonlocal asked
        asked += 1
        route = await query(self, topic)
        moved = Endpoints.parse("elsewhere:8081")
        return Route(tuple(replace(queue, endpoints=moved) for queue in route.queues))

    async with latermq_time.connect() as mq:
        got: list[bytes] = []
        consumer = mq.push_consumer("prices", group="cache", broadcast=True)

        @consumer.listener
        async def learn(delivery: Delivery) -> None:
            got.append(delivery.body)

        await mq.send("prices", b"before")
        await consumer.start()
        await mq.send("prices", b"1")
        await latermq_time.advance("1m")
        monkeypatch.setattr(Session, "_query_route", other)
        await latermq_time.advance("5m")
        await mq.send("prices", b"2")
        await latermq_time.settle()
        await consumer.close()
    assert asked
    assert got == [b"1", b"2"]


async def test_new_queues_are_read_from_their_beginning(latermq_time: HeldBroker) -> None:
    call, topics = latermq_time.call, AsyncAdmin.topics
    call(topics.CreateTopic, topic_pb2.CreateTopicRequest(name="prices", queue_count=1))
    async with latermq_time.connect() as mq:
        got: list[bytes] = []
        consumer = mq.push_consumer("prices", group="cache", broadcast=True)

        @consumer.listener
        async def learn(delivery: Delivery) -> None:
            got.append(delivery.body)

        await consumer.start()
        call(topics.AlterTopic, topic_pb2.AlterTopicRequest(name="prices", queue_count=4))
        async with latermq_time.connect() as other:
            for number in range(8):
                await other.send("prices", b"%d" % number)
        await latermq_time.advance("2m")
        assert sorted(got) == [b"%d" % number for number in range(8)]


async def test_a_topic_made_anew_is_read_on(latermq_time: HeldBroker) -> None:
    call, topics = latermq_time.call, AsyncAdmin.topics
    make = topic_pb2.CreateTopicRequest(name="prices", queue_count=1)
    call(topics.CreateTopic, make)
    async with latermq_time.connect() as mq:
        await mq.send_batch("prices", [Message(b"old")] * 5)
        consumer = mq.push_consumer("prices", group="cache", broadcast=True)
        await consumer.start()
        call(topics.DeleteTopic, topic_pb2.DeleteTopicRequest(name="prices"))
        call(topics.CreateTopic, make)
        await latermq_time.advance("1m")
        await mq.send("prices", b"new")
        await latermq_time.advance("1m")
        delivery = await anext(consumer)
        async with delivery:
            assert delivery.body == b"new"


async def test_a_topic_made_anew_while_the_consumer_is_full_is_read_from_its_beginning(
    latermq_time: HeldBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """It went on from the end of the new one: what was stored before was never seen."""
    call, topics = latermq_time.call, AsyncAdmin.topics
    make = topic_pb2.CreateTopicRequest(name="prices", queue_count=1)
    call(topics.CreateTopic, make)
    async with latermq_time.connect() as mq:
        consumer = mq.push_consumer("prices", group="cache", broadcast=True, cached_count_max=5)
        await consumer.start()
        await mq.send_batch("prices", [Message(b"old")] * 10)
        await latermq_time.settle()
        call(topics.DeleteTopic, topic_pb2.DeleteTopicRequest(name="prices"))
        call(topics.CreateTopic, make)
        await mq.send_batch("prices", [Message(b"1"), Message(b"2")])
        bodies: list[bytes] = []
        while len(bodies) < 2:
            async with await latermq_time.until(anext(consumer)) as delivery:
                if delivery.body != b"old":
                    bodies.append(delivery.body)
    assert bodies == [b"1", b"2"]
    assert "nothing at offset 5 any more; on from 0" in caplog.text


async def test_what_is_read_is_bounded_and_survives_a_pause(latermq_time: HeldBroker) -> None:
    async with latermq_time.connect() as mq:
        consumer = mq.push_consumer("prices", group="cache", broadcast=True, cached_count_max=2)
        await consumer.start()
        for number in range(40):
            await mq.send("prices", b"%d" % number)
        await latermq_time.advance("10s")  # the first send made the topic
        held = len(consumer._inbox)
        assert 0 < held <= 16  # two of each of at most eight queues
        await consumer.pause()
        await latermq_time.advance("1s")
        assert len(consumer._inbox) == held
        consumer.resume()
        for _ in range(40):
            async with asyncio.timeout(60):
                await (await anext(consumer)).ack()


def test_what_would_try_again_is_refused() -> None:
    app = latermq.App()
    for wrong in ({"retry": "1s"}, {"max_attempts": 3}, {"dead_letter_on": ValueError}):
        with pytest.raises(ValueError, match="a broadcast is not tried again"):
            app.listener("prices", group="cache", broadcast=True, **wrong)


@pytest.mark.parametrize("gone_for", ["1s", "30s"])  # while a pull waits, and longer than it does
@pytest.mark.parametrize("bodies", [(b"6", b"7", b"8", b"9"), (b"4", b"5", b"6", b"7", b"8", b"9")])
async def test_a_topic_that_is_made_anew_is_read_from_its_beginning(
    latermq_time: HeldBroker, gone_for: str, bodies: tuple[bytes, ...]
) -> None:
    async with latermq_time.connect() as mq:
        consumer = mq.push_consumer("prices", group="cache", broadcast=True)
        got: list[bytes] = []

        @consumer.listener
        async def learn(delivery: latermq.Delivery) -> None:
            got.append(delivery.body)

        await consumer.start()
        for sent in ((b"1", b"2", b"3", b"4", b"5"), bodies):
            for body in sent:
                await mq.send("prices", body)
            await latermq_time.advance("30s")
            assert sorted(got) == list(sent)
            got.clear()
            request = topic_pb2.DeleteTopicRequest(name="prices")
            latermq_time.call(AsyncAdmin.topics.DeleteTopic, request)
            await latermq_time.advance(gone_for)
