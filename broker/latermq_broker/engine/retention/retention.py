"""Old segments go: what has expired leaves its queues, what is still needed is rolled forward.

One pass looks at the segments from the oldest on, as far as they may go: below the newest
checkpoint, and older than `retention_ms`, or beyond `retention_bytes`, or, on a disk that is
nearly full, read by every group. What a group has not read keeps a segment that is only old, until
`unread_retention_ms`, or until the disk is nearly full. Each in turn:

    trim ──► nothing needs it ─────────────────────────────────► next segment
         └─► little does ─► survey ─► move a bit at a time ─┘
         └─► much does: kept, and all after it; looked at again later

and then one DROP record for all of them. A pass is a generator that is given a budget per tick, so
the loop is never held up, and needs no state on disk: everything it did is a record, whole in
itself, and a pass begun anew finds it done. Never drops what cannot be read: damage keeps its
segment.
"""

import logging
from collections import Counter
from collections.abc import Generator, Iterator
from typing import Final

from latermq_broker.engine.journal.apply_retention import base_sections
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.outcome.attempts import Attempts
from latermq_broker.engine.retention.holds import LogHolds
from latermq_broker.engine.retention.roll_forward import RollForward
from latermq_broker.engine.retention.withheld import WithheldMessages, expiring
from latermq_broker.engine.state.state import EngineState, Subscription
from latermq_broker.errors import CorruptRecordError, DamagedQueueError, StoreFullError
from latermq_broker.store.derived.consume_queue import ConsumeQueue
from latermq_broker.store.log.segment import SEGMENT_HEADER_BYTES, Segment
from latermq_broker.store.records.record import RecordType
from latermq_broker.store.records.retention_records import (
    DROP_TRIM,
    DropPayload,
    TrimmedQueue,
    base_records,
)

log = logging.getLogger("latermq.engine")

CHECK_MS: Final = 1_000  # whether something may go
STEP_MS: Final = 25
STEP_COST: Final = 256 << 10  # bytes written, or as long as that takes: about 10 MB a second
EARLY_RETRY_MS: Final = 10_000  # whether every group has read on, or what had to stay may go
RETRY_MS: Final = 60_000  # a segment that had to stay is looked at again, unless the disk is low
TRIM_ROWS: Final = 4_096  # queue entries that expire in one record
ROW_COST: Final = 32
BASE_PART_BYTES: Final = 4 << 20
BASE_PERCENT_MAX: Final = 90  # of a segment: it is one atomic group
BASE_SHARE: Final = 4  # a drop frees at least so many times what it writes


