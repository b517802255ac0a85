"""What keeps a client known: telemetry, heartbeats, routes; and a broker that comes and goes."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from latermq._connection.transport import Metadata
from latermq._values.endpoints import Endpoints
from latermq.client import Client
from latermq.client import connect as connect_to
from latermq.errors import (
    BadRequestError,
    ClosedError,
    ServerError,
    TopicNotFoundError,
    UnavailableError,
)
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2 import service_pb2 as rpc
from support.scripted_broker import ScriptedBroker, ScriptedTransport
from support.virtual_loop import virtually

Connect = Callable[..., Client]
GONE = UnavailableError("gone")


@virtually
async def test_heartbeats_every_ten_seconds(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq, mq.simple_consumer("orders", group="billing"):
        start = asyncio.get_running_loop().time()
        await asyncio.sleep(35)
    beats = broker.named("Heartbeat")
    assert [round(beat.at - start) for beat in beats] == [10, 20, 30]
    assert beats[0].request.group.name == "billing"
    assert beats[0].request.client_type == v2.SIMPLE_CONSUMER


@virtually
async def test_heartbeats_wait_for_no_broker_that_is_away(
    broker: ScriptedBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor for routes, of which each names it."""
    broker.topics = {f"orders-{number}": 1 for number in range(60)}
    broker.second = Endpoints.parse("127.0.0.1:8082")
    unary, record, away = ScriptedTransport.unary, broker.record, False

    async def slow(self: ScriptedTransport, path: str, *given: Any) -> bytes:
        answer = await unary(self, path, *given)
        if away and path.endswith("Heartbeat"):
            await asyncio.sleep(given[-1])
            raise GONE
        return answer

    def recorded(endpoint: str, name: str, *given: Any) -> v2.Status:
        if away and name == "Telemetry" and endpoint == str(broker.second):
            raise GONE
        return record(endpoint, name, *given)

    monkeypatch.setattr(ScriptedTransport, "unary", slow)
    monkeypatch.setattr(broker, "record", recorded)
    topics = dict.fromkeys(broker.topics, "*")
    async with (
        connect(request_timeout=timedelta(minutes=1)) as mq,
        mq.simple_consumer(topics, group="billing"),
    ):
        away = True
        broker.forget_clients()
        await asyncio.sleep(215)
        away = False
    at: dict[str, list[float]] = {}
    for beat in broker.named("Heartbeat"):
        at.setdefault(beat.endpoint, []).append(beat.at)
    first, second = at.values()
    assert first == second
    assert len(first) > 10
    assert all(after - before == pytest.approx(20) for before, after in pairwise(first))


