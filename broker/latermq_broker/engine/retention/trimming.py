"""Messages leave their queues: at the age of their own topic, or earlier where the log has no room.

What goes before its age is counted, and said once a pass for each topic; so is what goes before a
group was given it. What the broker itself withholds is kept first (`withheld.py`).
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

from latermq_broker.catalog.catalog import Topic
from latermq_broker.config.config import StoreConfig
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.retention.ages import Ages, has_own
from latermq_broker.engine.retention.keepers import readers_of
from latermq_broker.engine.retention.segment_times import SegmentTimes
from latermq_broker.engine.retention.withheld import WithheldMessages, expiring
from latermq_broker.engine.state.state import EngineState, Subscription, lite_reader
from latermq_broker.errors import DamagedQueueError
from latermq_broker.store.derived.consume_queue import ConsumeQueue
from latermq_broker.store.log.segment import Segment
from latermq_broker.store.records.lease_records import LeaseOrderedPayload
from latermq_broker.store.records.record import RecordType
from latermq_broker.store.records.retention_records import DROP_TRIM, DropPayload, TrimmedQueue

log = logging.getLogger("latermq.engine")

TRIM_ROWS: Final = 4_096  # queue entries that expire in one record
ROW_COST: Final = 32
LOG_TOO_LARGE: Final = "the log is larger than store.retention_bytes"
DISK_NEARLY_FULL: Final = "the disk is nearly full"

Readers: TypeAlias = list[Subscription]
Trimmer: TypeAlias = Callable[[Topic, ConsumeQueue, Readers], int]  # up to where it is trimmed


class _Trim(NamedTuple):
    topic: Topic
    queue: ConsumeQueue
    upto: int
    readers: Readers


class Trimming:
    """See the module. The counters are since the start.

    `now_ms`: set by the retention pass, at each of its steps.
    """

    def __init__(
        self, state: EngineState, journal: Journal, ages: Ages, times: SegmentTimes
    ) -> None:
        self.entries_expired = 0
        self.entries_expired_unread = 0  # by group: what it would have received
        self.entries_expired_early = 0  # before the age of their topic
        self.now_ms = 0
        self._state = state
        self._journal = journal
        self._ages = ages
        self._times = times
        self._config = state.config.store
        self._withheld = WithheldMessages(state, journal)
        self._unread: Counter[tuple[str, str]] = Counter()  # of this pass, by group and topic
        self._early: Counter[tuple[str, str]] = Counter()  # of this pass, by topic and cause

    def reconfigure(self, config: StoreConfig) -> None:
        """Go on with another age for letters."""
        self._config = config

    def say(self) -> None:
        """Log what went unread or early since the last call."""
        for (group, topic), count in self._unread.items():
            log.warning(
                "messages removed unread", extra={"group": group, "topic": topic, "count": count}
            )
        for (topic, cause), count in self._early.items():
            log.warning(
                "messages removed before their age",
                extra={"topic": topic, "count": count, "cause": cause},
            )
        self._unread.clear()
        self._early.clear()

    def aged_in(self, row: list[Segment]) -> Iterator[int]:
        """Trim what entered the queues in these segments and has its age; of letters, the old.

        Yields what a bit of it cost. On a disk that is nearly full it goes unread, too.
        """

        def end(topic: Topic, queue: ConsumeQueue, readers: Readers) -> int:
            if topic.internal:
                return self._old_letters(queue)
            count = self._times.count_older(self._ages.read_ms(topic), self.now_ms)
            if not min(count, len(row)):
                return queue.first
            boundary = self.boundary(topic, queue, row[min(count, len(row)) - 1])
            if self._state.store.disk.low:
                return boundary
            return min(boundary, self._unread_end(topic, queue, readers))

        return self._trim(end, DISK_NEARLY_FULL)

    def all_in(self, segment: Segment, cause: str) -> Iterator[int]:
        """Trim all that entered the queues up to the segment's end; of letters, the old.

        Args:
            cause: why some goes before its age.
        """

        def end(topic: Topic, queue: ConsumeQueue, readers: Readers) -> int:
            if topic.internal:
                return self._old_letters(queue)
            return self.boundary(topic, queue, segment)

        return self._trim(end, cause)

    def own(self) -> Iterator[int]:
        """Trim what has its age in topics that have ages of their own, in whatever segment.

        A queue that is damaged keeps what it has.
        """

        def end(topic: Topic, queue: ConsumeQueue, readers: Readers) -> int:
            age_ms = self._ages.read_ms(topic)
            if not age_ms or not has_own(topic):
                return queue.first
            try:
                unread = self._unread_end(topic, queue, readers)
                return min(unread, queue.offset_at(self.now_ms - age_ms))
            except DamagedQueueError as error:
                self._state.damaged.note_queue(error)
                return queue.first

        return self._trim(end)

    def boundary(self, topic: Topic, queue: ConsumeQueue, segment: Segment) -> int:
        """Find the offset behind what last came into being in the segment or before it."""
        cut_ms = self._times.written_ms(segment)
        if queue.first == queue.next or queue.get(queue.first).time_ms > cut_ms:
            return queue.first
        offset = boundary = queue.offset_at(cut_ms)
        expired = self._times.older(segment, self._ages.read_ms(topic), self.now_ms)
        while offset < queue.next:  # of that very instant: what the segment's end divides
            for entry in queue.scan(offset, TRIM_ROWS):
                if entry.time_ms > cut_ms or not (entry.flags or entry.position < segment.end):
                    return boundary
                offset += 1
                if expired or not entry.flags:
                    boundary = offset
        return boundary

    def _unread_end(self, topic: Topic, queue: ConsumeQueue, readers: Readers) -> int:
        """Find the oldest offset that must stay because a group has not read it."""
        unread = min((each.unread_from(queue.queue_id) for each in readers), default=queue.next)
        if unread_ms := self._ages.unread_ms(topic):
            return max(unread, queue.offset_at(self.now_ms - unread_ms))
        return unread

    def _old_letters(self, queue: ConsumeQueue) -> int:
        age_ms = self._config.dead_letter_retention_ms
        return queue.offset_at(self.now_ms - age_ms) if age_ms else queue.first

    def _trim(self, end_of: Trimmer, cause: str = "") -> Iterator[int]:
        """Take from each queue what lies before its new end.

        Args:
            cause: why something may go before its age; "": nothing does.
        """
        readers = readers_of(self._state)
        batch: list[_Trim] = []
        rows = 0
        for key in self._state.store.queue_keys():
            topic = self._state.catalog.topic_by_id(key[0])
            if topic is None:
                continue
            queue = self._state.queue(*key)
            groups = readers.get(key[0], [])
            boundary = end_of(topic, queue, groups)
            first = queue.first
            while first < boundary:
                upto = min(boundary, first + TRIM_ROWS - rows)
                batch.append(_Trim(topic, queue, upto, groups))
                rows += upto - first
                first = upto
                if rows >= TRIM_ROWS:
                    yield from self._let_go(batch, cause)
                    yield rows * ROW_COST
                    batch, rows = [], 0
                    if self._state.catalog.topic_by_id(key[0]) is None:
                        break  # deleted meanwhile
            rows += 1
            if rows >= TRIM_ROWS:  # of many queues that lose nothing
                yield from self._let_go(batch, cause)
                yield rows * ROW_COST
                batch, rows = [], 0
        if batch:
            yield from self._let_go(batch, cause)
            yield rows * ROW_COST

    def _let_go(self, batch: list[_Trim], cause: str) -> Iterator[int]:
        """Trim the queues, once all that the broker itself withholds of them is kept."""
        queues = [TrimmedQueue(trim.topic.id, trim.queue.queue_id, trim.upto) for trim in batch]
        while cost := self._withheld.keep(queues, self.now_ms) or self._withheld.look(queues):
            yield cost
        catalog = self._state.catalog  # of which a topic may have been deleted meanwhile
        queues = [queue for queue in queues if catalog.topic_by_id(queue.topic_id) is not None]
        if not queues:
            return
        kept = self._withheld.fresh(queues)
        for trim in batch:
            if catalog.topic_by_id(trim.topic.id) is not None:
                self._count_expired(trim, kept)
                if cause and not trim.topic.internal:
                    self._count_early(trim, cause)
        drop = (RecordType.DROP, DropPayload(DROP_TRIM, queues=tuple(queues)))
        records = [(RecordType.LEASE_ORDERED, payload) for payload in kept]
        self._journal.write_group([*records, drop], self.now_ms)

    # --- what is said of it --------------------------------------------------------------------

    def _count_expired(self, trim: _Trim, kept: list[LeaseOrderedPayload]) -> None:
        """Count what leaves a queue, and of that what groups do not get any more."""
        queue = trim.queue
        self.entries_expired += trim.upto - queue.first
        for subscription in trim.readers:
            unread = self._unread_below(subscription, queue, trim.upto) - sum(
                row.queue_id == queue.queue_id
                for payload in kept
                if (payload.group_id, payload.topic_id) == (subscription.group_id, queue.topic_id)
                for row in payload.rows
            )
            if subscription.gate is not None:
                unread += expiring(subscription.gate, queue.queue_id, trim.upto)
            if unread:
                self.entries_expired_unread += unread
                subscription.flowing().expired_unread += unread
                group = self._state.catalog.group_by_id(subscription.group_id)
                if group is not None:
                    self._unread[group.name, trim.topic.name] += unread

    def _unread_below(self, subscription: Subscription, queue: ConsumeQueue, upto: int) -> int:
        """Count a queue's messages below `upto` that the group was not given, but for those that
        its gate holds back."""
        reader = lite_reader(self._state, subscription)
        if reader is not None:
            return reader.unread_below(upto)
        cursor = self._state.cursor(subscription, queue)
        return subscription.count_unread(queue.queue_id, cursor, upto)

    def _count_early(self, trim: _Trim, cause: str) -> None:
        """Count what goes before the age that its topic has for it, read or not."""
        topic, queue = trim.topic, trim.queue
        read_ms, unread_ms = self._ages.read_ms(topic), self._ages.unread_ms(topic)
        young = queue.offset_at(self.now_ms - read_ms + 1) if read_ms else queue.first
        if unread_ms:
            readers = [each.unread_from(queue.queue_id) for each in trim.readers]
            unread = min(readers, default=trim.upto)
            young = min(young, max(unread, queue.offset_at(self.now_ms - unread_ms + 1)))
        count = trim.upto - max(young, queue.first)
        if count > 0:
            self.entries_expired_early += count
            self._early[topic.name, cause] += count
