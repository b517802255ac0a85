"""ReceiveMessage: its rules, its stream, and who of those that wait is served."""

import asyncio
import threading
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latermq_broker.config import CatalogConfig, Flush, ServerConfig
from latermq_broker.engine.model import Ready, TopicType
from latermq_broker.services.session import ClientKind, Session
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from latermq_proto.google.protobuf import duration_pb2
from support.engine_rig import START_MS
from support.fake_call import CLIENT_ID, FakeCall
from support.memory_files import MemoryFiles
from support.messaging import SMALL, Messaging, Received, received
from support.wire_requests import duration, message, receive

Code: Final = definition_pb2.Code
HOUR_MS: Final = 3_600_000


async def status(
    broker: Messaging, request: service_pb2.ReceiveMessageRequest, call: FakeCall | None = None
) -> definition_pb2.Status:
    """Of a stream that must carry nothing else than it and the time."""
    got = received(await broker.stream("ReceiveMessage", request, call))
    assert (got.messages, got.broker_ms) == ([], broker.now_ms())
    return got.status


async def started(broker: Messaging, **fields: Any) -> "asyncio.Task[Received]":
    """A receive that has begun to wait."""
    fields.setdefault("wait_ms", 20_000)
    task = asyncio.ensure_future(broker.receive(**fields))
    await broker.settle()
    return task


async def ended(task: "asyncio.Task[Received]") -> list[bytes]:
    """What a waiting receive got, which must be there."""
    assert task.done()
    return [one.body for one in task.result().messages]


def bodies(got: Received) -> list[bytes]:
    return [one.body for one in got.messages]


# --- rules ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "group", "code"),
    [
        ("", "g", Code.ILLEGAL_TOPIC),
        ("a b", "g", Code.ILLEGAL_TOPIC),
        ("TBW102", "g", Code.ILLEGAL_TOPIC),
        ("orders", "", Code.ILLEGAL_CONSUMER_GROUP),
        ("orders", "g" * 121, Code.ILLEGAL_CONSUMER_GROUP),
        ("orders", "CID_RMQ_SYS_x", Code.ILLEGAL_CONSUMER_GROUP),
        ("%DLQ%nobody", "g", Code.TOPIC_NOT_FOUND),
    ],
)
async def test_names(topic: str, group: str, code: int) -> None:
    async with Messaging() as broker:
        assert (await status(broker, receive(topic, group))).code == code
        assert broker.engine.catalog.topic_count() == 0


async def test_what_is_missing_is_made_or_refused() -> None:
    async with Messaging() as broker:
        got = await broker.receive()
        assert got.status.code == Code.MESSAGE_NOT_FOUND
        assert broker.engine.catalog.group("billing") is not None
    strict = replace(SMALL, catalog=CatalogConfig(auto_create=False))
    async with Messaging(strict) as broker:
        assert (await status(broker, receive("orders", "g"))).code == Code.TOPIC_NOT_FOUND
        broker.engine.topics.create("orders", TopicType.MIXED, 1, START_MS)
        code = (await status(broker, receive("orders", "g"))).code
        assert code == Code.CONSUMER_GROUP_NOT_FOUND


@pytest.mark.parametrize(
    ("ms", "fine"), [(0, False), (1, True), (12 * HOUR_MS, True), (12 * HOUR_MS + 1, False)]
)
async def test_the_lease_has_bounds(ms: int, fine: bool) -> None:
    async with Messaging() as broker:
        got = await broker.receive(invisible_ms=ms)
        assert got.status.code == (Code.MESSAGE_NOT_FOUND if fine else Code.ILLEGAL_INVISIBLE_TIME)


async def test_no_lease_at_all_is_no_lease_of_zero() -> None:
    request = receive("orders", "g", wait_ms=0)
    request.ClearField("invisible_duration")
    async with Messaging() as broker:
        assert (await status(broker, request)).code == Code.ILLEGAL_INVISIBLE_TIME
        request.invisible_duration.seconds = -(2**63)
        assert (await status(broker, request)).code == Code.ILLEGAL_INVISIBLE_TIME


async def test_with_auto_renew_the_brokers_lease_counts() -> None:
    async with Messaging() as broker:
        await broker.send(message("orders", b"x"))
        request = receive("orders", "billing", auto_renew=True, wait_ms=0)
        request.invisible_duration.CopyFrom(duration(3))  # C++ sends one, and means nothing
        got = received(await broker.stream("ReceiveMessage", request))
        assert bodies(got) == [b"x"]
        await broker.advance(59_999)
        assert not (await broker.receive()).messages


