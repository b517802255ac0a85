"""Old segments go: what has expired leaves its queues, what is still needed is rolled forward.

One pass looks at the segments from the oldest on, as far as they may go: below the newest
checkpoint, and nothing in them must stay (`keepers.py`), or beyond `retention_bytes`, or, on a disk
that is nearly full, read by every group. What a group has not read keeps a segment that is only
old, until its age for that, or until the disk is nearly full. Each in turn:

    trim ──► nothing needs it ─────────────────────────────────► next segment
         └─► little does ─► survey ─► move a bit at a time ─┘
         └─► much does: kept, and all after it; looked at again later

and then one DROP record for all of them. A message leaves its queue at the age of its own topic
(`ages.py`) and not before, but for the two bounds of the disk; then it is counted and said. What
is in a queue when its segment's turn comes, because its topic keeps it longer, is needed like all
else. A pass is a generator that is given a budget per tick, so the loop is never held up, and needs
no state on disk: everything it did is a record, whole in itself, and a pass begun anew finds it
done. Never drops what cannot be read: damage keeps its segment.
"""

import logging
from collections.abc import Generator, Iterator, Sequence
from typing import Final

from latermq_broker.config.config import StoreConfig
from latermq_broker.engine.journal.apply_retention import base_sections
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.outcome.attempts import Attempts
from latermq_broker.engine.retention.ages import Ages
from latermq_broker.engine.retention.expiring_soon import ExpiringSoon
from latermq_broker.engine.retention.holds import LogHolds
from latermq_broker.engine.retention.keepers import NOBODY, Keeper, Keepers, readers_of
from latermq_broker.engine.retention.roll_forward import RollForward
from latermq_broker.engine.retention.segment_times import SegmentTimes
from latermq_broker.engine.retention.trimming import DISK_NEARLY_FULL, LOG_TOO_LARGE, Trimming
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import CorruptRecordError, DamagedQueueError, StoreFullError
from latermq_broker.store.log.segment import Segment
from latermq_broker.store.records.record import RecordType
from latermq_broker.store.records.retention_records import base_records

log = logging.getLogger("latermq.engine")

CHECK_MS: Final = 1_000  # whether something may go
STEP_MS: Final = 25
STEP_COST: Final = 256 << 10  # bytes written, or as long as that takes: about 10 MB a second
EARLY_RETRY_MS: Final = 10_000  # whether every group has read on, or what had to stay may go
RETRY_MS: Final = 60_000  # a segment that had to stay is looked at again, unless the disk is low
ROW_COST: Final = 32
BASE_PART_BYTES: Final = 4 << 20
BASE_PERCENT_MAX: Final = 90  # of a segment: it is one atomic group
BASE_SHARE: Final = 4  # a drop frees at least so many times what it writes


