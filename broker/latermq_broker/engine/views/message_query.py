"""Finding messages: by id, by key, by the time they came in. Read only; a bounded look per call.

By id and key the index leads to candidates, the newest first, and each is compared; a caller goes
on with the cursor until it is 0. By time a topic's queues are merged in the order of time: what
still waits for its delivery time is in no queue yet, and is found by id, by key and by `pending`.
"""

from collections.abc import Callable, Iterator
from heapq import merge
from itertools import islice
from typing import Final, NamedTuple

from latermq_broker.delivery.filters.filter import hash64
from latermq_broker.delivery.history import decode_outline
from latermq_broker.engine.outcome.attempts import stored_id_hash, stored_slices
from latermq_broker.engine.state.model import Topic
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import CorruptRecordError
from latermq_broker.store.derived.consume_queue import ConsumeQueue, Entry
from latermq_broker.store.derived.message_index_block import key_hash
from latermq_broker.store.records.letter_records import dead_slices, decode_dead_head
from latermq_broker.store.records.message_fields import message_keys
from latermq_broker.store.records.message_records import decode_message_head
from latermq_broker.store.records.record import Record, RecordType
from latermq_broker.store.records.retention_records import first_position, original

FROM_THE_END: Final = 1 << 63  # a cursor above every position
FOUND_MAX: Final = 32  # candidates one call reads
BLOCKS_MAX: Final = 32  # index blocks one call looks into
_SCAN_ROWS: Final = 64


class Found(NamedTuple):
    """One message. `position` is where its record stands now, `first_position` where it stood when
    it was sent: two finds of one message have the same."""

    topic: str
    position: int
    first_position: int
    queue_id: int  # -1: it was delayed or half, and is not looked up in its queue here
    queue_offset: int
    stored_ms: int
    due_ms: int  # when a delayed one was to be delivered; 0
    half: bool  # sent in a transaction, committed or not
    origin_topic: str  # of a dead letter
    rest: bytes
    sys: bytes


class TimeCursor(NamedTuple):
    """The last message of a page by time."""

    time_ms: int
    queue_id: int
    offset: int


