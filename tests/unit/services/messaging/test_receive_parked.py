"""ReceiveMessage: who of those that wait is served, and what becomes of those who go away."""

import asyncio
import threading
from dataclasses import replace
from typing import Any, Final

import pytest

from latermq_broker.config.config import (
    CatalogConfig,
    DeliveryConfig,
    Flush,
    ServerConfig,
    StoreConfig,
)
from latermq_broker.config.core_bounds import ScanBounds
from latermq_broker.engine.state.model import Ready, TopicType
from latermq_broker.engine.state.state import Subscription
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from support.engine_rig import START_MS
from support.fake_call import FakeCall
from support.memory_files import MemoryFiles
from support.messaging import SMALL, Messaging, Received, received
from support.virtual_loop import InlineThreads, virtually
from support.wire_requests import message, receive

Code: Final = definition_pb2.Code
HOUR_MS: Final = 3_600_000
MIB: Final = 1 << 20


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


async def line_behind_one(
    broker: Messaging, count: int
) -> "tuple[list[asyncio.Task[Received]], Subscription]":
    """Begin `count` receives, of which the first gets b"first" and the others wait."""
    await broker.send(message("orders", b"first"))
    receives = [await started(broker) for _ in range(count)]
    (subscription,) = broker.engine._state.subscriptions.values()
    return receives, subscription


async def test_what_is_there_is_given_at_once_and_not_waited_to_fill_up() -> None:
    async with Messaging() as broker:
        await broker.send(message("orders", b"x"))
        task = await started(broker)
        assert await ended(task) == [b"x"]
        assert task.result().status.code == Code.OK


async def test_one_message_is_one_try_however_many_wait() -> None:
    async with Messaging() as broker:
        waiting, subscription = await line_behind_one(broker, 4)
        before = subscription.turn
        await broker.send(message("orders", b"x"))
        await broker.settle()
        assert subscription.turn == before + 1
        await broker.send(*[message("orders", b"%d" % n) for n in range(3)])
        await broker.settle()
        bodies = [await ended(task) for task in waiting if task.done()]
        assert bodies == [[b"first"], [b"x"], [b"0", b"1", b"2"]]
        for task in waiting:
            task.cancel()


async def test_who_comes_behind_others_is_not_tried_when_they_came_away_empty() -> None:
    async with Messaging() as broker:
        waiting, subscription = await line_behind_one(broker, 3)
        before = subscription.turn
        waiting.append(await started(broker))
        assert subscription.turn == before + 1  # the first of them, once more
        waiting.append(await started(broker, tags="a", call=FakeCall(client_id="another")))
        assert subscription.turn == before + 3  # and one who asks for something else
        for task in waiting:
            task.cancel()