class Retention:
    """See the module. The counters are since the start."""

    def __init__(self, state: EngineState, journal: Journal, attempts: Attempts) -> None:
        self.segments_dropped = 0
        self.bytes_dropped = 0
        self.drops_postponed = 0  # they would have written too much for what they free
        self.segments_kept = 0  # looked at, and too much of it is needed
        self.early_drops = 0  # segments that went before their age: the disk was nearly full
        self.kept_unread_bytes = 0  # of old segments, which a group keeps
        self.kept_longer_bytes = 0  # of segments that a topic keeps longer than is set for all
        self.kept_for = NOBODY  # whoever keeps the first of them
        self.step_cost = STEP_COST
        self._times = SegmentTimes(state.store.log)
        self.ages = Ages(state.config.store, state.catalog)
        self.soon = ExpiringSoon(state, self.ages)
        self.holds = LogHolds(state.store.disk)
        self.roll_forward = RollForward(state, journal, attempts, self._times)
        self._keepers = Keepers(state, self.ages, self._times)
        self.trims = Trimming(state, journal, self.ages, self._times)
        self._state = state
        self._journal = journal
        self._config = state.config.store
        self._row = state.store.log.row
        self._pass: Iterator[int] | None = None
        self._in_slice = False
        self._slice_cost = 0  # of the parts of the slice under way
        self._next_ms = 0
        self._ages_of_pass = 0  # `ages.changes` when it began
        self._own_from_ms = 0  # before, nobody looks at topics that have ages of their own
        self._segments_from_ms = 0  # before, nobody looks at segments
        self._early_from_ms = 0  # before, nothing goes before its age
        self._kept_until_ms = 0  # before, nobody looks whether what is kept may go
        self._now_ms = 0

    def reconfigure(self, config: StoreConfig) -> None:
        """Go on with other ages for all: a pass that is under way ends, and one may begin now."""
        self._config = config
        self.ages.reconfigure(config)
        self.trims.reconfigure(config)
        self._next_ms = self._own_from_ms = self._segments_from_ms = self._kept_until_ms = 0

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

    def part(self, now_ms: int) -> bool:
        """Do the next part of a slice, or the first if it is time for one; other work may come
        between two parts. Raises StoreReadOnlyError.

        Returns:
            Whether the slice goes on.
        """
        if not self._in_slice:
            if now_ms < self._next_ms or not self._wanted:
                return False
            self._next_ms = now_ms + CHECK_MS
            self._slice_cost = 0
        self._now_ms = self.trims.now_ms = now_ms
        self._in_slice = False
        try:
            if self._pass is not None and self.ages.changes != self._ages_of_pass:
                self._end()  # what it found may have to stay now
            if self._pass is None and not self._begin():
                return False
            assert self._pass is not None
            if self._slice_cost < self.step_cost:
                self._slice_cost += next(self._pass)
            self._in_slice = self._slice_cost < self.step_cost
            if not self._in_slice:
                self._next_ms = now_ms + STEP_MS
        except StopIteration:
            self._end()
        except (CorruptRecordError, DamagedQueueError, StoreFullError):
            self.segments_kept += 1
            self._segments_from_ms = now_ms + RETRY_MS
            self._end()
        except BaseException:
            self._end()
            raise
        return self._in_slice

    def _begin(self) -> bool:
        """Begin a pass, if there may be something to do."""
        own = self._now_ms >= self._own_from_ms and bool(
            self.ages.own or self._config.unread_retention_ms
        )
        segments = (
            self._now_ms >= self._segments_from_ms
            and self._placed(0)
            and (self._is_due(0) or self._may_go_early())
        )
        if own or segments:
            self._pass = self._whole(segments=segments, own=own)
            self._ages_of_pass = self.ages.changes
        return own or segments

    def _whole(self, *, segments: bool, own: bool) -> Iterator[int]:
        if own:  # first: damage in one queue, which ends the other, is passed over here
            self._own_from_ms = self._now_ms + EARLY_RETRY_MS
            yield from self.trims.own()
            yield from self.soon.look(self._now_ms)
        if segments:
            yield from self._run()

    def _end(self) -> None:
        self._pass = None
        self._state.timers_touched = None
        self.trims.say()

    def _run(self) -> Iterator[int]:
        over = 0
        while self._placed(over) and _oversize(self._row.row, over, self._config.retention_bytes):
            over += 1
        if over:
            yield from self.trims.all_in(self._row.row[over - 1], LOG_TOO_LARGE)
        due, keeper = over, None
        if self._placed(over) and self._is_due(over):
            age_ms = self._config.retention_ms
            stay, keeper = yield from self._keepers.first(over, age_ms, self._now_ms)
            old = self._times.count_older(self.ages.shortest_ms, self._now_ms)
            while due < min(stay, old) and self._placed(due):
                due += 1
            if due < stay:
                keeper = None  # something else keeps it
        if due:  # at once: what entered a queue late may need an older segment
            yield from self.trims.aged_in(self._row.row[:due])
        clean = yield from self._empty(due)
        if clean < due and self.roll_forward.too_much_of is not None:
            keeper = self._keepers.of_topic(self.roll_forward.too_much_of, clean)
        if keeper is not None:
            self._kept_until_ms = self._now_ms + EARLY_RETRY_MS
        self._note_kept(clean, keeper)
        early = 0
        if keeper is None or not keeper.group:
            early = yield from self._empty_early(clean)
        if clean + early < due:
            self.segments_kept += 1
            low = self._state.store.disk.low  # sends may be refused until it can go
            self._segments_from_ms = self._now_ms + (EARLY_RETRY_MS if low else RETRY_MS)
        if clean + early:
            self._drop(clean + early, early)

    def _empty(self, due: int) -> Generator[int, None, int]:
        """Have nothing need the first `due` segments; of how many that could be done."""
        for index in range(due):
            segment = self._row.row[index]
            if not (yield from self.roll_forward.empty(segment, lambda: self._now_ms)):
                return index
        return due

    def _empty_early(self, index: int) -> Generator[int, None, int]:
        """Empty segments from `index` on before their age, of what every group has read, if the
        disk is nearly full; how many."""
        first = index
        while self._may_go_early() and self._placed(index):
            segment = self._row.row[index]
            if not (yield from self._all_read(segment)):
                self._early_from_ms = self._now_ms + EARLY_RETRY_MS
                break
            emptied = self.roll_forward.affordable(segment)
            if emptied:
                yield from self.trims.all_in(segment, DISK_NEARLY_FULL)
                emptied = yield from self.roll_forward.empty(segment, lambda: self._now_ms)
            if not emptied:
                self.segments_kept += 1
                self._early_from_ms = self._now_ms + EARLY_RETRY_MS
                break
            index += 1
        return index - first

    # --- which ---------------------------------------------------------------------------------

    def _placed(self, index: int) -> bool:
        """Tell whether the segment may go by its place in the log."""
        row = self._row.row
        segment = row[index]
        if index == len(row) - 1 or segment.end > self._state.store.checkpointed:
            return False
        return not self.holds.needs(segment.end, self._now_ms)

    def _may_go_early(self) -> bool:
        return (
            self._state.store.disk.low
            and bool(self.ages.shortest_ms)
            and self._now_ms >= self._early_from_ms
        )

    def _is_due(self, index: int) -> bool:
        """Tell whether it is too much, or old and not known to be kept by what is unread."""
        if _oversize(self._row.row, index, self._config.retention_bytes):
            return True
        if self._now_ms < self._kept_until_ms and not self._state.store.disk.low:
            return False
        return self._times.older(self._row.row[index], self.ages.shortest_ms, self._now_ms)

    def _note_kept(self, first: int, keeper: Keeper | None) -> None:
        """Note, and say once, that old segments from `first` on stay, and for whom."""
        kept = 0
        if keeper is not None:
            row = self._row.row[first:-1]
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
        """Tell whether every group has passed what the segment has of its topic and is young.

        What nobody has read yet keeps its full time; so does a topic that no group reads.
        """
        readers = readers_of(self._state)
        for key in self._state.store.queue_keys():
            topic = self._state.catalog.topic_by_id(key[0])
            if topic is None or topic.internal:
                continue
            queue = self._state.queue(*key)
            yield ROW_COST
            if self._times.older(segment, self.ages.read_ms(topic), self._now_ms):
                continue  # on such a disk it goes unread, too
            boundary = self.trims.boundary(topic, queue, segment)
            if boundary == queue.first:
                continue
            groups = readers.get(key[0])
            if not groups or any(group.unread_from(key[1]) < boundary for group in groups):
                return False
        return True

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
            self._segments_from_ms = self._now_ms + RETRY_MS  # until more can go at once
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


def _oversize(row: Sequence[Segment], index: int, limit: int) -> bool:
    """Tell whether the log is too large even without the segments before this one."""
    return bool(limit) and row[-1].end - row[index].base > limit
