"""Our client sends, a real broker stores: fields, times, batches, refusals, restarts."""

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import latermq
from latermq import Message
from latermq.errors import IllegalMessageError
from latermq_proto.latermq.v1 import pending_pb2
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wire_client import WireClient

MIB = 1 << 20
# On one processor gRPC's thread, idle, is the last to run: it told of calls of a loop long closed.
GRPC_LAST = """
import asyncio, os, sys
from datetime import timedelta
import latermq

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

def grpc_last():
    for thread in os.listdir("/proc/self/task"):
        if int(thread) != os.getpid():
            os.sched_setscheduler(int(thread), os.SCHED_IDLE, os.sched_param(0))

"""
# As Django's async_to_sync does, or a script: each send has an event loop of its own.
LOOPS = """
app, mq = latermq.App(), latermq.connect()

@app.listener(sys.argv[1], group=sys.argv[1])
async def bill(order: str) -> None: ...

for order in "123":
    asyncio.run(bill.send(order))
    grpc_last()
asyncio.run(app.close())
asyncio.run(mq.send(sys.argv[1], b"4"))
try:
    asyncio.run(mq.send(sys.argv[1], b"5"))
except RuntimeError as error:
    print(error)
"""
# Over grpcio: left while receives wait, closed in another loop, and not used at all.
ENDS = """
topic = sys.argv[1]

async def leave():
    async with latermq.connect(transport="grpcio") as mq:
        consumers = [mq.simple_consumer(topic, group=topic) for _ in range(3)]
        waiting = [
            asyncio.ensure_future(consumer.receive(1, wait=timedelta(seconds=20)))
            for consumer in consumers
        ]
        await mq.send(topic, b"0")
        grpc_last()
        await asyncio.sleep(0.2)
    await asyncio.gather(*waiting, return_exceptions=True)

for _ in range(3):
    asyncio.run(leave())
mq, unused = latermq.connect(transport="grpcio"), latermq.connect(transport="grpcio")
asyncio.run(mq.send(topic, b"1"))
asyncio.run(mq.close())
asyncio.run(unused.close())
"""