@pytest.mark.parametrize(("asked", "given_"), [(-5, 1), (0, 1), (1, 1), (32, 32), (10_000, 32)])
async def test_the_batch_has_a_cap(asked: int, given_: int) -> None:
    async with Messaging() as broker:
        await broker.send(*(message("orders", b"x") for _ in range(40)))
        assert len((await broker.receive(count_max=asked)).messages) == given_


async def test_any_queue_id_and_broker_stand_for_all_queues() -> None:
    config = replace(SMALL, catalog=CatalogConfig(default_queue_count=4))
    async with Messaging(config) as broker:
        for _ in range(8):
            await broker.send(message("orders", b"x"))
        queue_ids = set()
        for queue_id, name in ((-1, ""), (3, "elsewhere"), (99, "latermq-0"), (0, "")):
            request = receive("orders", "billing", count_max=2, wait_ms=0)
            request.message_queue.id = queue_id
            request.message_queue.broker.name = name
            got = received(await broker.stream("ReceiveMessage", request))
            assert len(got.messages) == 2
            queue_ids |= {one.system_properties.queue_id for one in got.messages}
        assert queue_ids == {0, 1, 2, 3}


async def test_filters() -> None:
    async with Messaging() as broker:
        for tag in ("a", "b", "", "c"):
            await broker.send(message("orders", tag.encode() or b"none", tag=tag))
        assert bodies(await broker.receive(group="g1", tags="a || c")) == [b"a", b"c"]
        assert bodies(await broker.receive(group="g1", tags="*")) == []  # the others are passed
        assert len(bodies(await broker.receive(group="g2", tags=""))) == 4
        request = receive("orders", "g3", wait_ms=0)
        request.ClearField("filter_expression")  # Java's lite consumer
        assert len((received(await broker.stream("ReceiveMessage", request))).messages) == 4
        got = await broker.receive(group="g4", tags=" || ")
        assert got.status.code == Code.ILLEGAL_FILTER_EXPRESSION
        request.filter_expression.type = definition_pb2.SQL
        request.filter_expression.expression = "a > 1"
        assert (await status(broker, request)).code == Code.NOT_IMPLEMENTED


async def test_the_topic_comes_back_as_it_was_asked_for() -> None:
    request = receive("orders", "billing", wait_ms=0)
    request.message_queue.topic.resource_namespace = "ns"
    async with Messaging() as broker:
        await broker.send(message("orders", b"x"))
        [got] = received(await broker.stream("ReceiveMessage", request)).messages
        assert (got.topic.name, got.topic.resource_namespace) == ("orders", "ns")


async def test_a_dead_letter_names_its_origin() -> None:
    async with Messaging() as broker:
        await broker.send(message("orders", b"x", message_id="the-one"))
        broker.engine.groups.create(
            "billing", fifo=False, max_attempts=1, backoff=None, now_ms=START_MS
        )
        await broker.receive(invisible_ms=1_000)
        await broker.advance(1_000)
        [dead] = (await broker.receive("%DLQ%billing", "auditors")).messages
        assert dead.topic.name == "%DLQ%billing"
        system = dead.system_properties
        assert system.dead_letter_queue.topic == "orders"
        assert system.dead_letter_queue.message_id == system.message_id == "the-one"
        assert system.delivery_attempt == 1
        await broker.send(message("%DLQ%billing", b"by hand"))
        [sent] = (await broker.receive("%DLQ%billing", "auditors")).messages
        assert not sent.system_properties.HasField("dead_letter_queue")


# --- how long it waits ---------------------------------------------------------------------------


def polling(
    *, asked_ms: int | None, remaining_ms: int | None, version: str = "5.1.2"
) -> tuple[service_pb2.ReceiveMessageRequest, FakeCall]:
    request = receive("orders", "billing", wait_ms=asked_ms or 0)
    if asked_ms is None:
        request.ClearField("long_polling_timeout")
    call = FakeCall(remaining_ms=remaining_ms, metadata={"x-mq-client-version": version})
    return request, call


