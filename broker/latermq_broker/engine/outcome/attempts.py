"""How an attempt ends when it is not acknowledged: back to the group, or to the dead letters."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from latermq_broker.delivery.failure import Failure, signature
from latermq_broker.delivery.filters.filter import hash64
from latermq_broker.delivery.history import (
    Attempt,
    History,
    Outcome,
    decode_history,
    encode_history,
    last_failure,
)
from latermq_broker.delivery.leases.lease import Delivery, State
from latermq_broker.delivery.retry import backoff_ms
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.state.group_flow import CLIENT_GONE, LEASE_EXPIRED, NOT_TOLD
from latermq_broker.engine.state.letter_states import letters_of
from latermq_broker.engine.state.model import Group, OnDead, Topic
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import CorruptRecordError
from latermq_broker.schedule.levels import level_ms
from latermq_broker.store.records.lease_records import (
    GIVEN_BACK,
    AttemptPayload,
    decode_attempt,
)
from latermq_broker.store.records.letter_records import (
    DEAD_EXHAUSTED,
    DEAD_FILTERED,
    DEAD_ORDERED,
    DEAD_PARKS,
    DEAD_PRIORITY,
    DEAD_REASONS,
    REDRIVES_MAX,
    DeadHead,
    DeadPayload,
    dead_order_key,
    dead_priority,
    dead_slices,
    decode_dead_head,
)
from latermq_broker.store.records.message_fields import message_id
from latermq_broker.store.records.message_records import (
    NO_PRIORITY,
    decode_message_head,
    message_order_key,
    message_priority,
    message_slices,
)
from latermq_broker.store.records.record import Record, RecordType
from latermq_broker.store.records.retention_records import MOVE_HISTORY, MovePayload, decode_move
from latermq_text.attempts import UNLIMITED

HISTORY_BYTES_MAX: Final = 40 << 10  # fits beside properties in config.RECORD_BODY_OVERHEAD_BYTES
LONG_AGO_MS: Final = 1  # not 0, and before all that a clock says

DeadLetterTopic = Callable[[Group, int], Topic]


def stored_slices(record: Record) -> tuple[bytes, bytes]:
    """Return (rest, sys) of the MESSAGE or DEAD record that holds a message."""
    if record.type is RecordType.DEAD:
        return dead_slices(record.payload)[1:]
    return message_slices(record.payload)


def stored_id_hash(record: Record) -> int:
    """Return the hash of the message id that a MESSAGE or DEAD record holds."""
    if record.type is RecordType.DEAD:
        return decode_dead_head(record.payload).id_hash
    return decode_message_head(record.payload).id_hash


def has_id(record: Record, wanted: str) -> bool:
    """Tell whether the record is the message of that id: two ids may have one hash."""
    if stored_id_hash(record) != hash64(wanted):
        return False
    return message_id(stored_slices(record)[1]) in (wanted, "")


def stored_order_key(record: Record) -> int:
    """Return the hash of a stored message's message group's name; 0: of none."""
    if record.type is RecordType.DEAD:
        return dead_order_key(record.payload)
    return message_order_key(record.payload)


def stored_priority(record: Record) -> int:
    """Return the priority of a stored message; NO_PRIORITY: it was sent without one."""
    if record.type is RecordType.DEAD:
        return dead_priority(record.payload)
    return message_priority(record.payload)


def queue_for(state: EngineState, topic: Topic, record: Record) -> int:
    """Pick the queue that a stored message enters: by message group, by priority or in turn."""
    return state.turns.next_queue(topic, stored_order_key(record), stored_priority(record))


# The class that a failure is counted as where its consumer named none.
WITHOUT_CLASS: Final[Mapping[Outcome, str]] = {
    Outcome.EXPIRED: LEASE_EXPIRED,
    Outcome.CLIENT_GONE: CLIENT_GONE,
}


class _Ending(NamedTuple):
    """How an attempt ended, and what follows."""

    outcome: Outcome
    wait_ms: int = 0  # before the next one
    failure: Failure | None = None


class Attempts:
    def __init__(
        self, state: EngineState, journal: Journal, dead_letter_topic: DeadLetterTopic
    ) -> None:
        self._state = state
        self._journal = journal
        self._dead_letter_topic = dead_letter_topic

    def expire(self, delivery: Delivery, now_ms: int, *, client_gone: bool) -> None:
        """End a lease that ran out: the message is receivable again at once, or dead.

        `client_gone`: the client could not answer any more.
        """
        ending = _Ending(Outcome.CLIENT_GONE if client_gone else Outcome.EXPIRED)
        self._end(delivery, ending, now_ms)

    def nack(
        self,
        delivery: Delivery,
        asked_ms: int,
        failure: Failure | None,
        now_ms: int,
        *,
        insists: bool = False,
    ) -> None:
        """End a failed attempt: the group's policy decides the wait, else `asked_ms`; or dead.

        `insists`: the consumer knows better when it is worth another attempt.

        No wait and no word of why is a push client that cannot read the policy it was given
        (Node.js up to 1.0.8): the broker's ladder holds then.
        """
        wait_ms = asked_ms
        has_policy = self._group(delivery).backoff is not None
        if not insists and (has_policy or (not asked_ms and failure is None)):
            wait_ms = self.wait_ms(delivery)
        self._end(delivery, _Ending(Outcome.NACK, wait_ms, failure), now_ms)

    def wait_ms(self, delivery: Delivery) -> int:
        """Compute the wait before its next attempt: the group's, or else by the broker's ladder."""
        backoff = self._group(delivery).backoff
        if backoff is not None:
            return backoff_ms(backoff, delivery.attempt, delivery.position)
        return level_ms(delivery.attempt, self._state.config.delivery.retry_ladder_ms)

    def suspend(self, delivery: Delivery, wait_ms: int, now_ms: int) -> None:
        """Give a message back: receivable after `wait_ms`, the attempt does not count."""
        self._write(delivery, _Ending(Outcome.SUSPENDED, wait_ms), now_ms)

    def acknowledge_in_order(self, ids: Sequence[int], now_ms: int) -> None:
        """Acknowledge as RocketMQ does: what stands behind one that is not waits for that one.

        Each of its message group is given again with it, or done when nothing is before it.
        """
        following = self._following(frozenset(ids))
        done = tuple(delivery_id for delivery_id in ids if delivery_id not in following)
        items: list[tuple[RecordType, Any]] = [(RecordType.ACK, done)] if done else []
        for delivery_id in sorted(following):
            delivery = self._state.leases.deliveries[delivery_id]
            payload = _payload(delivery, _Ending(Outcome.ACKNOWLEDGED), now_ms)
            items.append((RecordType.ATTEMPT, payload))
        self._journal.write_group(items, now_ms)

    def _following(self, acked: frozenset[int]) -> frozenset[int]:
        """Find those that stand behind one of their message group that is not acknowledged."""
        deliveries = self._state.leases.deliveries
        places = {(d.group_id, d.topic_id, d.order_key) for d in map(deliveries.__getitem__, acked)}
        following: list[int] = []
        for group_id, topic_id, key in places:
            if not key:
                continue
            behind = False
            for _, delivery_id in (
                self._state.subscription(group_id, topic_id).ordered().groups[key].live
            ):
                if delivery_id not in acked:
                    behind = behind or deliveries[delivery_id].state is not State.ACKED
                elif behind:
                    following.append(delivery_id)
        return frozenset(following)

    def exhaust(self, delivery: Delivery, now_ms: int) -> None:
        """Bury a message without attempts left before its next lease (the policy was tightened)."""
        self._bury(delivery, DEAD_EXHAUSTED, None, now_ms)

    def filter_out(self, delivery: Delivery, now_ms: int) -> None:
        """End what no receive wants any more: a dead letter, or, never given to anyone, consumed.

        It stops nobody: what parks a message group is a failure.
        """
        if not self.ready_since_ms(delivery):
            self._journal.write(RecordType.ACK, (delivery.id,), now_ms)
        else:
            self._bury(delivery, DEAD_FILTERED, None, now_ms)

    def ready_since_ms(self, delivery: Delivery) -> int:
        """Tell when its lease or its wait ended, or when it was redriven; 0: it was never given.
        LONG_AGO_MS: its letter is gone, and with it when that was."""
        if delivery.deadline_ms or not delivery.redrive:
            return delivery.deadline_ms
        try:
            record = self._state.read(delivery.position)
        except CorruptRecordError:
            return 0
        if record.type is not RecordType.DEAD:
            return 0
        head = decode_dead_head(record.payload)
        letters = letters_of(self._state.dead, head.dlq_topic_id)
        _, since_ms = letters.get(head.queue_offset) or (None, LONG_AGO_MS)
        return since_ms

    def forward(
        self, delivery: Delivery, reason: int, failure: Failure | None, now_ms: int
    ) -> None:
        """Bury what the consumer gives up on: `reason` is DEAD_FORWARDED or DEAD_REJECTED.

        Of one that it gave back before no attempt runs: the one that it told of is the last.
        """
        last = None
        if delivery.state is State.LEASED:
            rejected = failure is not None and failure.rejected
            outcome = Outcome.REJECTED if rejected else Outcome.FORWARDED
            ending = _Ending(outcome, failure=failure)
            self._count(delivery, ending, now_ms)
            last = _attempt(delivery, ending, now_ms)
        self._bury(delivery, reason, last, now_ms)

    def timeline(self, delivery: Delivery) -> list[Attempt]:
        """List ended attempts of this life, oldest first; as many as are kept, the newest."""
        state = self._state
        attempts: list[Attempt] = []
        position = delivery.last_attempt
        while position and len(attempts) < state.config.delivery.history_attempts_max:
            try:
                record = state.read(position)
            except CorruptRecordError:
                break
            if record.type is RecordType.MOVE:
                carried = decode_history(bytes(decode_move(record.payload).inner)).attempts
                attempts += reversed(carried)
                break
            if record.type is not RecordType.ATTEMPT:  # no broker of ours wrote that
                break
            ended = decode_attempt(record.payload)
            attempts.append(
                Attempt(
                    attempt=ended.attempt,
                    started_ms=record.store_ms - ended.duration_ms,
                    ended_ms=record.store_ms,
                    client_id=state.clients.name(ended.client),
                    outcome=Outcome(ended.outcome),
                    failure=None if ended.failure is None else Failure(*ended.failure),
                    backoff_ms=ended.backoff_ms,
                )
            )
            position = ended.previous
        del attempts[state.config.delivery.history_attempts_max :]
        attempts.reverse()
        return attempts

    def carry(self, delivery: Delivery, now_ms: int) -> None:
        """Write its attempts so far anew, in one record: their segments are to go."""
        history = History("", "", "", "", tuple(self.timeline(delivery)))
        payload = MovePayload(
            kind=MOVE_HISTORY,
            type=RecordType.ATTEMPT,
            old_length=0,
            old=delivery.first_attempt,
            first=0,
            due_ms=0,
            stored_ms=0,
            ids=(delivery.id,),
            entries=(),
            inner=_fit(history, self._state.config.delivery.history_attempts_max),
        )
        self._journal.write(RecordType.MOVE, payload, now_ms)

    def _end(self, delivery: Delivery, ending: _Ending, now_ms: int) -> None:
        self._state.figures.attempts_failed += 1
        self._count(delivery, ending, now_ms)
        if delivery.attempt >= self._group(delivery).max_attempts:
            last = _attempt(delivery, ending._replace(wait_ms=0), now_ms)
            self._bury(delivery, DEAD_EXHAUSTED, last, now_ms)
        else:
            self._write(delivery, ending, now_ms)

    def _count(self, delivery: Delivery, ending: _Ending, now_ms: int) -> None:
        """Count an attempt that failed, for whoever watches its group."""
        subscription = self._state.subscription(delivery.group_id, delivery.topic_id)
        lasted_ms = max(0, now_ms - delivery.leased_ms)
        without = WITHOUT_CLASS.get(ending.outcome, NOT_TOLD)
        subscription.flowing().fail(ending.failure, lasted_ms, now_ms, without)

    def _write(self, delivery: Delivery, ending: _Ending, now_ms: int) -> None:
        self._journal.write(RecordType.ATTEMPT, _payload(delivery, ending, now_ms), now_ms)

    def _bury(self, delivery: Delivery, reason: int, last: Attempt | None, now_ms: int) -> None:
        """Write one atomic record: over for the group, and in %DLQ%group with its whole life."""
        state = self._state
        group = self._group(delivery)
        topic = state.catalog.topic_by_id(delivery.topic_id)
        assert topic is not None  # deleting a topic drops its deliveries
        try:
            record = state.read(delivery.position)
        except CorruptRecordError as error:
            state.damaged.give_up(error)
            self._journal.write(RecordType.ACK, (delivery.id,), now_ms)
            return
        attempts = self.timeline(delivery)
        if last is not None:
            attempts.append(last)
        earlier, redrive_count, redriven_ms = self._earlier_lives(delivery, record)
        lives = [attempt._replace(life=redrive_count + 1) for attempt in attempts]
        failure = last_failure(lives)
        history = History(
            origin_topic=topic.name,
            group=group.name,
            reason=DEAD_REASONS[reason],
            signature=signature(failure),
            attempts=(*earlier, *lives),
        )
        rest, sys = stored_slices(record)
        order_key = stored_order_key(record)
        priority = stored_priority(record)
        flags = DEAD_ORDERED if order_key else 0
        if priority != NO_PRIORITY:
            flags |= DEAD_PRIORITY
        parks = group.on_dead is OnDead.PARK and reason != DEAD_FILTERED
        if delivery.order_key and parks:
            flags |= DEAD_PARKS
        dlq = self._dead_letter_topic(group, now_ms)
        message = delivery.origin
        head = DeadHead(
            id=delivery.id,
            origin=delivery.position,
            queue_offset=state.queue(dlq.id, 0).next,
            origin_offset=message.offset,
            tag_hash=delivery.tag_hash,
            id_hash=stored_id_hash(record),
            group_id=group.id,
            dlq_topic_id=dlq.id,
            origin_topic_id=message.topic_id,
            origin_queue_id=message.queue_id,
            attempt_count=delivery.attempt,
            max_attempts=0 if group.max_attempts == UNLIMITED else group.max_attempts,
            redrive_count=redrive_count,
            reason=reason,
            flags=flags,
            redriven_ms=redriven_ms,
            history_length=0,
            rest_length=0,
            sys_length=0,
        )
        fitted = _fit(history, state.config.delivery.history_attempts_max)
        payload = DeadPayload(head, fitted, rest, sys, order_key, priority)
        self._journal.write(RecordType.DEAD, payload, now_ms)
        state.figures.dead_letters += 1
        state.subscription(delivery.group_id, delivery.topic_id).flowing().dead += 1

    def _earlier_lives(
        self, delivery: Delivery, record: Record
    ) -> tuple[tuple[Attempt, ...], int, int]:
        """Return (attempts before, redrives so far, last redrive) of what was dead before."""
        if record.type is not RecordType.DEAD:
            return (), 0, 0
        before = decode_dead_head(record.payload)
        if not delivery.redrive and before.dlq_topic_id == delivery.topic_id:
            return (), 0, 0  # a reader of that dead-letter topic has it: it lived for another group
        attempts = decode_history(dead_slices(record.payload)[0]).attempts
        letters = letters_of(self._state.dead, before.dlq_topic_id)
        _, redriven_ms = letters.get(before.queue_offset) or (None, 0)
        return attempts, min(before.redrive_count + 1, REDRIVES_MAX), redriven_ms

    def _group(self, delivery: Delivery) -> Group:
        group = self._state.catalog.group_by_id(delivery.group_id)
        assert group is not None  # deleting a group drops its deliveries
        return group


def _payload(delivery: Delivery, ending: _Ending, now_ms: int) -> AttemptPayload:
    failure = ending.failure
    return AttemptPayload(
        previous=delivery.last_attempt,
        id=delivery.id,
        client=delivery.client,
        duration_ms=max(0, now_ms - delivery.leased_ms),
        attempt=delivery.attempt,
        outcome=ending.outcome,
        backoff_ms=ending.wait_ms,
        failure=None if failure is None else failure[:4],
        generation=delivery.generation if ending.outcome in GIVEN_BACK else 0,
    )


def _attempt(delivery: Delivery, ending: _Ending, now_ms: int) -> Attempt:
    return Attempt(
        attempt=delivery.attempt,
        started_ms=delivery.leased_ms,
        ended_ms=now_ms,
        client_id=delivery.client_id,
        outcome=ending.outcome,
        failure=ending.failure,
        backoff_ms=ending.wait_ms,
    )


def _fit(history: History, attempts_max: int) -> bytes:
    """Encode within HISTORY_BYTES_MAX: old stacks go first, then old texts, then old attempts."""
    attempts = list(history.attempts[-attempts_max:])
    body = _encode(history, attempts)
    for text_kept in (True, False):
        for index, attempt in enumerate(attempts):
            if len(body) <= HISTORY_BYTES_MAX:
                return body
            if attempt.failure is not None:
                text = attempt.failure.text if text_kept else ""
                shorter = attempt.failure._replace(stack="", text=text)
                attempts[index] = attempt._replace(failure=shorter)
                body = _encode(history, attempts)
    while len(body) > HISTORY_BYTES_MAX and attempts:
        del attempts[0]
        body = _encode(history, attempts)
    return body


def _encode(history: History, attempts: list[Attempt]) -> bytes:
    return encode_history(
        History(
            origin_topic=history.origin_topic,
            group=history.group,
            reason=history.reason,
            signature=history.signature,
            attempts=tuple(attempts),
        )
    )
