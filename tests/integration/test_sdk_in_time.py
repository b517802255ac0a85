"""Our client where time passes: leases, retries, delays and checks, on a held clock.

The broker is in the test's own loop; what travels between the two are the bytes of the wire.
"""

import asyncio
from datetime import timedelta

import pytest

import latermq
from latermq import Received, Resolution
from latermq.admin import AsyncAdmin
from latermq.testing import HeldBroker
from latermq_proto.latermq.v1 import pending_pb2, topic_pb2

MS, SECOND, MINUTE = timedelta(milliseconds=1), timedelta(seconds=1), timedelta(minutes=1)
LOOK = 5 * SECOND  # between two looks of this broker at what to ask for
NAME = "orders"


async def nothing_comes(consumer: latermq.SimpleConsumer) -> bool:
    return await consumer.receive(32, wait=timedelta(0)) == []


def create_topic(broker: HeldBroker, kind: int) -> None:
    broker.call(AsyncAdmin.topics.CreateTopic, topic_pb2.CreateTopicRequest(name=NAME, type=kind))


async def test_what_is_acknowledged_does_not_return(latermq_time: HeldBroker) -> None:
    async with latermq_time.connect() as mq:
        await mq.send(NAME, b"one")
        async with mq.simple_consumer(NAME, group=NAME) as consumer:
            (one,) = await consumer.receive(invisible=SECOND)
            await consumer.ack(one)
            await latermq_time.advance(MINUTE)
            assert await nothing_comes(consumer)


async def test_what_is_not_returns_with_one_attempt_more(latermq_time: HeldBroker) -> None:
    async with latermq_time.connect() as mq:
        await mq.send(NAME, b"one")
        async with mq.simple_consumer(NAME, group=NAME) as consumer:
            (first,) = await consumer.receive(invisible=SECOND)
            began = latermq_time.now()
            (second,) = await latermq_time.until(consumer.receive(wait=MINUTE))
            assert latermq_time.now() - began == SECOND
            assert (first.attempt, second.attempt) == (1, 2)
            assert first.message_id == second.message_id
            with pytest.raises(latermq.errors.InvalidReceiptHandleError):
                await first.ack()
            await second.ack()


async def test_a_lease_is_extended_and_cut_short(latermq_time: HeldBroker) -> None:
    async with latermq_time.connect() as mq:
        await mq.send(NAME, b"one")
        async with mq.simple_consumer(NAME, group=NAME) as consumer:
            (delivery,) = await consumer.receive(invisible=SECOND)
            await consumer.change_invisible_duration(delivery, 5 * MINUTE)
            await latermq_time.advance(5 * MINUTE - MS)
            assert await nothing_comes(consumer)
            await consumer.change_invisible_duration(delivery, SECOND)
            await latermq_time.advance(SECOND - MS)
            assert await nothing_comes(consumer)
            await latermq_time.advance(MS)
            (again,) = await consumer.receive()
            assert again.attempt == 2
            await again.ack()


async def test_a_long_poll_ends_with_its_time_or_a_message(latermq_time: HeldBroker) -> None:
    async with latermq_time.connect() as mq, mq.simple_consumer(NAME, group=NAME) as consumer:
        began = latermq_time.now()
        assert await latermq_time.until(consumer.receive(wait=10 * SECOND)) == []
        assert latermq_time.now() - began == 10 * SECOND
        await mq.send(NAME, b"one", delay=3 * SECOND)
        (one,) = await latermq_time.until(consumer.receive(wait=10 * SECOND))
        assert (one.body, latermq_time.now() - began) == (b"one", 13 * SECOND)


async def test_retry_in(latermq_time: HeldBroker) -> None:
    attempts: list[timedelta] = []
    began = latermq_time.now()

    async def work() -> None:
        async for delivery in mq.push_consumer(NAME, group=NAME):
            async with delivery:
                attempts.append(latermq_time.now() - began)
                if delivery.attempt > 1:
                    return
                await delivery.retry_in(400 * MS)

    async with latermq_time.connect() as mq:
        await mq.send(NAME, b"one")
        await latermq_time.until(work())
    assert attempts == [timedelta(0), 400 * MS]


async def test_closing_lets_a_listener_finish(latermq_time: HeldBroker) -> None:
    finished = []
    async with latermq_time.connect() as mq:
        consumer = mq.push_consumer(NAME, group=NAME)

        @consumer.listener
        async def bill(delivery: latermq.Delivery) -> None:
            await asyncio.sleep(0.5)
            finished.append(delivery.body)

        await mq.send(NAME, b"one")
        await consumer.start()
        await latermq_time.settle()
        began = latermq_time.now()
        await latermq_time.until(consumer.close())
        assert (finished, latermq_time.now() - began) == ([b"one"], 500 * MS)
        rest = mq.simple_consumer(NAME, group=NAME)
        await latermq_time.advance(MINUTE)
        assert await nothing_comes(rest)


