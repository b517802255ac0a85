"""`latermq_time`: a real broker and client in the test's loop, and a clock that stands still."""

import asyncio
import threading
import time
from contextlib import aclosing, suppress
from datetime import timedelta

import pytest
import uvloop

import latermq
from latermq.admin import AsyncAdmin
from latermq.testing import HeldBroker
from latermq_broker.config.config import CatalogConfig
from latermq_proto.latermq.v1 import dead_letter_pb2, group_pb2, topic_pb2
from support.machine import patient

SECOND = timedelta(seconds=1)
APP = latermq.App()  # as in a module of a user's: for all tests
GIVEN: list[str] = []


@APP.listener("names", group="greeter")
async def greet(name: str) -> None:
    GIVEN.append(name)


def policy(broker: HeldBroker, group: str, max_attempts: int, *delays_ms: int) -> None:
    wanted = group_pb2.Group(name=group, max_attempts=max_attempts)
    wanted.backoff.ladder.delays_ms.extend(delays_ms)
    broker.call(AsyncAdmin.groups.CreateGroup, group_pb2.CreateGroupRequest(group=wanted))


async def test_attempts_come_when_the_ladder_says_and_then_it_is_dead(
    latermq_time: HeldBroker,
) -> None:
    app = latermq.App()
    attempts: list[timedelta] = []
    start = latermq_time.now()

    @app.listener("orders", group="billing")
    async def bill(order: bytes) -> None:
        attempts.append(latermq_time.now() - start)
        raise ValueError("no card")

    policy(latermq_time, "billing", 4, 1_000, 5_000, 30_000)
    async with latermq_time.working(app):
        await bill.send(b"17", keys=["A-17"])
        await latermq_time.settle()
        assert attempts == [timedelta(0)]
        (waiting,) = latermq_time.pending()
        assert (waiting.state, waiting.due_at, waiting.keys) == (
            "backoff",
            start + SECOND,
            ("A-17",),
        )
        assert (waiting.kind, waiting.text) == ("ValueError", "no card")
        await latermq_time.advance("999ms")
        assert len(attempts) == 1
        await latermq_time.advance("1ms")
        assert len(attempts) == 2
        await latermq_time.advance("35s")
        assert attempts == [SECOND * n for n in (0, 1, 6, 36)]
        (letter,) = latermq_time.dead("billing")
        assert (letter.body, letter.attempts, letter.text) == (b"17", 4, "no card")
        assert letter.died_at == start + 36 * SECOND
        assert [each.backoff // SECOND for each in letter.failures] == [1, 5, 30, 0]
        assert latermq_time.pending() == []


async def test_a_delay_is_kept_to_the_millisecond(latermq_time: HeldBroker) -> None:
    GIVEN.clear()
    async with latermq_time.working(APP):
        await latermq_time.advance("10m")  # the client's clock moves with the broker's
        await greet.send("ann", delay=timedelta(minutes=20))
        await greet.send("bob", deliver_at=latermq_time.now() + timedelta(minutes=1))
        await latermq_time.advance("59.999s")
        assert GIVEN == []
        await latermq_time.advance(timedelta(milliseconds=1))
        assert GIVEN == ["bob"]
        (waiting,) = latermq_time.pending("names")
        assert (waiting.state, waiting.group, waiting.attempt) == ("delayed", "", 0)
        await latermq_time.advance(waiting.due_at - latermq_time.now() - timedelta(milliseconds=1))
        assert GIVEN == ["bob"]
        await latermq_time.advance("1ms")
        assert GIVEN == ["bob", "ann"]


async def test_an_app_may_be_used_by_test_after_test(latermq_time: HeldBroker) -> None:
    GIVEN.clear()
    with latermq_time.using(APP):
        await greet.send("cleo", delay=SECOND)
        assert [waiting.topic for waiting in latermq_time.pending()] == ["names"]
    async with latermq_time.working(APP):
        await latermq_time.advance("1s")
        assert GIVEN == ["cleo"]


async def test_what_was_sent_is_listed(latermq_time: HeldBroker) -> None:
    assert latermq_time.sent("orders") == []
    due = latermq_time.now() + SECOND
    async with latermq_time.connect() as mq:
        first = await mq.send("orders", b"1" * 10_000, tag="paid", keys=["a", "b"])
        await latermq_time.advance("1ms")
        await mq.send("orders", b"2", deliver_at=due, properties={"who": "ann"})
        await mq.send("others", b"3")
        for delivery in await mq.simple_consumer("orders", group="billing").receive():
            await delivery.ack()
    (one,) = latermq_time.sent("orders")
    await latermq_time.advance("1s")
    one, two = latermq_time.sent("orders")
    assert (one.message_id, one.body, one.keys) == (first.message_id, b"1" * 10_000, ("a", "b"))
    assert (one.tag, one.due_at, two.due_at, two.body) == ("paid", None, due, b"2")
    assert two.properties["who"] == "ann"


async def test_a_lease_ends_when_it_says(latermq_time: HeldBroker) -> None:
    async with latermq_time.connect() as mq:
        await mq.send("orders", b"17")
        consumer = mq.simple_consumer("orders", group="billing")
        (first,) = await consumer.receive(invisible=30 * SECOND)
        (leased,) = latermq_time.pending(group="billing")
        assert leased.state == "in flight"
        assert leased.due_at == latermq_time.now() + 30 * SECOND
        await latermq_time.advance("20s")
        again = asyncio.create_task(consumer.receive(wait=20 * SECOND))
        await latermq_time.advance("9.999s")
        assert not again.done()
        await latermq_time.advance("1ms")
        (second,) = again.result()
        assert (second.message_id, second.attempt) == (first.message_id, 2)
        with pytest.raises(latermq.errors.InvalidReceiptHandleError):
            await first.ack()
        await second.ack()
        assert latermq_time.pending() == []


async def test_time_passes_until_a_call_is_done(latermq_time: HeldBroker) -> None:
    began = latermq_time.now()
    async with latermq_time.connect() as mq:
        await mq.send("orders", b"17", delay=15 * SECOND)
        consumer = mq.simple_consumer("orders", group="billing")
        (one,) = await latermq_time.until(consumer.receive(wait=20 * SECOND))
        assert (one.body, latermq_time.now() - began) == (b"17", 15 * SECOND)
        with pytest.raises(latermq.errors.IllegalTimeError):
            await latermq_time.until(consumer.receive(invisible=timedelta(hours=13)))


async def test_dead_letters_are_redriven_as_time_passes(latermq_time: HeldBroker) -> None:
    app = latermq.App()
    done: list[tuple[str, int]] = []
    is_mended, began = False, latermq_time.now()

    @app.listener("orders", group="billing", max_attempts=1)
    async def bill(order: str) -> None:
        if not is_mended:
            raise LookupError("no card")
        done.append((order, (latermq_time.now() - began) // SECOND))

    redrive = AsyncAdmin.dead_letters.RedriveDeadLetters
    asked = dead_letter_pb2.RedriveDeadLettersRequest(group="billing", rate_per_second=1)
    async with latermq_time.working(app):
        for order in "abcd":
            await bill.send(order)
        await latermq_time.settle()
        is_mended, began = True, latermq_time.now()
        async with aclosing(latermq_time.stream(redrive, asked)) as first:
            assert (await anext(first)).changed_count == 2
        await latermq_time.advance("1m")
        assert [letter.body for letter in latermq_time.dead("billing")] == [b"c", b"d"]
        progress = [each async for each in latermq_time.stream(redrive, asked)]
        assert [(each.changed_count, each.done) for each in progress] == [(2, False), (2, True)]
        await latermq_time.settle()
        assert done == [("a", 0), ("b", 1), ("c", 61), ("d", 62)]
        asked.group = "shipping"
        with pytest.raises(latermq.errors.GroupNotFoundError):
            await anext(latermq_time.stream(redrive, asked))


async def test_leases_of_a_worker_are_renewed_while_it_works(latermq_time: HeldBroker) -> None:
    app = latermq.App()
    said: list[str] = []

    @app.listener("films", group="encoder")
    async def encode(film: str) -> None:
        said.append(f"began {film}")
        await asyncio.sleep(200)
        said.append(f"done {film}")

    async with latermq_time.working(app):
        await encode.send("Metropolis")
        await latermq_time.advance("199s")
        assert said == ["began Metropolis"]
        await latermq_time.advance("1s")
        assert said == ["began Metropolis", "done Metropolis"]
        assert latermq_time.pending() == []


async def test_the_end_of_a_block_waits_for_what_is_in_hand_in_no_time(
    latermq_time: HeldBroker,
) -> None:
    app = latermq.App()
    said: list[str] = []

    @app.listener("films", group="encoder")
    async def encode(film: str) -> None:
        await asyncio.sleep(20 if film == "short" else 2_000)
        said.append(film)

    async with latermq_time.working(app):
        await encode.send("short")
        await encode.send("long")
        await latermq_time.settle()
    assert said == ["short"]
    assert [waiting.attempt for waiting in latermq_time.pending()] == [0]  # given back uncounted


async def test_a_time_limit_goes_by_this_clock(latermq_time: HeldBroker) -> None:
    app = latermq.App()

    @app.listener("orders", group="billing", timeout=30 * SECOND)
    async def bill(order: bytes) -> None:
        await asyncio.Event().wait()  # nothing ever comes

    policy(latermq_time, "billing", 1, 1_000)
    latermq_time.patience = timedelta(milliseconds=5)
    async with latermq_time.working(app):
        await bill.send(b"17")
        await latermq_time.advance("29.999s")
        assert latermq_time.dead("billing") == []
        await latermq_time.advance("1ms")
        (letter,) = latermq_time.dead("billing")
        assert letter.text == "not done after 30 s, its time limit"


async def test_threads_and_sockets_are_waited_for(latermq_time: HeldBroker) -> None:
    app = latermq.App()
    said: list[str] = []
    let_go = threading.Event()

    @app.listener("orders", group="thread")
    def in_a_thread(order: str) -> None:
        let_go.wait(patient(30))
        said.append(f"thread {order}")

    @app.listener("orders", group="socket")
    async def over_a_socket(order: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(order.encode() + b"\n")
        said.append(f"socket {(await reader.readline()).decode().strip()}")
        writer.close()
        await writer.wait_closed()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper())
        with suppress(ConnectionError):
            await writer.drain()
        writer.close()

    latermq_time.patience = timedelta(seconds=patient(30))
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with latermq_time.working(app):
        await over_a_socket.send("a")
        threading.Timer(0.01, let_go.set).start()
        await latermq_time.settle()
        assert sorted(said) == ["socket A", "thread a"]
        assert latermq_time.pending() == []
    server.close()


async def test_one_that_iterates_has_its_turn(latermq_time: HeldBroker) -> None:
    seen: list[int] = []
    policy(latermq_time, "billing", 3, 10_000)

    async def consume() -> None:
        async for delivery in mq.push_consumer("orders", group="billing"):
            async with delivery:
                seen.append(delivery.attempt)
                raise RuntimeError("again")

    async with latermq_time.connect() as mq:
        await mq.send("orders", b"17")
        task = asyncio.create_task(consume())
        await latermq_time.advance("10s")
        assert seen == [1, 2]
        task.cancel()


async def test_a_transaction_that_nobody_ends_is_asked_for(latermq_time: HeldBroker) -> None:
    asked: list[bytes] = []

    async def checker(half: latermq.Received) -> latermq.Resolution:
        asked.append(half.body)
        return latermq.Resolution.COMMIT

    async with latermq_time.connect() as mq:
        await mq.check_transactions("orders", checker)
        block = mq.transaction("orders", b"17")
        await block.__aenter__()
        assert [waiting.state for waiting in latermq_time.pending()] == ["half"]
        await latermq_time.advance("30s")
        assert asked == [b"17"]
        assert latermq_time.pending() == []


async def test_what_a_test_leaves_open_is_closed(latermq_time: HeldBroker) -> None:
    mq = latermq_time.connect()
    consumer = mq.push_consumer("orders", group="billing")
    await consumer.start()
    await latermq_time.settle()


async def test_time_stands_still_unless_it_is_moved(latermq_time: HeldBroker) -> None:
    before = latermq_time.now()
    for _ in range(50):
        await asyncio.sleep(0)
    time.sleep(0.01)
    assert latermq_time.now() == before
    await latermq_time.advance("0")
    assert latermq_time.now() == before
    with pytest.raises(ValueError, match="not a duration"):
        await latermq_time.advance("2 fortnights")
    with pytest.raises(TypeError, match="by must be a timedelta"):
        await latermq_time.advance(3)  # type: ignore[arg-type]


async def test_a_client_may_be_closed_with_work_in_hand(latermq_time: HeldBroker) -> None:
    began = latermq_time.now()
    async with latermq_time.connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")

        @consumer.listener
        async def bill(delivery: latermq.Delivery) -> None:
            await asyncio.sleep(20)

        await mq.send("orders", b"17")
        await consumer.start()
        await latermq_time.settle()
    assert latermq_time.now() - began == 20 * SECOND
    assert latermq_time.pending() == []


async def test_a_listener_does_not_move_the_clock(latermq_time: HeldBroker) -> None:
    app = latermq.App()
    errors: list[str] = []

    @app.listener("names", group="mover")
    async def move(name: str) -> None:
        with pytest.raises(RuntimeError, match="not by a listener") as refused:
            await latermq_time.advance("1s")
        errors.append(str(refused.value))

    async with latermq_time.working(app):
        await move.send("ann")
        await latermq_time.settle()
    assert len(errors) == 1


async def test_an_app_in_use_elsewhere_is_refused(latermq_time: HeldBroker) -> None:
    app = latermq.App()
    assert app.client
    with pytest.raises(ValueError, match="in use"), latermq_time.using(app):
        pass
    await app.close()


def test_a_loop_whose_clock_cannot_be_held_is_refused() -> None:
    async def use() -> None:
        HeldBroker().now()

    refused = pytest.raises(RuntimeError, match="not uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, refused:
        runner.run(use())


def test_without_a_loop_and_without_use_nothing_is_opened(latermq_time: HeldBroker) -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        latermq_time.now()


async def test_a_topic_has_as_many_queues_as_at_a_broker_process(latermq_time: HeldBroker) -> None:
    """What has no message group has no order, there or here."""
    async with latermq_time.connect() as mq:
        await mq.send("orders", b"17")
    request = topic_pb2.GetTopicRequest(name="orders")
    topic = latermq_time.call(AsyncAdmin.topics.GetTopic, request).topic
    assert topic.queue_count == CatalogConfig().default_queue_count
