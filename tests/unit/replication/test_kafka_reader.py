"""What a reader of a partition makes of being asked for what is not there."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from latermq_broker.errors import (
    EntriesGoneError,
    EntriesLostError,
    LogUnavailableError,
    StoreError,
)
from latermq_broker.replication.kafka_log import _Reader


class Refusal:
    """In the place of an entry: there is none at this offset."""

    def error(self) -> KafkaError:
        return KafkaError(KafkaError._AUTO_OFFSET_RESET, "out of range")


class Consuming:
    """A consumer of a partition that begins and ends there, or has no leader."""

    def __init__(self, marks: tuple[int, int] | None) -> None:
        self._marks = marks
        self.assigned: list[int] = []

    def poll(self, _: float) -> Refusal:
        return Refusal()

    def consume(self, *_: float) -> list[Refusal]:
        return []

    def get_watermark_offsets(self, *_: Any) -> tuple[int, int]:
        if self._marks is None:
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, "an election"))
        return self._marks

    def assign(self, places: list[Any]) -> None:
        self.assigned += [place.offset for place in places]


@pytest.mark.parametrize(
    ("begin", "marks", "kind", "why"),
    [
        (7, (8, 20), EntriesGoneError, "entry 7 is gone, the log begins at 8"),
        (21, (8, 20), EntriesLostError, "asked for entry 21 of a log that ends at 20"),
        (20, (8, 20), LogUnavailableError, "out of range"),
        (8, (8, 20), LogUnavailableError, "out of range"),
        (8, None, LogUnavailableError, "an election"),
    ],
)
def test_what_was_trimmed_is_told_from_what_was_lost(
    begin: int, marks: tuple[int, int] | None, kind: type[StoreError], why: str
) -> None:
    reader = _Reader({}, "topic", 0, begin)
    reader._consumer = Consuming(marks)
    with pytest.raises(kind, match=why):
        reader.read()


def test_whoever_reads_all_begins_with_what_is_left() -> None:
    reader = _Reader({}, "topic", 0, 0)
    reader._consumer = consumer = Consuming((8, 20))
    assert reader.read() == []
    assert consumer.assigned == [8]
