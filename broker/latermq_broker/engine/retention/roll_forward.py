"""Copies what is still needed of an old segment to the end of the log, so that it can go.

A survey finds every user of the segment: timers, deliveries, queue entries, attempts. Of plain
queue entries, which no counter knows, it finds what is left in the queues: what has expired was
trimmed before, so the topics of these keep their messages longer. If what all of them need is
little, each needed message is written once more, whole, in a MOVE record that names all its
users; an attempts' list becomes one record. Both are generators that yield what a bit of work cost,
in bytes written or what takes as long. Users that come or go in between are no harm: one that is
gone is left out, one that is new is found by the next survey.
"""

from collections.abc import Callable, Generator, Iterator
from typing import Final

from latermq_broker.catalog.catalog import Topic
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.outcome.attempts import Attempts
from latermq_broker.engine.retention.segment_times import SegmentTimes
from latermq_broker.engine.send.transactions import write_rollback
from latermq_broker.engine.state.segment_use import QueueKey
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import CorruptRecordError
from latermq_broker.store.log.segment import Segment
from latermq_broker.store.records.kinds import check_read
from latermq_broker.store.records.message_records import TimerPayload, decode_message_head
from latermq_broker.store.records.record import Record, RecordType
from latermq_broker.store.records.retention_records import (
    MOVE_MESSAGE,
    MovedEntry,
    MovePayload,
    first_position,
    moved_overhead,
    original,
)
from latermq_broker.store.records.transaction_records import CAUSE_TOPIC_GONE

LIVE_PERCENT_MAX: Final = 25  # of a segment; more, and it is kept
LIVE_PERCENT_MAX_LOW: Final = 50  # on a disk that is nearly full
ROUNDS_MAX: Final = 8  # surveys of one segment in one pass
SLICE: Final = 1_024  # users looked at before giving way
LOOK_COST: Final = 32
TIMER_COST: Final = 8  # of a timer looked at: most are passed over in one go
RECORD_COST: Final = 1_024  # of a MOVE beside its bytes
USERS_MAX: Final = 256  # of one MOVE; a message with more is copied more often
MOVED_ENTRIES_MAX: Final = 1 << 18  # in all queues, 40 bytes each in memory; more keep segments


class _Users:
    """Who needs one message."""

    __slots__ = ("due_ms", "entries", "ids")

    def __init__(self) -> None:
        self.due_ms = 0
        self.ids: list[int] = []
        self.entries: list[tuple[QueueKey, int]] = []


class _Survey:
    def __init__(self) -> None:
        self.live_bytes = 0
        self.users: dict[int, _Users] = {}  # by position
        self.chains: list[int] = []  # delivery ids

    def at(self, position: int, length: int) -> _Users:
        users = self.users.get(position)
        if users is None:
            users = self.users[position] = _Users()
            self.live_bytes += length
        return users


