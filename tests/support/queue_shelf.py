"""A broker's queues as a bulk reader sees them, in memory, with everything that can go wrong.

Retention, a topic made anew, a log that lost its end: what a real broker does seldom or slowly.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from latermq.spark.ranges import Ends, QueueEnds, QueueRange, TopicEnds


@dataclass
class ShelvedQueue:
    earliest: int = 0
    rows: list[str] = field(default_factory=list)  # their bodies; the oldest first
    times_ms: list[int] = field(default_factory=list)

    @property
    def next(self) -> int:
        return self.earliest + len(self.rows)


@dataclass
class ShelvedTopic:
    epoch: str
    queues: list[ShelvedQueue]


class QueueShelf:
    def __init__(self) -> None:
        self.topics: dict[str, ShelvedTopic] = {}
        self.epoch_count = 0
        self.row_count = 0

    def create(self, topic: str, queue_count: int = 1) -> None:
        """Also makes a topic anew: another epoch, empty."""
        self.epoch_count += 1
        queues = [ShelvedQueue() for _ in range(queue_count)]
        self.topics[topic] = ShelvedTopic(f"{self.epoch_count:016x}", queues)

    def add_queue(self, topic: str) -> None:
        self.topics[topic].queues.append(ShelvedQueue())

    def append(self, topic: str, queue_id: int, count: int, at_ms: int = 1) -> None:
        """Rows named by a number that is never given twice."""
        queue = self.topics[topic].queues[queue_id]
        for _ in range(count):
            queue.rows.append(f"row {self.row_count}")
            queue.times_ms.append(at_ms)
            self.row_count += 1

    def retain(self, topic: str, queue_id: int, earliest: int) -> None:
        """Everything below `earliest` goes."""
        queue = self.topics[topic].queues[queue_id]
        gone = min(max(earliest - queue.earliest, 0), len(queue.rows))
        del queue.rows[:gone], queue.times_ms[:gone]
        queue.earliest += gone

    def truncate(self, topic: str, queue_id: int, next_offset: int) -> None:
        """Everything from `next_offset` goes: a log that lost its end."""
        queue = self.topics[topic].queues[queue_id]
        kept = max(next_offset - queue.earliest, 0)
        del queue.rows[kept:], queue.times_ms[kept:]

    def describe(self, wanted: Callable[[str], bool], at_ms: int = 0) -> Ends:
        return {
            name: TopicEnds(
                topic.epoch,
                {
                    queue_id: QueueEnds(queue.earliest, queue.next, _offset_at(queue, at_ms))
                    for queue_id, queue in enumerate(topic.queues)
                },
            )
            for name, topic in self.topics.items()
            if wanted(name)
        }

    def read(self, ranges: Iterable[QueueRange]) -> list[str]:
        """The rows of ranges that are all there."""
        rows = []
        for topic, epoch, queue_id, start, end in ranges:
            assert self.topics[topic].epoch == epoch
            queue = self.topics[topic].queues[queue_id]
            assert queue.earliest <= start < end <= queue.next
            rows += queue.rows[start - queue.earliest : end - queue.earliest]
        return rows

    def everything(self) -> set[str]:
        return {
            row for topic in self.topics.values() for queue in topic.queues for row in queue.rows
        }


def _offset_at(queue: ShelvedQueue, at_ms: int) -> int:
    if not at_ms:
        return 0
    return queue.earliest + sum(time_ms < at_ms for time_ms in queue.times_ms)
