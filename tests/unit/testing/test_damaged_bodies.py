"""A body that nobody can read is a dead letter after one attempt, and who asks is told."""

import asyncio
from datetime import timedelta

import pytest

import latermq
from latermq.admin import AsyncAdmin
from latermq.testing import HeldBroker
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2


def damaged(broker: HeldBroker, message_id: str) -> None:
    """Send what says that it is gzip, and is not."""
    message = definition_pb2.Message(topic=definition_pb2.Resource(name="orders"), body=b"not gzip")
    message.system_properties.message_id = message_id
    message.system_properties.body_encoding = definition_pb2.GZIP
    message.system_properties.message_type = definition_pb2.NORMAL
    request = service_pb2.SendMessageRequest(messages=[message])
    broker.call(AsyncAdmin.messaging.SendMessage, request)


def died_of_it(broker: HeldBroker, caplog: pytest.LogCaptureFixture) -> None:
    (letter,) = broker.dead("billing")
    assert (letter.attempts, letter.kind) == (1, "DamagedBodyError")
    assert letter.body == b"not gzip"
    assert f"dead letter: message {letter.message_id} of topic orders is damaged" in caplog.text


async def test_of_a_listener(latermq_time: HeldBroker, caplog: pytest.LogCaptureFixture) -> None:
    app, got = latermq.App(), list[bytes]()

    @app.listener("orders", group="billing")
    async def bill(order: bytes) -> None:
        got.append(order)

    async with latermq_time.working(app):
        await bill.send(b"17")
        damaged(latermq_time, "01" + "AB" * 16)
        await latermq_time.advance("1m")
    assert got == [b"17"]
    died_of_it(latermq_time, caplog)


async def test_of_a_simple_consumer(
    latermq_time: HeldBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with latermq_time.connect() as mq:
        await mq.send("orders", b"17")
        damaged(latermq_time, "01" + "AB" * 16)
        consumer = mq.simple_consumer("orders", group="billing")
        receiving = asyncio.create_task(consumer.receive(2, wait=timedelta(0)))
        await latermq_time.settle()
        assert [each.body for each in await receiving] == [b"17"]
    died_of_it(latermq_time, caplog)
