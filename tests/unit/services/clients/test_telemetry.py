"""Telemetry streams: answered at once, for every kind of client (protocol.md 2.2)."""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Awaitable

import pytest

from latermq_broker.config.config import Config, ServerConfig
from latermq_broker.engine.state.hearing import Hearing
from latermq_broker.engine.state.model import Group
from latermq_broker.services.call.handler import CallAborted
from latermq_broker.services.clients.replies import Replies
from latermq_broker.services.clients.session import ClientKind, Sessions
from latermq_broker.services.clients.telemetry import TelemetryService
from latermq_h2.grpc_code import GrpcCode
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2.service_pb2 import TelemetryCommand, ThreadStackTrace
from support.fake_call import CLIENT_ID, FakeCall
from support.fake_committer import FakeCommitter

PRODUCER = TelemetryCommand(
    settings=v2.Settings(client_type=v2.PRODUCER, publishing=v2.Publishing())
)


class FakeCatalog:
    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}

    def group(self, name: str) -> Group | None:
        return self.groups.get(name)


class FakeEngine:
    def __init__(self) -> None:
        self.catalog = FakeCatalog()
        self.seen: list[str] = []
        self.hearing = Hearing()

    def client_seen(self, client_id: str, now_ms: int) -> bool:
        self.seen.append(client_id)
        return True


class Stream:
    """The client's side of one telemetry call."""

    def __init__(self, service: TelemetryService, call: FakeCall | None = None) -> None:
        self._requests: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._answers = service.telemetry(self._sent(), call or FakeCall())

    async def _sent(self) -> AsyncIterator[bytes]:
        while (request := await self._requests.get()) is not None:
            yield request

    def send(self, command: TelemetryCommand | bytes) -> None:
        data = command if isinstance(command, bytes) else command.SerializeToString()
        self._requests.put_nowait(data)

    def finish(self) -> None:
        self._requests.put_nowait(None)

    async def answer(self) -> TelemetryCommand:
        return TelemetryCommand.FromString(await anext(self._answers))

    async def ended(self) -> bool:
        return [answer async for answer in self._answers] == []

    def closed(self) -> Awaitable[None]:
        """As a transport does when the connection is lost."""
        closing: Awaitable[None] = self._answers.aclose()  # type: ignore[attr-defined]
        return closing


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def sessions() -> Sessions:
    return Sessions(ServerConfig(clients_max=1, commands_per_client_max=2))


@pytest.fixture
def service(engine: FakeEngine, sessions: Sessions) -> TelemetryService:
    return TelemetryService(engine, FakeCommitter(), sessions, Config(), Replies(sessions))


async def test_settings_are_answered_each_time(
    service: TelemetryService, sessions: Sessions, engine: FakeEngine
) -> None:
    stream = Stream(service)
    for _ in range(3):
        stream.send(PRODUCER)
        answer = await stream.answer()
        assert answer.status.code == 20000
        assert answer.settings.publishing.max_body_size == 4 << 20
    session = sessions.get(CLIENT_ID)
    assert session is not None
    assert session.kind is ClientKind.PRODUCER
    assert engine.seen == [CLIENT_ID] * 3
    stream.finish()
    assert await stream.ended()


async def test_the_session_and_its_headers_outlive_the_stream(
    service: TelemetryService, sessions: Sessions
) -> None:
    headers = {"x-mq-language": "GO", "x-mq-client-version": "5.1.4"}
    stream = Stream(service, FakeCall(metadata=headers))
    stream.send(PRODUCER)
    await stream.answer()
    assert sessions.push(CLIENT_ID, TelemetryCommand())
    await stream.closed()
    session = sessions.get(CLIENT_ID)
    assert session is not None
    assert (session.language, session.version) == ("GO", "5.1.4")
    assert not sessions.push(CLIENT_ID, TelemetryCommand())


async def test_commands_of_the_broker_come_down_between_answers(
    service: TelemetryService, sessions: Sessions
) -> None:
    stream = Stream(service)
    stream.send(PRODUCER)
    await stream.answer()
    command = TelemetryCommand()
    command.reconnect_endpoints_command.nonce = "7"
    assert sessions.push(CLIENT_ID, command)
    assert (await stream.answer()).reconnect_endpoints_command.nonce == "7"
    stream.finish()
    assert await stream.ended()


async def test_a_consumer_s_settings_follow_its_group(
    service: TelemetryService, sessions: Sessions, engine: FakeEngine
) -> None:
    engine.catalog.groups["g"] = Group(
        id=1, name="g", fifo=True, max_attempts=5, backoff=None, created_ms=0
    )
    settings = v2.Settings(client_type=v2.PUSH_CONSUMER)
    settings.subscription.group.name = "g"
    settings.subscription.subscriptions.add().topic.name = "t"
    stream = Stream(service)
    stream.send(TelemetryCommand(settings=settings))
    answer = (await stream.answer()).settings
    assert answer.subscription.fifo
    assert answer.backoff_policy.max_attempts == 5
    session = sessions.get(CLIENT_ID)
    assert session is not None
    assert (session.group, session.topics) == ("g", frozenset({"t"}))
    stream.finish()
    assert await stream.ended()


