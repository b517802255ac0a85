"""Old segments go: what has expired leaves its queues, what is still needed is rolled forward.

One pass looks at the segments from the oldest on, as far as they may go: below the newest
checkpoint, and nothing of a topic in them younger than that topic's messages stay (`ages.py`), or
beyond `retention_bytes`, or, on a disk that is nearly full, read by every group. What a group has
not read keeps a segment that is only old, until its age for that, or until the disk is nearly full.
Each in turn:

    trim ──► nothing needs it ─────────────────────────────────► next segment
         └─► little does ─► survey ─► move a bit at a time ─┘
         └─► much does: kept, and all after it; looked at again later

and then one DROP record for all of them. The log is shared, so a topic whose messages stay longer
keeps the segments it has something in; one whose messages stay shorter leaves its queues at its
time, and room is made when all else in the segment may go. A pass is a generator that is given a
budget per tick, so the loop is never held up, and needs no state on disk: everything it did is a
record, whole in itself, and a pass begun anew finds it done. Never drops what cannot be read:
damage keeps its segment.
"""

import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from latermq_broker.catalog.catalog import Topic
from latermq_broker.config.config import StoreConfig
from latermq_broker.engine.journal.apply_retention import base_sections
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.outcome.attempts import Attempts
from latermq_broker.engine.retention.ages import Ages, has_own
from latermq_broker.engine.retention.expiring_soon import ExpiringSoon
from latermq_broker.engine.retention.holds import LogHolds
from latermq_broker.engine.retention.roll_forward import RollForward
from latermq_broker.engine.retention.segment_times import SegmentTimes
from latermq_broker.engine.retention.withheld import WithheldMessages, expiring
from latermq_broker.engine.state.state import EngineState, Subscription
from latermq_broker.errors import CorruptRecordError, DamagedQueueError, StoreFullError
from latermq_broker.store.derived.consume_queue import ConsumeQueue
from latermq_broker.store.log.segment import Segment
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


Trimmer: TypeAlias = Callable[[Topic, ConsumeQueue], int]  # up to where a queue is trimmed


class Keeper(NamedTuple):
    """Who an old segment stays for."""

    group: str  # that has not read all of the topic; "": the topic's messages stay longer
    topic: str
    goes_ms: int  # when it may go, if nothing else keeps it; 0: when the disk is nearly full


