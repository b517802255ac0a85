"""A topic's queues, read without a lease: bulk readers, pull consumers, offsets."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.outcome.attempts import stored_slices
from latermq_broker.engine.outcome.dead_letters import DeadLetters
from latermq_broker.engine.receive.entry_filter import Filters
from latermq_broker.engine.state.letter_states import letters_of
from latermq_broker.engine.state.model import EVERYTHING, MessageFilter, QueueEnds, QueueRow, Topic
from latermq_broker.engine.state.state import (
    EngineState,
    Subscription,
    first_unread,
    lite_reader,
)
from latermq_broker.errors import (
    BadRequestError,
    CorruptRecordError,
    IllegalOffsetError,
    PreconditionFailedError,
)
from latermq_broker.store.derived.consume_queue import ConsumeQueue, Entry
from latermq_broker.store.log.read_ahead import read_ahead
from latermq_broker.store.records.catalog_records import OFFSET_REWIND, OFFSET_SKIP, OffsetPayload
from latermq_broker.store.records.letter_records import RedrivePayload, decode_dead_head
from latermq_broker.store.records.record import RecordType

PULL_SCAN_MAX: Final = 2_048  # entries one filtered pull looks at
HOLE_SCAN_MAX: Final = 2_048  # damaged entries in a row that one answer speaks of
REWOUND_REDRIVES_MAX: Final = 256  # in one atomic group, which has to fit into the smallest segment


class QueueReads:
    def __init__(self, state: EngineState, journal: Journal, dead: DeadLetters) -> None:
        self._state = state
        self._journal = journal
        self._dead = dead
        self._filters = Filters(state)

    def ends(self, topic_name: str, queue_id: int) -> QueueEnds:
        """Return the queue's ends. Raises TopicNotFoundError, BadRequestError (no such queue)."""
        queue = self._queue(self._state.catalog.require_topic(topic_name), queue_id)
        return QueueEnds(queue_id, queue.first, queue.next)

    def offset_at(self, topic_name: str, queue_id: int, time_ms: int) -> int:
        """Find the first offset stored at or after a time of day; the next one if none was."""
        topic = self._state.catalog.require_topic(topic_name)
        return self._queue(topic, queue_id).offset_at(self._state.wall.first_at(time_ms))

    def lives(self, topic_name: str, queue_id: int) -> list[tuple[int, int]]:
        """List (offset, life) of a queue, as `Lives.of_queue` does. Raises TopicNotFoundError."""
        topic = self._state.catalog.require_topic(topic_name)
        return self._state.lives.of_queue(self._queue(topic, queue_id))

    def read(
        self,
        topic_name: str,
        epoch: str,
        queue_id: int,
        start_offset: int,
        end_offset: int,
        *,
        rows_max: int,
        bytes_max: int,
        letters: bool = True,
    ) -> list[QueueRow]:
        """Read rows from `start_offset` up to `end_offset`, exclusive; at least one if there is.

        `letters` False: without dead letters' histories, which take most of the time.
        `epoch` empty: whichever. Raises TopicNotFoundError, BadRequestError (no such queue),
        PreconditionFailedError (another epoch), IllegalOffsetError (below the oldest, past the
        end).
        """
        topic = self._state.catalog.require_topic(topic_name)
        if epoch and epoch != topic.epoch:
            raise PreconditionFailedError(
                f"topic {topic_name} was made anew: epoch is {topic.epoch}, not {epoch}"
            )
        queue = self._queue(topic, queue_id)
        self._check(topic, queue, start_offset)
        rows: list[QueueRow] = []
        size = 0
        count = min(rows_max, end_offset - start_offset)
        entries = queue.scan(start_offset, count) if count > 0 else []
        self._read_ahead(entries)
        for index, entry in enumerate(entries):
            offset = start_offset + index
            size += entry.length
            if rows and size > bytes_max:
                break
            try:
                rows.append(self._row(topic, offset, entry, letters=letters))
            except CorruptRecordError as error:
                if not rows:  # who reads in bulk must know that rows are missing
                    self._state.damaged.note(error)
                    raise self._hole(queue, offset, topic_name) from error
                break
        return rows

    def _hole(self, queue: ConsumeQueue, offset: int, topic_name: str) -> IllegalOffsetError:
        """Find where it goes on behind what cannot be read at `offset`, or how far was looked."""
        readable = end = min(queue.next, offset + HOLE_SCAN_MAX)
        for index, entry in enumerate(queue.scan(offset, end - offset)):
            try:
                self._state.read(entry.position)
            except CorruptRecordError:
                continue
            readable = offset + index
            break
        return IllegalOffsetError(
            f"offsets {offset} to {readable - 1} of topic {topic_name}, queue {queue.queue_id} are "
            "damaged and lost",
            earliest_offset=readable,
            next_offset=queue.next,
        )

    def pull(
        self,
        topic_name: str,
        queue_id: int,
        offset: int,
        count_max: int,
        filter: MessageFilter = EVERYTHING,
        bytes_max: int = 1 << 62,
    ) -> tuple[list[QueueRow], int]:
        """Read (rows that match, the offset to go on from). No lease, no attempt.

        Args:
            bytes_max: of all rows together; a first one comes whatever its size.

        Raises TopicNotFoundError, BadRequestError, IllegalOffsetError.
        """
        topic = self._state.catalog.require_topic(topic_name)
        queue = self._queue(topic, queue_id)
        self._check(topic, queue, offset)
        entry_filter = self._filters.of(filter)
        rows: list[QueueRow] = []
        changed = letters_of(self._state.dead, topic.id) if topic.internal else None
        look_max = count_max if entry_filter is None and not changed else PULL_SCAN_MAX
        entries = queue.scan(offset, look_max)
        self._read_ahead(entries[:count_max])
        size = 0
        for entry in entries:
            if len(rows) == count_max or (entry_filter is not None and entry_filter.spent):
                break
            left = changed is not None and changed.get(offset) is not None  # dropped, or redriven
            if not left and (entry_filter is None or entry_filter(entry.tag_hash, entry.position)):
                size += entry.length
                if rows and size > bytes_max:
                    break
                try:
                    rows.append(self._row(topic, offset, entry, letters=True))
                except CorruptRecordError as error:
                    self._state.damaged.note(error)
            offset += 1
        return rows, offset

    def _read_ahead(self, entries: Sequence[Entry]) -> None:
        read_ahead(self._state.store.log, [(entry.position, entry.length) for entry in entries])

    def _row(self, topic: Topic, offset: int, entry: Entry, *, letters: bool) -> QueueRow:
        record = self._state.read(entry.position)
        if letters and topic.internal:
            letter = self._dead.row(topic, offset, entry, record)
            if letter is not None:
                return QueueRow(offset, entry.time_ms, letter.rest, letter.sys, letter)
        return QueueRow(offset, entry.time_ms, *stored_slices(record), None)

    def committed(self, group_name: str, topic_name: str, queue_id: int) -> int | None:
        """Find the oldest offset that the group was not given yet; None: it never read the queue.

        What a message group holds back was not given. Raises TopicNotFoundError,
        GroupNotFoundError, BadRequestError.
        """
        topic = self._state.catalog.require_topic(topic_name)
        self._queue(topic, queue_id)
        group = self._state.catalog.require_group(group_name)
        subscription = self._state.subscriptions.get((group.id, topic.id))
        if subscription is None:
            return None
        reader = lite_reader(self._state, subscription)
        if queue_id not in subscription.cursors and (reader is None or not reader.has_read):
            return None
        return first_unread(self._state, subscription, queue_id)

    def commit(
        self, group_name: str, topic_name: str, queue_id: int, offset: int, now_ms: int
    ) -> None:
        """Have the group go on at the offset, on that queue; that of `committed` changes nothing.

        Forwards: what it was not given below is skipped, what it has in hand stays. Backwards: it
        is given everything from there on anew; its leases and retries from there on are void. What
        was redriven into the topic, and is of one that had its name before, is at no offset of it:
        it is redriven again.
        Raises as `committed` does, and IllegalOffsetError; PreconditionFailedError (backwards,
        more than `REWOUND_REDRIVES_MAX` to redrive again): nothing has changed.
        """
        topic = self._state.catalog.require_topic(topic_name)
        queue = self._queue(topic, queue_id)
        group = self._state.catalog.require_group(group_name)
        self._check(topic, queue, offset)
        subscription = self._state.subscriptions.get((group.id, topic.id))
        if subscription is None or offset >= first_unread(self._state, subscription, queue_id):
            payload = OffsetPayload(group.id, topic.id, queue_id, offset, OFFSET_SKIP)
            self._journal.write(RecordType.OFFSET, payload, now_ms)
            return
        payload = OffsetPayload(group.id, topic.id, queue_id, offset, OFFSET_REWIND)
        redriven = self._redriven_from(subscription, queue_id, offset)
        again = list(islice(redriven, REWOUND_REDRIVES_MAX + 1))
        if len(again) > REWOUND_REDRIVES_MAX:
            raise PreconditionFailedError(
                f"group {group_name} has more than {REWOUND_REDRIVES_MAX} messages in hand that "
                f"were redriven from a former topic {topic_name}; acknowledge them first"
            )
        first_id = self._state.leases.next_id
        items = [
            (RecordType.REDRIVE, redrive._replace(id=first_id + index))
            for index, redrive in enumerate(again)
        ]
        self._journal.write_group([(RecordType.OFFSET, payload), *items], now_ms)

    def _redriven_from(
        self, subscription: Subscription, queue_id: int, offset: int
    ) -> Iterator[RedrivePayload]:
        """Yield redrives of what the group has in hand there of an earlier topic of that name."""
        if not any(subscription.counts.values()):
            return
        state, topic_id = self._state, subscription.topic_id
        for delivery in state.leases.of({(subscription.group_id, topic_id)}):
            if delivery.queue_id != queue_id or delivery.offset < offset:
                continue
            message = delivery.origin
            if message.topic_id == topic_id:
                continue
            head = decode_dead_head(state.read(delivery.position).payload)
            yield RedrivePayload(
                id=0,
                letter=delivery.position,
                letter_offset=head.queue_offset,
                tag_hash=delivery.tag_hash,
                origin_offset=message.offset,
                group_id=subscription.group_id,
                dlq_topic_id=head.dlq_topic_id,
                topic_id=topic_id,
                length=delivery.length,
                queue_id=queue_id,
                order_key=delivery.order_key,
                origin_topic_id=message.topic_id,
                origin_queue_id=message.queue_id,
                redrive=delivery.redrive,
            )

    def _queue(self, topic: Topic, queue_id: int) -> ConsumeQueue:
        if not 0 <= queue_id < topic.queue_count:
            raise BadRequestError(
                f"topic {topic.name} has queues 0 to {topic.queue_count - 1}, not {queue_id}"
            )
        return self._state.queue(topic.id, queue_id)

    def _check(self, topic: Topic, queue: ConsumeQueue, offset: int) -> None:
        if not queue.first <= offset <= queue.next:
            raise IllegalOffsetError(
                f"offset {offset} of topic {topic.name}, queue {queue.queue_id} is not within "
                f"{queue.first} (the oldest) to {queue.next} (the next)",
                earliest_offset=queue.first,
                next_offset=queue.next,
            )
