"""What a listener says of retries, as a broker and its clock see it."""

import asyncio
import logging
from datetime import timedelta
from itertools import pairwise

import pytest

import latermq
from latermq import Backoff
from latermq._worker.rates import Pacer
from latermq.admin import AsyncAdmin
from latermq.testing import HeldBroker
from latermq_proto.latermq.v1 import group_pb2, topic_pb2
from support.virtual_loop import virtually

SECOND = timedelta(seconds=1)


class Slow(Exception):
    """As of a service that says how long to wait."""

    retry_in: object = 17


class Seen:
    """When a listener was called, and what it raises."""

    def __init__(self, broker: HeldBroker, error: Exception | None = None) -> None:
        self.error = error
        self.attempts: list[tuple[int, int]] = []  # seconds since the begin, attempt
        self._broker = broker
        self._began = broker.now()

    def __call__(self, delivery: latermq.Delivery) -> None:
        self.attempts.append(((self._broker.now() - self._began) // SECOND, delivery.attempt))
        if self.error is not None:
            raise self.error


def listening(app: latermq.App, seen: Seen, **rules: object) -> None:
    @app.listener("orders", group="billing", **rules)  # type: ignore[call-overload,untyped-decorator]
    async def bill(delivery: latermq.Delivery) -> None:
        seen(delivery)


async def send(broker: HeldBroker, count: int = 1) -> None:
    async with broker.connect() as mq:
        for _ in range(count):
            await mq.send("orders", b"17")


def group_of(broker: HeldBroker, name: str) -> group_pb2.Group:
    request = group_pb2.GetGroupRequest(name=name)
    found: group_pb2.Group = broker.call(AsyncAdmin.groups.GetGroup, request).group
    return found


async def test_the_policy_stands_where_the_code_is(latermq_time: HeldBroker) -> None:
    app, seen = latermq.App(), Seen(latermq_time, ValueError("no card"))
    listening(app, seen, retry=Backoff("1s 5s 30s"), max_attempts=4)
    async with latermq_time.working(app):
        await send(latermq_time)
        await latermq_time.advance("36s")
    assert seen.attempts == [(0, 1), (1, 2), (6, 3), (36, 4)]
    (letter,) = latermq_time.dead("billing")
    assert (letter.reason, letter.kind) == ("attempts_exhausted", "ValueError")
    made = group_of(latermq_time, "billing")
    assert (list(made.backoff.ladder.delays_ms), made.max_attempts) == ([1_000, 5_000, 30_000], 4)


@pytest.mark.parametrize(
    ("rules", "error", "attempts"),
    [
        ({"dead_letter_on": ValueError}, ValueError("no"), 1),
        ({"dead_letter_on": (KeyError, ValueError)}, UnicodeError("no"), 1),
        ({"dead_letter_on": ValueError}, OSError("no"), 2),
        ({"retry_on": OSError}, ValueError("no"), 1),
        ({"retry_on": (OSError,)}, ConnectionError("no"), 2),
        ({"retry_on": Exception, "dead_letter_on": ValueError}, ValueError("no"), 1),
    ],
)
async def test_an_exception_may_be_the_last(
    latermq_time: HeldBroker, rules: dict[str, object], error: Exception, attempts: int
) -> None:
    app, seen = latermq.App(), Seen(latermq_time, error)
    listening(app, seen, retry="1s", max_attempts=2, **rules)
    async with latermq_time.working(app):
        await send(latermq_time)
        await latermq_time.advance("1m")
    (letter,) = latermq_time.dead("billing")
    assert letter.attempts == len(seen.attempts) == attempts
    assert (letter.kind, letter.text) == (type(error).__name__, "no")
    assert letter.reason == ("rejected" if attempts == 1 else "attempts_exhausted")


async def test_what_is_away_costs_no_attempt(
    latermq_time: HeldBroker, caplog: pytest.LogCaptureFixture
) -> None:
    app, seen = latermq.App(), Seen(latermq_time, ConnectionError("no bank"))
    listening(app, seen, retry="1s", max_attempts=2, give_back_on=ConnectionError)
    async with latermq_time.working(app):
        await send(latermq_time)
        await latermq_time.advance("10m")
        assert {attempt for _, attempt in seen.attempts} == {1}
        waits = [after - before for (before, _), (after, _) in pairwise(seen.attempts)]
        assert waits[0] <= 2  # 1 s, doubled, to a minute, and a fifth off
        assert 45 <= max(waits) <= 73
        assert 12 <= len(seen.attempts) <= 22
        seen.error = None
        await latermq_time.advance("73s")
        assert latermq_time.pending() == []
        assert latermq_time.dead("billing") == []
    assert "given back uncounted, topic orders: ConnectionError: no bank" in caplog.text
    assert "Traceback" not in caplog.text


async def test_many_that_fail_together_wait_no_longer_than_one(latermq_time: HeldBroker) -> None:
    """A second's trouble costs a second or so, however many were worked on at the time."""
    app, seen = latermq.App(), Seen(latermq_time, ConnectionError("no bank"))
    listening(app, seen, concurrency=20, give_back_on=ConnectionError)
    async with latermq_time.working(app):
        await send(latermq_time, 20)
        await latermq_time.advance("500ms")
        assert len(seen.attempts) == 20
        seen.error = None
        await latermq_time.advance("1s")
        assert latermq_time.pending() == []


@pytest.mark.parametrize(
    ("named", "retry_in", "wait"),
    [
        (17, "retry_in", 17),
        ("17", "retry_in", 17),
        (float("nan"), "retry_in", 5),
        ("1m", "retry_in", 60),
        (timedelta(seconds=3), "retry_in", 3),
        (None, "retry_in", 5),  # the group's
        ("tomorrow", "retry_in", 5),
        (-1, "retry_in", 5),
        (17, "no_such_attribute", 5),
        (17, lambda error: error.retry_in * 2, 34),
        (None, lambda error: error.retry_in * 2, 5),
    ],
)
async def test_an_exception_may_say_when(
    latermq_time: HeldBroker, named: object, retry_in: object, wait: int
) -> None:
    error = Slow()
    error.retry_in = named
    app, seen = latermq.App(), Seen(latermq_time, error)
    listening(app, seen, retry="5s", retry_in=retry_in)
    async with latermq_time.working(app):
        await send(latermq_time)
        await latermq_time.advance(timedelta(seconds=wait))
        assert seen.attempts == [(0, 1), (wait, 2)]


@pytest.mark.parametrize(
    ("retry", "named", "wait"), [("13h", None, 13), ("20d", None, 480), ("5s", 86_400, 12)]
)
async def test_a_wait_may_be_longer_than_a_broker_can_be_asked_for(
    latermq_time: HeldBroker, retry: str, named: int | None, wait: int
) -> None:
    error = Slow()
    error.retry_in = named
    app, seen = latermq.App(), Seen(latermq_time, error)
    listening(app, seen, retry=retry)
    async with latermq_time.working(app):
        await send(latermq_time)
        await latermq_time.settle()
        (waiting,) = latermq_time.pending()
        due = latermq_time.now() + timedelta(hours=wait)
        assert (waiting.state, waiting.due_at) == ("backoff", due)


async def test_a_rate_lets_them_wait_and_fails_none(latermq_time: HeldBroker) -> None:
    app, seen = latermq.App(), Seen(latermq_time)
    listening(app, seen, rate="1/2s", max_attempts=1)
    async with latermq_time.working(app):
        await send(latermq_time, 5)
        await latermq_time.advance("5s")
        assert seen.attempts == [(0, 1), (2, 1), (4, 1)]
        await latermq_time.advance("1h")  # no credit for an idle time
        await send(latermq_time, 2)
        await latermq_time.advance("2s")
        assert [second for second, _ in seen.attempts[3:]] == [6, 8, 3605, 3607]
        await send(latermq_time, 3)
        await latermq_time.settle()
    assert len(seen.attempts) == 7  # who waits for a turn is not waited for at the end
    assert [each.attempt for each in latermq_time.pending(group="billing")] == [0, 0, 0]
    assert latermq_time.dead("billing") == []


async def test_who_waits_for_a_turn_is_given_back_by_a_pause(latermq_time: HeldBroker) -> None:
    """One of them was taken before its turn, and called in the pause."""
    app, seen = latermq.App(), Seen(latermq_time)
    listening(app, seen, rate="1/10s", max_attempts=1)
    (bill,) = app.listeners
    async with latermq_time.working(app):
        await send(latermq_time, 3)
        await latermq_time.settle()
        assert (bill.consumer.stats[0].waiting, len(seen.attempts)) == (2, 1)
        await bill.consumer.pause()
        await latermq_time.settle()
        assert bill.consumer.stats[0].held_count == 0
        await latermq_time.advance("1h")
        assert seen.attempts == [(0, 1)]
        bill.consumer.resume()
        await latermq_time.advance("20s")
        assert seen.attempts == [(0, 1), (3600, 1), (3610, 1)]


@virtually
async def test_a_rate_is_reached_though_timers_are_late() -> None:
    loop, pacer = asyncio.get_running_loop(), Pacer(timedelta(milliseconds=20))
    began_s = loop.time()
    for _ in range(100):
        await pacer.turn()
        await asyncio.sleep(0.003)  # so late is each timer
        pacer.begun()
    assert loop.time() - began_s == pytest.approx(99 * 0.02 + 0.003)


def said(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    """List what the worker logged; the broker of the same loop has its say elsewhere."""
    records = [one for one in caplog.records if one.name == "latermq.worker"]
    return [one.getMessage() for one in records if one.levelno == level]


async def test_a_worker_makes_what_is_missing_and_warns_of_what_differs(
    latermq_time: HeldBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "latermq.worker")
    app = latermq.App()
    listening(app, Seen(latermq_time), retry="1s 5s", max_attempts=3)
    app.topic("orders", kind="normal", queues=3)
    app.group("ledger", fifo=True)
    async with latermq_time.working(app):
        assert "topic orders made" in caplog.text
        assert "group billing made" in caplog.text
        assert group_of(latermq_time, "ledger").fifo
        found = latermq_time.call(
            AsyncAdmin.topics.GetTopic, topic_pb2.GetTopicRequest(name="orders")
        ).topic
        assert (found.type, found.queue_count) == (topic_pb2.NORMAL, 3)
    caplog.clear()
    async with latermq_time.working(app):
        assert said(caplog, logging.INFO) == ["worker ready: orders for billing"]

    newer = latermq.App()
    listening(newer, Seen(latermq_time), retry="1s 1m", max_attempts=3)
    newer.topic("orders", queues=4)
    caplog.clear()
    async with latermq_time.working(newer):
        assert [text.partition(";")[0] for text in said(caplog, logging.WARNING)] == [
            "topic orders: queues: 3 at the broker, 4 in the code",
            "group billing: retry: 1s 5s at the broker, 1s 1m in the code",
        ]
        assert list(group_of(latermq_time, "billing").backoff.ladder.delays_ms) == [1_000, 5_000]
    with latermq_time.using(newer):
        assert await newer.declare() == [
            "topic orders altered: queues: 3 at the broker, 4 in the code",
            "group billing altered: retry: 1s 5s at the broker, 1s 1m in the code",
        ]
        assert await newer.declare() == []
        await newer.close()
    assert list(group_of(latermq_time, "billing").backoff.ladder.delays_ms) == [1_000, 60_000]
    assert group_of(latermq_time, "billing").max_attempts == 3


async def test_an_order_cannot_be_altered(latermq_time: HeldBroker) -> None:
    app, other = latermq.App(), latermq.App()
    app.group("ledger", fifo=True, max_attempts=3)
    other.group("ledger", fifo=False)
    with latermq_time.using(app):
        assert await app.declare() == ["group ledger made"]
        await app.close()
    with latermq_time.using(other):
        with pytest.raises(ValueError, match="cannot be altered"):
            await other.declare()
        await other.close()


def test_what_contradicts_itself_or_makes_no_sense_is_refused() -> None:
    app = latermq.App()
    app.group("billing", max_attempts=3)
    app.listener("orders", group="billing", retry="1s")
    with pytest.raises(ValueError, match="max_attempts is declared as 3 and as 4"):
        app.listener("orders", group="billing", max_attempts=4)
    with pytest.raises(ValueError, match="retry is declared as 1s and as 2s"):
        app.group("billing", retry="2s")
    app.topic("orders", kind="fifo")
    with pytest.raises(ValueError, match="declared twice"):
        app.topic("orders")
    with pytest.raises(ValueError, match="kind must be one of mixed, normal"):
        app.topic("others", kind="odd")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="retry must be a Backoff"):
        app.group("others", retry=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="dead_letter_on must be an exception class"):
        app.listener("orders", group="g", dead_letter_on="ValueError")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="retry_in must be the name"):
        app.listener("orders", group="g", retry_in=3)  # type: ignore[call-overload]
    for rate in ("10", "0/s", "10/0s", "ten/s", "10/week"):
        with pytest.raises(ValueError, match="rate must be such as"):
            app.listener("orders", group="g", rate=rate)
    with pytest.raises(TypeError, match="rate must be text"):
        app.listener("orders", group="g", rate=10)  # type: ignore[call-overload]


async def test_success_is_a_line_for_those_who_look(
    latermq_time: HeldBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "latermq.client")
    app = latermq.App()

    @app.listener("films", group="encoder")
    async def encode(film: str) -> None:
        await asyncio.sleep(1.5)

    async with latermq_time.working(app):
        sent = await encode.send("Metropolis")
        await latermq_time.advance("2s")
    assert f"message {sent.message_id} of topic films done: attempt 1, 1500.0 ms" in caplog.text
