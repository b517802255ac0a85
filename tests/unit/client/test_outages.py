"""One line when a broker is away and one when it is back."""

import logging

import pytest

from latermq._connection.one_loop import OneLoop
from latermq._connection.outages import Noting, Outages, log_failure
from latermq._connection.status import error_of
from latermq._values.endpoints import Endpoints
from latermq._wire.session_calls import HEARTBEAT
from latermq.errors import RequestTimeoutError, TopicNotFoundError, UnavailableError
from latermq_h2.grpc_code import GrpcCode
from support.scripted_broker import ScriptedBroker, ScriptedTransport

HERE = Endpoints.parse("127.0.0.1:8081")
THERE = Endpoints.parse("127.0.0.1:8082")
REFUSED = UnavailableError("connection refused")


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def outages(clock: Clock, caplog: pytest.LogCaptureFixture) -> Outages:
    caplog.set_level(logging.DEBUG, "latermq.client")
    return Outages(clock)


def test_an_outage_is_two_lines(
    outages: Outages, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(60):
        outages.lost(HERE, REFUSED)
        clock.now_s += 1.0
    assert outages.count == 1
    outages.reached(HERE)
    outages.reached(HERE)
    assert outages.count == 0
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "WARNING",
            "no broker answers at 127.0.0.1:8081: connection refused; trying again until one does",
        ),
        ("INFO", "the broker at 127.0.0.1:8081 answers again after 60.0 s"),
    ]


async def test_a_broker_that_answers_nothing_in_time_is_away_too(
    outages: Outages, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """As one whose machine stands still; a call that took too long is no news by itself."""

    broker = ScriptedBroker()
    broker.refuse("Heartbeat", *[error_of(GrpcCode.DEADLINE_EXCEEDED, "", HERE)] * 2)
    calls = Noting(ScriptedTransport(broker, HERE), HERE, outages, OneLoop())
    for _ in range(2):
        assert not caplog.records
        with pytest.raises(RequestTimeoutError):
            await calls.unary(HEARTBEAT, b"", (), 1.0)
        clock.now_s += 3.0
    [line] = caplog.records
    assert line.levelname == "WARNING"
    assert line.getMessage().startswith("no answer from 127.0.0.1:8081 in time")


def test_a_broker_that_is_back_within_a_second_is_no_news(
    outages: Outages, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    outages.lost(HERE, REFUSED)
    clock.now_s += 0.9
    outages.lost(HERE, REFUSED)
    outages.reached(HERE)
    clock.now_s += 5
    outages.lost(HERE, REFUSED)
    assert not caplog.records


def test_brokers_are_told_apart(
    outages: Outages, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for endpoints in (HERE, THERE):
        outages.lost(endpoints, REFUSED)
    clock.now_s += 1
    outages.reached(THERE)
    outages.lost(HERE, REFUSED)
    (record,) = caplog.records
    assert "8081" in record.getMessage()


def test_what_failed_says_why_in_its_message(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("latermq.client")
    caplog.set_level(logging.DEBUG, logger.name)
    log_failure(logger, "receive failed", TopicNotFoundError(40402, "no topic"), topic="orders")
    log_failure(logger, "receive failed", REFUSED, topic="orders")
    first, second = caplog.records
    assert first.levelname == "INFO"
    assert first.getMessage().startswith("receive failed, topic orders: ")
    assert "no topic" in first.getMessage()
    assert second.levelname == "DEBUG"  # an outage has a line of its own
