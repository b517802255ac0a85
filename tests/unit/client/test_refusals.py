"""A broker that refuses what a consumer repeats: one line at the begin, one at the end."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

import pytest

from latermq._connection.refusals import (
    BUSY_S,
    LASTING_S,
    REPEATED_S,
    Refusals,
    SessionRefusals,
)
from latermq.client import Client
from latermq.codes import Code
from latermq.errors import (
    ForbiddenError,
    LaterMQError,
    TooManyRequestsError,
    UnavailableError,
    error_for,
)
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from support.scripted_broker import ScriptedBroker
from support.virtual_loop import virtually

DENIED = ForbiddenError(Code.FORBIDDEN, "user worker may not read group billing")


class Rig:
    """Refusals at a time that tests move."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.all = Refusals(lambda: self.now_s)

    def session(self, group: str = "billing") -> SessionRefusals:
        return SessionRefusals(group, self.all)


@pytest.fixture
def rig(caplog: pytest.LogCaptureFixture) -> Rig:
    caplog.set_level(logging.INFO, logger="latermq.client")
    return Rig()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


def test_one_line_at_the_begin_and_one_at_the_end_of_all_that_is_refused(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    session = rig.session()
    for _ in range(60):
        for queue in range(4):
            session.failed(("receive", queue), "receive", DENIED, topic="orders")
        session.failed("heartbeat", "heartbeat", DENIED)
        rig.now_s += 1
    assert len(warnings(caplog)) == 1
    assert "group billing: receive of orders: user worker may not" in warnings(caplog)[0]
    assert "may not read group billing" in session.reason
    for queue in range(4):
        session.taken(("receive", queue))
    assert session.reason, "a heartbeat is still refused"
    session.taken("heartbeat")
    assert not session.reason
    assert len(warnings(caplog)) == 2
    assert "no call of group billing is refused any more, after 60.0 s" in warnings(caplog)[1]


def test_what_is_refused_once_is_no_news(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    session = rig.session()
    for _ in range(10):
        session.failed("receive", "receive", DENIED, topic="orders")
        session.taken("receive")
        rig.now_s += LASTING_S
    assert not warnings(caplog)
    assert not session.reason


def test_lines_at_info_end_with_the_warning(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    session = rig.session()
    for _ in range(100):
        session.failed("receive", "receive", DENIED, topic="orders")
        rig.now_s += LASTING_S / 2
    assert sum(each.levelno == logging.INFO for each in caplog.records) == 3


@pytest.mark.parametrize(
    "error", [UnavailableError("gone"), error_for(Code.REQUEST_TIMEOUT, "no answer")]
)
def test_an_outage_is_no_refusal(
    rig: Rig, caplog: pytest.LogCaptureFixture, error: LaterMQError
) -> None:
    if not isinstance(error, UnavailableError):
        error.grpc_code = 4
    session = rig.session()
    for _ in range(10):
        session.failed("receive", "receive", error, topic="orders")
        rig.now_s += BUSY_S
    assert not warnings(caplog)


def test_a_busy_broker_is_given_more_time(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    session, busy = rig.session(), TooManyRequestsError(Code.TOO_MANY_REQUESTS, "busy")
    for _ in range(int(BUSY_S)):
        session.failed("receive", "receive", busy, topic="orders")
        rig.now_s += 1
    assert not warnings(caplog)
    session.failed("receive", "receive", busy, topic="orders")
    assert len(warnings(caplog)) == 1


def test_groups_are_told_apart_and_a_session_that_ends_takes_its_own_along(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    billing, former, mail = rig.session(), rig.session(), rig.session("mail")
    for _ in range(2):
        for each in (billing, former, mail):
            each.failed("receive", "receive", DENIED, topic="orders")
        rig.now_s += LASTING_S
    assert len(warnings(caplog)) == 2
    former.end()
    assert billing.reason
    billing.end()
    assert not billing.reason
    assert mail.reason
    assert len(warnings(caplog)) == 3


def test_a_call_that_is_made_no_more_is_refused_no_more(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    session = rig.session()
    for _ in range(2):
        session.failed("settlement", "settlement", DENIED, topic="orders")
        rig.now_s += LASTING_S
    assert session.reason
    rig.now_s += REPEATED_S
    assert not session.reason
    assert len(warnings(caplog)) == 2


@pytest.mark.parametrize(
    ("message", "wait"),
    [
        ("client c may send 10 messages per second (x); again in 93 ms", timedelta(seconds=0.093)),
        ("again in 999999999 ms", timedelta(minutes=2)),
        ("try again in a while", timedelta(0)),
    ],
)
def test_an_error_says_when_to_try_again(message: str, wait: timedelta) -> None:
    assert error_for(Code.TOO_MANY_REQUESTS, message).again_in == wait


@virtually
async def test_a_send_waits_for_as_long_as_the_broker_says(
    broker: ScriptedBroker, connect: Callable[..., Client]
) -> None:
    used_up = v2.Status(code=v2.TOO_MANY_REQUESTS, message="one a minute; again in 40000 ms")
    broker.refuse("SendMessage", used_up)
    async with connect() as mq:
        await mq.send("orders", b"1")
    first, second = broker.named("SendMessage")
    assert 40 <= second.at - first.at < 41


def have_begun_earlier(mq: Client) -> None:
    """Have its refusals begun a minute earlier: their clock is one that a test does not move."""
    for calls in mq._connections.refusals._calls.values():
        for refusal in calls.values():
            refusal.since_s -= 60


@pytest.mark.parametrize("name", ["ReceiveMessage", "Heartbeat", "QueryAssignment"])
@virtually
async def test_a_consumer_says_what_it_is_refused_until_it_is_taken_again(
    broker: ScriptedBroker,
    connect: Callable[..., Client],
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    async with connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")
        async with consumer:
            denied = v2.Status(code=v2.FORBIDDEN, message="not any more")
            broker.refuse(name, *[denied] * 1_000)
            broker.deliver(b"1")
            await asyncio.sleep(60)
            have_begun_earlier(mq)
            await asyncio.sleep(60)
            assert "not any more" in consumer.refused
            assert all("not any more" in row.refused for row in consumer.stats)
            broker.forgive(name)
            await asyncio.sleep(60)
            assert not consumer.refused
    told = [each for each in warnings(caplog) if "refuse" in each]
    assert len(told) == 2


@virtually
async def test_a_deleted_group_is_told_and_read_as_an_empty_one(
    broker: ScriptedBroker, connect: Callable[..., Client], caplog: pytest.LogCaptureFixture
) -> None:
    deleted = v2.Status(code=v2.MESSAGE_NOT_FOUND, message="GROUP_DELETED")
    async with connect() as mq:
        simple = mq.simple_consumer("orders", group="audit")
        broker.refuse("ReceiveMessage", deleted, deleted)
        assert await simple.receive() == []
        have_begun_earlier(mq)
        assert await simple.receive() == []
        broker.deliver(b"1")
        (delivery,) = await simple.receive()
        await delivery.ack()
        push = mq.push_consumer("orders", group="billing")
        async with push:
            broker.refuse("ReceiveMessage", *[deleted] * 1_000)
            broker.deliver(b"2")
            await asyncio.sleep(60)
            have_begun_earlier(mq)
            await asyncio.sleep(60)
            assert "the group was deleted" in push.refused
            broker.forgive("ReceiveMessage")
    begins = [each for each in warnings(caplog) if "the group was deleted" in each]
    assert ["audit" in each for each in begins] == [True, False]
