"""What is asked of Kafka and waited for: that no answer is one, and what is kept to ask again."""

from concurrent.futures import Future
from typing import Any

import pytest

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