async def waits_ms(broker: Messaging, **options: Any) -> int:
    """How long a receive would be parked, read off the loop's timer."""
    loop = asyncio.get_running_loop()
    request, call = polling(**options)
    task = asyncio.ensure_future(broker.stream("ReceiveMessage", request, call))
    await broker.settle()
    if task.done():
        assert received(task.result()).status.code == Code.MESSAGE_NOT_FOUND
        return 0
    [parked] = broker.receives._parking._lines
    timer = parked.receiver.timer
    assert timer is not None
    wait_ms = round((timer.when() - loop.time()) * 1_000, -1)  # to 10 ms: the loop has gone on
    task.cancel()
    call.cancel()
    await broker.settle()
    return int(wait_ms)


@pytest.mark.parametrize(
    ("asked_ms", "remaining_ms", "wait_ms"),
    [
        (20_000, 23_000, 20_000),
        (40_000, None, 20_000),  # clamped
        (40_000, 40_000, 20_000),  # Rust
        (8_000, 6_000, 5_900),  # what remains, less the margin
        (20_000, 20_000, 19_900),
        (1_000, 4_000, 1_000),  # short waits are kept short
        (0, 4_000, 0),
        (4_000, 4_000, 3_900),
        (None, 13_000, 11_500),  # unset: the deadline less half a request timeout
        (None, 23_000, 20_000),
        (None, 6_000, 5_000),
        (None, None, 20_000),
    ],
)
async def test_the_wait_fits_the_deadline(
    asked_ms: int | None, remaining_ms: int | None, wait_ms: int
) -> None:
    async with Messaging() as broker:
        assert await waits_ms(broker, asked_ms=asked_ms, remaining_ms=remaining_ms) == wait_ms


async def test_rocketmqs_lower_bound_can_be_had() -> None:
    config = replace(SMALL, server=ServerConfig(short_polling=False))
    async with Messaging(config) as broker:
        assert await waits_ms(broker, asked_ms=1_000, remaining_ms=9_000) == 5_000


async def test_half_of_the_clients_own_request_timeout_is_left() -> None:
    async with Messaging() as broker:
        broker.sessions.put(
            Session(
                client_id=CLIENT_ID,
                kind=ClientKind.SIMPLE_CONSUMER,
                group="billing",
                topics=frozenset(),
                settings=definition_pb2.Settings(request_timeout=duration_pb2.Duration(seconds=6)),
                language="GO",
                version="5",
                seen_ms=START_MS,
            )
        )
        assert await waits_ms(broker, asked_ms=None, remaining_ms=13_000) == 10_000


@pytest.mark.parametrize(
    ("version", "code"),
    [
        ("5.0.3", Code.ILLEGAL_POLLING_TIME),
        ("5.1.2", Code.ILLEGAL_POLLING_TIME),
        ("5.0.2", Code.BAD_REQUEST),
        ("", Code.BAD_REQUEST),
    ],
)
async def test_a_deadline_too_near_for_the_wait(version: str, code: int) -> None:
    async with Messaging() as broker:
        for asked_ms in (None, 5_000, 20_000):
            request, call = polling(asked_ms=asked_ms, remaining_ms=4_500, version=version)
            assert (await status(broker, request, call)).code == code


# --- who is served -------------------------------------------------------------------------------


async def test_what_is_there_is_given_at_once_and_not_waited_to_fill_up() -> None:
    async with Messaging() as broker:
        await broker.send(message("orders", b"x"))
        task = await started(broker)
        assert await ended(task) == [b"x"]
        assert task.result().status.code == Code.OK


async def test_nothing_within_the_time_is_message_not_found() -> None:
    async with Messaging() as broker:
        got = await broker.receive(wait_ms=20)
        assert (got.status.code, got.messages) == (Code.MESSAGE_NOT_FOUND, [])
        assert len(broker.receives._parking) == 0


async def test_a_send_wakes_the_one_that_waits_longest() -> None:
    async with Messaging() as broker:
        tasks = [await started(broker) for _ in range(3)]
        await broker.send(message("orders", b"1"))
        await broker.settle()
        assert [task.done() for task in tasks] == [True, False, False]
        await broker.send(message("orders", b"2"), message("orders", b"3"))
        await broker.settle()
        assert await ended(tasks[1]) == [b"2", b"3"]
        assert not tasks[2].done()


