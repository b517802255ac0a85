"""Leases of what a consumer has: verbs that overlap, their ends, and what a standstill means."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

import pytest

from latermq import App, Delivery
from latermq.client import Client
from latermq.delivery import Outcome
from latermq.errors import InvalidReceiptHandleError, RequestTimeoutError, UnavailableError
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from support.scripted_broker import ScriptedBroker
from support.virtual_loop import VirtualLoop, virtually

Connect = Callable[..., Client]
LONG = timedelta(minutes=10)
LOST = v2.Status(code=v2.INVALID_RECEIPT_HANDLE, message="the lease ended")
GONE = UnavailableError("gone")


async def received(mq: Client, broker: ScriptedBroker, body: bytes = b"one") -> Delivery:
    broker.deliver(body)
    return await anext(mq.push_consumer("orders", group="billing"))


def changes(broker: ScriptedBroker) -> list[tuple[object, int, bool]]:
    """What each ChangeInvisibleDuration meant, its seconds, and whether it suspends."""
    return [
        (
            call.headers.get("latermq-change"),
            call.request.invisible_duration.ToSeconds(),
            call.request.suspend,
        )
        for call in broker.named("ChangeInvisibleDuration")
    ]


def stand_still(for_s: float) -> None:
    """Let time pass in which nothing of this process runs."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop._virtual.elapsed_us += round(for_s * 1_000_000)


# Verbs ------------------------------------------------------------------------------------------