NOBODY: Final = Keeper("", "", 0)


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
        self.kept_unread_bytes = 0  # of old segments, which a group keeps
        self.kept_longer_bytes = 0  # of segments that a topic keeps longer than is set for all
        self.kept_for = NOBODY  # whoever keeps the first of them
        self.step_cost = STEP_COST
        self._times = SegmentTimes(state.store.log)
        self.ages = Ages(state.config.store, state.catalog)
        self.soon = ExpiringSoon(state, self.ages)
        self.holds = LogHolds(state.store.disk)
        self.roll_forward = RollForward(state, journal, attempts)
        self._withheld = WithheldMessages(state, journal)
        self._state = state
        self._journal = journal
        self._config = state.config.store
        self._row = state.store.log.row
        self._pass: Iterator[int] | None = None
        self._next_ms = 0
        self._ages_of_pass = 0  # `ages.changes` when it began
        self._own_from_ms = 0  # before, nobody looks at topics that have ages of their own
        self._early_from_ms = 0  # before, nothing goes before its age
        self._kept_until_ms = 0  # before, nobody looks whether what is kept may go
        self._unread: Counter[tuple[str, str]] = Counter()  # of this pass, by group and topic
        self._now_ms = 0

    def reconfigure(self, config: StoreConfig) -> None:
        """Go on with other ages for all: a pass that is under way ends, and one may begin now."""
        self._config = config
        self.ages.reconfigure(config)
        self._next_ms = self._own_from_ms = self._kept_until_ms = 0

    def next_deadline_ms(self) -> int | None:
        """Tell when `step` wants to be called; None while there is nothing that could ever go."""
        return self._next_ms if self._wanted else None

    @property
    def _wanted(self) -> bool:
        if self.ages.own or self._config.unread_retention_ms:
            return True
        return len(self._row.row) > 1 and bool(
            self._config.retention_ms or self._config.retention_bytes
        )

    def step(self, now_ms: int) -> None:
        """Do a bounded slice of work, if it is time. Raises StoreReadOnlyError."""
        if now_ms < self._next_ms or not self._wanted:
            return
        self._now_ms = now_ms
        self._next_ms = now_ms + CHECK_MS
        cost = 0
        try:
            if self._pass is not None and self.ages.changes != self._ages_of_pass:
                self._end()  # what it found may have to stay now
            if self._pass is None and not self._begin():
                return
            assert self._pass is not None
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

    def _begin(self) -> bool:
        """Begin a pass, if there may be something to do."""
        own = self._now_ms >= self._own_from_ms and bool(
            self.ages.own or self._config.unread_retention_ms
        )
        segments = len(self._row.row) > 1 and self._may_go(0)
        if own or segments:
            self._pass = self._whole(segments=segments, own=own)
            self._ages_of_pass = self.ages.changes
        return own or segments

    def _whole(self, *, segments: bool, own: bool) -> Iterator[int]:
        if own:  # first: damage in one queue, which ends the other, is passed over here
            self._own_from_ms = self._now_ms + EARLY_RETRY_MS
            yield from self._trim_own()
        if segments:
            yield from self._run()

    def _end(self) -> None:
        self._pass = None
        self._state.timers_touched = None
        for (group, topic), count in self._unread.items():
            log.warning(
                "messages removed unread", extra={"group": group, "topic": topic, "count": count}
            )
        self._unread.clear()

    def _run(self) -> Iterator[int]:
        due, keeper = 0, None
        while self._may_go(due) and self._is_due(due):
            if not _oversize(self._row.row, due, self._config.retention_bytes):
                keeper = yield from self._keeper_of(self._row.row[due])
                if keeper is not None:
                    break
            due += 1
        self._note_kept(due, keeper)
        if due:  # at once: what entered a queue late may need an older segment
            yield from self._trim(self._trimmer(self._row.row[due - 1]))
        clean = 0
        while self._may_go(clean):
            segment = self._row.row[clean]
            if clean >= due:
                unread = keeper is not None and keeper.group
                if unread or not (yield from self._all_read(segment)):
                    self._early_from_ms = self._now_ms + EARLY_RETRY_MS
                    break
                yield from self._trim(self._trimmer(segment))
            affordable = self.roll_forward.affordable(segment)
            if not (
                affordable and (yield from self.roll_forward.empty(segment, lambda: self._now_ms))
            ):
                self.segments_kept += 1
                low = self._state.store.disk.low  # sends may be refused until it can go
                self._next_ms = self._now_ms + (EARLY_RETRY_MS if low else RETRY_MS)
                break
            clean += 1
        if keeper is not None:
            self._kept_until_ms = self._now_ms + EARLY_RETRY_MS
        if clean:
            self._drop(clean, max(0, clean - due))

    # --- which ---------------------------------------------------------------------------------

    def _may_go(self, index: int) -> bool:
        """Tell whether the segment may go, as far as one look at its place and age can tell."""
        row = self._row.row
        segment = row[index]
        if index == len(row) - 1 or segment.end > self._state.store.checkpointed:
            return False
        if self.holds.needs(segment.end, self._now_ms):
            return False
        early = (
            self._state.store.disk.low
            and bool(self.ages.shortest_ms)
            and self._now_ms >= self._early_from_ms
        )
        return early or self._is_due(index)

    def _is_due(self, index: int) -> bool:
        """Tell whether it is too much, or old and not known to be kept by what is unread."""
        if _oversize(self._row.row, index, self._config.retention_bytes):
            return True
        if self._now_ms < self._kept_until_ms and not self._state.store.disk.low:
            return False
        return self._times.older(self._row.row[index], self.ages.shortest_ms, self._now_ms)

    def _note_kept(self, due: int, keeper: Keeper | None) -> None:
        """Note, and say once, that old segments from `due` on stay, and for whom."""
        kept = 0
        if keeper is not None:
            row = self._row.row[due:-1]
            age_ms = self._config.retention_ms or self.ages.shortest_ms
            kept = sum(
                segment.size for segment in row if self._times.older(segment, age_ms, self._now_ms)
            )
            if kept and keeper.group and keeper[:2] != self.kept_for[:2]:
                log.warning(
                    "old messages are kept: a group has not read them",
                    extra={
                        "group": keeper.group,
                        "topic": keeper.topic,
                        "bytes": kept,
                        "go_in_ms": max(0, keeper.goes_ms - self._now_ms) if keeper.goes_ms else -1,
                    },
                )
        self.kept_for = keeper if kept and keeper is not None else NOBODY
        self.kept_unread_bytes = kept if self.kept_for.group else 0
        self.kept_longer_bytes = kept - self.kept_unread_bytes

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
            boundary = self._boundary(topic, queue, segment)
            yield ROW_COST
            if boundary == queue.first:
                continue
            groups = readers.get(key[0])
            if not groups or any(group.unread_from(key[1]) < boundary for group in groups):
                return False
        return True

    def _keeper_of(self, segment: Segment) -> Generator[int, None, Keeper | None]:
        """Tell who an old segment stays for: a topic whose messages stay longer, or a group that
        was not given all that the segment has of a topic."""
        catalog = self._state.catalog
        readers = _readers(self._state)
        written_ms = self._times.written_ms(segment)
        low = self._state.store.disk.low
        for key in self._state.store.queue_keys():
            topic = catalog.topic_by_id(key[0])
            if topic is None or topic.internal:
                continue
            queue = self._state.queue(*key)
            boundary = self._boundary(topic, queue, segment)
            yield ROW_COST
            if boundary == queue.first:
                continue
            age_ms = self.ages.read_ms(topic)
            if not self._times.older(segment, age_ms, self._now_ms):
                return Keeper("", topic.name, written_ms + age_ms if age_ms else 0)
            age_ms = self.ages.unread_ms(topic)
            if low or self._times.older(segment, age_ms, self._now_ms):
                continue
            for subscription in readers.get(key[0], []):
                group = catalog.group_by_id(subscription.group_id)
                cursor = max(subscription.unread_from(key[1]), queue.first)
                if group is not None and cursor < boundary:
                    return Keeper(group.name, topic.name, written_ms + age_ms if age_ms else 0)
        return None

    # --- trim ----------------------------------------------------------------------------------

    def _trimmer(self, segment: Segment) -> Trimmer:
        """Make what trims queues by what entered them before the end of the segment, and of the
        letters the old."""

        def end(topic: Topic, queue: ConsumeQueue) -> int:
            if topic.internal:
                age_ms = self._config.dead_letter_retention_ms
                return queue.offset_at(self._now_ms - age_ms) if age_ms else queue.first
            return self._boundary(topic, queue, segment)

        return end

    def _trim_own(self) -> Iterator[int]:
        """Trim what is older in topics that have ages of their own, whatever becomes of segments.

        A queue that is damaged keeps what it has.
        """
        readers = _readers(self._state)

        def end(topic: Topic, queue: ConsumeQueue) -> int:
            age_ms = self.ages.read_ms(topic)
            if not age_ms or not has_own(topic):
                return queue.first
            read = [each.unread_from(queue.queue_id) for each in readers.get(topic.id, [])]
            kept = min(read, default=queue.next)
            try:
                if unread_ms := self.ages.unread_ms(topic):
                    kept = max(kept, queue.offset_at(self._now_ms - unread_ms))
                return min(kept, queue.offset_at(self._now_ms - age_ms))
            except DamagedQueueError as error:
                self._state.damaged.note_queue(error)
                return queue.first

        yield from self._trim(end)
        yield from self.soon.look(self._now_ms)

    def _trim(self, end_of: Trimmer) -> Iterator[int]:
        """Take from each queue what lies before its new end."""
        readers = _readers(self._state)
        batch: list[TrimmedQueue] = []
        rows = 0
        for key in self._state.store.queue_keys():
            topic = self._state.catalog.topic_by_id(key[0])
            if topic is None:
                continue
            queue = self._state.queue(*key)
            boundary = end_of(topic, queue)
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
            if rows >= TRIM_ROWS:  # of many queues that lose nothing
                yield from self._let_go(batch)
                yield rows * ROW_COST
                batch, rows = [], 0
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

    def _boundary(self, topic: Topic, queue: ConsumeQueue, segment: Segment) -> int:
        """Find the offset behind what last came into being in the segment or before it."""
        cut_ms = self._times.written_ms(segment)
        if queue.first == queue.next or queue.get(queue.first).time_ms > cut_ms:
            return queue.first
        offset = boundary = queue.offset_at(cut_ms)
        expired = self._times.older(segment, self.ages.read_ms(topic), self._now_ms)
        while offset < queue.next:  # of that very instant: what the segment's end divides
            for entry in queue.scan(offset, TRIM_ROWS):
                if entry.time_ms > cut_ms or not (entry.flags or entry.position < segment.end):
                    return boundary
                offset += 1
                if expired or not entry.flags:
                    boundary = offset
        return boundary

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
        self._times.forget_before(end)


def _readers(state: EngineState) -> dict[int, list[Subscription]]:
    """List by topic id the groups that read it."""
    readers: dict[int, list[Subscription]] = {}
    for (_, topic_id), subscription in state.subscriptions.items():
        readers.setdefault(topic_id, []).append(subscription)
    return readers


def _oversize(row: Sequence[Segment], index: int, limit: int) -> bool:
    """Tell whether the log is too large even without the segments before this one."""
    return bool(limit) and row[-1].end - row[index].base > limit
