"""Transactions and recall: what is told to the broker, and what is answered when it asks."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from latermq import Received, Resolution
from latermq.client import Client
from latermq.errors import (
    BadRequestError,
    InvalidTransactionError,
    LaterMQError,
    NotFoundError,
    RequestTimeoutError,
    TooManyRequestsError,
    TopicNotFoundError,
    UnavailableError,
)
from latermq.transaction import CHECKS_AT_ONCE_MAX
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2 import service_pb2 as rpc
from support.scripted_broker import ScriptedBroker
from support.virtual_loop import virtually

Connect = Callable[[], Client]
BUSY = v2.Status(code=v2.TOO_MANY_REQUESTS, message="slow down")
ENDED = v2.Status(code=v2.INVALID_TRANSACTION_ID, message="rolled back already")
LATE = v2.Status(code=v2.REQUEST_TIMEOUT, message="too late")
GONE = UnavailableError("gone")


def ends(broker: ScriptedBroker) -> list[tuple[str, int, int]]:
    """(transaction, resolution, source) of every end told."""
    return [
        (request.transaction_id, request.resolution, request.source)
        for request in broker.requests("EndTransaction")
    ]


def ask(broker: ScriptedBroker, body: bytes, *, topic: str = "orders", **system: Any) -> None:
    """The broker asks how the transaction `t-<body>` ended."""
    name = body.decode()
    message = v2.Message(
        topic=v2.Resource(name=topic),
        body=body,
        system_properties=v2.SystemProperties(message_id=f"id-{name}", keys=["k-1"], **system),
    )
    orphan = rpc.RecoverOrphanedTransactionCommand(message=message, transaction_id=f"t-{name}")
    command = rpc.TelemetryCommand(recover_orphaned_transaction_command=orphan)
    broker.streams[-1].push(command)


async def settled() -> None:
    await asyncio.sleep(0.1)


@virtually
async def test_leaving_the_block_commits(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq:
        async with mq.transaction(
            "orders", b"one", tag="eu", keys=["k"], check_after=timedelta(seconds=90)
        ) as transaction:
            assert ends(broker) == []
        assert transaction.transaction_id == f"t-{transaction.message_id}"
        assert ends(broker) == [(transaction.transaction_id, v2.COMMIT, v2.SOURCE_CLIENT)]
    ((message,),) = [request.messages for request in broker.requests("SendMessage")]
    system = message.system_properties
    assert (system.message_type, system.tag, list(system.keys)) == (v2.TRANSACTION, "eu", ["k"])
    assert system.orphaned_transaction_recovery_duration.seconds == 90
    (end,) = broker.requests("EndTransaction")
    assert (end.topic.name, end.message_id) == ("orders", system.message_id)


@virtually
async def test_raising_rolls_back_and_says_what_was_raised(
    broker: ScriptedBroker, connect: Connect
) -> None:
    async with connect() as mq:
        with pytest.raises(ZeroDivisionError):
            async with mq.transaction("orders", b"one") as transaction:
                raise ZeroDivisionError
        assert ends(broker) == [(transaction.transaction_id, v2.ROLLBACK, v2.SOURCE_CLIENT)]
        broker.refuse("EndTransaction", ENDED)
        with pytest.raises(ZeroDivisionError):
            async with mq.transaction("orders", b"two"):
                raise ZeroDivisionError


@virtually
async def test_a_cancelled_block_rolls_back(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq:

        async def work() -> None:
            async with mq.transaction("orders", b"one"):
                await asyncio.sleep(3_600)

        task = asyncio.ensure_future(work())
        await settled()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [resolution for _, resolution, _ in ends(broker)] == [v2.ROLLBACK]


@virtually
async def test_an_end_told_in_the_block_is_the_end(
    broker: ScriptedBroker, connect: Connect
) -> None:
    async with connect() as mq:
        async with mq.transaction("orders", b"one") as transaction:
            await transaction.rollback()
        second = mq.transaction("orders", b"two")
        await second.__aenter__()
        await second.commit()
        await second.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert [resolution for _, resolution, _ in ends(broker)] == [v2.ROLLBACK, v2.COMMIT]


@virtually
async def test_a_block_is_for_once(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq:
        transaction = mq.transaction("orders", b"one")
        with pytest.raises(RuntimeError, match="not begun"):
            await transaction.commit()
        async with transaction:
            pass
        with pytest.raises(RuntimeError, match="one block"):
            async with transaction:
                pass
        with pytest.raises(ValueError, match="check_after"):
            mq.transaction("orders", b"one", check_after=timedelta(0))
    assert len(broker.named("SendMessage")) == 1


@virtually
async def test_a_commit_that_is_too_late_raises(broker: ScriptedBroker, connect: Connect) -> None:
    broker.refuse("EndTransaction", ENDED)
    async with connect() as mq:
        with pytest.raises(InvalidTransactionError, match="rolled back already"):
            async with mq.transaction("orders", b"one"):
                pass


@virtually
async def test_an_end_is_told_again_while_the_broker_is_away(
    broker: ScriptedBroker, connect: Connect
) -> None:
    broker.refuse("EndTransaction", GONE, GONE)
    async with connect() as mq, mq.transaction("orders", b"one"):
        pass
    assert [resolution for _, resolution, _ in ends(broker)] == [v2.COMMIT] * 3


@virtually
async def test_a_commit_that_may_have_been_heard_is_not_rolled_back(
    broker: ScriptedBroker, connect: Connect
) -> None:
    """The work is done: if it was not heard, the broker asks, and the checker knows."""
    broker.refuse("EndTransaction", LATE)
    async with connect() as mq:
        with pytest.raises(RequestTimeoutError):
            async with mq.transaction("orders", b"one") as transaction:
                await transaction.commit()
    assert [resolution for _, resolution, _ in ends(broker)] == [v2.COMMIT]


@virtually
async def test_a_rollback_that_was_not_heard_is_no_commit(
    broker: ScriptedBroker, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """The block ends in order, but its work was not done: it is rolled back once more."""
    broker.refuse("EndTransaction", LATE, LATE)
    async with connect() as mq, mq.transaction("orders", b"one") as transaction:
        with suppress(LaterMQError):
            await transaction.rollback()
    assert [resolution for _, resolution, _ in ends(broker)] == [v2.ROLLBACK] * 2
    assert "if it was not heard, the broker will ask: too late" in caplog.text


@virtually
async def test_of_a_commit_that_is_too_late_nothing_is_left_to_say(
    broker: ScriptedBroker, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """It was heard: the transaction is rolled back, and nobody will ask."""
    broker.refuse("EndTransaction", ENDED)
    async with connect() as mq:
        with pytest.raises(InvalidTransactionError):
            async with mq.transaction("orders", b"one") as transaction:
                await transaction.commit()
    assert len(ends(broker)) == 1
    assert not caplog.records


@virtually
async def test_a_half_is_sent_again_only_when_it_was_surely_not_stored(
    broker: ScriptedBroker, connect: Connect
) -> None:
    async with connect() as mq:
        broker.refuse("SendMessage", GONE)
        with pytest.raises(UnavailableError):
            async with mq.transaction("orders", b"one"):
                pytest.fail("the block ran")
        assert len(broker.named("SendMessage")) == 1
        broker.refuse("SendMessage", BUSY, BUSY)
        async with mq.transaction("orders", b"one"):
            pass
        assert len(broker.named("SendMessage")) == 4
        broker.refuse("SendMessage", BUSY, BUSY, BUSY)
        with pytest.raises(TooManyRequestsError):
            async with mq.transaction("orders", b"one"):
                pytest.fail("the block ran")
        missing = v2.Status(code=v2.TOPIC_NOT_FOUND, message="no topic")
        broker.refuse("SendMessage", missing)
        with pytest.raises(TopicNotFoundError):
            async with mq.transaction("orders", b"one"):
                pytest.fail("the block ran")


# --- the broker asks --------------------------------------------------------------------------


@virtually
async def test_a_checker_answers(broker: ScriptedBroker, connect: Connect) -> None:
    seen: list[Received] = []

    async def later(half: Received) -> Resolution:
        await asyncio.sleep(1)
        return at_once(half)

    def at_once(half: Received) -> Resolution:
        seen.append(half)
        return Resolution(half.body.decode())

    broker.topics["bills"] = 1
    async with connect() as mq:
        await mq.check_transactions("orders", at_once)
        await mq.check_transactions("bills", later)
        for body in (b"commit", b"rollback", b"unknown"):
            ask(broker, body)
        ask(broker, b"commit", topic="bills")
        await asyncio.sleep(2)
        answers = ends(broker)
    assert answers == [
        ("t-commit", v2.COMMIT, v2.SOURCE_SERVER_CHECK),
        ("t-rollback", v2.ROLLBACK, v2.SOURCE_SERVER_CHECK),
        ("t-commit", v2.COMMIT, v2.SOURCE_SERVER_CHECK),
    ]
    assert (seen[0].topic, seen[0].message_id, seen[0].keys) == ("orders", "id-commit", ("k-1",))
    (*_, settings) = broker.requests("Telemetry")
    assert [topic.name for topic in settings.settings.publishing.topics] == ["orders", "bills"]


@virtually
async def test_who_cannot_answer_is_asked_again_and_goes_on(
    broker: ScriptedBroker, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    def checker(half: Received) -> Any:
        if half.body == b"raises":
            raise ZeroDivisionError
        if half.body == b"exits":
            sys.exit("no database")
        return True if half.body == b"wrong" else Resolution.COMMIT

    async with connect() as mq:
        await mq.send("orders", b"one")
        ask(broker, b"nobody checks")
        await settled()
        await mq.check_transactions("orders", checker)
        ask(broker, b"raises")
        ask(broker, b"exits")
        await settled()
        assert "the handler raised SystemExit: no database" in caplog.text
        ask(broker, b"wrong")
        ask(broker, b"damaged", body_digest=v2.Digest(type=v2.MD5, checksum="00"))
        broker.refuse("EndTransaction", ENDED)
        ask(broker, b"too late")
        ask(broker, b"good")
        await settled()
        assert [name for name, _, _ in ends(broker)] == ["t-too late", "t-good"]


@virtually
async def test_checks_at_once_are_bounded(broker: ScriptedBroker, connect: Connect) -> None:
    release = asyncio.Event()

    async def checker(half: Received) -> Resolution:
        await release.wait()
        return Resolution.COMMIT

    async with connect() as mq:
        await mq.check_transactions("orders", checker)
        for number in range(CHECKS_AT_ONCE_MAX + 5):
            ask(broker, b"%d" % number)
        await settled()
        release.set()
        await settled()
        assert len(ends(broker)) == CHECKS_AT_ONCE_MAX
        ask(broker, b"again")
        await settled()
        assert len(ends(broker)) == CHECKS_AT_ONCE_MAX + 1


# --- recall -----------------------------------------------------------------------------------


@virtually
async def test_recall(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq:
        assert await mq.recall("orders", "d-1-40") == "recalled"
        late = v2.Status(code=v2.NOT_FOUND, message="delivered")
        broker.refuse("RecallMessage", late, v2.Status(code=v2.BAD_REQUEST, message="what?"))
        with pytest.raises(NotFoundError):
            await mq.recall("orders", "d-1-40")
        with pytest.raises(BadRequestError):
            await mq.recall("orders", "nonsense")
    request = broker.requests("RecallMessage")[0]
    assert (request.topic.name, request.recall_handle) == ("orders", "d-1-40")
