"""What a user with types writes. Nothing runs it: `test_typed_user.py` has mypy read it, strictly.

Each `assert_type` is a promise: a name that turns into Any would break it without a word.
"""

from datetime import UTC, datetime, timedelta
from typing import assert_type

import latermq
import latermq.admin
from latermq.errors import (
    LaterMQError,
    PartialSendError,
    RequestError,
    TopicNotFoundError,
    UnavailableError,
)


async def produce(body: bytes) -> str:
    async with latermq.connect("127.0.0.1:8081", tls=latermq.Tls(ca="ca.pem")) as mq:
        assert_type(mq, latermq.Client)
        receipt = await mq.send("orders", body, tag="paid", keys=["1"], delay=timedelta(minutes=5))
        assert_type(receipt, latermq.SendReceipt)
        await mq.send("orders", body, deliver_at=datetime.now(UTC), properties={"a": "b"})
        try:
            many = await mq.send_batch("orders", [latermq.Message(body), latermq.Message(body)])
            assert_type(many, list[latermq.SendReceipt])
        except PartialSendError as error:
            assert_type(error.outcomes, list[latermq.SendReceipt | RequestError])
        async with mq.transaction("orders", body) as transaction:
            assert_type(transaction, latermq.Transaction)
            await transaction.commit()
        return receipt.message_id


async def consume() -> None:
    async with latermq.connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        assert_type(consumer, latermq.PushConsumer)
        async for delivery in consumer:
            assert_type(delivery, latermq.Delivery)
            async with delivery:
                assert_type(delivery.body, bytes)
                assert_type(delivery.attempt, int)
        mailing = mq.push_consumer("orders", group="mailing")
        mailing.listener(listen)
        await mailing.run()
        simple = mq.simple_consumer({"orders": "paid || sent"}, group="billing")
        assert_type(simple, latermq.SimpleConsumer)
        for taken in await simple.receive(10):
            assert_type(taken, latermq.Delivery)
            await taken.nack(ValueError("later"))


async def listen(delivery: latermq.Delivery) -> latermq.ConsumeResult | None:
    return latermq.RECONSUME_LATER if delivery.attempt < 3 else None


def in_threads(body: bytes) -> None:
    with latermq.sync.connect() as mq:
        assert_type(mq, latermq.sync.Client)
        assert_type(mq.send("orders", body), latermq.SendReceipt)
        for delivery in mq.push_consumer("orders", group="billing"):
            assert_type(delivery, latermq.sync.Delivery)
            with delivery:
                print(delivery.body)


def kind_of(error: LaterMQError) -> str:
    match error:
        case TopicNotFoundError():
            return f"{error.message} ({error.code})"
        case UnavailableError():
            return error.grpc_text
    assert_type(error.code, int)
    return latermq.Code(error.code).name


def administer() -> None:
    with latermq.admin.connect() as broker:
        assert_type(broker, latermq.admin.Admin)
