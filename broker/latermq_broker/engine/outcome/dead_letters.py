"""Dead letters: look at them with their whole life, send them back, drop them.

A letter's identity is its offset in `%DLQ%group`, queue 0. Long work is done in slices: `scan`
finds some matching letters, `redrive` and `drop` change them; the edge loops.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from latermq_broker.catalog.catalog import DLQ_PREFIX, consumer_group_of
from latermq_broker.delivery.filters.filter import hash64
from latermq_broker.delivery.history import Life, decode_outline
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.outcome.attempts import (
    queue_for,
    stored_id_hash,
    stored_order_key,
    stored_slices,
)
from latermq_broker.engine.state.letter_states import letters_of
from latermq_broker.engine.state.model import (
    DeadFilter,
    DeadLetter,
    DeadState,
    Group,
    Topic,
    TopicType,
)
from latermq_broker.engine.state.standing import in_hand, is_to_come, redrive_of
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import (
    BadRequestError,
    CorruptRecordError,
    GroupNotFoundError,
    MessageNotFoundError,
    PreconditionFailedError,
)
from latermq_broker.store.derived.consume_queue import Entry
from latermq_broker.store.records.letter_records import (
    DEAD_REASONS,
    DeadChangePayload,
    DeadHead,
    RedrivePayload,
    dead_slices,
    decode_dead_head,
)
from latermq_broker.store.records.message_fields import message_id, message_lite_topic
from latermq_broker.store.records.message_records import REF_REDRIVE, RefPayload
from latermq_broker.store.records.record import Record, RecordType

SCAN_MAX: Final = 1_000  # letters one call looks at
SENT: Final = "sent"  # the reason of what a producer sent to %DLQ%group: it did not die


class DeadSlice(NamedTuple):
    letters: tuple[DeadLetter, ...]
    scanned_count: int
    next_offset: int  # -1: the end was reached


class DeadLetters:
    def __init__(self, state: EngineState, journal: Journal) -> None:
        self._state = state
        self._journal = journal

    def scan(
        self,
        group: str,
        filter: DeadFilter,
        *,
        start_offset: int = -1,
        count_max: int = 100,
        newest_first: bool = False,
        scan_max: int = SCAN_MAX,
    ) -> DeadSlice:
        """Find up to `count_max` matching letters from `start_offset` on (-1: the first, in order).

        Looks at no more than `scan_max` letters: `letters` may be empty before the end is reached.
        Raises GroupNotFoundError.
        """
        topic = self._topic(group)
        if topic is None:
            return DeadSlice((), 0, -1)
        queue = self._state.queue(topic.id, 0)
        step = -1 if newest_first else 1
        offset = start_offset
        if offset < 0:
            offset = queue.next - 1 if newest_first else queue.first
        offset = max(offset, queue.first) if step > 0 else min(offset, queue.next - 1)
        id_hashes = frozenset(map(hash64, filter.message_ids))
        letters: list[DeadLetter] = []
        scanned = 0
        while queue.first <= offset < queue.next:
            if len(letters) >= count_max or scanned >= scan_max:
                return DeadSlice(tuple(letters), scanned, offset)
            try:
                letter = self._match(topic, offset, filter, id_hashes)
            except CorruptRecordError as error:
                self._state.damaged.note(error)
                letter = None
            if letter is not None:
                letters.append(letter)
            scanned += 1
            offset += step
        return DeadSlice(tuple(letters), scanned, -1)

    def get(self, group: str, queue_offset: int) -> DeadLetter:
        """Read the letter at that offset, in any state.

        Raises GroupNotFoundError, MessageNotFoundError.
        """
        topic = self._topic(group)
        if topic is not None:
            queue = self._state.queue(topic.id, 0)
            if queue.first <= queue_offset < queue.next:
                with _readable(queue_offset):
                    return self._letter(topic, queue_offset)
        raise MessageNotFoundError(f"no dead letter of group {group} with offset {queue_offset}")

    def row(self, topic: Topic, offset: int, entry: Entry, record: Record) -> DeadLetter | None:
        """Describe a letter whose record is at hand; None: somebody sent it to the %DLQ% topic."""
        if record.type is not RecordType.DEAD:
            return None
        return self._described(topic, offset, entry, record)

    def redrive(self, group: str, queue_offset: int, to_topic: str, now_ms: int) -> None:
        """Send it to the group it died in (`to_topic` empty), or to a topic for all its groups.

        The body is not written again. Raises GroupNotFoundError, MessageNotFoundError,
        PreconditionFailedError (not in state DEAD, or its group would never be given it, or has it
        already, or is given it anyway), TopicNotFoundError, BadRequestError.
        """
        state = self._state
        dlq = self._dead(group, queue_offset)
        entry = state.queue(dlq.id, 0).get(queue_offset)
        with _readable(queue_offset):
            record = state.read(entry.position)
        if to_topic:
            target = self._target(to_topic)
            if target.type is TopicType.LITE:
                raise BadRequestError(
                    f"{to_topic} has lite topics, and nothing says which: redrive it to its group"
                )
            queue_id = queue_for(state, target, record)
            ref = RefPayload(
                origin=entry.position,
                tag_hash=entry.tag_hash,
                queue_offset=state.queue(target.id, queue_id).next,
                due_ms=0,
                length=entry.length,
                topic_id=target.id,
                queue_id=queue_id,
                reason=REF_REDRIVE,
            )
            change = DeadChangePayload(dlq.id, DeadState.REDRIVEN, (queue_offset,))
            items = [(RecordType.DEAD_CHANGE, change), (RecordType.REF, ref)]
            self._journal.write_group(items, now_ms)
            return
        owner = state.catalog.require_group(group)
        if record.type is not RecordType.DEAD:
            raise BadRequestError(
                f"it was sent to {dlq.name} by a producer and was never the group's; redrive it "
                "to a topic"
            )
        head = decode_dead_head(record.payload)
        message, redrive = redrive_of(head)
        origin = state.catalog.topic_by_id(head.origin_topic_id)
        if origin is None:  # deleted; it may have been made anew
            origin = self._target(decode_outline(dead_slices(record.payload)[0]).origin_topic)
        _require_readable(owner, origin, head, record)
        order_key = stored_order_key(record)
        self._require_over(owner, origin, head, order_key)
        queue_id = head.origin_queue_id
        if origin.id != head.origin_topic_id:
            queue_id = queue_for(state, origin, record)  # it may have fewer, or of another meaning
        payload = RedrivePayload(
            id=state.leases.next_id,
            letter=entry.position,
            letter_offset=queue_offset,
            tag_hash=entry.tag_hash,
            origin_offset=message.offset,
            group_id=owner.id,
            dlq_topic_id=dlq.id,
            topic_id=origin.id,
            length=entry.length,
            queue_id=queue_id,
            order_key=order_key if owner.fifo else 0,
            origin_topic_id=message.topic_id,
            origin_queue_id=message.queue_id,
            redrive=redrive,
        )
        self._journal.write(RecordType.REDRIVE, payload, now_ms)
        state.subscription(owner.id, origin.id).flowing().redriven += 1

    def drop(self, group: str, queue_offsets: Sequence[int], now_ms: int) -> None:
        """Drop letters: no longer delivered to readers of %DLQ%group, nor listed as dead.

        Raises MessageNotFoundError, PreconditionFailedError; then nothing is dropped.
        """
        offsets = tuple(dict.fromkeys(queue_offsets))
        if not offsets:
            return
        letters = [self._dead(group, offset) for offset in offsets]
        change = DeadChangePayload(letters[0].id, DeadState.DROPPED, offsets)
        self._journal.write(RecordType.DEAD_CHANGE, change, now_ms)

    def _require_over(self, owner: Group, topic: Topic, head: DeadHead, order_key: int) -> None:
        """Check that the group would not have the message twice at a time, as its offset was set
        back since it died, or another letter of it redriven. Raises PreconditionFailedError."""
        message, _ = redrive_of(head)
        stands = topic.id == message.topic_id
        if stands and is_to_come(self._state, owner.id, *message, order_key):
            why = "is given this message anyway, at its offset"
        elif in_hand(self._state, owner.id, message, topic.id) is not None:
            why = "has this message in hand already"
        else:
            return
        raise PreconditionFailedError(f"group {owner.name} {why}: drop the letter")

    def _match(
        self, topic: Topic, offset: int, filter: DeadFilter, id_hashes: frozenset[int]
    ) -> DeadLetter | None:
        """Return the letter at `offset` if it passes; the cheap tests come first.

        Args:
            id_hashes: of the message ids that the filter names.
        """
        if filter.queue_offsets and offset not in filter.queue_offsets:
            return None
        if filter.state is not None and self._changed(topic, offset)[0] is not filter.state:
            return None
        entry = self._state.queue(topic.id, 0).get(offset)
        record = self._state.read(entry.position)
        if id_hashes:
            if stored_id_hash(record) not in id_hashes:
                return None
            own_id = message_id(stored_slices(record)[1])
            if own_id and own_id not in filter.message_ids:  # two ids may have one hash
                return None
        letter = self._described(topic, offset, entry, record)
        passes = (
            (not filter.reason or letter.reason == filter.reason)
            and letter.dead_ms >= filter.dead_after_ms
            and (not filter.dead_before_ms or letter.dead_ms < filter.dead_before_ms)
            and (not filter.signature or letter.signature == filter.signature)
            and (not filter.origin_topic or letter.origin_topic == filter.origin_topic)
            and (not filter.failure_class or _failure_class(letter) == filter.failure_class)
        )
        return letter if passes else None

    def _letter(self, topic: Topic, offset: int) -> DeadLetter:
        entry = self._state.queue(topic.id, 0).get(offset)
        return self._described(topic, offset, entry, self._state.read(entry.position))

    def _described(self, topic: Topic, offset: int, entry: Entry, record: Record) -> DeadLetter:
        state, changed_ms = self._changed(topic, offset)
        history = b""
        head: DeadHead | None = None
        if record.type is RecordType.DEAD:
            head = decode_dead_head(record.payload)
            history, rest, sys = dead_slices(record.payload)
        else:
            rest, sys = stored_slices(record)
        time_of_day = self._state.wall.time_of_day
        return DeadLetter(
            group=consumer_group_of(topic.name) or "",
            queue_offset=offset,
            origin_queue_id=head.origin_queue_id if head else -1,
            origin_offset=head.origin_offset if head else -1,
            reason=DEAD_REASONS.get(head.reason, "") if head else SENT,
            attempt_count=head.attempt_count if head else 0,
            max_attempts=head.max_attempts if head else 0,
            dead_ms=time_of_day(entry.time_ms),
            redrive_count=head.redrive_count if head else 0,
            redriven_ms=time_of_day(
                changed_ms if state is DeadState.REDRIVEN else (head.redriven_ms if head else 0)
            ),
            parks=(topic.id, offset) in self._state.parking,
            state=state,
            rest=rest,
            sys=sys,
            life=Life(history, time_of_day),
        )

    def _changed(self, topic: Topic, offset: int) -> tuple[DeadState, int]:
        return letters_of(self._state.dead, topic.id).get(offset) or (DeadState.DEAD, 0)

    def _dead(self, group: str, offset: int) -> Topic:
        """Return the dead-letter topic, once it is sure that the letter is there and dead."""
        topic = self._topic(group)
        queue = None if topic is None else self._state.queue(topic.id, 0)
        if topic is None or queue is None or not queue.first <= offset < queue.next:
            raise MessageNotFoundError(f"no dead letter of group {group} with offset {offset}")
        state, _ = self._changed(topic, offset)
        if state is not DeadState.DEAD:
            raise PreconditionFailedError(
                f"dead letter {offset} of group {group} was {state.name.lower()} already"
            )
        return topic

    def _target(self, name: str) -> Topic:
        target = self._state.catalog.require_topic(name)
        if target.internal:
            raise BadRequestError(f"{name} takes no redriven letters: it holds dead letters itself")
        return target

    def _topic(self, group: str) -> Topic | None:
        """Find the group's dead-letter topic; None before its first death.

        The letters of a deleted group stay readable. Raises GroupNotFoundError.
        """
        topic = self._state.catalog.topic(DLQ_PREFIX + group)
        if topic is None and self._state.catalog.group(group) is None:
            raise GroupNotFoundError(group)
        return topic


def _failure_class(letter: DeadLetter) -> str:
    failure = letter.failure
    return failure.class_name if failure is not None else ""


def _require_readable(owner: Group, origin: Topic, head: DeadHead, record: Record) -> None:
    """Check that what the group reads of the topic now is what this letter is. Raises
    PreconditionFailedError: the group, or the topic, was made anew."""
    if not owner.lite_parent:
        return
    why = ""
    if origin.name != owner.lite_parent:
        why = f"reads lite topics of {owner.lite_parent} now, not topic {origin.name}"
    elif origin.type is not TopicType.LITE:
        why = f"reads lite topics, and {origin.name} has none: it is of type {origin.type.name}"
    elif origin.id != head.origin_topic_id:
        name = message_lite_topic(dead_slices(record.payload)[2])
        if not name or hash64(name) != stored_order_key(record):
            why = f"reads lite topics of {origin.name}, and this letter is of none"
    if why:
        raise PreconditionFailedError(f"group {owner.name} {why}: redrive it to a topic")


@contextmanager
def _readable(offset: int) -> Iterator[None]:
    """Say of a damaged letter that it is one."""
    try:
        yield
    except CorruptRecordError as error:
        raise MessageNotFoundError(f"the dead letter at offset {offset} is lost: {error}") from None
