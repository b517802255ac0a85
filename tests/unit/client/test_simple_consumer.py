"""Receiving on demand, and every way to settle what came."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import pytest

from latermq import Delivery
from latermq._connection.status import error_of
from latermq._values.endpoints import Endpoints
from latermq.client import Client
from latermq.errors import (
    ClosedError,
    GroupNotFoundError,
    IllegalFilterError,
    IllegalTimeError,
    InvalidReceiptHandleError,
    LaterMQError,
    RequestError,
    UnavailableError,
)
from latermq_h2.grpc_code import GrpcCode
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from support.scripted_broker import ScriptedBroker, ScriptedTransport
from support.virtual_loop import virtually

Connect = Callable[[], Client]
Settle = Callable[[Delivery], Awaitable[None]]
LOST = v2.Status(code=v2.INVALID_RECEIPT_HANDLE, message="the lease ended")
SECOND = timedelta(seconds=1)


@virtually
async def test_receive_and_ack(broker: ScriptedBroker, connect: Connect) -> None:
    broker.deliver(b"one", tag="eu")
    broker.deliver(b"two")
    async with (
        connect() as mq,
        mq.simple_consumer("orders", group="billing", tags="eu") as consumer,
    ):
        first, second = await consumer.receive(10, invisible=30 * SECOND, wait=SECOND)
        await consumer.ack(first)
        assert (first.settled, second.settled) == (True, False)
    assert (first.body, first.tag, second.body) == (b"one", "eu", b"two")
    (request,) = broker.requests("ReceiveMessage")
    assert (request.batch_size, request.invisible_duration.ToSeconds()) == (10, 30)
    assert request.filter_expression.expression == "eu"
    (ack,) = broker.requests("AckMessage")
    assert (ack.group.name, ack.topic.name) == ("billing", "orders")
    assert ack.entries[0].receipt_handle == "handle-1"


@virtually
async def test_nothing_came(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq:
        loop = asyncio.get_running_loop()
        consumer = mq.simple_consumer("orders", group="billing")
        start = loop.time()
        assert await consumer.receive(wait=7 * SECOND) == []
        assert loop.time() - start == pytest.approx(7)


@virtually
async def test_a_wait_ends_with_the_first_message(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq:
        consumer = mq.simple_consumer("orders", group="billing")
        waiting = asyncio.create_task(consumer.receive(32, wait=20 * SECOND))
        await asyncio.sleep(3)
        broker.deliver(b"one")
        assert len(await waiting) == 1


@virtually
async def test_an_extended_lease_has_a_new_handle(broker: ScriptedBroker, connect: Connect) -> None:
    broker.deliver(b"one")
    async with connect() as mq:
        consumer = mq.simple_consumer("orders", group="billing")
        (delivery,) = await consumer.receive()
        await consumer.change_invisible_duration(delivery, 90 * SECOND)
        assert not delivery.settled
        await delivery.ack()
    (change,) = broker.requests("ChangeInvisibleDuration")
    assert change.invisible_duration.ToSeconds() == 90
    assert not change.suspend
    assert broker.requests("AckMessage")[0].entries[0].receipt_handle == "handle-1'"


@virtually
async def test_nack_waits_as_told_or_by_policy(broker: ScriptedBroker, connect: Connect) -> None:
    for seconds in (1, 5):
        broker.backoff.customized_backoff.next.add().FromSeconds(seconds)
    broker.deliver(b"one", delivery_attempt=2)
    broker.deliver(b"two")
    async with connect() as mq:
        consumer = mq.simple_consumer("orders", group="billing")
        first, second = await consumer.receive(2)
        await consumer.nack(first, error=ValueError("no card"))
        await consumer.nack(second, after=60 * SECOND)
        assert first.settled
    by_policy, told = broker.named("ChangeInvisibleDuration")
    assert by_policy.request.invisible_duration.ToSeconds() == 5
    assert told.request.invisible_duration.ToSeconds() == 60
    assert by_policy.failure.text == "no card"
    assert "latermq-failure-bin" not in told.headers


@virtually
async def test_dead_letter(broker: ScriptedBroker, connect: Connect) -> None:
    broker.deliver(b"one", delivery_attempt=3)
    async with connect() as mq:
        consumer = mq.simple_consumer("orders", group="billing")
        (delivery,) = await consumer.receive()
        await consumer.dead_letter(delivery, "no such customer")
        assert delivery.settled
    (call,) = broker.named("ForwardMessageToDeadLetterQueue")
    assert (call.request.receipt_handle, call.request.delivery_attempt) == ("handle-1", 3)
    assert (call.failure.rejected, call.failure.text) == (True, "no such customer")


@virtually
async def test_a_lost_lease_is_told(broker: ScriptedBroker, connect: Connect) -> None:
    broker.deliver(b"one")
    broker.refuse("AckMessage", LOST)
    async with connect() as mq:
        consumer = mq.simple_consumer("orders", group="billing")
        (delivery,) = await consumer.receive()
        with pytest.raises(InvalidReceiptHandleError):
            await consumer.ack(delivery)


@virtually
async def test_the_block_acks_or_nacks(broker: ScriptedBroker, connect: Connect) -> None:
    broker.deliver(b"one")
    broker.deliver(b"two")
    async with connect() as mq:
        consumer = mq.simple_consumer("orders", group="billing")
        first, second = await consumer.receive(2)
        async with first:
            pass
        async with second:
            raise ValueError("no card")
    assert broker.requests("AckMessage")[0].entries[0].message_id == "id-1"
    assert broker.requests("ChangeInvisibleDuration")[0].message_id == "id-2"


@virtually
async def test_topics_take_turns(broker: ScriptedBroker, connect: Connect) -> None:
    broker.topics = {"orders": 2, "bills": 1}
    async with connect() as mq:
        consumer = mq.simple_consumer({"orders": "a"}, group="billing")
        await consumer.receive(wait=SECOND)
        await consumer.subscribe("bills", "b")
        assert consumer.subscriptions == {"orders": "a", "bills": "b"}
        for _ in range(3):
            await consumer.receive(wait=SECOND)
        await consumer.unsubscribe("orders")
        await consumer.receive(wait=SECOND)
    asked = [
        (r.message_queue.topic.name, r.filter_expression.expression)
        for r in broker.requests("ReceiveMessage")
    ]
    orders, bills = ("orders", "a"), ("bills", "b")
    assert asked == [orders, bills, orders, bills, bills]
    told = [
        [entry.topic.name for entry in command.settings.subscription.subscriptions]
        for command in broker.requests("Telemetry")
    ]
    assert told == [["orders"], ["orders", "bills"], ["bills"]]


@virtually
async def test_a_refused_receive(broker: ScriptedBroker, connect: Connect) -> None:
    broker.refuse(
        "ReceiveMessage",
        v2.Status(code=v2.ILLEGAL_FILTER_EXPRESSION, message="||"),
        v2.Status(code=v2.CONSUMER_GROUP_NOT_FOUND, message="billing"),
        UnavailableError("gone"),
    )
    async with connect() as mq:
        consumer = mq.simple_consumer("orders", group="billing", tags="||")
        for error in (IllegalFilterError, GroupNotFoundError, UnavailableError):
            with pytest.raises(error):
                await consumer.receive()


@virtually
@pytest.mark.parametrize(
    "error",
    [
        UnavailableError("gone"),
        *(
            error_of(code, "broken", Endpoints.parse("127.0.0.1:8081"))
            for code in (
                GrpcCode.DEADLINE_EXCEEDED,
                GrpcCode.INTERNAL,
                GrpcCode.UNKNOWN,
                GrpcCode.RESOURCE_EXHAUSTED,
            )
        ),
    ],
)
async def test_a_reply_that_may_be_lost_is_asked_for_again(
    broker: ScriptedBroker, connect: Connect, error: LaterMQError
) -> None:
    broker.refuse("ReceiveMessage", error)
    broker.deliver(b"one")
    async with connect() as mq:
        consumer = mq.simple_consumer("orders", group="billing")
        with pytest.raises(type(error)):
            await consumer.receive()
        (delivery,) = await consumer.receive()
        await delivery.ack()
        await consumer.receive()
    lost, repeated, fresh = [each.attempt_id for each in broker.requests("ReceiveMessage")]
    assert lost == repeated != fresh


@virtually
async def test_a_wait_that_an_outage_has_made_too_long_is_shortened(
    broker: ScriptedBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call waited for a connection until the wait did not fit its deadline any more."""
    too_long = v2.Status(code=v2.ILLEGAL_POLLING_TIME, message="does not fit the deadline")
    stream = ScriptedTransport.server_stream

    async def late(*given: Any) -> AsyncGenerator[bytes, None]:
        if not broker.named("ReceiveMessage"):
            await asyncio.sleep(3.5)
        async with aclosing(stream(*given)) as answers:
            async for answer in answers:
                yield answer

    monkeypatch.setattr(ScriptedTransport, "server_stream", late)
    broker.refuse("ReceiveMessage", too_long)
    broker.deliver(b"one")
    async with connect() as mq:
        consumer = mq.simple_consumer("orders", group="billing")
        (delivery,) = await consumer.receive(wait=5 * SECOND)
        await delivery.ack()
        first, second = broker.requests("ReceiveMessage")
        assert first.attempt_id == second.attempt_id
        assert second.long_polling_timeout.ToTimedelta() == 1.5 * SECOND
        broker.refuse("ReceiveMessage", too_long)  # at once: it is the wait that is wrong
        with pytest.raises(IllegalTimeError):
            await consumer.receive(wait=5 * SECOND)


