"""A push consumer among others: bounded, following its assignment, in order, ending well."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from latermq import Delivery
from latermq._consuming.receiver import ON_ITS_WAY_S
from latermq._values.settings import REQUEST_TIMEOUT
from latermq.client import Client
from latermq.errors import (
    ClosedError,
    GroupNotFoundError,
    UnavailableError,
)
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2 import service_pb2 as rpc
from support.scripted_broker import ScriptedBroker, ScriptedTransport
from support.virtual_loop import virtually

Connect = Callable[[], Client]
LOST = v2.Status(code=v2.INVALID_RECEIPT_HANDLE, message="the lease ended")
BROKEN = v2.Status(code=v2.INTERNAL_SERVER_ERROR, message="broken")
BUSY = v2.Status(code=v2.TOO_MANY_REQUESTS, message="slow down")
GONE = UnavailableError("gone")


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
@pytest.mark.parametrize("closes", [False, True])
async def test_a_queue_that_is_taken_away_in_the_middle_of_a_reply_is_read_to_its_end(
    broker: ScriptedBroker, connect: Connect, closes: bool
) -> None:
    """Not read, it would be leased to a client that lives and never had it."""
    broker.element_gap_s = ON_ITS_WAY_S - 0.05
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        await consumer.start()
        await asyncio.sleep(4.9)  # the receive waits for long, and the assignment is asked soon
        broker.assigned = False
        bodies = [b"one", b"two", b"three", b"four"]
        for body in bodies:
            broker.deliver(body)
        await asyncio.sleep(0.3)
        assert len(broker.named("QueryAssignment")) == 2
        if closes:
            await consumer.close()
            assert sorted(broker.returned()) == ["id-1", "id-2", "id-3", "id-4"]
        else:
            async with asyncio.timeout(10):
                assert [(await anext(consumer)).body for _ in bodies] == bodies
        broker.deliver(b"five")
        await asyncio.sleep(20)
        assert len(broker.inbox) == 1
        assert len(broker.named("ReceiveMessage")) == 1


@virtually
async def test_one_that_closes_begins_no_receive(broker: ScriptedBroker, connect: Connect) -> None:
    """It reads on for a while what is on its way, and follows no assignment meanwhile."""
    broker.element_gap_s = ON_ITS_WAY_S - 0.05
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        await consumer.start()
        await asyncio.sleep(4.8)  # the assignment is asked soon
        for body in (b"one", b"two", b"three", b"four"):
            broker.deliver(body)
        await asyncio.sleep(0.1)
        await consumer.close()
        assert len(broker.returned()) == 4
    assert len(broker.named("QueryAssignment")) == 1
    assert len(broker.named("ReceiveMessage")) == 1


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
    (forward,) = broker.named("ForwardMessageToDeadLetterQueue")
    assert forward.failure.class_name == "DamagedBodyError"


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
        assert broker.returned() == ["id-2"]


@virtually
async def test_what_came_with_a_failure_waits_too_however_late_it_is_read(
    broker: ScriptedBroker, connect: Connect
) -> None:
    broker.fifo = True
    broker.element_gap_s = 0.5
    for body in (b"a1", b"a2", b"a3"):
        broker.deliver(body, message_group="a")
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        seen: list[bytes] = []

        @consumer.listener
        async def bill(delivery: Delivery) -> None:
            seen.append(delivery.body)
            raise ValueError("no card")

        async with consumer:
            await asyncio.sleep(3)
        assert seen == [b"a1"]
        assert sorted(broker.returned()) == ["id-2", "id-3"]


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
    assert sorted(broker.acked()) == ["id-1", "id-2"]
    assert sorted(broker.returned()) == ["id-3", "id-4", "id-5"]
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
    assert broker.returned() == ["id-1"]
    assert broker.acked() == []


@virtually
async def test_closing_while_the_broker_is_away_takes_one_time_out(
    broker: ScriptedBroker, connect: Connect
) -> None:
    """It took one for each 16 of those that waited: three minutes for a full window."""
    for number in range(200):
        broker.deliver(b"%d" % number)
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        await consumer.start()
        await asyncio.sleep(1)
        assert consumer.stats[0].waiting == 200
        broker.refuse("ChangeInvisibleDuration", *[UnavailableError("gone")] * 1_000)
        loop = asyncio.get_running_loop()
        start = loop.time()
        await consumer.close()
        assert loop.time() - start <= REQUEST_TIMEOUT.total_seconds() + 1
        assert consumer.stats[0].returned == 200
    assert len({each.message_id for each in broker.requests("ChangeInvisibleDuration")}) == 16


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
    assert loop.time() == start + ON_ITS_WAY_S  # for a reply, and for nobody's work


@virtually
async def test_closing_does_not_wait_for_who_is_gone(
    broker: ScriptedBroker, connect: Connect
) -> None:
    broker.deliver(b"one")
    loop = asyncio.get_running_loop()
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        await asyncio.create_task(anext(consumer))  # takes it, and ends
        start = loop.time()
        await consumer.close()
        assert loop.time() == start + ON_ITS_WAY_S  # for a reply, and for nobody's work


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


@pytest.mark.parametrize("broadcast", [False, True])
@virtually
async def test_closed_while_it_starts_it_receives_nothing(
    broker: ScriptedBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch, *, broadcast: bool
) -> None:
    """What it asks for its start is answered after the receives ended, before the farewell is."""
    unary, asked = ScriptedTransport.unary, asyncio.Event()

    async def slow(self: ScriptedTransport, path: str, *given: Any) -> bytes:
        if path.endswith(("QueryAssignment", "QueryOffset")):
            asked.set()
            await asyncio.sleep(0.2)
        if path.endswith("QueryOffset"):
            return rpc.QueryOffsetResponse(status=v2.Status(code=v2.OK)).SerializeToString()
        if path.endswith("NotifyClientTermination"):
            await asyncio.sleep(0.5)
        return await unary(self, path, *given)

    monkeypatch.setattr(ScriptedTransport, "unary", slow)
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing", broadcast=broadcast)
        starting = asyncio.create_task(consumer.start())
        await asked.wait()
        await consumer.close()
        with pytest.raises(ClosedError):
            await starting
        assert not consumer.receiving
    assert broker.named("ReceiveMessage") == []
    assert not [each for each in asyncio.all_tasks() if each.get_name().startswith("latermq")]


async def close_while_a_reply_comes(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        await consumer.start()
        await asyncio.sleep(0.1)
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0.1)
        broker.deliver(b"late")
        await closing


@virtually
async def test_a_reply_on_its_way_while_it_closes_is_read_and_given_back(
    broker: ScriptedBroker, connect: Connect
) -> None:
    """Not read, it would be leased until the farewell, and an attempt of each message burnt."""
    await close_while_a_reply_comes(broker, connect)
    assert broker.returned() == ["id-1"]
    assert len(broker.requests("ReceiveMessage")) == 1


@virtually
async def test_what_came_late_is_given_back_before_the_farewell(
    broker: ScriptedBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long that takes, as while the connection is made anew."""
    unary = ScriptedTransport.unary

    async def slow(self: ScriptedTransport, path: str, *given: Any) -> bytes:
        if path.endswith("ChangeInvisibleDuration"):
            await asyncio.sleep(0.5)
        return await unary(self, path, *given)

    monkeypatch.setattr(ScriptedTransport, "unary", slow)
    await close_while_a_reply_comes(broker, connect)
    assert broker.returned() == ["id-1"]


@virtually
async def test_what_waits_at_the_broker_is_not_waited_for(
    broker: ScriptedBroker, connect: Connect
) -> None:
    loop = asyncio.get_running_loop()
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        await consumer.start()
        await asyncio.sleep(5)
        began = loop.time()
        await consumer.close()
        assert loop.time() - began < 0.01
