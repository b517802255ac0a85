"""Sending: what goes out, what is tried again, and when."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from latermq import Message, SendReceipt
from latermq.client import Client
from latermq.codes import Code
from latermq.errors import (
    ClosedError,
    DiskFullError,
    IllegalMessageError,
    LaterMQError,
    MessageTooLargeError,
    PartialSendError,
    RequestTimeoutError,
    ServerError,
    TooManyRequestsError,
    TopicNotFoundError,
    UnavailableError,
)
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from support.scripted_broker import ScriptedBroker
from support.virtual_loop import virtually

Connect = Callable[[], Client]
BUSY = v2.Status(code=v2.TOO_MANY_REQUESTS, message="slow down")
GONE = UnavailableError("gone")
LATE = RequestTimeoutError(Code.REQUEST_TIMEOUT, "late")
BROKEN = v2.Status(code=v2.INTERNAL_SERVER_ERROR, message="broken")
FULL = v2.Status(code=v2.INTERNAL_SERVER_ERROR, message="disk full: need 2 bytes free")
WRONG = v2.Status(code=v2.ILLEGAL_MESSAGE_KEY, message="no such key")


@virtually
async def test_a_send_and_its_receipt(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq:
        receipt = await mq.send("orders", b"one", tag="eu", keys=["k"], message_group="g")
    (request,) = broker.requests("SendMessage")
    (message,) = request.messages
    system = message.system_properties
    assert receipt == SendReceipt(topic="orders", message_id=system.message_id, queue_offset=0)
    assert (message.body, system.tag, system.message_group) == (b"one", "eu", "g")


@virtually
async def test_the_handshake(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq:
        await mq.send("orders", b"one")
    names = [call.name for call in broker.calls]
    assert names == ["QueryRoute", "Telemetry", "SendMessage", "NotifyClientTermination"]
    (settings,) = broker.requests("Telemetry")
    assert [topic.name for topic in settings.settings.publishing.topics] == ["orders"]
    assert len({call.headers["x-mq-client-id"] for call in broker.calls}) == 1


@virtually
async def test_a_second_topic_is_announced_on_the_same_stream(
    broker: ScriptedBroker, connect: Connect
) -> None:
    broker.topics["bills"] = 1
    async with connect() as mq:
        await mq.send("orders", b"one")
        await mq.send("bills", b"two")
        await mq.send("bills", b"three")
    _, second = broker.requests("Telemetry")
    assert [topic.name for topic in second.settings.publishing.topics] == ["orders", "bills"]
    assert len(broker.streams) == 1
    assert len(broker.named("QueryRoute")) == 2


@virtually
async def test_concurrent_sends_share_one_lookup(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq:
        await asyncio.gather(*(mq.send("orders", b"one") for _ in range(10)))
    assert len(broker.named("QueryRoute")) == 1
    assert sum(len(request.messages) for request in broker.requests("SendMessage")) == 10


@virtually
async def test_queues_take_turns_and_a_group_stays(
    broker: ScriptedBroker, connect: Connect
) -> None:
    async with connect() as mq:
        for _ in range(8):
            await mq.send("orders", b"one")
        for _ in range(4):
            await mq.send("orders", b"one", message_group="g")
    ids = [r.messages[0].system_properties.queue_id for r in broker.requests("SendMessage")]
    assert ids[:8] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert len(set(ids[8:])) == 1


@virtually
async def test_a_batch_is_one_call(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq:
        messages = [Message(b"one", tag="a"), Message(b"two"), Message(b"three")]
        receipts = await mq.send_batch("orders", messages)
        assert await mq.send_batch("orders", []) == []
    (request,) = broker.requests("SendMessage")
    assert [message.body for message in request.messages] == [b"one", b"two", b"three"]
    assert [receipt.queue_offset for receipt in receipts] == [0, 1, 2]
    assert len({receipt.message_id for receipt in receipts}) == 3


@virtually
async def test_times(broker: ScriptedBroker, connect: Connect) -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    before = datetime.now(UTC)
    async with connect() as mq:
        await mq.send("orders", b"one", deliver_at=at)
        await mq.send("orders", b"two", delay=timedelta(minutes=5))
        await mq.send("orders", b"three", delay_level=4)
        await mq.send("orders", b"four", delay_level=19)  # the broker has its last step
    exact, later, level, beyond = broker.named("SendMessage")
    stamps = [c.request.messages[0].system_properties for c in (exact, later, level)]
    assert stamps[0].delivery_timestamp.ToDatetime(UTC) == at
    wait = stamps[1].delivery_timestamp.ToDatetime(UTC) - before
    assert timedelta(minutes=5) <= wait < timedelta(minutes=6)
    assert not stamps[2].HasField("delivery_timestamp")
    assert level.headers["latermq-delay-level"] == "4"
    assert beyond.headers["latermq-delay-level"] == "19"
    assert "latermq-delay-level" not in exact.headers


@virtually
async def test_times_that_contradict_each_other(connect: Connect) -> None:
    async with connect() as mq:
        for level in (0, 1_000_000_000):
            with pytest.raises(ValueError, match="delay_level must be 1 to 999999999"):
                await mq.send("orders", b"one", delay_level=level)
        with pytest.raises(ValueError, match="not both"):
            await mq.send("orders", b"one", delay_level=1, delay=timedelta(0))


@virtually
async def test_three_tries_at_once_with_one_id(broker: ScriptedBroker, connect: Connect) -> None:
    broker.refuse("SendMessage", GONE, LATE)
    async with connect() as mq:
        await mq.send("orders", b"one")
    calls = broker.named("SendMessage")
    assert len(calls) == 3
    assert len({call.at for call in calls}) == 1
    assert len({c.request.messages[0].system_properties.message_id for c in calls}) == 1


@virtually
async def test_a_failing_broker_is_tried_three_times(
    broker: ScriptedBroker, connect: Connect
) -> None:
    broker.refuse("SendMessage", BROKEN, BROKEN, BROKEN)
    async with connect() as mq:
        with pytest.raises(ServerError, match="broken"):
            await mq.send("orders", b"one")
        assert len(broker.named("SendMessage")) == 3
        await mq.send("orders", b"two")


@virtually
async def test_an_overloaded_broker_is_given_time(broker: ScriptedBroker, connect: Connect) -> None:
    broker.refuse("SendMessage", BUSY, BUSY)
    async with connect() as mq:
        await mq.send("orders", b"one")
    first, second, third = (call.at for call in broker.named("SendMessage"))
    assert 0.8 <= second - first <= 1.2
    assert 1.6 * 0.8 <= third - second <= 1.6 * 1.2


@virtually
async def test_overloaded_to_the_end(broker: ScriptedBroker, connect: Connect) -> None:
    broker.refuse("SendMessage", BUSY, BUSY, BUSY)
    async with connect() as mq:
        with pytest.raises(TooManyRequestsError):
            await mq.send("orders", b"one")
    assert len(broker.named("SendMessage")) == 3


@virtually
async def test_a_refusal_is_not_tried_again(broker: ScriptedBroker, connect: Connect) -> None:
    broker.refuse("SendMessage", v2.Status(code=v2.ILLEGAL_MESSAGE_TAG, message="tag"))
    async with connect() as mq:
        with pytest.raises(IllegalMessageError) as raised:
            await mq.send("orders", b"one", tag="|")
    assert raised.value.code == Code.ILLEGAL_MESSAGE_TAG
    assert len(broker.named("SendMessage")) == 1


@virtually
async def test_the_size_limit_is_the_brokers(broker: ScriptedBroker, connect: Connect) -> None:
    broker.body_bytes_max = 10
    async with connect() as mq:
        await mq.send("orders", bytes(10))
        with pytest.raises(MessageTooLargeError, match="11 bytes") as raised:
            await mq.send_batch("orders", [Message(b"fits"), Message(bytes(11))])
    assert raised.value.code == Code.MESSAGE_BODY_TOO_LARGE
    assert len(broker.named("SendMessage")) == 1


@virtually
async def test_a_batch_stored_in_part(broker: ScriptedBroker, connect: Connect) -> None:
    broker.refuse("SendMessage", v2.Status(code=v2.MULTIPLE_RESULTS))
    async with connect() as mq:
        with pytest.raises(PartialSendError, match="1 of 2") as raised:
            await mq.send_batch("orders", [Message(b"one"), Message(b"two")])
    stored, refused = raised.value.outcomes
    assert isinstance(stored, SendReceipt)
    assert isinstance(refused, ServerError)


@virtually
async def test_a_missing_topic(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq:
        with pytest.raises(TopicNotFoundError, match="no topic bills"):
            await mq.send("bills", b"one")
        broker.topics["bills"] = 1
        await mq.send("bills", b"one")


@virtually
async def test_a_deleted_topic_is_looked_up_anew(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq:
        await mq.send("orders", b"one")
        broker.refuse("SendMessage", v2.Status(code=v2.TOPIC_NOT_FOUND, message="deleted"))
        with pytest.raises(TopicNotFoundError):
            await mq.send("orders", b"two")
        await mq.send("orders", b"three")
    assert len(broker.named("QueryRoute")) == 2


@virtually
async def test_a_closed_client(connect: Connect) -> None:
    mq = connect()
    async with mq:
        await mq.send("orders", b"one")
    with pytest.raises(ClosedError):
        await mq.send("orders", b"two")
    with pytest.raises(ClosedError):
        mq.simple_consumer("orders", group="billing")


@virtually
async def test_a_full_disk_has_an_error_of_its_own(
    broker: ScriptedBroker, connect: Connect
) -> None:
    broker.refuse("SendMessage", FULL, FULL, FULL)
    async with connect() as mq:
        with pytest.raises(DiskFullError, match="need 2 bytes free") as told:
            await mq.send("orders", b"one")
    assert told.value.stored is False
    assert told.value.__notes__ == ["surely not stored"]


@pytest.mark.parametrize(
    ("failures", "stored"),
    [
        ([WRONG], False),
        ([BUSY] * 3, False),
        ([FULL, BUSY, WRONG], False),
        ([BROKEN] * 3, None),
        ([LATE] * 3, None),
        ([GONE] * 3, None),
        ([LATE, FULL, FULL], None),  # the first try may have stored it
        ([GONE, WRONG], None),
        ([FULL, FULL, LATE], None),
    ],
)
@virtually
async def test_an_error_says_whether_the_message_is_stored(
    broker: ScriptedBroker, connect: Connect, failures: list[LaterMQError | v2.Status], stored: bool
) -> None:
    for alone in (True, False):  # with a call of its own, and with others
        broker.refuse("SendMessage", *failures)
        async with connect() as mq:
            sent = mq.send_batch("orders", [Message(b"one")]) if alone else mq.send("orders", b"")
            with pytest.raises(LaterMQError) as told:
                await sent
        assert told.value.stored is stored
        assert ("surely not" in told.value.__notes__[0]) is (stored is False)


@virtually
async def test_what_was_never_sent_is_not_stored(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq:
        with pytest.raises(TopicNotFoundError) as unknown:
            await mq.send("nowhere", b"one")
    assert unknown.value.stored is False
    with pytest.raises(ClosedError) as closed:
        await mq.send("orders", b"one")
    assert closed.value.stored is False