@virtually
async def test_of_topics_that_are_not_read_any_more_nothing_is_kept(
    broker: ScriptedBroker, connect: Connect
) -> None:
    """A client may read one topic after the other for years."""
    async with connect() as mq:
        consumer = mq.simple_consumer("orders", group="billing")
        await consumer.unsubscribe("orders")
        for number in range(100):
            topic = f"orders-{number}"
            broker.topics[topic] = 1
            broker.refuse("ReceiveMessage", UnavailableError("gone"))
            await consumer.subscribe(topic)
            with pytest.raises(UnavailableError):
                await consumer.receive()
            await consumer.unsubscribe(topic)
        assert not consumer._unanswered


@virtually
async def test_what_is_refused_is_not_asked_for_again(
    broker: ScriptedBroker, connect: Connect
) -> None:
    forbidden = error_of(GrpcCode.PERMISSION_DENIED, "no", Endpoints.parse("127.0.0.1:8081"))
    broken = v2.Status(code=v2.INTERNAL_SERVER_ERROR, message="broken")
    broker.refuse("ReceiveMessage", forbidden, broken)
    async with connect() as mq:
        consumer = mq.simple_consumer("orders", group="billing")
        for _ in range(2):
            with pytest.raises(RequestError):
                await consumer.receive()
        await consumer.receive()
    assert len({each.attempt_id for each in broker.requests("ReceiveMessage")}) == 3


