"""What a topic's queues hold, and which stretch of them is to be read.

Offsets are queue offsets; an end is exclusive. Names only: nothing here calls the broker.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class QueueEnds(NamedTuple):
    earliest: int  # the oldest offset that is retained
    next: int  # the offset the next message gets
    at: int = 0  # the first offset stored at or after the time asked for, if one was
    lives: tuple[tuple[int, int], ...] = ()  # (offset, life of the broker from there on), rising

    def life_before(self, offset: int) -> int:
        """Find in which life of the broker the message before `offset` came; 0: unknown."""
        life = 0
        if self.earliest < offset <= self.next:
            for begin, following in self.lives:
                if begin < offset:
                    life = following
        return life


@dataclass(frozen=True, slots=True)
class TopicEnds:
    """`epoch` is the topic's creation id: another one when it was deleted and made anew."""

    epoch: str
    queues: Mapping[int, QueueEnds]


Ends = Mapping[str, TopicEnds]
"""By topic, in each shard (`places`). What was asked for and is not in it does not exist."""


class QueueRange(NamedTuple):
    """Rows [start, end) of one queue; `topic` is in one shard (`places`)."""

    topic: str
    epoch: str
    queue_id: int
    start: int
    end: int

    @property
    def row_count(self) -> int:
        return self.end - self.start