class RollForward:
    """See the module. The counters are since the start."""

    def __init__(
        self, state: EngineState, journal: Journal, attempts: Attempts, times: SegmentTimes
    ) -> None:
        self.messages_moved = 0
        self.bytes_moved = 0
        self.histories_moved = 0
        self.too_much_of: Topic | None = None
        """The topic that keeps its messages longer, and of which the last segment that could not
        be emptied had too much; None: of other users."""
        self.moved_entries_max = MOVED_ENTRIES_MAX
        self._times = times
        self._state = state
        self._journal = journal
        self._attempts = attempts

    def affordable(self, segment: Segment) -> bool:
        """Tell, as far as the counters can without a survey, whether emptying it pays."""
        return self._state.uses.at(segment.base).timer_bytes <= self._limit(segment)

    def empty(self, segment: Segment, now_ms: Callable[[], int]) -> Generator[int, None, bool]:
        """Tell whether nothing needs the segment any more, when it is done.

        A message that no longer fits into a record keeps its segment.
        Raises CorruptRecordError, DamagedQueueError, StoreFullError; what was moved is moved.
        """
        state = self._state
        self.too_much_of = None
        if not self.affordable(segment):
            return False
        for _ in range(ROUNDS_MAX):
            state.timers_touched = set()
            survey = yield from self._survey(segment)
            if survey is None:
                return False
            if not survey.users and state.uses.at(segment.base).empty:
                return True
            for position, users in sorted(survey.users.items()):  # equal times stay in order
                yield from self._move(position, users, now_ms)
            for delivery_id in survey.chains:
                yield self._move_history(segment, delivery_id, now_ms())
        return False

    def _limit(self, segment: Segment) -> int:
        low = self._state.store.disk.low
        return segment.size * (LIVE_PERCENT_MAX_LOW if low else LIVE_PERCENT_MAX) // 100

    # --- survey --------------------------------------------------------------------------------

    def _survey(self, segment: Segment) -> Generator[int, None, _Survey | None]:
        """Find the users of the segment; None when they need too much of it."""
        survey = _Survey()
        use = self._state.uses.at(segment.base)
        limit = self._limit(segment)
        survey.live_bytes = use.timer_bytes
        for part in (self._deliveries, self._queues, self._timers, self._halves):
            for cost in part(segment, survey):
                if survey.live_bytes > limit:
                    return None
                yield cost
        for cost in self._kept_longer(segment, survey):
            if survey.live_bytes > limit:
                return None
            yield cost
        self.too_much_of = None
        return survey

    def _deliveries(self, segment: Segment, survey: _Survey) -> Iterator[int]:
        use = self._state.uses.at(segment.base)
        if not use.deliveries and not use.chains:
            return
        for part in self._state.leases.deliveries.in_slices(SLICE):
            for delivery in part:
                if segment.base <= delivery.position < segment.end:
                    survey.at(delivery.position, delivery.length).ids.append(delivery.id)
                if segment.base < delivery.first_attempt < segment.end:
                    survey.chains.append(delivery.id)
            yield SLICE * LOOK_COST

    def _queues(self, segment: Segment, survey: _Survey) -> Iterator[int]:
        state = self._state
        for key, use in list(state.uses.at(segment.base).queues.items()):
            if state.catalog.topic_by_id(key[0]) is None:
                continue
            queue = state.queue(*key)
            offset = use.low
            while (offset := max(offset, queue.first)) <= min(use.high, queue.next - 1):
                for entry in queue.scan(offset, min(SLICE, use.high + 1 - offset)):
                    if entry.flags and segment.base <= entry.position < segment.end:
                        users = survey.at(entry.position, entry.length)
                        users.entries.append((key, offset))
                    offset += 1
                yield SLICE * LOOK_COST
                if state.catalog.topic_by_id(key[0]) is None:
                    break  # deleted meanwhile

    def _kept_longer(self, segment: Segment, survey: _Survey) -> Iterator[int]:
        """Find the plain entries that are left in queues, topic by topic."""
        state = self._state
        moved = plain_count = 0
        begun_ms, written_ms = self._times.begun_ms(segment), self._times.written_ms(segment)
        for key in state.store.queue_keys():
            yield LOOK_COST
            self.too_much_of = topic = state.catalog.topic_by_id(key[0])
            if topic is None or topic.internal:
                continue
            queue = state.queue(*key)
            moved += len(queue.moved)
            if queue.first == queue.next or queue.time_ms(queue.first) > written_ms:
                continue
            offset = queue.offset_at(begun_ms)
            while offset < queue.next and queue.time_ms(offset) <= written_ms:
                for entry in queue.scan(offset, SLICE):
                    own = not entry.flags and entry.length
                    if own and segment.base <= entry.position < segment.end:
                        survey.at(entry.position, entry.length).entries.append((key, offset))
                        plain_count += 1
                    offset += 1
                if plain_count and moved + plain_count > self.moved_entries_max:
                    survey.live_bytes += segment.size
                yield SLICE * LOOK_COST
                if state.catalog.topic_by_id(key[0]) is None:
                    break  # deleted meanwhile
                offset = max(offset, queue.first)

    def _timers(self, segment: Segment, survey: _Survey) -> Iterator[int]:
        if not self._state.uses.at(segment.base).timers:
            return
        for looked, timers in self._state.timer.between(segment.base, segment.end):
            for due_ms, position in timers:
                survey.at(position, 0).due_ms = due_ms  # its bytes are counted already
            yield looked * TIMER_COST + len(timers) * LOOK_COST

    def _halves(self, segment: Segment, survey: _Survey) -> Iterator[int]:
        if not self._state.uses.at(segment.base).timers:
            return
        for index, half in enumerate(list(self._state.halves)):
            if segment.base <= half.position < segment.end:
                survey.at(half.position, 0).due_ms = half.due_ms  # counted with the timers
            if index % SLICE == 0:
                yield SLICE * LOOK_COST

    # --- move ----------------------------------------------------------------------------------

    def _move(self, position: int, users: _Users, now_ms: Callable[[], int]) -> Iterator[int]:
        """Write the message anew for those who still need it."""
        record = self._state.store.log.read(position)
        if record.type is RecordType.LOST:
            raise CorruptRecordError(position, "it was damaged and is given up")
        check_read(record)
        while users.due_ms or users.ids or users.entries:
            part = _Users()
            part.due_ms, users.due_ms = users.due_ms, 0
            part.ids, users.ids = users.ids[:USERS_MAX], users.ids[USERS_MAX:]
            part.entries, users.entries = users.entries[:USERS_MAX], users.entries[USERS_MAX:]
            yield self._move_part(record, part, now_ms())

    def _move_part(self, record: Record, users: _Users, now_ms: int) -> int:
        state = self._state
        position = record.position
        if state.timers_touched is not None and position in state.timers_touched:
            users.due_ms = 0  # it fired or was changed since the survey
        inner = original(record)
        if users.due_ms:
            topic_id = decode_message_head(inner.payload).topic_id
            half = state.halves.at(position)
            deleted = state.catalog.topic_by_id(topic_id) is None
            if deleted and half is not None:
                write_rollback(self._journal, half, CAUSE_TOPIC_GONE, now_ms)
                users.due_ms = 0
            elif deleted:
                cancel = TimerPayload(position, users.due_ms, 0, topic_id, record.length)
                self._journal.write(RecordType.TIMER, cancel, now_ms)
                users.due_ms = 0
        ids = tuple(delivery_id for delivery_id in users.ids if self._reads(delivery_id, position))
        entries = tuple(self._entries(users.entries, position))
        length = record.length + moved_overhead(len(ids), len(entries))
        too_long = length > state.config.store.record_bytes_max
        if too_long or not (users.due_ms or ids or entries):
            return LOOK_COST
        payload = MovePayload(
            kind=MOVE_MESSAGE,
            type=inner.type,
            old_length=record.length,
            old=position,
            first=first_position(record),
            due_ms=users.due_ms,
            stored_ms=inner.store_ms,
            ids=ids,
            entries=entries,
            inner=inner.payload,
        )
        moved_bytes: int = self._journal.write(RecordType.MOVE, payload, now_ms)
        self.messages_moved += 1
        self.bytes_moved += moved_bytes
        return moved_bytes + RECORD_COST

    def _reads(self, delivery_id: int, position: int) -> bool:
        delivery = self._state.leases.deliveries.get(delivery_id)
        return delivery is not None and delivery.position == position

    def _entries(self, offsets: list[tuple[QueueKey, int]], position: int) -> Iterator[MovedEntry]:
        for key, offset in offsets:
            if self._state.catalog.topic_by_id(key[0]) is None:
                continue
            queue = self._state.queue(*key)
            if queue.first <= offset < queue.next:
                entry = queue.get(offset)
                if entry.position == position:
                    yield MovedEntry(*key, entry.flags, offset, entry.tag_hash, entry.time_ms)

    def _move_history(self, segment: Segment, delivery_id: int, now_ms: int) -> int:
        delivery = self._state.leases.deliveries.get(delivery_id)
        if delivery is None or not segment.base < delivery.first_attempt < segment.end:
            return LOOK_COST
        self._attempts.carry(delivery, now_ms)
        self.histories_moved += 1
        return RECORD_COST