async def test_who_waits_is_answered_in_the_turn_of_the_send(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    soon = loop.call_soon
    asked: list[str] = []

    def counted(callback: Any, *arguments: Any, **more: Any) -> asyncio.Handle:
        asked.append(getattr(callback, "__name__", ""))
        return soon(callback, *arguments, **more)

    async with Messaging() as broker:
        broker.engine.ensure_group("billing", START_MS)
        waiting = await started(broker)
        monkeypatch.setattr(loop, "call_soon", counted)
        await broker.send(message("orders", b"x"))
        for _ in range(5):
            await asyncio.sleep(0)
        monkeypatch.undo()
        assert await ended(waiting) == [b"x"]
    assert asked.count("_turn") == 1


async def test_each_that_waits_for_one_gets_one() -> None:
    async with Messaging() as broker:
        waiting = [await started(broker, count_max=1) for _ in range(3)]
        await broker.send(*[message("orders", b"%d" % n) for n in range(2)])
        await broker.settle()
        assert sorted([await ended(task) for task in waiting if task.done()]) == [[b"0"], [b"1"]]
        waiting[-1].cancel()


@virtually
@pytest.mark.parametrize(
    ("language", "version", "fields", "waited_s"),
    [
        ("GO", "5.1.4", {"auto_renew": True, "count_max": 31}, 0.05),
        ("JAVA", "5.2.1", {"auto_renew": True, "count_max": 1}, 0.05),
        ("JAVA", "5.2.1", {"auto_renew": True, "count_max": 32}, 0),  # it has room
        ("JAVA", "5.2.1", {"count_max": 1}, 0),  # a simple consumer holds nothing back
        ("PYTHON", "latermq-0.1.0", {"auto_renew": True, "count_max": 1}, 0),
    ],
)
async def test_a_push_consumer_that_would_be_full_works_some_off_first(
    language: str, version: str, fields: dict[str, Any], waited_s: float
) -> None:
    async with Messaging(threads=InlineThreads()) as broker:
        await broker.send(message("orders", b"x"))
        call = FakeCall(metadata={"x-mq-language": language, "x-mq-client-version": version})
        began = asyncio.get_running_loop().time()
        got = await broker.receive(call=call, **fields)
        assert asyncio.get_running_loop().time() - began == pytest.approx(waited_s)
        assert [one.body for one in got.messages] == [b"x"]


@virtually
async def test_who_goes_away_before_it_is_answered_is_leased_nothing() -> None:
    async with Messaging(threads=InlineThreads()) as broker:
        await broker.send(message("orders", b"x"))
        call = FakeCall(metadata={"x-mq-language": "GO", "x-mq-client-version": "5.1.4"})
        task = await started(broker, call=call, auto_renew=True, count_max=1)
        call.cancel()
        task.cancel()
        await asyncio.sleep(1)
        assert [one.body for one in (await broker.receive()).messages] == [b"x"]


@virtually
async def test_nothing_within_the_time_is_message_not_found() -> None:
    async with Messaging(threads=InlineThreads()) as broker:
        got = await broker.receive(wait_ms=20_000)
        assert (got.status.code, got.messages) == (Code.MESSAGE_NOT_FOUND, [])
        assert broker.receives.parking.waiting == 0


async def test_one_that_waits_behind_a_sql_filter_looks_through_all_in_slices() -> None:
    bounds = ScanBounds(filter_reads_max=8)
    async with Messaging(replace(SMALL, delivery=DeliveryConfig(bounds=bounds))) as broker:
        for n in range(100):
            await broker.send(message("orders", b"%d" % n, properties={"price": str(n)}))
        request = receive("orders", "billing", wait_ms=20_000)
        request.filter_expression.type = definition_pb2.SQL
        request.filter_expression.expression = "price > 100"
        waiting = asyncio.ensure_future(broker.stream("ReceiveMessage", request))
        for _ in range(20):
            await broker.settle()
        assert not waiting.done()
        await broker.send(message("orders", b"dear", properties={"price": "101"}))
        for _ in range(20):
            await broker.settle()
        assert [one.body for one in received(await waiting).messages] == [b"dear"]


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


async def test_a_receive_that_waits_consumes_nothing_unseen() -> None:
    async with Messaging() as broker:
        blue = await started(broker, tags="blue", call=FakeCall(client_id="another"))
        red = await started(broker, tags="red")
        await broker.send(message("orders", b"1", tag="blue"))
        await broker.settle()
        assert await ended(blue) == [b"1"]
        await broker.send(message("orders", b"2", tag="blue"))
        await broker.settle()
        await broker.send(message("orders", b"3", tag="red"))
        await broker.settle()
        assert await ended(red) == [b"3"]
        assert (await broker.receive(tags="blue")).bodies == [b"2"]


async def test_a_client_that_filters_otherwise_ends_its_older_waits() -> None:
    async with Messaging() as broker:
        old = await started(broker, tags="a")
        others = await started(broker, tags="a", call=FakeCall(client_id="another"))
        await broker.send(message("orders", b"1", tag="b"))
        got = await broker.receive(tags="b")
        await broker.settle()
        assert (await ended(old), got.bodies, others.done()) == ([], [b"1"], False)
        others.cancel()


async def test_clients_that_go_on_with_two_filters_do_not_end_each_others_waits() -> None:
    async with Messaging() as broker:
        await started(broker, tags="a")
        await started(broker, tags="b")  # ends the first, once
        waiting = [await started(broker, tags=tags) for tags in ("a", "b", "a")]
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()


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
        assert (await broker.receive(wait_ms=20_000)).bodies == [b"x"]


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
        assert (await tasks[0]).bodies == [b"x"]
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
        assert (await broker.receive()).bodies == [b"x"]
        assert broker.receives.parking.waiting == 0


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
        [parked] = broker.receives.parking._lines
        while parked.receiver.outcome() is None:
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
        assert (await broker.receive(call=call, invisible_ms=HOUR_MS)).bodies == [b"x"]
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
        assert broker.receives.parking.waiting == 0
        task.cancel()


def with_large_bodies() -> Messaging:
    return Messaging(replace(SMALL, store=StoreConfig(segment_bytes=32 * MIB)))


async def test_gone_at_a_message_larger_than_clients_take_counts_for_it_alone() -> None:
    """Uncounted, it would come with every receive, and the two beside it would never arrive."""
    async with with_large_bodies() as broker:
        for body in (b"before", b"x" * (4 * MIB), b"after"):
            await broker.send(message("orders", body))
        for attempts in ([1, 1, 1], [1, 1, 2]):
            call = FakeCall()
            got = (await broker.receive(call=call, auto_renew=True)).messages
            assert sorted(one.system_properties.delivery_attempt for one in got) == attempts
            call.cancel()
            await broker.settle()
            await broker.advance(10_000)  # the ladder's first step; the second is 30 s
        passed = await broker.receive(invisible_ms=HOUR_MS)
        assert passed.bodies == [b"before", b"after"]
        assert {one.system_properties.delivery_attempt for one in passed.messages} == {1}
        await broker.advance(20_000)
        [large] = (await broker.receive()).messages
        assert large.system_properties.delivery_attempt == 3


async def test_gone_at_a_large_message_in_time_makes_it_a_dead_letter_that_says_why() -> None:
    async with with_large_bodies() as broker:
        broker.engine.groups.create(
            "billing", fifo=False, max_attempts=2, backoff=None, now_ms=START_MS
        )
        await broker.send(message("orders", b"x" * (4 * MIB)))
        for attempt, wait_ms in ((1, 10_000), (2, 0)):
            call = FakeCall()
            [one] = (await broker.receive(call=call)).messages
            assert one.system_properties.delivery_attempt == attempt
            call.cancel()
            await broker.settle()
            await broker.advance(wait_ms)
        assert not (await broker.receive()).messages
        letter = broker.engine.dead.get("billing", 0)
        assert letter.failure is not None
        assert letter.failure.class_name == "TooLargeForClient"
        assert letter.attempt_count == 2


async def test_gone_before_the_reply_with_a_large_message_is_given_back_uncounted() -> None:
    async with with_large_bodies() as broker:
        await broker.send(message("orders", b"x" * (4 * MIB)))
        call = FakeCall()
        task = asyncio.ensure_future(broker.receive(call=call, invisible_ms=HOUR_MS))
        await asyncio.sleep(0)
        task.cancel()
        call.cancel()
        await broker.settle()
        assert await attempts_after(broker) == [1]