async def test_who_comes_later_does_not_overtake() -> None:
    """The send and the newcomer are in one turn of the loop: the parked one was first."""
    async with Messaging() as broker:
        first = await started(broker)
        sending = asyncio.ensure_future(broker.send(message("orders", b"x")))
        late = asyncio.ensure_future(broker.receive())
        await asyncio.gather(sending, late)
        assert await ended(first) == [b"x"]
        assert not late.result().messages


async def test_every_group_gets_its_own() -> None:
    async with Messaging() as broker:
        tasks = [await started(broker, group=group) for group in ("a", "b", "c")]
        await broker.send(message("orders", b"x"))
        await broker.settle()
        assert [await ended(task) for task in tasks] == [[b"x"]] * 3


async def test_a_due_message_and_an_expired_lease_wake_too() -> None:
    async with Messaging() as broker:
        await broker.send(message("orders", b"later", deliver_at_ms=START_MS + 500))
        task = await started(broker, invisible_ms=1_000)
        await broker.advance(500)
        assert await ended(task) == [b"later"]
        task = await started(broker)
        await broker.advance(999)
        assert not task.done()
        await broker.advance(1)
        assert await ended(task) == [b"later"]
        assert task.result().messages[0].system_properties.delivery_attempt == 2


async def test_a_filter_far_behind_is_served_in_the_end() -> None:
    """One receive passes over a slice of the queue at a time; the rest must not be forgotten."""
    async with Messaging() as broker:
        wanted = await started(broker, tags="rare")
        for _ in range(5):
            await broker.send(*(message("orders", b"x", tag="common") for _ in range(1_000)))
        await broker.send(message("orders", b"here", tag="rare"))
        await broker.settle()
        assert await ended(wanted) == [b"here"]


async def test_what_one_filter_passes_over_is_consumed_for_the_group() -> None:
    async with Messaging() as broker:
        blue = await started(broker, tags="blue")
        red = await started(broker, tags="red")
        await broker.send(message("orders", b"1", tag="blue"))
        await broker.settle()
        assert await ended(blue) == [b"1"]
        await broker.send(message("orders", b"2", tag="blue"))
        await broker.settle()
        assert not red.done()
        assert bodies(await broker.receive()) == []
        red.cancel()


async def test_too_many_wait() -> None:
    config = replace(
        SMALL, server=ServerConfig(parked_receives_max=3, parked_receives_per_group_max=2)
    )
    async with Messaging(config) as broker:
        for _ in range(2):
            await started(broker, group="a")
        got = await broker.receive(group="a", wait_ms=20_000)
        assert got.status.code == Code.TOO_MANY_REQUESTS
        await started(broker, group="b")
        assert (await broker.receive(group="c", wait_ms=1)).status.code == Code.TOO_MANY_REQUESTS
        await broker.send(message("orders", b"x"))
        assert (await broker.receive(group="c", wait_ms=1)).status.code == Code.OK


async def test_draining_answers_all_and_keeps_nobody() -> None:
    async with Messaging() as broker:
        tasks = [await started(broker) for _ in range(3)]
        broker.parked.drain()
        await broker.settle()
        assert {task.result().status.code for task in tasks} == {Code.MESSAGE_NOT_FOUND}
        assert (await broker.receive(wait_ms=20_000)).status.code == Code.MESSAGE_NOT_FOUND
        await broker.send(message("orders", b"x"))
        assert bodies(await broker.receive(wait_ms=20_000)) == [b"x"]


async def test_a_topic_that_goes_away_is_told() -> None:
    strict = replace(SMALL, catalog=CatalogConfig(auto_create=False))
    async with Messaging(strict) as broker:
        broker.engine.topics.create("orders", TopicType.MIXED, 1, START_MS)
        broker.engine.groups.create(
            "billing", fifo=False, max_attempts=3, backoff=None, now_ms=START_MS
        )
        await broker.send(message("orders", b"x", deliver_at_ms=START_MS + 5))
        task = await started(broker)
        broker.engine.topics.delete("orders", START_MS)
        broker.parked.wake(Ready(topics={"orders"}))
        await broker.settle()
        assert task.result().status.code == Code.TOPIC_NOT_FOUND