async def test_nothing_is_early_and_nothing_late(latermq_time: HeldBroker) -> None:
    began = latermq_time.now()
    due = {b"%d" % number: (500 + 37 * number) * MS for number in range(10)}
    due |= {b"delay": 600 * MS, b"level": SECOND}
    came: dict[bytes, timedelta] = {}

    async def consume() -> None:
        async for delivery in mq.push_consumer(NAME, group=NAME):
            came[delivery.body] = latermq_time.now() - began
            await delivery.ack()
            if len(came) == len(due):
                return

    async with latermq_time.connect() as mq:
        for number in range(10):
            body = b"%d" % number
            receipt = await mq.send(NAME, body, deliver_at=began + due[body])
            assert receipt.recall_handle
        await mq.send(NAME, b"delay", delay=due[b"delay"])
        await mq.send(NAME, b"level", delay_level=1)
        await latermq_time.until(consume())
    assert came == due


async def test_of_a_priority_topic_delayed_ones_come_when_they_are_due(
    latermq_time: HeldBroker,
) -> None:
    create_topic(latermq_time, topic_pb2.PRIORITY)
    async with latermq_time.connect() as mq:
        later = await mq.send(NAME, b"later", priority=9, delay=MINUTE)
        recalled = await mq.send(NAME, b"recalled", priority=9, delay=MINUTE)
        assert await mq.recall(NAME, recalled.recall_handle) == recalled.message_id
        await mq.send_batch(
            NAME, [latermq.Message(b"p%d" % one, priority=one) for one in (1, 7, 0, 7)]
        )
        async with mq.simple_consumer(NAME, group=NAME) as consumer:
            await latermq_time.advance(MINUTE - MS)
            got = await consumer.receive(3)
            assert [(one.body, one.priority) for one in got] == [(b"p7", 7), (b"p7", 7), (b"p1", 1)]
            await latermq_time.advance(MS)
            got = await consumer.receive(3)
            assert [(one.body, one.priority) for one in got] == [(b"later", 9), (b"p0", 0)]
            assert got[0].message_id == later.message_id


async def test_of_lite_topics_only_the_one_that_failed_waits(latermq_time: HeldBroker) -> None:
    create_topic(latermq_time, topic_pb2.LITE)
    got: list[tuple[str, int]] = []
    began = latermq_time.now()

    async def consume() -> None:
        consumer = mq.lite_push_consumer(NAME, group=NAME)
        await consumer.subscribe("a", "b")
        async for delivery in consumer:
            async with delivery:
                got.append((delivery.body.decode(), delivery.attempt))
                if got[-1] == ("a0", 1):
                    raise ValueError("not yet")
                assert (delivery.body[:1] == b"b") == (latermq_time.now() == began)
            if len(got) == 6:
                return

    async with latermq_time.connect() as mq:
        for body in (b"a0", b"b0", b"a1", b"b1", b"c0", b"a2"):
            await mq.send(NAME, body, lite_topic=body[:1].decode())
        await latermq_time.until(consume())
    order = [("a0", 1), ("a0", 2), ("a1", 1), ("a2", 1)]
    assert [one for one in got if one[0][0] == "a"] == order
    assert [body for body, _ in got if body[0] == "b"] == ["b0", "b1"]


async def test_a_transaction_that_nobody_decides_is_asked_for_and_then_left_alone(
    latermq_time: HeldBroker,
) -> None:
    asked: list[timedelta] = []

    async def look_up(half: Received) -> Resolution:
        asked.append(latermq_time.now() - began)
        return Resolution.UNKNOWN

    def halves() -> list[pending_pb2.PendingMessage]:
        wanted = pending_pb2.PendingFilter(kind=pending_pb2.HALF)
        request = pending_pb2.ListPendingRequest(filter=wanted)
        return list(latermq_time.call(AsyncAdmin.pending.ListPending, request).messages)

    async with latermq_time.connect() as mq:
        await mq.check_transactions(NAME, look_up)
        began = latermq_time.now()
        await mq.transaction(NAME, b"odd").__aenter__()
        await latermq_time.advance(10 * MINUTE)
        (odd,) = halves()
        assert (odd.checks, odd.checks_max) == (15, 15)
        assert len(asked) == 15
        for number, at in enumerate(asked):
            late = at - (6 + 30 * number) * SECOND
            assert timedelta(0) <= late <= LOOK
        assert await nothing_comes(mq.simple_consumer(NAME, group=NAME))
        wanted = pending_pb2.ChangePendingRequest(ids=[odd.pending_id])
        latermq_time.call(AsyncAdmin.pending.CommitPending, wanted)
        (one,) = await mq.simple_consumer(NAME, group=NAME).receive()
        assert one.body == b"odd"
