"""A push consumer that takes a new client id when a receive broke off, and its former ones."""

import asyncio
from collections.abc import Callable

import pytest

from latermq._connection.status import error_of, nobody_answers
from latermq._connection.transport import Metadata
from latermq._consuming.identities import RETIRED_MAX
from latermq._values.endpoints import Endpoints
from latermq._values.settings import REQUEST_TIMEOUT
from latermq.client import Client
from latermq.errors import LaterMQError, UnavailableError
from latermq_h2.grpc_code import GrpcCode
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from support.scripted_broker import ScriptedBroker, ScriptedStream, ScriptedTransport
from support.virtual_loop import VirtualLoop, virtually

Connect = Callable[[], Client]
GONE = UnavailableError("gone")


def identities(broker: ScriptedBroker, name: str) -> list[str | bytes]:
    """Client ids in the order of their first call of that name."""
    return list(dict.fromkeys(call.headers["x-mq-client-id"] for call in broker.named(name)))


def open_streams(broker: ScriptedBroker) -> list[ScriptedStream]:
    """Telemetry streams of clients that live."""
    return [stream for stream in broker.streams if not stream.cancelled]


@virtually
async def test_after_a_broken_receive_it_has_a_new_identity(
    broker: ScriptedBroker, connect: Connect
) -> None:
    """The reply may be lost; its leases would be kept alive for as long as their client lives."""
    broker.deliver(b"held")
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        held = await anext(consumer)
        broker.refuse("ReceiveMessage", GONE)
        await asyncio.sleep(45)  # the running poll ends, the next one breaks
        broker.deliver(b"next")
        following = await anext(consumer)
        old, new = identities(broker, "ReceiveMessage")
        assert identities(broker, "Telemetry") == [old, new]
        assert broker.named("NotifyClientTermination") == []
        beats = {call.headers["x-mq-client-id"] for call in broker.named("Heartbeat")[-2:]}
        assert beats == {old, new}
        await held.ack()
        await asyncio.sleep(1)
        assert identities(broker, "NotifyClientTermination") == [old]
        await following.ack()
    assert identities(broker, "AckMessage") == [old, new]
    assert identities(broker, "NotifyClientTermination") == [old, new]