@pytest.mark.parametrize("code", [GrpcCode.UNAVAILABLE, GrpcCode.DEADLINE_EXCEEDED])
@virtually
async def test_a_broker_that_is_away_or_stands_still_is_passed_over(
    broker: ScriptedBroker, connect: Connect, code: GrpcCode
) -> None:
    broker.second = Endpoints.parse("127.0.0.1:8082")
    error = error_of(code, "", Endpoints.parse("127.0.0.1:8081"))
    broker.refuse("ReceiveMessage", error)
    broker.deliver(b"one")
    async with connect() as mq:
        consumer = mq.simple_consumer("orders", group="billing")
        (delivery,) = await consumer.receive()
        assert delivery.body == b"one"
        broker.refuse("ReceiveMessage", error, error)
        with pytest.raises(type(error)):
            await consumer.receive()


@virtually
async def test_a_damaged_message_is_a_dead_letter_and_told(
    broker: ScriptedBroker, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    broker.deliver(b"one", body_digest=v2.Digest(type=v2.MD5, checksum="0"))
    broker.deliver(b"two")
    async with connect() as mq:
        consumer = mq.simple_consumer("orders", group="billing")
        (delivery,) = await consumer.receive(2)
        assert delivery.body == b"two"
    (forward,) = broker.named("ForwardMessageToDeadLetterQueue")
    assert forward.request.message_id == "id-1"
    assert forward.failure.class_name == "DamagedBodyError"
    assert "dead letter: message id-1 of topic orders is damaged" in caplog.text


@virtually
async def test_arguments_and_order_of_calls(connect: Connect) -> None:
    async with connect() as mq:
        consumer = mq.simple_consumer({}, group="billing")
        with pytest.raises(ValueError, match="at least 1"):
            await consumer.receive(0)
        with pytest.raises(TypeError, match=r"topic must be a str, not \['orders'\] \(list\)"):
            await consumer.unsubscribe(["orders"])  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="subscribe"):
            await consumer.receive()
        await consumer.close()
        with pytest.raises(ClosedError):
            await consumer.receive()