@virtually
async def test_an_extension_is_told_as_one(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq:
        delivery = await received(mq, broker)
        await delivery.extend(LONG)
        assert changes(broker) == [("extend", 600, False)]
        assert not delivery.settled
        await delivery.ack()


@pytest.mark.parametrize("how", ["cancelled", "together", "unanswered"])
@pytest.mark.parametrize("verb", ["ack", "retry_in", "dead_letter"])
@virtually
async def test_a_verb_waits_for_the_one_before(
    verb: str, how: str, broker: ScriptedBroker, connect: Connect
) -> None:
    async with connect() as mq:
        delivery = await received(mq, broker)
        if how == "unanswered":
            broker.refuse("ChangeInvisibleDuration", GONE)
        beat = asyncio.create_task(delivery.extend(LONG))
        await asyncio.sleep(0)
        if how == "cancelled":
            beat.cancel()
        if verb == "ack":
            await delivery.ack()
        elif verb == "retry_in":
            await delivery.retry_in(timedelta(seconds=1))
        else:
            await delivery.dead_letter("no")
        await asyncio.gather(beat, return_exceptions=True)
        names = [call.name for call in broker.calls if call.name not in ("Heartbeat", "Telemetry")]
        last = {"retry_in": "ChangeInvisibleDuration", "ack": "AckMessage"}.get(verb)
        assert names[-2:] == [
            "ChangeInvisibleDuration", last or "ForwardMessageToDeadLetterQueue"
        ]  # fmt: skip
        assert delivery.outcome is not Outcome.LOST


@virtually
async def test_a_verb_that_was_cancelled_is_seen_through(
    broker: ScriptedBroker, connect: Connect
) -> None:
    for verb in ("ack", "retry_in"):
        async with connect() as mq:
            delivery = await received(mq, broker)
            work = delivery.ack() if verb == "ack" else delivery.retry_in(timedelta(seconds=1))
            saying = asyncio.create_task(work)
            await asyncio.sleep(0)
            saying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await saying
            with pytest.raises(InvalidReceiptHandleError, match="was settled before"):
                await delivery.nack()
            assert delivery.outcome is (Outcome.ACKNOWLEDGED if verb == "ack" else Outcome.FAILED)
    assert broker.returned() == []


@virtually
async def test_of_two_ends_the_first_holds(
    broker: ScriptedBroker, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    async with connect() as mq:
        delivery = await received(mq, broker)
        async with delivery:
            giving = asyncio.create_task(delivery.retry_in(timedelta(seconds=1)))
            await asyncio.sleep(0)
        await giving
        assert (delivery.outcome, broker.acked()) == (Outcome.FAILED, [])
    assert "lost" not in caplog.text


@virtually
async def test_what_ends_a_lease_may_be_repeated(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        broker.deliver(b"one")
        broker.deliver(b"two")
        broker.refuse("ChangeInvisibleDuration", GONE, GONE)
        await (await anext(consumer)).retry_in(timedelta(seconds=1))
        assert changes(broker) == [("end", 1, False)] * 3
        broker.refuse("ChangeInvisibleDuration", GONE)
        other = await anext(consumer)
        await other._settler.return_it(other)
        assert changes(broker)[3:] == [("end", 0, True)] * 2


@virtually
async def test_verbs_of_a_broadcast_are_said_once_too(
    broker: ScriptedBroker, connect: Connect
) -> None:
    from latermq._consuming.pulling import _Nobody

    async with connect() as mq:
        delivery = await received(mq, broker)
        delivery._settler = _Nobody(
            mq.push_consumer("orders", group="g")._identities.present.session, lambda *_: None
        )
        await delivery.extend(LONG)
        await delivery.ack()
        await delivery.ack()
        for verb in (delivery.nack(), delivery.extend(LONG), delivery.dead_letter("no")):
            with pytest.raises(InvalidReceiptHandleError):
                await verb
    assert changes(broker) == []


# Ends and limits --------------------------------------------------------------------------------


class DbError(Exception):
    pass


async def hang(how: str) -> None:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError as error:
        if how == "wrapped":
            raise DbError("closed in the middle") from error
        if how == "swallowed":
            return
        if how == "task group":
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0))
            raise DbError("in a group") from error
        if how == "exits":
            raise SystemExit(3) from error
        raise
    finally:
        if how == "finally":
            raise DbError("no connection")


CANCELLED = ["plain", "wrapped", "finally", "task group", "swallowed", "exits"]


async def served(app: App, for_s: float, grace_s: float = 0.5) -> None:
    end, ready = asyncio.Event(), asyncio.Event()
    serving = asyncio.create_task(app.serve(end, grace=timedelta(seconds=grace_s), ready=ready))
    await ready.wait()
    await asyncio.sleep(for_s)
    end.set()
    await serving


@pytest.mark.parametrize("how", CANCELLED)
@pytest.mark.parametrize("batches", [False, True])
@virtually
async def test_what_the_end_cancelled_is_given_back_uncounted(
    batches: bool, how: str, broker: ScriptedBroker, connect: Connect
) -> None:
    app = App("127.0.0.1:8081")
    if batches:

        @app.listener("orders", group="billing", batch=2)
        async def batch(bodies: list[bytes]) -> None:
            await hang(how)
    else:

        @app.listener("orders", group="billing")
        async def each(body: bytes) -> None:
            await hang(how)

    broker.deliver(b"one")
    with app._connecting(connect):
        await served(app, 3)
    assert (changes(broker), broker.acked()) == ([("end", 0, True)], [])


@pytest.mark.parametrize("how", CANCELLED)
@virtually
async def test_what_a_limit_cancelled_is_a_timeout(
    how: str, broker: ScriptedBroker, connect: Connect
) -> None:
    app = App("127.0.0.1:8081")

    @app.listener("orders", group="billing", timeout=timedelta(seconds=1), retry_on=TimeoutError)
    async def each(body: bytes) -> None:
        await hang(how)

    broker.deliver(b"one")
    with app._connecting(connect):
        await served(app, 3)
    (call,) = broker.named("ChangeInvisibleDuration")
    assert (call.request.suspend, call.failure.class_name) == (False, "TimeoutError")
    assert (broker.acked(), broker.named("ForwardMessageToDeadLetterQueue")) == ([], [])


@virtually
async def test_a_call_that_never_ends_does_not_keep_the_worker(
    broker: ScriptedBroker, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    app, done = App("127.0.0.1:8081"), asyncio.Event()

    @app.listener("orders", group="billing")
    async def each(body: bytes) -> None:
        while not done.is_set():
            try:
                await done.wait()
            except asyncio.CancelledError:
                continue

    broker.deliver(b"one")
    with app._connecting(connect):
        await served(app, 3)
    done.set()
    assert changes(broker) == [("end", 0, True)]
    assert "calls that were cancelled and do not end: 1" in caplog.text


# How long ---------------------------------------------------------------------------------------


@virtually
async def test_lease_max_tells_the_broker_of_calls_that_last(
    broker: ScriptedBroker, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("127.0.0.1:8081")

    @app.listener("orders", group="billing", lease_max=timedelta(hours=5))
    async def each(body: bytes) -> None:
        await asyncio.sleep(float(body))

    for seconds in (b"1", b"3600", b"17900"):
        broker.deliver(seconds)
    with app._connecting(connect):
        await served(app, 18_000)
    assert [meant for meant, *_ in changes(broker)] == ["extend"] * 2
    assert all(17_900 < seconds <= 17_970 for _, seconds, _ in changes(broker))
    assert len(broker.acked()) == 3
    assert caplog.text.count("its lease ends in") == 1


@virtually
async def test_an_extension_by_hand_is_the_last_word(
    broker: ScriptedBroker, connect: Connect
) -> None:
    app = App("127.0.0.1:8081")

    @app.listener("orders", group="billing", lease_max=timedelta(minutes=2))
    async def each(body: bytes, delivery: Delivery) -> None:
        await delivery.extend(LONG)
        await asyncio.sleep(300)

    broker.deliver(b"one")
    with app._connecting(connect):
        await served(app, 400)
    assert changes(broker) == [("extend", 600, False)]
    assert len(broker.acked()) == 1


@virtually
async def test_there_is_one_warning_before_the_end_of_renewal(
    broker: ScriptedBroker, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    async with connect() as mq:
        delivery = await received(mq, broker)
        await asyncio.sleep(2.8 * 3600)
        assert "its lease ends" not in caplog.text
        await asyncio.sleep(0.5 * 3600)
        warnings = [each for each in caplog.records if "its lease ends in" in each.getMessage()]
        assert [each.levelno for each in warnings] == [logging.WARNING]
        await delivery.ack()


@pytest.mark.parametrize(
    ("lease_max", "error"),
    [
        (timedelta(0), "from 1 s to 12 h"),
        (timedelta(hours=13), "from 1 s to 12 h"),
        (timedelta(seconds=-1), "from 1 s to 12 h"),
        (60, "lease_max must be a timedelta"),
    ],
)
def test_a_lease_max_is_checked(lease_max: object, error: str) -> None:
    app = App("127.0.0.1:8081")
    with pytest.raises((TypeError, ValueError), match=error):
        app.listener("orders", group="billing", lease_max=lease_max)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="broadcast has no lease"):
        app.listener("orders", group="g", broadcast=True, lease_max=timedelta(seconds=60))


# Standing still ---------------------------------------------------------------------------------


@virtually
async def test_what_waited_through_a_standstill_is_not_begun(
    broker: ScriptedBroker, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    begun: list[bytes] = []
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing", concurrency=1)

        @consumer.listener
        async def work(delivery: Delivery) -> None:
            begun.append(delivery.body)
            await asyncio.sleep(1)
            if delivery.body == b"0":
                stand_still(150)

        for number in range(5):
            broker.deliver(b"%d" % number)
        async with consumer:
            await asyncio.sleep(155)
            assert begun == [b"0"]
            assert broker.returned() == ["id-2", "id-3", "id-4", "id-5"]
            broker.deliver(b"after")
            await asyncio.sleep(30)
            assert begun == [b"0", b"after"]
    assert caplog.text.count("this process stood still") == 1


@virtually
async def test_the_wall_clock_counts_where_the_other_stood_still_too(
    broker: ScriptedBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall_s = 1_000.0
    monkeypatch.setattr("latermq._connection.silence.time", lambda: wall_s)
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        async with consumer:
            for number in range(3):
                broker.deliver(b"%d" % number)
            await asyncio.sleep(1)
            wall_s += 3_600
            taking = asyncio.create_task(anext(consumer))
            await asyncio.sleep(1)
            assert not taking.done()
            assert broker.returned() == ["id-1", "id-2", "id-3"]
            taking.cancel()


@virtually
async def test_a_lost_lease_makes_the_others_doubtful(
    broker: ScriptedBroker, connect: Connect
) -> None:
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        for number in range(4):
            broker.deliver(b"%d" % number)
        broker.refuse("AckMessage", LOST)
        first, second = await anext(consumer), await anext(consumer)
        with pytest.raises(InvalidReceiptHandleError):
            await first.ack()
        await asyncio.sleep(1)
        assert broker.returned() == ["id-3", "id-4"]
        await second.ack()  # what is in hand goes on


@virtually
async def test_a_lease_that_ended_as_asked_for_makes_nothing_doubtful(
    broker: ScriptedBroker, connect: Connect
) -> None:
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        for number in range(3):
            broker.deliver(b"%d" % number)
        first = await anext(consumer)
        await first.extend(timedelta(seconds=5))
        await asyncio.sleep(6)
        broker.refuse("AckMessage", LOST)
        with pytest.raises(InvalidReceiptHandleError):
            await first.ack()
        await asyncio.sleep(1)
        assert broker.returned() == []


@virtually
async def test_a_call_that_is_not_answered_in_time_may_be_said_again(
    broker: ScriptedBroker, connect: Connect
) -> None:
    late = RequestTimeoutError(40800, "late")
    late.grpc_code = 4
    async with connect() as mq:
        delivery = await received(mq, broker)
        broker.refuse("ChangeInvisibleDuration", late)
        with pytest.raises(RequestTimeoutError):
            await delivery.retry_in(timedelta(seconds=1))
        assert not delivery.settled
        await delivery.retry_in(timedelta(seconds=1))
        assert delivery.outcome is Outcome.FAILED
