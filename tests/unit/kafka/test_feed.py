"""What is read of Kafka while the event loop is held up, as by a handler that computes in it."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import TopicPartition

from latermq.kafka._feed import BATCH, Feed

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