@virtually
async def test_an_identity_that_breaks_while_it_starts_receives_nothing(
    broker: ScriptedBroker, connect: Connect
) -> None:
    """It would receive beside its successor, and say farewell with messages in hand."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    broker.refuse("QueryRoute", GONE)
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing", cached_count_max=1)
        starting = asyncio.create_task(consumer.start())
        await asyncio.sleep(0.001)  # the call failed, and is to be repeated
        loop.stand_still(150_000)  # no answer for so long
        await starting
        for body in (b"one", b"two", b"three"):
            broker.deliver(body)
            await (await anext(consumer)).ack()
        old, new = identities(broker, "QueryRoute")
        assert identities(broker, "ReceiveMessage") == [new]
        assert identities(broker, "NotifyClientTermination") == [old]


@pytest.mark.parametrize(
    "code", [GrpcCode.DEADLINE_EXCEEDED, GrpcCode.INTERNAL, GrpcCode.RESOURCE_EXHAUSTED]
)
@virtually
async def test_so_it_has_when_no_reply_came_in_time_or_none_could_be_read(
    broker: ScriptedBroker, connect: Connect, code: GrpcCode
) -> None:
    """It may come yet, as of a broker whose machine stood still; told so by one, none will."""
    late = error_of(code, "", Endpoints.parse("127.0.0.1:8081"))
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        broker.refuse("ReceiveMessage", v2.Status(code=v2.PROXY_TIMEOUT, message="busy"))
        await consumer.start()
        await asyncio.sleep(1)
        assert len(broker.named("ReceiveMessage")) == 2
        assert len(identities(broker, "ReceiveMessage")) == 1
        broker.refuse("ReceiveMessage", late)
        await asyncio.sleep(45)
        assert len(identities(broker, "ReceiveMessage")) == 2


@virtually
async def test_what_it_let_go_unheard_is_freed_by_a_new_identity(
    broker: ScriptedBroker, connect: Connect
) -> None:
    """Its lease would be kept alive for as long as its client lives: it came again in 3 h."""
    broker.deliver(b"one")
    broken = v2.Status(code=v2.INTERNAL_SERVER_ERROR, message="broken")
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")

        async def work() -> None:
            async for delivery in consumer:
                async with delivery:
                    await asyncio.sleep(1_000)

        working = asyncio.create_task(work())
        await asyncio.sleep(1)
        broker.refuse("ChangeInvisibleDuration", broken)
        working.cancel()
        await asyncio.wait((working,))
        await asyncio.sleep(45)
        old, _ = identities(broker, "ReceiveMessage")
        assert identities(broker, "NotifyClientTermination") == [old]


@virtually
async def test_a_pause_while_the_broker_is_away_is_told_when_it_is_back(
    broker: ScriptedBroker, connect: Connect
) -> None:
    """What was held stayed leased to one who had let it go."""
    for body in (b"one", b"two", b"three"):
        broker.deliver(body)
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        await consumer.start()
        await asyncio.sleep(1)
        broker.refuse("ChangeInvisibleDuration", *[GONE] * 1_000)
        loop = asyncio.get_running_loop()
        paused_s = loop.time()
        await consumer.pause()
        assert loop.time() - paused_s <= REQUEST_TIMEOUT.total_seconds()
        assert (consumer.stats[0].returned, consumer.stats[0].held_count) == (0, 3)
        broker.forgive("ChangeInvisibleDuration")
        back_s = loop.time()
        await asyncio.sleep(10)
        heard = [each for each in broker.named("ChangeInvisibleDuration") if each.at > back_s]
        assert sorted(each.request.message_id for each in heard) == ["id-1", "id-2", "id-3"]
        assert (consumer.stats[0].returned, consumer.stats[0].held_count) == (3, 0)


@virtually
async def test_a_receive_that_was_never_sent_breaks_nothing(
    broker: ScriptedBroker, connect: Connect
) -> None:
    """One of several brokers may be away for hours."""
    away = nobody_answers(Endpoints.parse("127.0.0.1:8081"))
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        broker.refuse("ReceiveMessage", *[away] * 10)
        await consumer.start()
        broker.deliver(b"one")
        assert (await anext(consumer)).body == b"one"
    assert len(broker.named("ReceiveMessage")) > 10
    assert len(identities(broker, "ReceiveMessage")) == 1


@pytest.mark.parametrize("settled", [3, -1], ids=["an older one", "the last one"])
@virtually
async def test_so_many_identities_may_hold_something(
    broker: ScriptedBroker, connect: Connect, caplog: pytest.LogCaptureFixture, settled: int
) -> None:
    """Each has streams and heartbeats; at the bound nothing new is received, until one is free."""
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        held = []
        for _ in range(RETIRED_MAX + 1):
            broker.deliver(b"held")
            held.append(await anext(consumer))
            broker.refuse("ReceiveMessage", GONE)
            await asyncio.sleep(45)  # the running poll ends, the next one breaks
        broker.deliver(b"next")
        await asyncio.sleep(3_600)
        assert len(broker.inbox) == 1
        assert not consumer.receiving
        assert len(identities(broker, "ReceiveMessage")) == RETIRED_MAX + 1
        (said,) = [one for one in caplog.records if "receiving nothing new" in one.message]
        assert said.levelname == "WARNING"
        assert f"under {RETIRED_MAX + 1} client ids" in said.message
        await held.pop(settled).ack()
        following = await anext(consumer)
        assert following.body == b"next"
        assert consumer.receiving
        assert len(identities(broker, "ReceiveMessage")) == RETIRED_MAX + 2
        for delivery in (*held, following):
            await delivery.ack()
        await asyncio.sleep(1)
        assert len(identities(broker, "NotifyClientTermination")) == RETIRED_MAX + 1
        assert len(open_streams(broker)) == 1


@virtually
async def test_closing_while_too_many_identities_hold_something(
    broker: ScriptedBroker, connect: Connect
) -> None:
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        for _ in range(RETIRED_MAX + 1):
            broker.deliver(b"held")
            await anext(consumer)
            broker.refuse("ReceiveMessage", GONE)
            await asyncio.sleep(45)
        await consumer.close()
        assert len(identities(broker, "NotifyClientTermination")) == RETIRED_MAX + 1
        assert not open_streams(broker)


@virtually
async def test_farewells_that_nobody_hears_are_not_many(
    broker: ScriptedBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where one of several brokers breaks each call off for a while."""
    unary = ScriptedTransport.unary

    async def silent(
        self: ScriptedTransport, path: str, request: bytes, metadata: Metadata, timeout: float
    ) -> bytes:
        if path.endswith("NotifyClientTermination"):
            await asyncio.sleep(timeout)
            raise GONE
        return await unary(self, path, request, metadata, timeout)

    monkeypatch.setattr(ScriptedTransport, "unary", silent)
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        broker.refuse("ReceiveMessage", *[GONE] * 200)
        await consumer.start()
        most = 0
        for _ in range(30):
            await asyncio.sleep(1)
            most = max(most, len(open_streams(broker)))
        assert len(identities(broker, "ReceiveMessage")) > 3 * RETIRED_MAX
        assert RETIRED_MAX < most < 2 * RETIRED_MAX