class SlowDisk(MemoryFiles):
    """Syncs end only while `synced` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.synced = threading.Event()
        self.synced.set()

    def datasync(self, fd: int) -> None:
        self.synced.wait()
        super().datasync(fd)


@pytest.mark.parametrize("parked", [False, True])
async def test_with_flush_sync_nobody_sees_what_is_not_on_disk(parked: bool) -> None:
    config = replace(SMALL, store=replace(SMALL.store, flush=Flush.SYNC))
    disk = SlowDisk()
    async with Messaging(config, disk) as broker:
        await broker.send(message("orders", b"0"))
        await broker.receive()
        disk.synced.clear()
        tasks = [asyncio.ensure_future(broker.receive(wait_ms=20_000))] if parked else []
        await broker.settle()
        sending = asyncio.ensure_future(broker.send(message("orders", b"x")))
        await broker.settle()
        if not parked:
            tasks.append(asyncio.ensure_future(broker.receive()))
        await broker.settle()
        assert [sending.done(), tasks[0].done()] == [False, False]
        disk.synced.set()
        assert bodies(await tasks[0]) == [b"x"]
        await sending


# --- callers who go away -------------------------------------------------------------------------


async def attempts_after(broker: Messaging) -> list[int]:
    """The attempt numbers of what can be received after the second a give-back takes."""
    assert not (await broker.receive()).messages
    await broker.advance(1_000)
    got = (await broker.receive()).messages
    return [one.system_properties.delivery_attempt for one in got]


async def test_gone_while_waiting_takes_nothing() -> None:
    async with Messaging() as broker:
        call = FakeCall()
        task = await started(broker, call=call)
        task.cancel()
        call.cancel()
        await broker.send(message("orders", b"x"))
        assert bodies(await broker.receive()) == [b"x"]
        assert len(broker.receives._parking) == 0


async def test_gone_before_the_reply_is_given_back_uncounted() -> None:
    async with Messaging() as broker:
        await broker.send(message("orders", b"x"))
        call = FakeCall()
        task = asyncio.ensure_future(broker.receive(call=call, invisible_ms=HOUR_MS))
        await asyncio.sleep(0)
        task.cancel()
        call.cancel()
        await broker.settle()
        assert await attempts_after(broker) == [1]


async def test_gone_between_waking_and_the_reply_is_given_back_uncounted() -> None:
    async with Messaging() as broker:
        call = FakeCall()
        task = await started(broker, call=call, invisible_ms=HOUR_MS)
        sending = asyncio.ensure_future(broker.send(message("orders", b"x")))
        [parked] = broker.receives._parking._lines
        while parked.receiver.found() is None:
            await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
        call.cancel()
        await broker.settle()
        await sending
        assert await attempts_after(broker) == [1]


async def test_gone_while_the_reply_is_written_is_given_back_uncounted() -> None:
    async with Messaging() as broker:
        await broker.send(message("orders", b"x"))
        call = FakeCall()
        assert bodies(await broker.receive(call=call, invisible_ms=HOUR_MS)) == [b"x"]
        call.cancel()  # the transport had the elements, but could not write them all
        await broker.settle()
        assert await attempts_after(broker) == [1]


async def test_gone_before_it_began() -> None:
    async with Messaging() as broker:
        await broker.send(message("orders", b"x"))
        call = FakeCall()
        call.cancel()
        await broker.receive(call=call, invisible_ms=HOUR_MS)
        assert await attempts_after(broker) == [1]
        call = FakeCall()
        call.cancel()
        task = await started(broker, call=call)
        assert len(broker.receives._parking) == 0
        task.cancel()


# --- junk ----------------------------------------------------------------------------------------


async def test_without_a_client_id() -> None:
    async with Messaging() as broker:
        request = receive("orders", "billing")
        assert (await status(broker, request, FakeCall(client_id=""))).code == (
            Code.CLIENT_ID_REQUIRED
        )


@settings(max_examples=150)
@given(data=st.data())
async def test_junk_is_answered(data: st.DataObject) -> None:
    request = bytearray(receive("orders", "billing", wait_ms=1).SerializeToString())
    for _ in range(data.draw(st.integers(0, 4))):
        request[data.draw(st.integers(0, len(request) - 1))] = data.draw(st.integers(0, 255))
    request += data.draw(st.binary(max_size=20))
    async with Messaging() as broker:
        call = FakeCall(remaining_ms=1)
        got = received(await broker.stream("ReceiveMessage", bytes(request), call))
        assert Code.BAD_REQUEST <= got.status.code != Code.INTERNAL_ERROR
