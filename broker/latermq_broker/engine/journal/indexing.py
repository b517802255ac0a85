"""What queues and the message index hold of records, live, in replay and when a gap is filled.

A message, half ones too, is found by its id and, with its topic, by each of its keys; a letter
likewise, in its dead-letter topic; one that was rolled forward also where it stands now.
"""

from typing import Final, Protocol

from latermq_broker.delivery.filters.filter import hash64
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import CorruptRecordError
from latermq_broker.store.derived.consume_queue import Entry
from latermq_broker.store.derived.message_index import Gap, MessageIndex
from latermq_broker.store.log.segment import SEGMENT_HEADER_BYTES
from latermq_broker.store.records.letter_records import DeadPayload, decode_dead
from latermq_broker.store.records.message_fields import message_keys
from latermq_broker.store.records.message_records import (
    MessageHead,
    MessagePayload,
    decode_message_head,
)
from latermq_broker.store.records.record import HEADER_BYTES, Record, RecordType
from latermq_broker.store.records.retention_records import MOVE_MESSAGE, MovePayload, decode_move

MESSAGE_TYPES: Final = frozenset({RecordType.MESSAGE, RecordType.HALF})
STEP_RECORDS: Final = 200
STEP_BYTES: Final = 1 << 20
STEP_MS: Final = 5  # between two slices of work
WAIT_MS: Final = 1_000  # until a checkpoint has made room
MISSING_ENTRIES_MAX: Final = 1 << 20  # made up at the begin of a queue; more, and it begins later


class Fillable(Protocol):
    """The index, or one gap of it."""

    def add(
        self, position: int, id_hash: int, topic_id: int, key_hashes: tuple[int, ...]
    ) -> None: ...


def enqueue(state: EngineState, topic_id: int, queue_id: int, entry: Entry, offset: int) -> None:
    """Append the entry to its queue, at that offset."""
    queue = state.store.queue(topic_id, queue_id)
    if queue.next != offset:
        reach(state, topic_id, queue_id, offset, entry.time_ms)
        assert queue.next == offset
    queue.append(entry)
    if entry.flags:
        state.uses.refer(entry.position, (topic_id, queue_id), offset)
    state.announced.topics.add(topic_id)


def reach(state: EngineState, topic_id: int, queue_id: int, offset: int, time_ms: int) -> None:
    """Bring the queue's next offset to at least this, in replay, though the entries before it
    are not known. They were in dropped segments, or their records are lost.

    Raises ValueError: no log of this length can have told of so many.
    """
    queue = state.queue(topic_id, queue_id)
    missing = offset - queue.next
    if missing <= 0:
        return
    if offset > state.store.log.segments[-1].end // HEADER_BYTES:
        raise ValueError(f"queue offset {offset}: the log never held so many records")
    if not queue.next and (state.store.dropped.headless or missing > MISSING_ENTRIES_MAX):
        queue.begin_at(offset)
        return
    assert state.lost_at, "every entry of a queue has its record"
    for _ in range(missing):
        queue.append(Entry(state.lost_at, 0, 0, 0, 0, time_ms))
    assert queue.next == offset


def index_message(index: Fillable, message: MessagePayload | MessageHead, position: int) -> None:
    index.add(position, message.id_hash, message.topic_id, message.key_hashes)


def index_letter(index: Fillable, dead: DeadPayload, position: int) -> None:
    keys = tuple(map(hash64, message_keys(dead.sys)))
    index.add(position, dead.head.id_hash, dead.head.dlq_topic_id, keys)


def index_moved(index: Fillable, move: MovePayload, position: int) -> None:
    if move.type in MESSAGE_TYPES:
        index_message(index, decode_message_head(move.inner), position)
    elif move.type == RecordType.DEAD:
        index_letter(index, decode_dead(move.inner), position)


def _index_record(index: Fillable, record: Record) -> None:
    if record.type in MESSAGE_TYPES:
        index_message(index, decode_message_head(record.payload), record.position)
    elif record.type is RecordType.DEAD:
        index_letter(index, decode_dead(record.payload), record.position)
    elif record.type is RecordType.MOVE:
        move = decode_move(record.payload)
        if move.kind == MOVE_MESSAGE:
            index_moved(index, move, record.position)


class _GapFill:
    def __init__(self, index: MessageIndex, gap: Gap) -> None:
        self._index = index
        self._gap = gap

    def add(self, position: int, id_hash: int, topic_id: int, key_hashes: tuple[int, ...]) -> None:
        self._index.fill(self._gap, position, id_hash, topic_id, key_hashes)


class IndexRebuild:
    """Fills the gaps of the index from the log, a bounded slice per tick, the newest gap first."""

    def __init__(self, state: EngineState) -> None:
        self._log = state.store.log
        self._index = state.store.index
        self._give_up = state.damaged.give_up
        self._next_ms = 0
        self._in_slice = False
        self._records = self._size = 0  # of the slice under way

    def next_deadline_ms(self) -> int | None:
        return self._next_ms if self._index.gaps else None

    def part(self, now_ms: int) -> bool:
        """Index the next record of a slice, or the first if it is time for one; other work may
        come between two.

        Returns:
            Whether the slice goes on.
        """
        if not self._in_slice:
            if not self._index.gaps or now_ms < self._next_ms:
                return False
            if self._index.wants_room:
                self._next_ms = now_ms + WAIT_MS
                return False
            self._next_ms = now_ms + STEP_MS
            self._records = self._size = 0
        self._in_slice = False
        if not self._index.gaps:
            return False
        gap = max(self._index.gaps, key=lambda gap: gap.low)
        gap.at = max(gap.at, self._log.start)
        if gap.at > gap.high or gap.at >= self._log.end:
            self._index.filled(gap)
            return False
        self._size += self._take(gap, _GapFill(self._index, gap))
        self._records += 1
        self._in_slice = self._records < STEP_RECORDS and self._size < STEP_BYTES
        return self._in_slice

    def _take(self, gap: Gap, fill: _GapFill) -> int:
        """Index the record at `gap.at` and step past it; return its length, 0: it is damaged."""
        try:
            record = self._log.read(gap.at)
        except CorruptRecordError as error:  # where the next one begins, nobody knows
            self._give_up(error)
            gap.at = self._next_segment(gap.at)
            return 0
        _index_record(fill, record)
        blank = record.type is RecordType.BLANK
        gap.at = self._next_segment(gap.at) if blank else record.next_position
        return record.length

    def _next_segment(self, position: int) -> int:
        segments = self._log.segments
        for segment in reversed(segments):
            if segment.base <= position:
                return segment.end + SEGMENT_HEADER_BYTES
        return segments[0].base + SEGMENT_HEADER_BYTES