@virtually
async def test_the_old_identity_is_known_again_before_its_farewell(
    broker: ScriptedBroker, connect: Connect
) -> None:
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        await consumer.start()
        broker.refuse("ReceiveMessage", GONE)
        broker.refuse("QueryRoute", *[GONE] * 30)
        broker.refuse("Telemetry", *[GONE] * 10)
        broker.forget_clients()
        await asyncio.sleep(120)
        old, new = identities(broker, "ReceiveMessage")
        told = [c.at for c in broker.named("Telemetry") if c.headers["x-mq-client-id"] == old]
        (farewell,) = broker.named("NotifyClientTermination")
        assert farewell.headers["x-mq-client-id"] == old != new
        assert told[-1] <= farewell.at


LATE = error_of(GrpcCode.DEADLINE_EXCEEDED, "", Endpoints.parse("127.0.0.1:8081"))


@pytest.mark.parametrize("failure", [GONE, LATE], ids=["nobody there", "no answer"])
@pytest.mark.parametrize("held_max", [2, 1000], ids=["full", "with room"])
@virtually
async def test_what_nobody_began_is_given_back_when_the_broker_was_away_for_long(
    broker: ScriptedBroker, connect: Connect, failure: LaterMQError, held_max: int
) -> None:
    """Its lease may be over: whoever began it would do what comes again. If it is not, the attempt
    is not counted. A consumer that has no room receives nothing that could break."""
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing", cached_count_max=held_max)
        broker.deliver(b"begun")
        broker.deliver(b"waiting")
        begun = await anext(consumer)
        await asyncio.sleep(1)
        calls = "ReceiveMessage", "Heartbeat", "QueryRoute", "QueryAssignment"
        for name in calls:
            broker.refuse(name, *[failure] * 1_000)
        await asyncio.sleep(60)
        (stats,) = consumer.stats
        assert (stats.in_hand, stats.waiting, stats.held_count) == (1, 0, 2)
        assert not broker.named("ChangeInvisibleDuration")
        for name in calls:
            broker.forgive(name)
        await asyncio.sleep(60)
        (stats,) = consumer.stats
        assert (stats.in_hand, stats.returned, stats.held_count) == (1, 1, 1)
        [returned] = broker.named("ChangeInvisibleDuration")
        assert returned.request.receipt_handle == "handle-2"
        assert returned.request.suspend
        old, _ = identities(broker, "ReceiveMessage")
        assert returned.headers["x-mq-client-id"] == old
        await begun.ack()
        await asyncio.sleep(1)
        assert identities(broker, "NotifyClientTermination") == [old]


@virtually
async def test_what_nobody_began_stays_if_the_broker_is_soon_there_again(
    broker: ScriptedBroker, connect: Connect
) -> None:
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        broker.deliver(b"waiting")
        await consumer.start()
        await asyncio.sleep(1)
        broker.refuse("ReceiveMessage", GONE)
        broker.refuse("QueryAssignment", GONE)
        await asyncio.sleep(120)
        assert len(identities(broker, "ReceiveMessage")) == 2
        (stats,) = consumer.stats
        assert (stats.waiting, stats.held_count) == (1, 1)
        await (await anext(consumer)).ack()


@virtually
async def test_a_lease_that_ended_in_an_outage_is_given_back_to_nobody_and_is_no_news(
    broker: ScriptedBroker, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        broker.deliver(b"waiting")
        await consumer.start()
        await asyncio.sleep(1)
        calls = "ReceiveMessage", "Heartbeat", "QueryRoute", "QueryAssignment"
        for name in calls:
            broker.refuse(name, *[GONE] * 1_000)
        await asyncio.sleep(60)
        over = v2.Status(code=v2.INVALID_RECEIPT_HANDLE, message="over")
        broker.refuse("ChangeInvisibleDuration", over)
        for name in calls:
            broker.forgive(name)
        await asyncio.sleep(60)
        (stats,) = consumer.stats
        assert (stats.waiting, stats.lost, stats.held_count) == (0, 1, 0)
    assert [line.levelname for line in caplog.records if "lease" in line.getMessage()] == []


@virtually
async def test_closing_while_it_looks_for_a_new_identity(
    broker: ScriptedBroker, connect: Connect
) -> None:
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        await consumer.start()
        broker.refuse("ReceiveMessage", GONE)
        broker.refuse("QueryRoute", *[GONE] * 1000)
        await asyncio.sleep(60)
        assert len(broker.named("QueryRoute")) > 10
        await consumer.close()
        count = len(broker.calls)
        await asyncio.sleep(60)
        assert len(broker.calls) == count
