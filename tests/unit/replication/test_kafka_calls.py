"""What is asked of Kafka and waited for: that no answer is one, and what is kept to ask again."""

import asyncio
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from latermq_broker.deferred import Later
from latermq_broker.errors import LogUnavailableError
from latermq_broker.replication import kafka_log
from latermq_broker.replication.kafka_log import CALL_S, KEPT_S, KafkaLog


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


class Asked:
    """A consumer that tells where a partition ends; or not, once."""

    made: list["Asked"]
    error: Exception | None = None

    def __init__(self, _: dict[str, Any]) -> None:
        self.closed = False
        self.waits_s: list[float] = []
        Asked.made.append(self)

    def get_watermark_offsets(self, _: Any, wait_s: float) -> tuple[int, int] | None:
        self.waits_s.append(wait_s)
        error, Asked.error = Asked.error, None
        if isinstance(error, TimeoutError):
            return None
        if error is not None:
            raise error
        return 3, 20

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    Asked.made, Asked.error = [], None
    monkeypatch.setattr(kafka_log, "Consumer", Asked)
    return Asked.made


async def closed(log: KafkaLog) -> None:
    await log.close()
    await asyncio.to_thread(log._asking.shutdown)


async def test_the_end_is_asked_for_by_one_consumer(asked: list[Asked]) -> None:
    """Each new one connects and logs in; where that takes 500 ms nobody ever took over."""
    log = KafkaLog({}, "topic", 0, "canary")
    assert await asyncio.gather(*(log.end() for _ in range(5))) == [20] * 5
    assert [each.closed for each in asked] == [False]
    await closed(log)
    assert [each.closed for each in asked] == [True]


@pytest.mark.parametrize(
    "error",
    [KafkaException(KafkaError(KafkaError._TRANSPORT, "broken")), TimeoutError()],
)
async def test_after_an_error_another_one_asks(asked: list[Asked], error: Exception) -> None:
    """A new one that cannot either says so; one that was kept may know a leader that is gone."""
    log = KafkaLog({}, "topic", 0, "canary")
    Asked.error = error
    with pytest.raises(LogUnavailableError):
        await log.end()
    assert await log.end() == 20
    Asked.error = error
    assert await log.end() == 20
    assert [each.closed for each in asked] == [True, True, False]
    assert asked[1].waits_s == [CALL_S, KEPT_S]
    await closed(log)


async def test_while_there_is_no_leader_it_is_asked_again(asked: list[Asked]) -> None:
    log = KafkaLog({}, "topic", 0, "canary")
    Asked.error = KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, "an election"))
    assert await log.end() == 20
    await closed(log)