class MessageQuery:
    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._index = state.store.index

    def by_id(
        self,
        message_id: str,
        topic_name: str = "",
        below: int = FROM_THE_END,
        *,
        damaged: set[int] | None = None,
    ) -> tuple[list[Found], int]:
        """Find (messages with the id, in the topic if one is named; cursor to go on with, or 0).

        Ids need not be unique, and a dead letter has that of its message.
        Args:
            damaged: gets the positions of those that cannot be read; by their hash they are meant,
                whatever their topic and time.
        Raises TopicNotFoundError, IndexRebuildingError.
        """
        topic = self._state.catalog.require_topic(topic_name) if topic_name else None
        wanted = hash64(message_id)

        def matches(record: Record, topic_id: int) -> bool:
            in_topic = topic is None or topic_id == topic.id
            return in_topic and stored_id_hash(record) == wanted

        return self._find(wanted, below, matches, damaged=damaged)

    def by_key(
        self,
        topic_name: str,
        key: str,
        begin_ms: int = 0,
        end_ms: int = 0,
        below: int = FROM_THE_END,
        *,
        damaged: set[int] | None = None,
    ) -> tuple[list[Found], int]:
        """Find (messages with the key in the topic, stored from begin to end, inclusive; cursor).

        Both are times of day; `end_ms` 0: no end. `damaged` and errors as `by_id`.
        """
        wall = self._state.wall
        topic = self._state.catalog.require_topic(topic_name)
        wanted = hash64(key)

        def matches(record: Record, topic_id: int) -> bool:
            return (
                topic_id == topic.id
                and _within(wall.time_of_day(record.store_ms), begin_ms, end_ms)
                and wanted in _key_hashes(record)
            )

        own_ms = wall.first_at(begin_ms)
        return self._find(key_hash(topic.id, wanted), below, matches, own_ms, damaged)

    def by_time(
        self,
        topic_name: str,
        begin_ms: int,
        end_ms: int,
        after: TimeCursor | None = None,
        count_max: int = FOUND_MAX,
        *,
        damaged: set[int] | None = None,
    ) -> tuple[list[Found], TimeCursor | None]:
        """Find (what entered the topic's queues from begin to end, inclusive, in order; cursor).

        Both are times of day; `end_ms` 0: no end. `damaged` as `by_id`. Raises TopicNotFoundError.
        """
        topic = self._state.catalog.require_topic(topic_name)
        rows = merge(
            *(
                self._entries(topic, queue_id, begin_ms, end_ms, after)
                for queue_id in range(topic.queue_count)
            )
        )
        messages: list[Found] = []
        last: TimeCursor | None = None
        for looked, (time_ms, queue_id, offset, entry) in enumerate(islice(rows, count_max + 1)):
            if looked == count_max:
                return messages, last
            last = TimeCursor(time_ms, queue_id, offset)
            try:
                stored = self._state.store.log.read(entry.position)
            except CorruptRecordError as error:
                self._give_up(error, damaged)
                continue
            message = self._summary(topic, stored)
            messages.append(message._replace(queue_id=queue_id, queue_offset=offset))
        return messages, None

    def _entries(
        self, topic: Topic, queue_id: int, begin_ms: int, end_ms: int, after: TimeCursor | None
    ) -> Iterator[tuple[int, int, int, Entry]]:
        queue = self._state.queue(topic.id, queue_id)
        wall = self._state.wall
        last_ms = wall.last_at(end_ms) if end_ms else FROM_THE_END
        offset = _first_offset(queue, wall.first_at(begin_ms), after)
        while True:
            entries = queue.scan(offset, _SCAN_ROWS)
            for entry in entries:
                if entry.time_ms > last_ms:
                    return
                if _within(
                    wall.time_of_day(entry.time_ms), begin_ms, end_ms
                ):  # the clock was set back
                    yield entry.time_ms, queue_id, offset, entry
                offset += 1
            if len(entries) < _SCAN_ROWS:
                return

    def _give_up(self, error: CorruptRecordError, damaged: set[int] | None) -> None:
        self._state.damaged.give_up(error)
        if damaged is not None:
            damaged.add(error.position)

    def _find(
        self,
        hash: int,
        below: int,
        matches: Callable[[Record, int], bool],
        begin_ms: int = 0,
        damaged: set[int] | None = None,
    ) -> tuple[list[Found], int]:
        positions, cursor = self._index.find(
            hash, below, count_max=FOUND_MAX, blocks_max=BLOCKS_MAX
        )
        messages: dict[int, Found] = {}
        for position in positions:
            try:
                stored = self._state.store.log.read(position)
            except CorruptRecordError as error:
                self._give_up(error, damaged)
                continue
            if stored.store_ms < begin_ms:  # and so is all that stands before it
                return list(messages.values()), 0
            record = original(stored)
            topic_id = _topic_id(record)
            topic = self._state.catalog.topic_by_id(topic_id)
            if topic is not None and matches(record, topic_id):
                message = self._summary(topic, stored)
                messages.setdefault(message.first_position, message)  # the newest of its places
        return list(messages.values()), cursor

    def _summary(self, topic: Topic, stored: Record) -> Found:
        record = original(stored)
        half = record.type is RecordType.HALF
        rest, sys = stored_slices(record)
        queue_id, offset, due_ms, origin_topic = 0, 0, 0, ""
        if record.type is RecordType.DEAD:
            offset = decode_dead_head(record.payload).queue_offset
            origin_topic = decode_outline(dead_slices(record.payload)[0]).origin_topic
        else:
            head = decode_message_head(record.payload)
            queue_id, offset = head.queue_id, head.queue_offset
            if offset < 0:
                queue_id, due_ms = -1, head.due_ms
        return Found(
            topic=topic.name,
            position=stored.position,
            first_position=first_position(stored),
            queue_id=queue_id,
            queue_offset=offset,
            stored_ms=record.store_ms,
            due_ms=0 if half else due_ms,
            half=half,
            origin_topic=origin_topic,
            rest=rest,
            sys=sys,
        )


def _within(at_ms: int, begin_ms: int, end_ms: int) -> bool:
    return begin_ms <= at_ms and (not end_ms or at_ms <= end_ms)


def _first_offset(queue: ConsumeQueue, begin_ms: int, after: TimeCursor | None) -> int:
    if after is None:
        return queue.offset_at(begin_ms)
    if queue.queue_id == after.queue_id:
        return max(queue.first, after.offset + 1)
    return queue.offset_at(after.time_ms + (queue.queue_id < after.queue_id))


def _topic_id(record: Record) -> int:
    if record.type is RecordType.DEAD:
        return decode_dead_head(record.payload).dlq_topic_id
    return decode_message_head(record.payload).topic_id


def _key_hashes(record: Record) -> tuple[int, ...]:
    if record.type is RecordType.DEAD:
        return tuple(map(hash64, message_keys(dead_slices(record.payload)[2])))
    return decode_message_head(record.payload).key_hashes
