"""What is read of Kafka while the event loop is held up, as by a handler that computes in it."""

import asyncio
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from latermq.kafka._feed import ASK_EVERY_S, BATCH, Feed

PARTITION = 3


class Message:
    """Stand for a record of Kafka, of a topic without end."""

    def error(self) -> None:
        """There is none."""

    def partition(self) -> int:
        return PARTITION


class Consumer:
    def __init__(self) -> None:
        self.read = 0
        self.paused = False

    def poll(self, timeout_s: float) -> Message | None:
        return next(iter(self.consume(1, timeout_s)), None)

    def consume(self, count: int, timeout_s: float) -> list[Message]:
        count = 0 if self.paused else count
        self.read += count
        return [Message()] * count

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("orders", PARTITION)]

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        assert [each.partition for each in partitions] == [PARTITION]
        self.paused = True

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        assert [each.partition for each in partitions] == [PARTITION]
        self.paused = False


class Lanes:
    paused = False

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    async def assigned(self, partitions: Sequence[int]) -> None: ...

    async def revoked(self, partitions: Sequence[int], wait_s: float) -> None: ...

    def arrived(self, batch: Sequence[Any]) -> None:
        self.counts.update(each.partition() for each in batch)

    def held(self) -> Mapping[int, int]:
        return dict(self.counts)

    def failed(self, error: BaseException) -> None:
        raise error


async def test_a_loop_that_is_held_up_is_not_given_more_and_more() -> None:
    consumer, lanes = Consumer(), Lanes()
    feed = Feed({}, "orders", lanes)
    for _ in range(4):  # in the loop's own thread: nothing arrives meanwhile
        feed._turn(consumer)
    assert consumer.paused
    assert consumer.read == 2 * BATCH
    await asyncio.sleep(0)
    assert lanes.counts[PARTITION] == 2 * BATCH
    lanes.counts.clear()  # all of it is done
    feed._turn(consumer)
    assert not consumer.paused
    feed._turn(consumer)
    assert consumer.read == 3 * BATCH


async def test_what_is_paused_is_read_no_further() -> None:
    consumer, lanes = Consumer(), Lanes()
    feed = Feed({}, "orders", lanes)
    lanes.paused = True
    for _ in range(3):
        feed._turn(consumer)
        await asyncio.sleep(0)
    assert consumer.paused
    assert consumer.read == BATCH  # in the turn in which it was paused
    lanes.paused = False
    lanes.counts.clear()
    feed._turn(consumer)
    assert not consumer.paused


class Error:
    def __init__(self, code: int) -> None:
        self._code = code

    def error(self) -> "Error":
        return self

    def fatal(self) -> bool:
        return False

    def code(self) -> int:
        return self._code

    def str(self) -> str:
        return "as Kafka says it"


class Failing(Consumer):
    """Reads errors, one a poll; answers a question for topics once `is_back`."""

    def __init__(self, *codes: int) -> None:
        super().__init__()
        self.codes = list(codes)
        self.is_back = False
        self.closed = threading.Event()

    def poll(self, timeout_s: float) -> Any:
        return Error(self.codes.pop(0)) if self.codes else None

    def consume(self, count: int, timeout_s: float) -> list[Any]:
        return []

    def subscribe(self, *_: Any, **__: Any) -> None: ...

    def list_topics(self, topic: str, timeout: float) -> None:
        if not self.is_back:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def close(self) -> None:
        self.closed.wait()


async def test_a_feed_without_kafka_is_not_well_until_kafka_answers() -> None:
    consumer = Failing(KafkaError._ALL_BROKERS_DOWN)
    feed = Feed({}, "orders", Lanes())
    feed._turn(consumer)
    assert feed.trouble == "Kafka, topic orders: as Kafka says it"
    feed._turn(consumer)
    assert feed.trouble
    consumer.is_back = True
    feed._asked_s = -ASK_EVERY_S  # it was asked a while ago
    feed._turn(consumer)
    assert feed.trouble == ""


async def test_a_group_without_a_place_to_begin_ends_its_listener() -> None:
    """`auto.offset.reset` is "error": reading nothing for ever would look as a quiet topic."""
    feed = Feed({}, "orders", Lanes())
    with pytest.raises(KafkaException):
        feed._turn(Failing(KafkaError._AUTO_OFFSET_RESET))


async def test_a_kafka_that_is_silent_holds_no_end_up(caplog: pytest.LogCaptureFixture) -> None:
    feed, consumer = Feed({}, "orders", Lanes(), farewell_s=0.01), Failing()
    feed._consumer = consumer
    feed._thread.start()
    await feed.stop()
    assert "its group of topic orders is left without a word" in caplog.text
    consumer.closed.set()
    feed._thread.join()
    await feed.stop()  # and once it has ended, there is nothing to wait for
