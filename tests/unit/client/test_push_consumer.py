"""Being handed messages: by iteration and by listener, failing, bounded, ending well."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from latermq import (
    RECONSUME_LATER,
    ClosedError,
    ConsumeResult,
    Delivery,
    GroupNotFoundError,
    InvalidReceiptHandleError,
    UnavailableError,
)
from latermq.client import Client
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.latermq.v1 import failure_pb2
from support.scripted_broker import Recorded, ScriptedBroker
from support.virtually import virtually

Connect = Callable[[], Client]
LOST = v2.Status(code=v2.INVALID_RECEIPT_HANDLE, message="the lease ended")
BROKEN = v2.Status(code=v2.INTERNAL_SERVER_ERROR, message="broken")
BUSY = v2.Status(code=v2.TOO_MANY_REQUESTS, message="slow down")
GONE = UnavailableError("gone")


def acked(broker: ScriptedBroker) -> list[str]:
    return [r.entries[0].message_id for r in broker.requests("AckMessage")]


def failure_of(call: Recorded) -> failure_pb2.Failure:
    header = call.headers["latermq-failure-bin"]
    assert isinstance(header, bytes)
    return failure_pb2.Failure.FromString(header)


def returned(broker: ScriptedBroker) -> list[str]:
    """Ids of leases given back at once and uncounted."""
    return [
        request.message_id
        for request in broker.requests("ChangeInvisibleDuration")
        if request.suspend and not request.invisible_duration.ToMilliseconds()
    ]


# Iterating --------------------------------------------------------------------------------------


@virtually
async def test_iterating_acks_each_block(broker: ScriptedBroker, connect: Connect) -> None:
    for body in (b"one", b"two", b"three"):
        broker.deliver(body)
    bodies = []
    async with connect() as mq:
        async for delivery in mq.push_consumer("orders", group="billing", tags="eu"):
            async with delivery:
                bodies.append(delivery.body)
            if len(bodies) == 3:
                break
    assert bodies == [b"one", b"two", b"three"]
    assert acked(broker) == ["id-1", "id-2", "id-3"]
    request = broker.requests("ReceiveMessage")[0]
    assert request.auto_renew
    assert (request.batch_size, request.message_queue.id) == (32, -1)
    assert request.filter_expression.expression == "eu"
    assert request.long_polling_timeout.ToSeconds() == 20


@virtually
async def test_a_failure_goes_back_with_its_reason_and_the_loop_goes_on(
    broker: ScriptedBroker, connect: Connect
) -> None:
    for seconds in (1, 5, 10):
        broker.backoff.customized_backoff.next.add().FromSeconds(seconds)
    broker.deliver(b"bad", delivery_attempt=2)
    broker.deliver(b"good")
    async with connect() as mq:
        async for delivery in mq.push_consumer("orders", group="billing"):
            async with delivery:
                if delivery.body == b"bad":
                    raise TimeoutError("bank")
                break
    (nack,) = broker.named("ChangeInvisibleDuration")
    assert nack.request.invisible_duration.ToSeconds() == 5
    assert not nack.request.suspend
    failure = failure_of(nack)
    assert (failure.class_name, failure.text, failure.rejected) == ("TimeoutError", "bank", False)
    assert "raise TimeoutError" in failure.stack
    assert len(failure.stack_hash) == 16
    assert acked(broker) == ["id-2"]


@virtually
async def test_exponential_policy(broker: ScriptedBroker, connect: Connect) -> None:
    growth = broker.backoff.exponential_backoff
    growth.initial.FromSeconds(2)
    growth.max.FromSeconds(60)
    growth.multiplier = 3
    broker.deliver(b"bad", delivery_attempt=3)
    async with connect() as mq:
        async for delivery in mq.push_consumer("orders", group="billing"):
            await delivery.nack()
            break
    (nack,) = broker.named("ChangeInvisibleDuration")
    assert nack.request.invisible_duration.ToSeconds() == 18


@virtually
async def test_retry_in_and_dead_letter_settle_at_once(
    broker: ScriptedBroker, connect: Connect
) -> None:
    for body in (b"later", b"never", b"extended"):
        broker.deliver(body)
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        async with await anext(consumer) as later:
            await later.retry_in(timedelta(minutes=5))
        async with await anext(consumer) as never:
            await never.dead_letter("no such customer")
        async with await anext(consumer) as extended:
            await extended.extend(timedelta(hours=1))
    changes = broker.requests("ChangeInvisibleDuration")
    assert [change.invisible_duration.ToSeconds() for change in changes] == [300, 3600]
    (forward,) = broker.named("ForwardMessageToDeadLetterQueue")
    failure = failure_of(forward)
    assert (failure.text, failure.rejected) == ("no such customer", True)
    assert acked(broker) == ["id-3"]


@virtually
async def test_a_cancelled_block_returns_the_message_uncounted(
    broker: ScriptedBroker, connect: Connect
) -> None:
    broker.deliver(b"one")
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")

        async def work() -> None:
            async with await anext(consumer):
                await asyncio.sleep(1000)

        working = asyncio.create_task(work())
        await asyncio.sleep(1)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert returned(broker) == ["id-1"]
    assert acked(broker) == []


@virtually
async def test_several_tasks_may_iterate(broker: ScriptedBroker, connect: Connect) -> None:
    for number in range(20):
        broker.deliver(b"%d" % number)
    seen: dict[str, int] = {}

    async def work(name: str, consumer: Any) -> None:
        async for delivery in consumer:
            async with delivery:
                await asyncio.sleep(1)
                seen[name] = seen.get(name, 0) + 1

    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        workers = [asyncio.create_task(work(name, consumer)) for name in "abcd"]
        await asyncio.sleep(5.5)
        await consumer.close()
        await asyncio.gather(*workers)
    assert seen == {"a": 5, "b": 5, "c": 5, "d": 5}
    assert len(acked(broker)) == 20


@virtually
async def test_an_ack_is_repeated_until_the_broker_has_it(
    broker: ScriptedBroker, connect: Connect
) -> None:
    broker.refuse("AckMessage", BROKEN, BROKEN)
    broker.deliver(b"one")
    async with connect() as mq:
        async for delivery in mq.push_consumer("orders", group="billing"):
            async with delivery:
                pass
            break
    first, second, third = (call.at for call in broker.named("AckMessage"))
    assert 0.8 <= second - first <= 1.2
    assert 1.2 <= third - second <= 2


@virtually
async def test_a_lost_lease_ends_the_block_quietly_and_the_call_loudly(
    broker: ScriptedBroker, connect: Connect
) -> None:
    broker.refuse("AckMessage", LOST, LOST)
    broker.deliver(b"one")
    broker.deliver(b"two")
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        async with await anext(consumer) as first:
            pass
        second = await anext(consumer)
        with pytest.raises(InvalidReceiptHandleError):
            await second.ack()
        assert (first.settled, second.settled) == (True, True)
        assert consumer._windows == {}


# Listening --------------------------------------------------------------------------------------


@virtually
async def test_a_listener_is_called_so_many_at_a_time(
    broker: ScriptedBroker, connect: Connect
) -> None:
    for number in range(10):
        broker.deliver(b"%d" % number)
    running, most = 0, 0
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing", concurrency=3)

        @consumer.listener
        async def bill(delivery: Delivery) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(1)
            running -= 1

        async with consumer:
            await asyncio.sleep(4.5)
    assert most == 3
    assert len(acked(broker)) == 10


@virtually
async def test_what_a_listener_returns_or_raises(broker: ScriptedBroker, connect: Connect) -> None:
    for body in (b"done", b"later", b"fails", b"settles", b"nothing"):
        broker.deliver(body)
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")

        @consumer.listener
        async def bill(delivery: Delivery) -> ConsumeResult | None:
            if delivery.body == b"later":
                return RECONSUME_LATER
            if delivery.body == b"fails":
                raise ValueError("no card")
            if delivery.body == b"settles":
                await delivery.dead_letter("no such customer")
            return None if delivery.body == b"nothing" else ConsumeResult.SUCCESS

        async with consumer:
            await asyncio.sleep(1)
    later, fails = broker.named("ChangeInvisibleDuration")
    assert (later.request.message_id, fails.request.message_id) == ("id-2", "id-3")
    assert "latermq-failure-bin" not in later.headers
    assert failure_of(fails).class_name == "ValueError"
    assert len(broker.named("ForwardMessageToDeadLetterQueue")) == 1
    assert acked(broker) == ["id-1", "id-5"]


@virtually
async def test_none_where_a_result_is_due_means_later(
    broker: ScriptedBroker, connect: Connect
) -> None:
    broker.deliver(b"one")
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")

        async def bill(delivery: Delivery) -> ConsumeResult:
            return None  # type: ignore[return-value]

        consumer.listener(bill)
        async with consumer:
            await asyncio.sleep(0.5)
    assert acked(broker) == []
    assert broker.requests("ChangeInvisibleDuration")[0].message_id == "id-1"


@virtually
async def test_run_lasts_until_it_is_cancelled(broker: ScriptedBroker, connect: Connect) -> None:
    broker.deliver(b"one")
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")

        @consumer.listener
        async def bill(delivery: Delivery) -> None: ...

        running = asyncio.create_task(consumer.run())
        await asyncio.sleep(100)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert consumer.closed
        assert len(broker.named("NotifyClientTermination")) == 1
    assert acked(broker) == ["id-1"]


@virtually
async def test_a_listener_may_close_its_consumer(broker: ScriptedBroker, connect: Connect) -> None:
    broker.deliver(b"one")
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")

        @consumer.listener
        async def bill(delivery: Delivery) -> None:
            await delivery.ack()
            await consumer.close()

        await consumer.run()
    assert acked(broker) == ["id-1"]


def test_listeners_that_make_no_sense(connect: Connect) -> None:
    consumer = connect().push_consumer("orders", group="billing")
    with pytest.raises(TypeError, match="async def"):
        consumer.listener(lambda delivery: None)  # type: ignore[arg-type,return-value]


# Bounds -----------------------------------------------------------------------------------------


@virtually
async def test_receives_stop_when_too_many_messages_wait(
    broker: ScriptedBroker, connect: Connect
) -> None:
    for _ in range(100):
        broker.deliver(b"x")
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing", cached_count_max=40)
        held = [await anext(consumer)]
        await asyncio.sleep(60)
        assert [r.batch_size for r in broker.requests("ReceiveMessage")] == [32, 8]
        assert len(broker.inbox) == 60
        await held[0].ack()
        await asyncio.sleep(1)
        assert broker.requests("ReceiveMessage")[-1].batch_size == 1
        assert len(broker.inbox) == 59


@virtually
async def test_receives_stop_when_too_many_bytes_wait(
    broker: ScriptedBroker, connect: Connect
) -> None:
    for _ in range(100):
        broker.deliver(bytes(100))
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing", cached_bytes_max=5000)
        await consumer.start()
        await asyncio.sleep(60)
        assert len(broker.inbox) == 36  # 3200 bytes left room, 6400 do not


@virtually
async def test_flow_control_of_the_broker_is_heeded(
    broker: ScriptedBroker, connect: Connect
) -> None:
    broker.refuse("ReceiveMessage", *[BUSY] * 20)
    broker.deliver(b"one")
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        await anext(consumer)
    at = [call.at for call in broker.named("ReceiveMessage")]
    gaps = [later - sooner for sooner, later in pairwise(at[:21])]
    assert gaps[0] < 0.03
    assert 0.8 <= gaps[-1] <= 1.0


@virtually
async def test_a_broker_that_answers_nothing_at_once_is_not_hammered(
    broker: ScriptedBroker, connect: Connect
) -> None:
    nothing = v2.Status(code=v2.MESSAGE_NOT_FOUND)
    broker.refuse("ReceiveMessage", *[nothing] * 1000)
    async with connect() as mq, mq.push_consumer("orders", group="billing"):
        await asyncio.sleep(10)
    assert len(broker.named("ReceiveMessage")) < 120


# Assignments ------------------------------------------------------------------------------------


@virtually
async def test_assignments_are_asked_every_five_seconds_and_followed(
    broker: ScriptedBroker, connect: Connect
) -> None:
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        await consumer.start()
        broker.assigned = False
        await asyncio.sleep(12)
        assert len(broker.named("QueryAssignment")) == 3
        broker.deliver(b"one")
        await asyncio.sleep(2)
        assert len(broker.inbox) == 1
        broker.assigned = True
        assert (await anext(consumer)).body == b"one"


@virtually
async def test_an_absent_broker_does_not_end_it(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        await consumer.start()
        for name in ("ReceiveMessage", "QueryAssignment", "Heartbeat", "Telemetry"):
            broker.refuse(name, *[GONE] * 5)
        broker.forget_clients()
        await asyncio.sleep(30)
        broker.deliver(b"one")
        assert (await anext(consumer)).body == b"one"


@virtually
async def test_a_group_that_does_not_exist(broker: ScriptedBroker, connect: Connect) -> None:
    missing = v2.Status(code=v2.CONSUMER_GROUP_NOT_FOUND, message="billing")
    broker.refuse("QueryAssignment", missing)
    async with connect() as mq:
        with pytest.raises(GroupNotFoundError):
            async with mq.push_consumer("orders", group="billing"):
                pass


@virtually
async def test_a_damaged_message_never_reaches_the_application(
    broker: ScriptedBroker, connect: Connect
) -> None:
    broker.deliver(b"one", body_digest=v2.Digest(type=v2.MD5, checksum="0"))
    broker.deliver(b"two")
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        assert (await anext(consumer)).body == b"two"
        await asyncio.sleep(1)
    assert failure_of(broker.named("ChangeInvisibleDuration")[0]).class_name == "DamagedBodyError"


# Order ------------------------------------------------------------------------------------------


@virtually
async def test_an_ordered_group_keeps_its_order(broker: ScriptedBroker, connect: Connect) -> None:
    broker.fifo = True
    for group, body in [("a", b"a1"), ("a", b"a2"), ("b", b"b1"), ("a", b"a3")]:
        broker.deliver(body, message_group=group)
    order: list[bytes] = []
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")

        @consumer.listener
        async def bill(delivery: Delivery) -> None:
            order.append(b"+" + delivery.body)
            await asyncio.sleep(1)
            order.append(b"-" + delivery.body)

        async with consumer:
            await asyncio.sleep(4)
    assert order[:4] == [b"+a1", b"+b1", b"-a1", b"-b1"]
    assert order[4:] == [b"+a2", b"-a2", b"+a3", b"-a3"]


@virtually
async def test_behind_a_failure_the_message_group_waits(
    broker: ScriptedBroker, connect: Connect
) -> None:
    broker.fifo = True
    for body in (b"a1", b"a2"):
        broker.deliver(body, message_group="a")
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        async with await anext(consumer):
            raise ValueError("no card")
        await asyncio.sleep(1)
        assert returned(broker) == ["id-2"]


# The end ----------------------------------------------------------------------------------------


@virtually
async def test_closing_finishes_what_runs_and_returns_what_waits(
    broker: ScriptedBroker, connect: Connect
) -> None:
    for number in range(5):
        broker.deliver(b"%d" % number)
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing", concurrency=2)

        @consumer.listener
        async def bill(delivery: Delivery) -> None:
            await asyncio.sleep(10)

        await consumer.start()
        await asyncio.sleep(1)
        await consumer.close()
    assert sorted(acked(broker)) == ["id-1", "id-2"]
    assert sorted(returned(broker)) == ["id-3", "id-4", "id-5"]
    assert broker.calls[-1].name == "NotifyClientTermination"


@virtually
async def test_work_that_outlasts_the_grace_is_returned(
    broker: ScriptedBroker, connect: Connect
) -> None:
    broker.deliver(b"one")
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")

        @consumer.listener
        async def bill(delivery: Delivery) -> None:
            await asyncio.sleep(1000)

        await consumer.start()
        await asyncio.sleep(1)
        loop = asyncio.get_running_loop()
        start = loop.time()
        await consumer.close(timedelta(seconds=5))
        assert loop.time() - start == pytest.approx(5)
    assert returned(broker) == ["id-1"]
    assert acked(broker) == []


@virtually
async def test_closing_does_not_wait_for_the_callers_own(
    broker: ScriptedBroker, connect: Connect
) -> None:
    broker.deliver(b"one")
    loop = asyncio.get_running_loop()
    async with connect() as mq:
        async for _ in mq.push_consumer("orders", group="billing"):
            break
        start = loop.time()
    assert loop.time() == start


@virtually
async def test_after_closing(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        waiting = asyncio.create_task(anext(consumer, None))
        await asyncio.sleep(1)
        await consumer.close()
        assert await waiting is None
        await consumer.close()
        with pytest.raises(ClosedError):
            await consumer.start()
        assert [delivery async for delivery in consumer] == []
        assert len(broker.named("NotifyClientTermination")) == 1
