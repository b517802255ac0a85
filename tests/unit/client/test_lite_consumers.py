"""Lite topics: what the broker is told of them, when, and what it may answer."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from latermq import Begin
from latermq._consuming.lite_topics import REPEAT_S
from latermq.client import Client
from latermq.errors import IllegalMessageError, LiteQuotaError, UnavailableError
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from support.scripted_broker import Recorded, ScriptedBroker
from support.virtual_loop import virtually

Connect = Callable[[], Client]
SECOND = timedelta(seconds=1)


@pytest.fixture
def broker() -> ScriptedBroker:
    return ScriptedBroker(topics={"chat": 1}, fifo=True)


def told(broker: ScriptedBroker) -> list[tuple[str, list[str]]]:
    return [
        (v2.LiteSubscriptionAction.Name(one.action), list(one.lite_topic_set))
        for one in broker.requests("SyncLiteSubscription")
    ]


def last_said(broker: ScriptedBroker, action: Any) -> Recorded:
    return [one for one in broker.named("SyncLiteSubscription") if one.request.action == action][-1]


@virtually
async def test_the_broker_hears_of_each_change(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq:
        consumer = mq.lite_simple_consumer("chat", group="bots")
        await consumer.subscribe("b", "a")
        await consumer.subscribe("c")
        await consumer.unsubscribe("a")
        assert consumer.lite_topics == {"b", "c"}
        assert [one for one in told(broker) if one[0] != "COMPLETE_ADD"] == [
            ("PARTIAL_ADD", ["a", "b"]),
            ("PARTIAL_ADD", ["c"]),
            ("PARTIAL_REMOVE", ["a"]),
        ]
        await asyncio.sleep(REPEAT_S + 1)
        assert told(broker)[-1] == ("COMPLETE_ADD", ["b", "c"])
    request = last_said(broker, v2.PARTIAL_ADD).request
    assert (request.topic.name, request.group.name) == ("chat", "bots")
    settings = broker.requests("Telemetry")[0].settings
    assert settings.client_type == v2.LITE_SIMPLE_CONSUMER
    assert [one.expression.expression for one in settings.subscription.subscriptions] == ["*"]


@pytest.mark.parametrize(
    ("begin", "option"),
    [
        (Begin(), {"policy": v2.OffsetOption.MIN}),
        (Begin(new_only=True), {"policy": v2.OffsetOption.MAX}),
        (Begin(last=3), {"tail_n": 3}),
        (Begin(offset=7), {"offset": 7}),
    ],
)
@virtually
async def test_where_it_begins(
    broker: ScriptedBroker, connect: Connect, begin: Begin, option: dict[str, Any]
) -> None:
    async with connect() as mq:
        consumer = mq.lite_simple_consumer("chat", group="bots")
        await consumer.subscribe("a", begin=begin)
    assert last_said(broker, v2.PARTIAL_ADD).request.offset_option == v2.OffsetOption(**option)


def test_a_beginning_is_one_place() -> None:
    with pytest.raises(ValueError, match="one of"):
        Begin(new_only=True, last=3)
    with pytest.raises(ValueError, match="negative"):
        Begin(offset=-1)


@virtually
async def test_arguments_of_a_wrong_type(broker: ScriptedBroker, connect: Connect) -> None:
    wrong: Any = 7
    async with connect() as mq:
        consumer = mq.lite_simple_consumer("chat", group="bots")
        with pytest.raises(TypeError, match="each of lite_topics"):
            await consumer.subscribe("a", wrong)
        with pytest.raises(TypeError, match="begin must be"):
            await consumer.subscribe("a", begin=wrong)
        with pytest.raises(TypeError, match="taken must be"):
            mq.lite_push_consumer("chat", group="bots", taken=wrong)
        with pytest.raises(ValueError, match="parent must not be empty"):
            mq.lite_push_consumer("", group="bots")
        for make in (mq.lite_simple_consumer, mq.lite_push_consumer):
            with pytest.raises(TypeError, match=r"parent must be a str, not \['chat'\] \(list\)"):
                make(["chat"], group="bots")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="last must be"):
            Begin(last=1.5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"new_only must be a bool, not 'x' \(str\)"):
            Begin(new_only="x")  # type: ignore[arg-type]
    assert told(broker) == []


@virtually
async def test_a_restarted_broker_is_told_the_whole_set(
    broker: ScriptedBroker, connect: Connect
) -> None:
    async with connect() as mq:
        consumer = mq.lite_simple_consumer("chat", group="bots")
        await consumer.subscribe("a", "b")
        await asyncio.sleep(1)
        count = len(told(broker))
        broker.forget_clients()
        await asyncio.sleep(2)
        assert told(broker)[count:] == [("COMPLETE_ADD", ["a", "b"])]
        versions = [
            one.request.version
            for one in broker.named("SyncLiteSubscription")
            if one.request.action == v2.COMPLETE_ADD
        ]
        assert versions == sorted(set(versions))


@virtually
async def test_a_new_identity_reads_the_same(broker: ScriptedBroker, connect: Connect) -> None:
    """Only the newest speaks: in an exclusive group an older one would take them back."""
    lost: list[str] = []
    async with connect() as mq:
        consumer = mq.lite_push_consumer("chat", group="bots", taken=lost.append)
        await consumer.subscribe("a")
        async with consumer:
            await asyncio.sleep(1)
            first = last_said(broker, v2.PARTIAL_ADD).headers["x-mq-client-id"]
            old = broker.streams[0]
            broker.refuse("ReceiveMessage", UnavailableError("gone"))
            broker.deliver(b"a0", topic="chat", lite_topic="a")
            delivery = await anext(consumer)  # holds the old identity, or the new one
            broker.refuse("ReceiveMessage", UnavailableError("gone"))
            await delivery.ack()
            await asyncio.sleep(25)
            said = last_said(broker, v2.COMPLETE_ADD)
            assert said.headers["x-mq-client-id"] != first
            assert list(said.request.lite_topic_set) == ["a"]
            broker.streams = [old]
            broker.take_lite_topic("a")  # the new identity took it from the old one
            await asyncio.sleep(1)
            assert not lost
            assert consumer.lite_topics == {"a"}


@virtually
async def test_what_another_client_took_is_gone(broker: ScriptedBroker, connect: Connect) -> None:
    lost: list[str] = []
    async with connect() as mq:
        consumer = mq.lite_push_consumer("chat", group="bots", taken=lost.append)
        await consumer.subscribe("a", "b")
        broker.take_lite_topic("b")
        broker.take_lite_topic("unknown")
        await asyncio.sleep(REPEAT_S + 1)
        assert lost == ["b"]
        assert consumer.lite_topics == {"a"}
        assert told(broker)[-1] == ("COMPLETE_ADD", ["a"])


@virtually
async def test_a_function_that_raises_ends_nothing_else(
    broker: ScriptedBroker, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    lost: list[str] = []

    def taken(name: str) -> None:
        lost.append(name)
        raise RuntimeError("the application's own")

    async with connect() as mq:
        consumer = mq.lite_simple_consumer("chat", group="bots", taken=taken)
        await consumer.subscribe("a", "b", "c")
        broker.take_lite_topic("a")
        await asyncio.sleep(1)
        broker.take_lite_topic("b")
        await asyncio.sleep(1)
        assert lost == ["a", "b"]
        assert consumer.lite_topics == {"c"}
        broker.forget_clients()
        await asyncio.sleep(2)
        assert told(broker)[-1] == ("COMPLETE_ADD", ["c"])
    failed = [one for one in caplog.records if one.message.startswith("taken failed")]
    assert [one.exc_info is not None for one in failed] == [True, True]


@virtually
async def test_a_subscribe_cancelled_on_its_way_is_taken_back(
    broker: ScriptedBroker, connect: Connect
) -> None:
    """The broker may have it: in an exclusive group it took it from another client."""
    async with connect() as mq:
        consumer = mq.lite_simple_consumer("chat", group="bots")
        await consumer.subscribe("a")
        await asyncio.sleep(1)
        subscribing = asyncio.create_task(consumer.subscribe("b"))
        while told(broker)[-1] != ("PARTIAL_ADD", ["b"]):
            await asyncio.sleep(0)
        subscribing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await subscribing
        assert consumer.lite_topics == {"a"}
        await asyncio.sleep(1)
        assert told(broker)[-1] == ("COMPLETE_ADD", ["a"])


@virtually
async def test_too_many_are_refused_here(broker: ScriptedBroker, connect: Connect) -> None:
    """The broker would let some more through."""
    broker.lite_quota = 2
    async with connect() as mq:
        consumer = mq.lite_simple_consumer("chat", group="bots")
        await consumer.subscribe("a", "b")
        with pytest.raises(LiteQuotaError, match="3 lite topics, at most 2"):
            await consumer.subscribe("c")
        await consumer.subscribe("b")  # no further one
        await consumer.unsubscribe("b")
        await consumer.subscribe("c")
        assert consumer.lite_topics == {"a", "c"}


@virtually
async def test_a_refusal_changes_nothing(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq:
        consumer = mq.lite_simple_consumer("chat", group="bots")
        await consumer.subscribe("a")
        await asyncio.sleep(1)
        broker.refuse("SyncLiteSubscription", v2.Status(code=v2.ILLEGAL_LITE_TOPIC, message="no"))
        with pytest.raises(IllegalMessageError):
            await consumer.subscribe("a", "b c")
        assert consumer.lite_topics == {"a"}
        await asyncio.sleep(1)  # the whole set is told, whatever the broker made of it
        broker.refuse(
            "SyncLiteSubscription",
            v2.Status(code=v2.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, message="too many"),
        )
        with pytest.raises(LiteQuotaError):
            await consumer.subscribe("d")
        assert consumer.lite_topics == {"a"}


@virtually
async def test_in_order_and_each_on_its_own(broker: ScriptedBroker, connect: Connect) -> None:
    """The second of a lite topic waits for the first; what settles names the lite topic."""
    for body in (b"a0", b"a1", b"b0"):
        broker.deliver(body, topic="chat", lite_topic=chr(body[0]))
    async with connect() as mq, mq.lite_push_consumer("chat", group="bots") as consumer:
        await consumer.subscribe("a", "b")
        first, other = await anext(consumer), await anext(consumer)
        assert (first.body, other.body, other.lite_topic) == (b"a0", b"b0", "b")
        await other.ack()
        await first.nack()
        await asyncio.sleep(1)
        assert broker.returned() == ["id-2"]  # it must come again after the first
    (ack,) = broker.requests("AckMessage")
    assert ack.entries[0].lite_topic == "b"
    changes = broker.requests("ChangeInvisibleDuration")
    assert {change.lite_topic for change in changes} == {"a"}