def printed_by(script: str, broker: BrokerProcess, name: str) -> str:
    """Run a script in a process of its own, which must say nothing on standard error."""
    ended = subprocess.run(
        [sys.executable, "-c", GRPC_LAST + script, name],
        env={**os.environ, "LATERMQ_ENDPOINT": broker.endpoint},
        capture_output=True, text=True, timeout=patient(60),
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


async def receive(mq: latermq.Client, name: str, count: int) -> list[latermq.Delivery]:
    """Take `count` messages and acknowledge them."""
    found: list[latermq.Delivery] = []
    async with mq.simple_consumer(name, group=name) as consumer, asyncio.timeout(patient(30)):
        while len(found) < count:
            for delivery in await consumer.receive(32, wait=timedelta(seconds=5)):
                await delivery.ack()
                found.append(delivery)
    return found


async def test_every_field_comes_back(sdk_broker: BrokerProcess, name: str) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    async with latermq.connect(sdk_broker.endpoint) as mq:
        receipt = await mq.send(
            name,
            b"one",
            tag="eu",
            keys=["k1", "k 2"],
            properties={"colour": "röt"},
        )
        (delivery,) = await receive(mq, name, 1)
    assert (delivery.topic, delivery.body, delivery.tag) == (name, b"one", "eu")
    assert (delivery.keys, delivery.properties) == (("k1", "k 2"), {"colour": "röt"})
    assert (delivery.message_id, delivery.attempt) == (receipt.message_id, 1)
    assert delivery.queue_offset == receipt.queue_offset
    assert delivery.stored_at is not None
    assert before < delivery.born_at <= datetime.now(UTC)
    assert (delivery.delivery_at, delivery.origin) == (None, None)


async def test_what_is_delayed_waits_until_its_time(
    sdk_broker: BrokerProcess, operator: WireClient, name: str
) -> None:
    """That it comes then, to the millisecond, is seen in test_sdk_in_time.py."""
    hour, later = timedelta(hours=1), datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    async with latermq.connect(sdk_broker.endpoint) as mq:
        before = datetime.now(UTC) - timedelta(milliseconds=1)
        for receipt in (
            await mq.send(name, b"delay", delay=hour),
            await mq.send(name, b"level", delay_level=18),
            await mq.send(name, b"at", deliver_at=later),
        ):
            assert receipt.recall_handle
        after = datetime.now(UTC) + timedelta(milliseconds=1)
    waiting = operator.call(
        operator.pending.ListPending,
        pending_pb2.ListPendingRequest(filter=pending_pb2.PendingFilter(topic=name)),
    ).messages
    due = sorted(datetime.fromtimestamp(each.due_at_ms / 1_000, UTC) for each in waiting)
    assert before + hour <= due[0] <= after + hour
    assert before + 2 * hour <= due[1] <= after + 2 * hour
    assert due[2:] == [later]


async def test_the_past_is_now(sdk_broker: BrokerProcess, name: str) -> None:
    async with latermq.connect(sdk_broker.endpoint) as mq:
        await mq.send(name, b"one", deliver_at=datetime(2020, 1, 1, tzinfo=UTC))
        assert [delivery.body for delivery in await receive(mq, name, 1)] == [b"one"]


async def test_a_batch_is_stored_in_order(sdk_broker: BrokerProcess, name: str) -> None:
    bodies = [b"%d" % number for number in range(500)]
    async with latermq.connect(sdk_broker.endpoint) as mq:
        receipts = await mq.send_batch(name, [Message(body) for body in bodies])
        found = await receive(mq, name, len(bodies))
    assert sorted(delivery.body for delivery in found) == sorted(bodies)
    assert len({receipt.message_id for receipt in receipts}) == len(bodies)


async def test_a_dedup_id_is_stored_once(sdk_broker: BrokerProcess, name: str) -> None:
    """Send one id after another, at a time and in a batch: each send is told of the first."""
    later = timedelta(milliseconds=1)
    async with latermq.connect(sdk_broker.endpoint) as mq:
        first = await mq.send(name, b"one", dedup_id="1")
        assert not first.duplicate
        again = await mq.send(name, b"again", dedup_id="1", delay=later)
        assert again == replace(first, duplicate=True)
        sends = [mq.send(name, b"two", dedup_id="2", message_group="g") for _ in range(5)]
        together = await asyncio.gather(*sends)
        assert len({each.message_id for each in together}) == 1
        assert sorted(each.duplicate for each in together) == [False] + [True] * 4
        batch = [Message(b"x", dedup_id=each) for each in ("1", "3", "3")]
        told = await mq.send_batch(name, [*batch, Message(b"three")])
        assert [each.duplicate for each in told] == [True, False, True, False]
        with pytest.raises(IllegalMessageError, match="transaction"):
            async with mq.transaction(name, b"half", properties={"LATERMQ_DEDUP_ID": "4"}):
                pass
        bodies = [delivery.body for delivery in await receive(mq, name, 4)]
    assert sorted(bodies) == [b"one", b"three", b"two", b"x"]


async def test_bodies_of_the_largest_size(sdk_broker: BrokerProcess, name: str) -> None:
    async with latermq.connect(sdk_broker.endpoint) as mq:
        await mq.send(name, bytes(4 * MIB))
        with pytest.raises(latermq.errors.MessageTooLargeError) as raised:
            await mq.send(name, bytes(4 * MIB + 1))
        (delivery,) = await receive(mq, name, 1)
    assert delivery.body == bytes(4 * MIB)
    assert raised.value.code == latermq.Code.MESSAGE_BODY_TOO_LARGE


async def test_an_app_sends_from_loop_to_loop_and_a_client_says_that_it_does_not(
    sdk_broker: BrokerProcess, name: str
) -> None:
    """The second send was stored, and raised a RuntimeError about futures."""
    printed = printed_by(LOOPS, sdk_broker, name)
    assert printed.startswith("this client belongs to the event loop that it was first used")
    async with latermq.connect(sdk_broker.endpoint) as mq:
        found = await receive(mq, name, 4)
    assert sorted(each.body for each in found) == [b"1", b"2", b"3", b"4"]


def test_nothing_is_printed_where_grpcio_is_left(sdk_broker: BrokerProcess, name: str) -> None:
    assert printed_by(ENDS, sdk_broker, name) == ""


async def test_refusals(sdk_broker: BrokerProcess, name: str) -> None:
    async with latermq.connect(sdk_broker.endpoint) as mq:
        with pytest.raises(latermq.errors.IllegalTopicError):
            await mq.send("no topic", b"one")
        for message, code in [
            (Message(b"one", tag="a|b"), latermq.Code.ILLEGAL_MESSAGE_TAG),
            (Message(b"one", keys=[" "]), latermq.Code.ILLEGAL_MESSAGE_KEY),
            (
                Message(b"one", properties={"DELAY": "1"}),
                latermq.Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
            ),
            (Message(b""), latermq.Code.MESSAGE_BODY_EMPTY),
            (Message(b"one", message_group="g" * 64), latermq.Code.ILLEGAL_MESSAGE_GROUP),
        ]:
            with pytest.raises(latermq.errors.IllegalMessageError) as raised:
                await mq.send_batch(name, [Message(b"fine"), message])
            assert raised.value.code == code
        with pytest.raises(latermq.errors.MessageTooLargeError) as too_large:
            await mq.send(name, b"one", properties={str(index): "" for index in range(129)})
    assert too_large.value.code == latermq.Code.MESSAGE_PROPERTIES_TOO_LARGE


async def test_a_type_the_topic_does_not_take(
    sdk_broker: BrokerProcess, operator: WireClient, name: str
) -> None:
    operator.create_topic(name, type="NORMAL")
    async with latermq.connect(sdk_broker.endpoint) as mq:
        await mq.send(name, b"one")
        with pytest.raises(latermq.errors.IllegalMessageError) as raised:
            await mq.send(name, b"one", delay=timedelta(minutes=1))
    assert raised.value.code == latermq.Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


async def test_sending_goes_on_after_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.start()
        async with latermq.connect(broker.endpoint) as mq:
            ids = [(await mq.send("orders", b"before")).message_id]
            await asyncio.to_thread(broker.kill)
            sending = asyncio.create_task(mq.send("orders", b"during"))
            await asyncio.to_thread(broker.start)
            ids.append((await sending).message_id)
            ids.append((await mq.send("orders", b"after")).message_id)
            found = await receive(mq, "orders", 3)
    assert sorted(delivery.message_id for delivery in found) == sorted(ids)


async def test_nobody_there(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        endpoint = broker.start().endpoint
    started = asyncio.get_running_loop().time()
    timeout = timedelta(seconds=0.5)
    async with latermq.connect(endpoint, request_timeout=timeout) as mq:
        with pytest.raises(latermq.errors.UnavailableError, match=endpoint):
            await mq.send("orders", b"one")
    assert asyncio.get_running_loop().time() - started < patient(3)


async def test_no_auto_create(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", "--no-auto-create") as broker:
        async with latermq.connect(broker.start().endpoint) as mq:
            with pytest.raises(latermq.errors.TopicNotFoundError):
                await mq.send("orders", b"one")
            with pytest.raises(latermq.errors.TopicNotFoundError):
                await mq.simple_consumer("orders", group="billing").receive()
