"""Being handed messages, by iteration and by listener, and every way to settle them."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from latermq import RECONSUME_LATER, ConsumeResult, Delivery
from latermq.client import Client
from latermq.delivery import Outcome
from latermq.errors import InvalidReceiptHandleError, UnavailableError
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from support.scripted_broker import ScriptedBroker
from support.virtual_loop import virtually

Connect = Callable[[], Client]
LOST = v2.Status(code=v2.INVALID_RECEIPT_HANDLE, message="the lease ended")
BROKEN = v2.Status(code=v2.INTERNAL_SERVER_ERROR, message="broken")
BUSY = v2.Status(code=v2.TOO_MANY_REQUESTS, message="slow down")
GONE = UnavailableError("gone")


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
    assert broker.acked() == ["id-1", "id-2", "id-3"]
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
    failure = nack.failure
    assert (failure.class_name, failure.text, failure.rejected) == ("TimeoutError", "bank", False)
    assert "raise TimeoutError" in failure.stack
    assert len(failure.stack_hash) == 16
    assert broker.acked() == ["id-2"]


@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit, KeyboardInterrupt])
def test_what_ends_the_program_counts_and_goes_further(
    broker: ScriptedBroker, connect: Connect, kind: type[BaseException]
) -> None:
    """A message that ends its program is a dead letter in the end, too."""

    @virtually
    async def work() -> None:
        broker.deliver(b"bad")
        async with connect() as mq:
            delivery = await anext(mq.push_consumer("orders", group="billing"))
            with pytest.raises(kind):
                async with delivery:
                    raise kind("no more")
            assert delivery.outcome is Outcome.FAILED

    work()
    (nack,) = broker.named("ChangeInvisibleDuration")
    assert not nack.request.suspend
    assert nack.failure.class_name == kind.__name__


@virtually
async def test_what_ends_the_program_waits_for_no_broker(
    broker: ScriptedBroker, connect: Connect
) -> None:
    broker.deliver(b"bad")
    async with connect() as mq:
        delivery = await anext(mq.push_consumer("orders", group="billing"))
        broker.refuse("ChangeInvisibleDuration", BROKEN)
        with pytest.raises(SystemExit):
            async with delivery:
                raise SystemExit(3)
    assert len(broker.named("ChangeInvisibleDuration")) == 1


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
    failure = forward.failure
    assert (failure.text, failure.rejected) == ("no such customer", True)
    assert broker.acked() == ["id-3"]


@virtually
async def test_no_wait_at_all_is_still_one_that_the_broker_obeys(
    broker: ScriptedBroker, connect: Connect
) -> None:
    """It takes a nack of zero for that of a client that cannot read its policy."""
    broker.deliver(b"at once")
    async with connect() as mq:
        delivery = await anext(mq.push_consumer("orders", group="billing"))
        await delivery.retry_in(timedelta(0))
    (change,) = broker.requests("ChangeInvisibleDuration")
    assert change.invisible_duration.ToMilliseconds() == 1
    assert not change.suspend


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
        assert broker.returned() == ["id-1"]
    assert broker.acked() == []


@virtually
async def test_cancelled_while_it_acknowledges(broker: ScriptedBroker, connect: Connect) -> None:
    broker.deliver(b"one")
    broker.refuse("AckMessage", *[BROKEN] * 100)
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")

        async def work() -> None:
            async with await anext(consumer):
                pass

        working = asyncio.create_task(work())
        await asyncio.sleep(5)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert broker.returned() == ["id-1"]
        assert consumer._identities.present.held_count == 0


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
    assert len(broker.acked()) == 20


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
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        async with await anext(consumer) as first:
            pass
        broker.deliver(b"two")
        second = await anext(consumer)
        with pytest.raises(InvalidReceiptHandleError):
            await second.ack()
        assert (first.settled, second.settled) == (True, True)
        assert consumer._identities.present.held_count == 0


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
    assert len(broker.acked()) == 10


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
    assert fails.failure.class_name == "ValueError"
    assert len(broker.named("ForwardMessageToDeadLetterQueue")) == 1
    assert broker.acked() == ["id-1", "id-5"]


@virtually
async def test_a_listener_that_raises_cancelled_error_has_failed(
    broker: ScriptedBroker, connect: Connect
) -> None:
    """Taken for the consumer's end, it came again at once, uncounted, for ever."""
    broker.deliver(b"one")
    broker.deliver(b"two")
    async with connect() as mq:
        single = mq.push_consumer("orders", group="billing")

        @single.listener
        async def bill(delivery: Delivery) -> None:
            cancelled = asyncio.ensure_future(asyncio.sleep(60))
            cancelled.cancel()
            await cancelled

        async with single:
            await asyncio.sleep(1)
        broker.deliver(b"three")
        several = mq.push_consumer("orders", group="billing")

        @several.batch_listener(1)
        async def bill_all(deliveries: list[Delivery]) -> None:
            raise asyncio.CancelledError

        async with several:
            await asyncio.sleep(1)
    nacks = broker.named("ChangeInvisibleDuration")
    assert [each.request.message_id for each in nacks] == ["id-1", "id-2", "id-3"]
    assert not any(each.request.suspend for each in nacks)
    assert {each.failure.class_name for each in nacks} == {"HandlerCancelledError"}


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
    assert broker.acked() == []
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
    assert broker.acked() == ["id-1"]


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
    assert broker.acked() == ["id-1"]


def test_listeners_that_make_no_sense(connect: Connect) -> None:
    consumer = connect().push_consumer("orders", group="billing")
    with pytest.raises(TypeError, match="async def"):
        consumer.listener(lambda delivery: None)  # type: ignore[arg-type,return-value]