class Retention:
    """See the module. The counters are since the start."""

    def __init__(self, state: EngineState, journal: Journal, attempts: Attempts) -> None:
        self.segments_dropped = 0
        self.bytes_dropped = 0
        self.entries_expired = 0
        self.entries_expired_unread = 0  # by group: what it would have received
        self.drops_postponed = 0  # they would have written too much for what they free
        self.segments_kept = 0  # looked at, and too much of it is needed
        self.early_drops = (
            0  # segments that went before their age, because the disk was nearly full
        )
        self.kept_unread_bytes = 0  # of segments that only an unread message keeps
        self.kept_for = ("", "")  # the first group and topic of which that is so
        self.step_cost = STEP_COST
        self.holds = LogHolds(state.store.disk)
        self.roll_forward = RollForward(state, journal, attempts)
        self._withheld = WithheldMessages(state, journal)
        self._state = state
        self._journal = journal
        self._config = state.config.store
        self._row = state.store.log.row
        self._pass: Iterator[int] | None = None
        self._next_ms = 0
        self._early_from_ms = 0  # before, nothing goes before its age
        self._kept_until_ms = 0  # before, nobody looks whether what is kept unread has been read
        self._unread: Counter[tuple[str, str]] = Counter()  # of this pass, by group and topic
        self._now_ms = 0
        self._last_ms: dict[int, int] = {}  # segment base: store time of its last record

    def next_deadline_ms(self) -> int | None:
        """When `step` wants to be called; None while there is nothing that could ever go."""
        return self._next_ms if len(self._row.row) > 1 and self._wanted else None

    @property
    def _wanted(self) -> bool:
        return bool(self._config.retention_ms or self._config.retention_bytes)

    def step(self, now_ms: int) -> None:
        """A bounded slice of work, if it is time. Raises StoreReadOnlyError."""
        if now_ms < self._next_ms or len(self._row.row) < 2 or not self._wanted:
            return
        self._now_ms = now_ms
        self._next_ms = now_ms + CHECK_MS
        cost = 0
        try:
            if self._pass is None:
                if not self._may_go(0):
                    return
                self._pass = self._run()
            while cost < self.step_cost:
                cost += next(self._pass)
            self._next_ms = now_ms + STEP_MS
        except StopIteration:
            self._end()
        except (CorruptRecordError, DamagedQueueError, StoreFullError):
            self.segments_kept += 1
            self._next_ms = now_ms + RETRY_MS
            self._end()
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        self._pass = None
        self._state.timers_touched = None
        for (group, topic), count in self._unread.items():
            log.warning(
                "messages removed unread", extra={"group": group, "topic": topic, "count": count}
            )
        self._unread.clear()

    def _run(self) -> Iterator[int]:
        due, kept_for = 0, ("", "")
        while self._may_go(due) and self._is_due(due):
            if not self._goes_unread(due):
                kept_for = yield from self._unread_of(self._row.row[due])
                if kept_for[0]:
                    break
            due += 1
        self._keep_unread(due, kept_for)
        if due:  # at once: what entered a queue late may need an older segment
            yield from self._trim(self._row.row[due - 1])
        clean = 0
        while self._may_go(clean):
            segment = self._row.row[clean]
            if clean >= due:
                if kept_for[0] or not (yield from self._all_read(segment)):
                    self._early_from_ms = self._now_ms + EARLY_RETRY_MS
                    break
                yield from self._trim(segment)
            affordable = self.roll_forward.affordable(segment)
            if not (
                affordable and (yield from self.roll_forward.empty(segment, lambda: self._now_ms))
            ):
                self.segments_kept += 1
                low = self._state.store.disk.low  # sends may be refused until it can go
                self._next_ms = self._now_ms + (EARLY_RETRY_MS if low else RETRY_MS)
                break
            clean += 1
        if kept_for[0]:
            self._kept_until_ms = self._now_ms + EARLY_RETRY_MS
        if clean:
            self._drop(clean, max(0, clean - due))

    # --- which ---------------------------------------------------------------------------------

    def _may_go(self, index: int) -> bool:
        """All that one look at the segment's place and age can tell."""
        row = self._row.row
        segment = row[index]
        if index == len(row) - 1 or segment.end > self._state.store.checkpointed:
            return False
        if self.holds.needs(segment.end, self._now_ms):
            return False
        early = (
            self._state.store.disk.low
            and bool(self._config.retention_ms)
            and self._now_ms >= self._early_from_ms
        )
        return early or self._is_due(index)

    def _is_due(self, index: int) -> bool:
        """Tell whether it is too much, or old and not known to be kept by what is unread."""
        if self._oversize(index):
            return True
        looks = self._now_ms >= self._kept_until_ms or self._goes_unread(index)
        return looks and self._expired(self._row.row[index])

    def _goes_unread(self, index: int) -> bool:
        """Tell whether what is old goes though a group has not read it."""
        age_ms = self._config.unread_retention_ms
        if self._oversize(index) or self._state.store.disk.low:
            return True
        return bool(age_ms) and self._written_ms(self._row.row[index]) <= self._now_ms - age_ms

    def _keep_unread(self, due: int, kept_for: tuple[str, str]) -> None:
        """Note, and say once, that old segments from `due` on stay for a group."""
        kept = 0
        if kept_for[0]:
            row = self._row.row[due:-1]
            kept = sum(segment.size for segment in row if self._expired(segment))
            if self.kept_for != kept_for:
                log.warning(
                    "old messages are kept: a group has not read them",
                    extra={"group": kept_for[0], "topic": kept_for[1], "bytes": kept},
                )
        self.kept_unread_bytes, self.kept_for = kept, kept_for

    def _expired(self, segment: Segment) -> bool:
        age_ms = self._config.retention_ms
        return bool(age_ms) and self._written_ms(segment) <= self._now_ms - age_ms

    def _oversize(self, index: int) -> bool:
        """The log is too large even without the segments before this one."""
        row = self._row.row
        limit = self._config.retention_bytes
        return bool(limit) and row[-1].end - row[index].base > limit

    def _written_ms(self, segment: Segment) -> int:
        """When its last record was stored, told by the first one behind it."""
        known = self._last_ms.get(segment.base)
        if known is None:
            following = self._state.store.log.read(segment.end + SEGMENT_HEADER_BYTES)
            known = self._last_ms[segment.base] = following.store_ms
        return known

    def _all_read(self, segment: Segment) -> Generator[int, None, bool]:
        """Tell whether every group that reads a topic has passed what the segment has of it.

        What nobody has read yet keeps its full time; so does a topic that no group reads.
        """
        readers = _readers(self._state)
        for key in self._state.store.queue_keys():
            topic = self._state.catalog.topic_by_id(key[0])
            if topic is None or topic.internal:
                continue
            queue = self._state.queue(*key)
            boundary = self._boundary(queue, segment)
            yield ROW_COST
            if boundary == queue.first:
                continue
            groups = readers.get(key[0])
            if not groups or any(group.unread_from(key[1]) < boundary for group in groups):
                return False
        return True

    def _unread_of(self, segment: Segment) -> Generator[int, None, tuple[str, str]]:
        """Name a group that was not given all that the segment has of a topic, and that topic; two
        empty names: there is none."""
        catalog = self._state.catalog
        readers = _readers(self._state)
        for key in self._state.store.queue_keys():
            topic = catalog.topic_by_id(key[0])
            if topic is None or topic.internal or key[0] not in readers:
                continue
            queue = self._state.queue(*key)
            boundary = self._boundary(queue, segment)
            yield ROW_COST
            if boundary == queue.first:
                continue
            for subscription in readers[key[0]]:
                group = catalog.group_by_id(subscription.group_id)
                cursor = max(subscription.unread_from(key[1]), queue.first)
                if group is not None and cursor < boundary:
                    return group.name, topic.name
        return "", ""

    # --- trim ----------------------------------------------------------------------------------

    def _trim(self, segment: Segment) -> Iterator[int]:
        """Queues lose what entered them before the end of the segment; the letters, their old."""
        readers = _readers(self._state)
        batch: list[TrimmedQueue] = []
        rows = 0
        for key in self._state.store.queue_keys():
            topic = self._state.catalog.topic_by_id(key[0])
            if topic is None:
                continue
            queue = self._state.queue(*key)
            boundary = (
                self._letters_end(queue) if topic.internal else self._boundary(queue, segment)
            )
            first = queue.first
            while first < boundary:
                upto = min(boundary, first + TRIM_ROWS - rows)
                batch.append(TrimmedQueue(*key, upto))
                self._count_expired(queue, first, upto, readers.get(key[0], []))
                rows += upto - first
                first = upto
                if rows >= TRIM_ROWS:
                    yield from self._let_go(batch)
                    yield rows * ROW_COST
                    batch, rows = [], 0
                    if self._state.catalog.topic_by_id(key[0]) is None:
                        break  # deleted meanwhile
            rows += 1
        if batch:
            yield from self._let_go(batch)
            yield rows * ROW_COST

    def _let_go(self, batch: list[TrimmedQueue]) -> Iterator[int]:
        """Trim the queues, once all that the broker itself withholds of them is kept."""
        while cost := self._withheld.keep(batch, self._now_ms):
            yield cost
        catalog = self._state.catalog  # of which a topic may have been deleted meanwhile
        queues = tuple(queue for queue in batch if catalog.topic_by_id(queue.topic_id) is not None)
        if queues:
            payload = DropPayload(DROP_TRIM, queues=queues)
            self._journal.write(RecordType.DROP, payload, self._now_ms)

    def _boundary(self, queue: ConsumeQueue, segment: Segment) -> int:
        """Behind the last entry that came into being in the segment or before it."""
        cut_ms = self._written_ms(segment)
        if queue.first == queue.next or queue.get(queue.first).time_ms > cut_ms:
            return queue.first
        offset = boundary = queue.offset_at(cut_ms)
        expired = self._expired(segment)
        while offset < queue.next:  # of that very instant: what the segment's end divides
            for entry in queue.scan(offset, TRIM_ROWS):
                if entry.time_ms > cut_ms or not (entry.flags or entry.position < segment.end):
                    return boundary
                offset += 1
                if expired or not entry.flags:
                    boundary = offset
        return boundary

    def _letters_end(self, queue: ConsumeQueue) -> int:
        age_ms = self._config.dead_letter_retention_ms
        return queue.offset_at(self._now_ms - age_ms) if age_ms else queue.first

    def _count_expired(
        self, queue: ConsumeQueue, first: int, upto: int, readers: list[Subscription]
    ) -> None:
        self.entries_expired += upto - first
        for subscription in readers:
            cursor = self._state.cursor(subscription, queue)
            unread = max(0, upto - max(cursor, first))
            if subscription.gate is not None:
                unread += expiring(subscription.gate, queue.queue_id, upto)
            if unread:
                self.entries_expired_unread += unread
                subscription.flowing().expired_unread += unread
                group = self._state.catalog.group_by_id(subscription.group_id)
                topic = self._state.catalog.topic_by_id(subscription.topic_id)
                if group is not None and topic is not None:
                    self._unread[group.name, topic.name] += unread

    # --- drop ----------------------------------------------------------------------------------

    def _drop(self, count: int, early: int) -> None:
        if self.holds.needs(
            self._row.row[count - 1].end, self._now_ms
        ):  # since the pass began: the next finds it done
            return
        end = self._row.row[count - 1].end
        freed = end - self._row.row[0].base
        sections = base_sections(self._state)
        affordable = len(sections) * BASE_SHARE <= freed or self._state.store.disk.low
        if not affordable or len(sections) > self._config.segment_bytes * BASE_PERCENT_MAX // 100:
            self.drops_postponed += 1
            self._next_ms = self._now_ms + RETRY_MS  # until more can go at once
            return
        part_bytes = min(BASE_PART_BYTES, self._config.record_bytes_max // 2)
        records = [
            (RecordType.DROP, payload) for payload in base_records(end, sections, part_bytes)
        ]
        self._journal.write_group(records, self._now_ms)
        self.segments_dropped += count
        self.bytes_dropped += freed
        self.early_drops += early
        self._last_ms = {base: ms for base, ms in self._last_ms.items() if base >= end}


def _readers(state: EngineState) -> dict[int, list[Subscription]]:
    """List by topic id the groups that read it."""
    readers: dict[int, list[Subscription]] = {}
    for (_, topic_id), subscription in state.subscriptions.items():
        readers.setdefault(topic_id, []).append(subscription)
    return readers