@virtually
async def test_what_was_settled_is_not_settled_otherwise(
    broker: ScriptedBroker, connect: Connect
) -> None:
    """A broker would take it for the same thing said twice, and do nothing."""
    broker.deliver(b"one")
    async with connect() as mq, mq.simple_consumer("orders", group="billing") as consumer:
        (delivery,) = await consumer.receive()
        await delivery.ack()
        for settle in (
            delivery.dead_letter("too late"),
            delivery.retry_in(SECOND),
            delivery.nack(),
            delivery.extend(SECOND),
        ):
            with pytest.raises(InvalidReceiptHandleError, match="was settled before"):
                await settle
        await delivery.ack()  # the same thing said twice
        assert len(broker.acked()) == 2
    assert not broker.requests("ForwardMessageToDeadLetterQueue")
    assert not broker.requests("ChangeInvisibleDuration")


@pytest.mark.parametrize(
    ("settle", "text"),
    [
        (lambda delivery: delivery.retry_in(SECOND), "before: given back"),
        (lambda delivery: delivery.nack(), "before: given back"),
        (lambda delivery: delivery.dead_letter("too late"), "before: dead-lettered"),
    ],
)
@virtually
async def test_what_was_settled_otherwise_is_not_acknowledged(
    broker: ScriptedBroker, connect: Connect, settle: Settle, text: str
) -> None:
    """A broker would take it for the last word: what should come again would be gone."""
    broker.deliver(b"one")
    async with connect() as mq, mq.simple_consumer("orders", group="billing") as consumer:
        (delivery,) = await consumer.receive()
        await settle(delivery)
        with pytest.raises(InvalidReceiptHandleError, match=text):
            await delivery.ack()
    assert not broker.acked()


@virtually
async def test_after_a_lost_lease_it_is_not_acknowledged(
    broker: ScriptedBroker, connect: Connect
) -> None:
    broker.deliver(b"one")
    broker.refuse("ChangeInvisibleDuration", LOST)
    async with connect() as mq, mq.simple_consumer("orders", group="billing") as consumer:
        (delivery,) = await consumer.receive()
        with pytest.raises(InvalidReceiptHandleError, match="the lease ended"):
            await delivery.extend(SECOND)
        with pytest.raises(InvalidReceiptHandleError, match="before: its lease was lost"):
            await delivery.ack()
    assert not broker.acked()
