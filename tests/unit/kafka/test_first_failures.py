"""What becomes of a record after its attempt at Kafka, as LaterMQ has it; Kafka is not there."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from latermq.app import App
from latermq.kafka import KafkaApp, Record, _first
from latermq.kafka._republish import Republisher
from latermq.testing import HeldBroker

RECORD = Record(topic="orders", partition=0, offset=1, value=b"17")
SECOND = timedelta(seconds=1)


@pytest.fixture
def app(latermq_time: HeldBroker, monkeypatch: pytest.MonkeyPatch) -> KafkaApp:
    """An app of which LaterMQ's side works, by the clock that the test moves."""

    def time_ns() -> int:
        return int(latermq_time.now().timestamp() * 1_000) * 1_000_000

    monkeypatch.setattr(_first, "time", SimpleNamespace(time_ns=time_ns))
    monkeypatch.setattr(KafkaApp, "_work", App._work)
    return KafkaApp({"bootstrap.servers": "127.0.0.1:1"})


async def at_kafka(app: KafkaApp) -> None:
    """Treat the record as if it had been read from its partition."""
    (bridge,) = app._bridges
    await bridge.treat(RECORD, lambda: False)


async def test_what_was_away_is_asked_again_and_no_attempt_is_counted(
    app: KafkaApp, latermq_time: HeldBroker
) -> None:
    """The handler was never called again, and its record given back without a pause, for ever."""
    away, seen = [True], list[tuple[int, int]]()
    began = latermq_time.now()

    @app.kafka_listener(
        "orders", group="billing", give_back_on=ConnectionError, retry="1s", max_attempts=2
    )
    async def bill(record: Record) -> None:
        seen.append(((latermq_time.now() - began) // SECOND, record.attempt))
        if away:
            raise ConnectionError("no route")

    async with latermq_time.working(app):
        await at_kafka(app)
        await latermq_time.advance("1h")
        assert {attempt for _, attempt in seen} == {1}
        assert 50 < len(seen) < 100  # up to a minute apart
        away.clear()
        await latermq_time.advance("2m")
        assert latermq_time.pending() == []
        assert latermq_time.dead("billing") == []
        assert seen[-1][0] >= 3_600


async def test_what_failed_at_kafka_was_its_first_attempt(
    app: KafkaApp, latermq_time: HeldBroker
) -> None:
    seen: list[tuple[int, int]] = []
    began = latermq_time.now()

    @app.kafka_listener("orders", group="billing", retry="1s 5s", max_attempts=3)
    async def bill(record: Record) -> None:
        seen.append(((latermq_time.now() - began) // SECOND, record.attempt))
        raise ValueError(f"attempt {record.attempt}")

    async with latermq_time.working(app):
        await at_kafka(app)
        await latermq_time.advance("1m")
        (letter,) = latermq_time.dead("billing")
        assert [each.text for each in letter.failures] == ["attempt 1", "attempt 2", "attempt 3"]
    assert seen == [(0, 1), (1, 2), (6, 3)]


@pytest.mark.parametrize(("error", "attempt"), [(ConnectionError, 1), (ValueError, 2)])
async def test_what_is_written_to_its_topic_again_says_which_attempt_is_due(
    app: KafkaApp,
    latermq_time: HeldBroker,
    monkeypatch: pytest.MonkeyPatch,
    error: type[Exception],
    attempt: int,
) -> None:
    written: list[int] = []

    async def write(self: Republisher, record: Record, group: str, attempt: int) -> None:
        written.append(attempt)

    monkeypatch.setattr(Republisher, "write", write)
    rules: dict[str, Any] = {"give_back_on": ConnectionError, "retry": "1s", "max_attempts": 3}

    @app.kafka_listener("orders", group="billing", republish=True, **rules)
    async def bill(record: Record) -> None:
        raise error

    async with latermq_time.working(app):
        await at_kafka(app)
        await latermq_time.advance("10s")
    assert written == [attempt]
