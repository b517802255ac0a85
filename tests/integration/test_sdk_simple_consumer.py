"""Our SimpleConsumer against a real broker: leases, attempts, filters, groups, the dead."""

import asyncio
from datetime import timedelta

import pytest

import latermq
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wire_client import WireClient

WAIT = timedelta(seconds=5)


async def take(consumer: latermq.SimpleConsumer) -> latermq.Delivery:
    """Receive one message, as soon as there is one."""
    async with asyncio.timeout(patient(30)):
        while True:
            for delivery in await consumer.receive(1, wait=WAIT):
                return delivery


async def nothing_comes(consumer: latermq.SimpleConsumer) -> bool:
    return await consumer.receive(32, wait=timedelta(0)) == []


async def test_a_sql_filter_lets_through_what_it_says(sdk_broker: BrokerProcess, name: str) -> None:
    async with latermq.connect(sdk_broker.endpoint) as mq:
        for price in range(8):
            tag = "even" if price % 2 == 0 else None
            await mq.send(name, b"%d" % price, properties={"price": str(price)}, tag=tag)
        wanted = latermq.Sql("price > 3 AND TAGS = 'even'")
        bodies: set[bytes] = set()
        async with mq.simple_consumer(name, group=name, tags=wanted) as consumer:
            while len(bodies) < 2:
                bodies.add((await take(consumer)).body)
            assert await nothing_comes(consumer)
        assert bodies == {b"4", b"6"}
        wrong = mq.simple_consumer({name: latermq.Sql("price >")}, group="other")
        with pytest.raises(latermq.errors.IllegalFilterError, match="at character 8"):
            await received_by(wrong)


async def received_by(consumer: latermq.SimpleConsumer) -> list[latermq.Delivery]:
    async with consumer:
        return await consumer.receive(1, wait=WAIT)


async def test_nack(sdk_broker: BrokerProcess, operator: WireClient, name: str) -> None:
    operator.create_group(name, 17, [5, 60_000])
    async with latermq.connect(sdk_broker.endpoint) as mq:
        await mq.send(name, b"one")
        async with mq.simple_consumer(name, group=name) as consumer:
            await consumer.nack(await take(consumer), error=ValueError("no card"))
            second = await take(consumer)
            assert second.attempt == 2
            await consumer.nack(second, after=timedelta(0))
            assert (await take(consumer)).attempt == 3


async def test_tags_and_groups(sdk_broker: BrokerProcess, name: str) -> None:
    async with latermq.connect(sdk_broker.endpoint) as mq:
        for tag in ("eu", "us", None):
            await mq.send(name, str(tag).encode(), tag=tag)
        some = mq.simple_consumer(name, group=f"{name}-some", tags="eu || asia")
        every = mq.simple_consumer(name, group=f"{name}-every")
        filtered = await take(some)
        assert filtered.body == b"eu"
        await filtered.ack()
        assert await nothing_comes(some)
        bodies = set()
        for _ in range(3):
            delivery = await take(every)
            bodies.add(delivery.body)
            await delivery.ack()
        assert bodies == {b"eu", b"us", b"None"}


async def test_dead_letters_and_where_they_came_from(sdk_broker: BrokerProcess, name: str) -> None:
    async with latermq.connect(sdk_broker.endpoint) as mq:
        receipt = await mq.send(name, b"one", tag="eu", properties={"colour": "red"})
        async with mq.simple_consumer(name, group=name) as consumer:
            await consumer.dead_letter(await take(consumer), "no such customer")
            assert await nothing_comes(consumer)
        async with mq.simple_consumer(f"%DLQ%{name}", group=f"{name}-undertaker") as consumer:
            dead = await take(consumer)
            await dead.ack()
    assert dead.origin == latermq.DeadLetterOrigin(name, receipt.message_id)
    assert (dead.body, dead.tag, dead.properties) == (b"one", "eu", {"colour": "red"})
    assert dead.attempt == 1


async def test_refusals(sdk_broker: BrokerProcess, name: str) -> None:
    async with latermq.connect(sdk_broker.endpoint) as mq:
        with pytest.raises(latermq.errors.IllegalGroupError):
            await mq.simple_consumer(name, group="no group").receive()
        bad_filter = mq.simple_consumer(name, group=name, tags="||")
        with pytest.raises(latermq.errors.IllegalFilterError):
            await bad_filter.receive()
        consumer = mq.simple_consumer(name, group=name)
        with pytest.raises(latermq.errors.IllegalTimeError):
            await consumer.receive(invisible=timedelta(hours=13))
