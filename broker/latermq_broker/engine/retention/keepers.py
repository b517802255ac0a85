"""Who old segments stay for: a group that was not given something, or a topic that keeps longer.

Asked once a pass, queue by queue: each names the first segment that must stay for it, and the first
of all ends what may go. A segment older than `store.retention_ms` does not stay for a topic that
keeps its messages longer: those are rolled forward, if they are little (`roll_forward.py`). A
younger one, in which only topics with shorter times have anything left to let go, stays whole.
"""

from collections.abc import Generator
from typing import Final, NamedTuple

from latermq_broker.catalog.catalog import Topic
from latermq_broker.engine.retention.ages import Ages
from latermq_broker.engine.retention.segment_times import SegmentTimes
from latermq_broker.engine.state.state import EngineState, Subscription
from latermq_broker.store.derived.consume_queue import ConsumeQueue

ROW_COST: Final = 32


class Keeper(NamedTuple):
    """Who an old segment stays for."""

    group: str  # that has not read all of the topic; "": the topic's messages stay longer
    topic: str
    goes_ms: int  # when it may go, if nothing else keeps it; 0: when the disk is nearly full


NOBODY: Final = Keeper("", "", 0)


class Keepers:
    def __init__(self, state: EngineState, ages: Ages, times: SegmentTimes) -> None:
        self._state = state
        self._ages = ages
        self._times = times
        self._row = state.store.log.row

    def first(
        self, start: int, retention_ms: int, now_ms: int
    ) -> Generator[int, None, tuple[int, Keeper | None]]:
        """Find the first segment, from index `start` on, that must stay, and for whom.

        Returns the row's length - 1 and None where none must: the last one is being written.

        Args:
            retention_ms: the age for all; what is older may be rolled forward. 0: nothing.

        Raises CorruptRecordError, DamagedQueueError.
        """
        end, keeper = len(self._row.row) - 1, None
        readers = readers_of(self._state)
        old = max(start, self._times.count_older(retention_ms, now_ms))
        for key in self._state.store.queue_keys():
            yield ROW_COST
            topic = self._state.catalog.topic_by_id(key[0])
            if topic is None or topic.internal:
                continue
            queue = self._state.queue(*key)
            aged = self._times.count_older(self._ages.read_ms(topic), now_ms)
            young = max(old, aged)
            if young < end and (index := self._from(queue, young)) < end:
                end, keeper = index, self.of_topic(topic, index)
            index, unread = self._unread(topic, queue, readers.get(key[0], []), start, now_ms)
            if index < min(end, aged):
                end, keeper = index, unread
        return end, keeper

    def of_topic(self, topic: Topic, index: int) -> Keeper:
        """Name a topic as who the segment at that index stays for."""
        return Keeper("", topic.name, self._goes_ms(index, self._ages.read_ms(topic)))

    def _from(self, queue: ConsumeQueue, index: int) -> int:
        """Find the first segment, from that index on, with something of a queue.

        An index behind the last where there is none.
        """
        offset = queue.first
        if index:
            offset = queue.offset_at(self._times.begun_ms(self._row.row[index]))
        if offset == queue.next:
            return len(self._row.row)
        return max(index, self._times.index_of(queue.get(offset)))

    def _unread(
        self,
        topic: Topic,
        queue: ConsumeQueue,
        readers: list[Subscription],
        start: int,
        now_ms: int,
    ) -> tuple[int, Keeper]:
        """Find the first segment with something that a group has not read and that is to stay.

        An index behind the last where there is none.
        """
        none = len(self._row.row), NOBODY
        if self._state.store.disk.low:
            return none
        oldest, name = queue.next, ""
        for subscription in readers:
            group = self._state.catalog.group_by_id(subscription.group_id)
            unread = max(subscription.unread_from(queue.queue_id), queue.first)
            if group is not None and unread < oldest:
                oldest, name = unread, group.name
        if not name:
            return none
        unread_ms = self._ages.unread_ms(topic)
        aged = max(start, self._times.count_older(unread_ms, now_ms))
        index = max(aged, self._times.index_of(queue.get(oldest)))
        return index, Keeper(name, topic.name, self._goes_ms(index, unread_ms))

    def _goes_ms(self, index: int, age_ms: int) -> int:
        if not age_ms or index >= len(self._row.row) - 1:
            return 0
        return self._times.written_ms(self._row.row[index]) + age_ms


def readers_of(state: EngineState) -> dict[int, list[Subscription]]:
    """List by topic id the groups that read it."""
    readers: dict[int, list[Subscription]] = {}
    for (_, topic_id), subscription in state.subscriptions.items():
        readers.setdefault(topic_id, []).append(subscription)
    return readers