@virtually
async def test_settings_and_routes_are_renewed(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq, mq.simple_consumer("orders", group="billing"):
        await asyncio.sleep(305)
    assert len(broker.named("Telemetry")) == 2
    assert len(broker.named("QueryRoute")) == 11
    assert len(broker.streams) == 1


@virtually
async def test_a_broker_that_is_in_no_route_any_more_is_forgotten_once_it_is_away(
    broker: ScriptedBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name may be taken by others; who waits for it would do so for ever."""
    second = Endpoints.parse("127.0.0.1:8082")
    broker.second = second
    record, away = broker.record, False
    tried: list[str] = []

    def recorded(endpoint: str, name: str, request: Any, metadata: Metadata) -> v2.Status:
        if endpoint == str(second):
            tried.append(name)
            if away:
                raise GONE
        return record(endpoint, name, request, metadata)

    async def tries(seconds: float) -> set[str]:
        tried.clear()
        await asyncio.sleep(seconds)
        return set(tried)

    monkeypatch.setattr(broker, "record", recorded)
    async with connect() as mq, mq.simple_consumer("orders", group="billing"):
        broker.second = None
        assert await tries(120) == {"Heartbeat"}  # leases there want to be kept
        broker.second, away = second, True
        broker.forget_clients()
        assert await tries(120) == {"Heartbeat", "Telemetry"}
        assert not mq.reachable
        broker.second = None
        await asyncio.sleep(45)
        assert mq.reachable
        assert await tries(600) == set()
        broker.second, away = second, False
        assert await tries(120) == {"Heartbeat", "Telemetry"}
        assert mq.reachable
    assert tried[-1] == "NotifyClientTermination"


@virtually
async def test_what_a_forgotten_broker_sent_may_still_be_settled(
    broker: ScriptedBroker,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Who is away and called by nobody in particular would never be seen to be there again."""
    second = Endpoints.parse("127.0.0.1:8082")
    record, away = broker.record, False

    def recorded(endpoint: str, name: str, request: Any, metadata: Metadata) -> v2.Status:
        if away and endpoint == str(second):
            raise GONE
        return record(endpoint, name, request, metadata)

    monkeypatch.setattr(broker, "record", recorded)
    async with connect() as mq:
        now_s = asyncio.get_running_loop().time
        monkeypatch.setattr(mq._connections.outages, "_now_s", now_s)
        consumers = [mq.simple_consumer("orders", group=f"group-{each}") for each in range(10)]
        for consumer in consumers:
            broker.deliver(b"first")
            await consumer.receive()
        broker.second = second
        await asyncio.sleep(31)
        held = None
        while held is None or str(held._endpoints) != str(second):
            broker.deliver(b"held")
            (held,) = await consumers[0].receive()
        away, broker.second = True, None
        broker.forget_clients()
        await asyncio.sleep(31)
        assert mq.reachable
        said = [one for one in caplog.records if "no broker answers" in one.message]
        assert len(said) == 1
        with pytest.raises(UnavailableError):
            await held.ack()
        assert mq.reachable
        away = False
        await held.ack()
        assert broker.acked() == [held.message_id]


@virtually
async def test_the_broker_of_a_topic_that_is_gone_is_kept(
    broker: ScriptedBroker, connect: Connect
) -> None:
    async with connect() as mq, mq.simple_consumer("orders", group="billing"):
        broker.topics.clear()
        await asyncio.sleep(45)  # the route is forgotten
        broker.refuse("Heartbeat", *[GONE] * 10)
        await asyncio.sleep(90)
        beats = len(broker.named("Heartbeat"))
        await asyncio.sleep(60)
        assert len(broker.named("Heartbeat")) == beats + 6


@virtually
async def test_a_restarted_broker_learns_of_us_again(
    broker: ScriptedBroker, connect: Connect
) -> None:
    async with connect() as mq, mq.simple_consumer("orders", group="billing"):
        broker.forget_clients()
        start = asyncio.get_running_loop().time()
        await asyncio.sleep(2)
        first, second = broker.named("Telemetry")
        assert second.at - start < 0.25
        assert first.request == second.request
        assert len(broker.streams) == 1


@virtually
async def test_an_absent_broker_is_tried_less_and_less(
    broker: ScriptedBroker, connect: Connect
) -> None:
    async with connect() as mq, mq.simple_consumer("orders", group="billing"):
        broker.refuse("Telemetry", *[GONE] * 100)
        broker.forget_clients()
        await asyncio.sleep(100)
    at = [call.at for call in broker.named("Telemetry")][1:]
    gaps = [later - sooner for sooner, later in pairwise(at)]
    assert gaps[0] < 0.5
    assert all(7.999 <= gap <= 10.001 for gap in gaps[10:])
    assert len(gaps) > 10


@virtually
async def test_a_heartbeat_that_is_not_recognised_repeats_the_settings(
    broker: ScriptedBroker, connect: Connect
) -> None:
    async with connect() as mq, mq.simple_consumer("orders", group="billing"):
        broker._known.clear()
        await asyncio.sleep(11)
        assert len(broker.named("Telemetry")) == 2
        assert len(broker.streams) == 1


@virtually
async def test_refused_settings_are_told(broker: ScriptedBroker, connect: Connect) -> None:
    refusal = v2.Status(code=v2.BAD_REQUEST, message="no such kind")
    broker.refuse("Telemetry", refusal)
    async with connect() as mq:
        with pytest.raises(BadRequestError, match="no such kind"):
            await mq.send("orders", b"one")


@virtually
async def test_settings_without_an_answer(broker: ScriptedBroker, connect: Connect) -> None:
    broker.refuse("Telemetry", *[GONE] * 100)
    async with connect(request_timeout=timedelta(seconds=5)) as mq:
        loop = asyncio.get_running_loop()
        start = loop.time()
        with pytest.raises(UnavailableError):
            await mq.send("orders", b"one")
        assert loop.time() - start == pytest.approx(5)


@virtually
async def test_calls_outlast_a_short_absence(broker: ScriptedBroker, connect: Connect) -> None:
    broker.refuse("QueryRoute", GONE, GONE, GONE)
    async with connect() as mq:
        await mq.send("orders", b"one")
    assert len(broker.named("QueryRoute")) == 4


@virtually
async def test_calls_of_its_admin_tell_of_an_outage_too(
    broker: ScriptedBroker, connect: Connect
) -> None:
    broker.refuse("Heartbeat", GONE)
    async with connect() as mq:
        admin = mq.admin
        with pytest.raises(UnavailableError):
            await admin.ask(admin.messaging.Heartbeat, rpc.HeartbeatRequest())
        assert not mq.reachable
        await admin.ask(admin.messaging.Heartbeat, rpc.HeartbeatRequest())
        assert mq.reachable
        await admin.close()
        await mq.send("orders", b"one")  # the connection is the client's, and open


@virtually
async def test_calls_give_up_in_time(broker: ScriptedBroker, connect: Connect) -> None:
    broker.refuse("QueryRoute", *[GONE] * 100)
    async with connect() as mq:
        loop = asyncio.get_running_loop()
        start = loop.time()
        with pytest.raises(UnavailableError):
            await mq.send("orders", b"one")
        assert loop.time() - start <= 3


@virtually
async def test_new_settings_count_at_once(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq:
        await mq.send("orders", bytes(100))
        settings = v2.Settings(publishing=v2.Publishing(max_body_size=10))
        broker.streams[0].push(rpc.TelemetryCommand(settings=settings))
        await asyncio.sleep(0.01)
        with pytest.raises(Exception, match="takes 10"):
            await mq.send("orders", bytes(11))


@virtually
async def test_a_reconnect_command_opens_a_new_stream(
    broker: ScriptedBroker, connect: Connect
) -> None:
    async with connect() as mq:
        await mq.send("orders", b"one")
        command = rpc.ReconnectEndpointsCommand(nonce="1")
        broker.streams[0].push(rpc.TelemetryCommand(reconnect_endpoints_command=command))
        await asyncio.sleep(1)
        assert [stream.cancelled for stream in broker.streams] == [True, False]


@virtually
async def test_a_question_we_cannot_answer_is_answered_so(
    broker: ScriptedBroker, connect: Connect
) -> None:
    async with connect() as mq:
        await mq.send("orders", b"one")
        command = rpc.PrintThreadStackTraceCommand(nonce="9")
        broker.streams[0].push(rpc.TelemetryCommand(print_thread_stack_trace_command=command))
        await asyncio.sleep(0.01)
    reply = broker.requests("Telemetry")[-1]
    assert (reply.thread_stack_trace.nonce, reply.status.code) == ("9", v2.UNSUPPORTED)


@virtually
async def test_every_kind_has_its_own_identity(broker: ScriptedBroker, connect: Connect) -> None:
    async with (
        connect(namespace="shop") as mq,
        mq.simple_consumer("orders", group="billing"),
        mq.push_consumer("orders", group="mailing"),
    ):
        await mq.send("orders", b"one")
    kinds = {
        call.headers["x-mq-client-id"]: call.request.settings.client_type
        for call in broker.named("Telemetry")
    }
    assert sorted(kinds.values()) == [v2.PRODUCER, v2.PUSH_CONSUMER, v2.SIMPLE_CONSUMER]
    assert {call.headers["x-mq-namespace"] for call in broker.calls} == {"shop"}
    farewells = broker.named("NotifyClientTermination")
    assert {call.headers["x-mq-client-id"] for call in farewells} == set(kinds)


@virtually
async def test_a_farewell_that_nobody_hears(broker: ScriptedBroker, connect: Connect) -> None:
    broker.refuse("NotifyClientTermination", GONE)
    async with connect() as mq:
        await mq.send("orders", b"one")


@virtually
async def test_farewells_wait_for_no_broker_that_is_away(
    broker: ScriptedBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.second = Endpoints.parse("127.0.0.1:8082")
    unary = ScriptedTransport.unary

    async def slow(self: ScriptedTransport, path: str, *given: Any) -> bytes:
        answer = await unary(self, path, *given)
        if path.endswith("NotifyClientTermination"):
            await asyncio.sleep(given[-1])
        return answer

    monkeypatch.setattr(ScriptedTransport, "unary", slow)
    async with connect() as mq:
        await mq.send("orders", b"one")
    first, second = broker.named("NotifyClientTermination")
    assert first.at == second.at


@virtually
async def test_closing_ends_who_waits_for_a_route(broker: ScriptedBroker, connect: Connect) -> None:
    broker.refuse("QueryRoute", *[GONE] * 100)
    mq = connect()
    waiting = asyncio.create_task(mq.send("orders", b"one"))
    await asyncio.sleep(0.1)
    await mq.close()
    with pytest.raises(ClosedError):
        await waiting


@virtually
async def test_a_route_that_is_gone_is_forgotten(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq:
        await mq.send("orders", b"one")
        queues = broker.topics.pop("orders")
        await asyncio.sleep(31)
        with pytest.raises(TopicNotFoundError):
            await mq.send("orders", b"two")
        broker.topics["orders"] = queues
        await mq.send("orders", b"three")


@virtually
async def test_a_topic_that_is_forgotten_while_its_route_is_looked_up_stays_so(
    broker: ScriptedBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client may read one topic after the other for years."""
    unary = ScriptedTransport.unary

    async def slow(self: ScriptedTransport, path: str, *given: Any) -> bytes:
        if path.endswith("QueryRoute"):
            await asyncio.sleep(2)
        return await unary(self, path, *given)

    async with connect() as mq, mq.simple_consumer("orders", group="billing") as consumer:
        monkeypatch.setattr(ScriptedTransport, "unary", slow)
        await asyncio.sleep(31)
        await consumer.unsubscribe("orders")
        await asyncio.sleep(60)
        assert len(broker.named("QueryRoute")) == 2


@virtually
async def test_an_answer_nobody_understands(
    broker: ScriptedBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def garbage(*_: Any) -> bytes:
        return b"\xff"

    async with connect() as mq:
        await mq.send("orders", b"one")
        transport = mq._connections.to(mq._endpoints)
        monkeypatch.setattr(transport, "unary", garbage)
        with pytest.raises(ServerError, match="SendMessageResponse"):
            await mq.send("orders", b"two")


@pytest.mark.parametrize(
    ("given", "variable", "expected"),
    [
        ("here:1", "there:2", "here:1"),
        (None, "there:2", "there:2"),
        (None, None, "127.0.0.1:8081"),
    ],
)
def test_where_the_broker_is(
    given: str | None, variable: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LATERMQ_ENDPOINT", raising=False)
    if variable is not None:
        monkeypatch.setenv("LATERMQ_ENDPOINT", variable)
    assert str(connect_to(given)._endpoints) == expected


def test_arguments_that_make_no_sense(connect: Connect) -> None:
    with pytest.raises(ValueError, match="is not an endpoint"):
        connect_to("nowhere")
    with pytest.raises(ValueError, match="request_timeout"):
        connect(request_timeout=timedelta(0))
    with pytest.raises(ValueError, match="filters with the topics"):
        connect().push_consumer({"orders": "a"}, group="g", tags="b")
    with pytest.raises(ValueError, match="concurrency"):
        connect().push_consumer("orders", group="g", concurrency=0)
    with pytest.raises(ValueError, match="cached_count_max must be"):
        connect().push_consumer("orders", group="g", cached_count_max=0)
