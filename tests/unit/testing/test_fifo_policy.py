"""What a group that keeps message groups in order does with failures, unless it is told."""

import logging
from typing import Any

import pytest

import latermq
from latermq.admin import AsyncAdmin
from latermq.backoff import FIFO_RETRY
from latermq.kafka import KafkaApp, Record
from latermq.testing import HeldBroker
from latermq_proto.latermq.v1 import group_pb2
from latermq_text.attempts import UNLIMITED


def group_of(broker: HeldBroker, name: str) -> group_pb2.Group:
    request = group_pb2.GetGroupRequest(name=name)
    found: group_pb2.Group = broker.call(AsyncAdmin.groups.GetGroup, request).group
    return found


def failing(app: latermq.App, broker: HeldBroker, **policy: object) -> list[tuple[float, int, str]]:
    """Make a listener that fails; when it was called, in seconds, with which attempt of what."""
    seen: list[tuple[float, int, str]] = []
    began = broker.now()

    @app.listener("stock", group="ledger", **policy)  # type: ignore[call-overload,untyped-decorator]
    async def book(move: str, delivery: latermq.Delivery) -> None:
        seen.append(((broker.now() - began).total_seconds(), delivery.attempt, move))
        raise ConnectionError("the shelf is locked")

    return seen


async def send(broker: HeldBroker, *moves: str) -> None:
    async with broker.connect() as mq:
        for move in moves:
            await mq.send("stock", move.encode(), message_group="tea")


async def test_every_3_seconds_and_no_last_attempt(latermq_time: HeldBroker) -> None:
    app = latermq.App()
    app.topic("stock", kind="fifo")
    app.group("ledger", fifo=True)
    seen = failing(app, latermq_time)
    async with latermq_time.working(app):
        made = group_of(latermq_time, "ledger")
        assert (made.backoff.fixed_ms, made.max_attempts) == (3_000, UNLIMITED)
        await send(latermq_time, "in", "out")
        await latermq_time.advance("5m")
    assert seen == [(3.0 * number, number + 1, "in") for number in range(101)]
    assert latermq_time.dead("ledger") == []


@pytest.mark.parametrize(
    ("policy", "backoff", "attempts"),
    [
        ({"retry": "1s"}, "ladder", UNLIMITED),
        ({"max_attempts": 4}, "fixed_ms", 4),
        ({"retry": "1s", "max_attempts": "unlimited"}, "ladder", UNLIMITED),
    ],
)
async def test_what_is_said_holds(
    latermq_time: HeldBroker, policy: dict[str, object], backoff: str, attempts: int
) -> None:
    app = latermq.App()
    app.topic("stock", kind="fifo")
    app.group("ledger", fifo=True)
    failing(app, latermq_time, **policy)
    async with latermq_time.working(app):
        made = group_of(latermq_time, "ledger")
    assert (made.backoff.WhichOneof("policy"), made.max_attempts) == (backoff, attempts)


async def test_a_group_that_is_there_keeps_what_it_has(
    latermq_time: HeldBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "latermq.worker")
    latermq_time.now()
    app = latermq.App()
    app.topic("stock", kind="fifo")
    app.group("ledger", fifo=True)
    failing(app, latermq_time)
    made = group_pb2.Group(name="ledger", fifo=True)
    latermq_time.call(AsyncAdmin.groups.CreateGroup, group_pb2.CreateGroupRequest(group=made))
    for declare in (False, True):
        async with latermq_time.working(app):
            if declare:
                await app.declare()
            there = group_of(latermq_time, "ledger")
        assert (there.backoff.WhichOneof("policy"), there.max_attempts) == (None, 17)
        ladder = list(there.default_backoff.ladder.delays_ms)
        assert ladder[:2] + ladder[-1:] == [10_000, 30_000, 7_200_000]
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("policy", "backoff", "attempts"),
    [({}, None, 17), ({"retry": "3s"}, "ladder", 17), ({"max_attempts": 4}, None, 4),
     ({"max_attempts": "unlimited"}, None, UNLIMITED)],
)  # fmt: skip
async def test_records_of_kafka_in_order_wait_as_those_without(
    latermq_time: HeldBroker, policy: dict[str, Any], backoff: str | None, attempts: int
) -> None:
    """What follows a bad record would wait for ever otherwise; see docs/guide/kafka.md."""
    app = KafkaApp({"bootstrap.servers": "127.0.0.1:1"})

    @app.kafka_listener("orders", group="billing", ordered=True, **policy)
    async def bill(record: Record) -> None: ...

    with latermq_time.using(app):
        await app.declare()
        await app.close()
    made = group_of(latermq_time, "billing")
    assert (made.fifo, made.max_attempts) == (True, attempts)
    assert made.backoff.WhichOneof("policy") == backoff


async def test_any_group_may_have_no_last_attempt(latermq_time: HeldBroker) -> None:
    app = latermq.App()
    seen: list[int] = []

    @app.listener("orders", group="billing", retry="fixed 1ms", max_attempts="unlimited")
    async def bill(order: str, delivery: latermq.Delivery) -> None:
        seen.append(delivery.attempt)
        if len(seen) == 1_200:
            await delivery.dead_letter("enough")
        raise ValueError("no card")

    async with latermq_time.working(app):
        await bill.send("17")
        await latermq_time.advance("2s")
    assert seen == list(range(1, 1_201))  # more than a broker lets a number of attempts be
    (letter,) = latermq_time.dead("billing")
    assert letter.attempts == 1_200


async def test_what_is_no_number_of_attempts_is_refused(latermq_time: HeldBroker) -> None:
    app = latermq.App()
    with pytest.raises(ValueError, match='max_attempts is a number or "unlimited", not'):
        app.group("billing", max_attempts="never")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_attempts must be at least 1"):
        app.group("billing", max_attempts=0)
    assert str(FIFO_RETRY) == "fixed 3s"
    async with latermq_time.connect() as mq:
        wanted = group_pb2.Group(name="billing", max_attempts=UNLIMITED - 1)
        with pytest.raises(latermq.errors.BadRequestError, match="nor 2147483647: no last"):
            await mq.admin.call(
                mq.admin.groups.CreateGroup, group_pb2.CreateGroupRequest(group=wanted)
            )