async def test_without_a_client_id_one_command_with_the_status_then_the_end(
    service: TelemetryService,
) -> None:
    stream = Stream(service, FakeCall(client_id=""))
    assert (await stream.answer()).status.code == 40017
    assert await stream.ended()


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        (v2.Settings(), v2.BAD_REQUEST),
        (
            v2.Settings(publishing=v2.Publishing(topics=[v2.Resource(name="a b")])),
            v2.ILLEGAL_TOPIC,
        ),
        (
            v2.Settings(subscription=v2.Subscription(group=v2.Resource(name="a b"))),
            v2.ILLEGAL_CONSUMER_GROUP,
        ),
        (
            v2.Settings(
                subscription=v2.Subscription(
                    group=v2.Resource(name="g"),
                    subscriptions=[
                        v2.SubscriptionEntry(
                            topic=v2.Resource(name="t"),
                            expression=v2.FilterExpression(type=v2.SQL, expression="a = "),
                        )
                    ],
                )
            ),
            v2.ILLEGAL_FILTER_EXPRESSION,
        ),
    ],
)
async def test_settings_that_do_not_stand_end_the_call(
    service: TelemetryService, sessions: Sessions, settings: v2.Settings, code: int
) -> None:
    """After a command that tells RocketMQ's code, for which gRPC's status has no place."""
    stream = Stream(service)
    stream.send(TelemetryCommand(settings=settings))
    refused = await stream.answer()
    assert (refused.status.code, refused.WhichOneof("command")) == (code, None)
    with pytest.raises(CallAborted) as aborted:
        await stream.answer()
    assert aborted.value.code is GrpcCode.INVALID_ARGUMENT
    assert sessions.get(CLIENT_ID) is None


async def test_bytes_that_are_no_command_end_the_call(service: TelemetryService) -> None:
    stream = Stream(service)
    stream.send(b"\xff\xff")
    with pytest.raises(CallAborted) as aborted:
        await stream.answer()
    assert aborted.value.code is GrpcCode.INVALID_ARGUMENT


async def test_replies_to_commands_nobody_sent_are_dropped(service: TelemetryService) -> None:
    stream = Stream(service)
    stream.send(TelemetryCommand(thread_stack_trace=ThreadStackTrace(nonce="1")))
    stream.send(PRODUCER)
    assert (await stream.answer()).HasField("settings")
    stream.finish()
    assert await stream.ended()


async def test_one_client_too_many_is_told_so(service: TelemetryService) -> None:
    first, second = Stream(service), Stream(service, FakeCall(client_id="other"))
    first.send(PRODUCER)
    await first.answer()
    second.send(PRODUCER)
    assert (await second.answer()).status.code == 42900
    assert await second.ended()
    first.finish()
    assert await first.ended()


async def test_a_stream_whose_client_vanished_leaves_no_task(
    service: TelemetryService, sessions: Sessions
) -> None:
    before = asyncio.all_tasks()
    stream = Stream(service)
    stream.send(PRODUCER)
    await stream.answer()
    await stream.closed()
    assert asyncio.all_tasks() == before


async def test_draining_ends_the_stream(service: TelemetryService, sessions: Sessions) -> None:
    stream = Stream(service)
    stream.send(PRODUCER)
    await stream.answer()
    sessions.end_streams()
    assert await stream.ended()


async def test_a_command_is_not_held_until_the_next_one_comes(service: TelemetryService) -> None:
    """Up to 4 MiB each, on as many streams as there are."""
    data = PRODUCER.SerializeToString()
    before = sys.getrefcount(data)
    asked_again = asyncio.Event()

    async def requests() -> AsyncIterator[bytes]:
        yield data
        asked_again.set()
        await asyncio.Event().wait()

    answers = service.telemetry(requests(), FakeCall())
    await anext(answers)
    await asked_again.wait()
    assert sys.getrefcount(data) == before
    await answers.aclose()  # type: ignore[attr-defined]


async def test_a_refused_command_is_not_held_either(service: TelemetryService) -> None:
    """Not by the error that ends its stream, while that waits to be told."""
    data = TelemetryCommand(settings=v2.Settings()).SerializeToString() + b"\xfa\x3e\x01z"
    before = sys.getrefcount(data)

    async def arrived() -> AsyncIterator[bytes]:
        yield data

    async def checked() -> AsyncIterator[bytes]:
        """As the guard does: it has the command until it is closed."""
        async for command in arrived():
            yield command

    answers = service.telemetry(checked(), FakeCall())
    assert TelemetryCommand.FromString(await anext(answers)).status.code == 40000
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(CallAborted):
            await anext(answers)
        del answers
        for _ in range(5):  # what is left of the generators is closed
            await asyncio.sleep(0)
        assert sys.getrefcount(data) == before
    finally:
        gc.enable()
