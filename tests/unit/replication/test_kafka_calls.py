"""What is asked of Kafka and waited for: that no answer is one, and what is kept to ask again."""

from concurrent.futures import Future
from typing import Any

import pytest

from latermq_broker.deferred import Later
from latermq_broker.errors import LogUnavailableError
from latermq_broker.replication import kafka_log
from latermq_broker.replication.kafka_log import KafkaLog


class Mute:
    """An administrator whose requests nobody answers."""

    asked: dict[str, float]

    def __init__(self, _: dict[str, Any]) -> None: ...

    def delete_records(self, places: list[Any], **timeouts: float) -> dict[Any, Future[None]]:
        Mute.asked = timeouts
        return {place: Future() for place in places}


async def test_a_trim_that_nobody_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended the owner, and perhaps the next one: what it has not trimmed is trimmed later."""
    monkeypatch.setattr(kafka_log, "AdminClient", Mute)
    monkeypatch.setattr(kafka_log, "CALL_S", 0.01)
    log = KafkaLog({}, "topic", 0, "canary")
    with pytest.raises(LogUnavailableError, match="does not answer"):
        await log.trim(7)
    await log.close()
    assert 0 < Mute.asked["operation_timeout"] < Mute.asked["request_timeout"] < 10


class Told:
    """Stands in the place of a writer, and counts what it is asked for."""

    made: list["Told"]

    def __init__(self, *_: Any) -> None:
        self.prepared = 0
        self.appended: list[bytes] = []
        Told.made.append(self)

    def prepare(self) -> None:
        self.prepared += 1

    def append(self, data: bytes) -> Later[int]:
        self.appended.append(data)
        return Later()

    async def close(self) -> None: ...


async def test_who_reads_has_sent_a_canary_before_one_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A first one is slow, was taken for no answer, and had a fail-over begin anew."""
    Told.made = []
    monkeypatch.setattr(kafka_log, "KafkaWriter", Told)
    log = KafkaLog({}, "topic", 0, "canary")
    for _ in range(3):
        await log.tail(0).aclose()
    writer, canary = Told.made
    assert (writer.prepared, writer.appended) == (3, [])
    assert len(canary.appended) == 1
    await log.close()
