"""Transactions: half messages, their ends, and who is to be asked how they ended.

    send ─► HALF record ─┬─ EndTransaction ─► REF record: delivered   or   TXN record: never is
                         └─ first check due ─► waits for a producer ─asked─► TXN record: due again

The edge asks: it takes what waits from `waiting`, hands it to a producer that is there, and says so
with `asked`. Without a producer nothing is counted and nothing is written. After the last check a
half message is kept, to be seen, and ended by its producer or an operator, until it is too old.
"""

import logging
from collections.abc import Sequence
from itertools import islice

from latermq_broker.catalog.access import User
from latermq_broker.catalog.shares import Shares, key_of
from latermq_broker.delivery.filters.filter import hash64
from latermq_broker.delivery.halves import (
    ID_BITS_MASK,
    HalfEvent,
    HalfMessage,
    HalfState,
    after,
    parse_transaction_id,
    transaction_id,
)
from latermq_broker.engine.catalog.topics import TopicAdmin
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.outcome.attempts import queue_for, stored_slices
from latermq_broker.engine.state.model import OrphanCheck, Outgoing, Sent
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import (
    CorruptRecordError,
    InvalidTransactionIdError,
    StoreFullError,
    TooManyRequestsError,
)
from latermq_broker.store.records.message_records import (
    MESSAGE_ORDERED,
    QUEUE_UNSET,
    REF_COMMITTED,
    MessagePayload,
    RefPayload,
    decode_message_head,
)
from latermq_broker.store.records.record import RecordType
from latermq_broker.store.records.transaction_records import (
    CAUSE_DAMAGED,
    CAUSE_EXPIRED,
    CAUSE_NO_ROOM,
    CAUSE_PRODUCER,
    CAUSE_TOPIC_GONE,
    CAUSES,
    TXN_CHECKED,
    TXN_ROLLED_BACK,
    TxnPayload,
)

log = logging.getLogger("latermq.engine")


class Transactions:
    """See the module."""

    def __init__(self, state: EngineState, journal: Journal, topics: TopicAdmin) -> None:
        self._state = state
        self._journal = journal
        self._topics = topics
        self._config = state.config.transaction
        self._halves = state.halves
        self._shares = Shares(state.config.auth)

    def send(
        self, messages: Sequence[Outgoing], now_ms: int, user: User | None = None
    ) -> list[Sent]:
        """Store half messages of one topic, all or none.

        Args:
            user: who sends them.
        Raises TopicNotFoundError, StoreFullError, TooManyRequestsError (half_messages_max).
        """
        store = self._state.store
        store.disk.admit()
        name = messages[0].topic
        self._topics.planned(name, now_ms, user)  # who is refused makes none, nor any room
        self._shares.check(  # of what is open; the oldest make room for others
            user, "open transactions", "transaction.half_messages_max",
            self._config.half_messages_max, 0,
            self._halves.senders.get(key_of(user), 0) + len(messages) - 1,
        )  # fmt: skip
        self._make_room(len(messages), now_ms)
        topic = self._topics.ensure(name, now_ms, user)
        payloads = [
            MessagePayload(
                topic_id=topic.id,
                queue_id=QUEUE_UNSET,
                kind=MESSAGE_ORDERED if message.message_group else 0,
                queue_offset=-1,
                due_ms=now_ms + self._first_check_ms(message),
                tag_hash=hash64(message.tag),
                id_hash=hash64(message.message_id),
                delay_level=0,
                key_hashes=tuple(map(hash64, message.keys)),
                rest=message.rest,
                sys=message.sys,
                order_key=hash64(message.message_group),
            )
            for message in messages
        ]
        try:
            halves = self._journal.write_halves(payloads, key_of(user), now_ms)
        except StoreFullError as error:
            raise store.disk.ran_out(error) from error
        return [_sent(half) for half in halves]

    def end(
        self, topic: str, name: str, message_id: str, event: HalfEvent, now_ms: int
    ) -> HalfState:
        """End a half message. COMMIT: it enters a queue of its topic. ROLLBACK: it never will.

        Its age does not matter, nor which client was asked about it; to end it again the same way
        changes nothing. `message_id` may be empty, unless the name is of an earlier version, which
        is a position of the log alone.
        Protocol: EndTransaction.
        Raises InvalidTransactionIdError: unknown, another message's or topic's, or it has the
        contrary end already.
        """
        first, id_bits = self._named(topic, name)
        half = self._halves.get(first)
        state, id_hash = HalfState.PENDING, 0
        if half is not None:
            owner = self._state.catalog.topic_by_id(half.topic_id)
            id_hash = half.id_hash
            if owner is None or owner.name != topic:
                raise _unknown(name, topic)
        elif first in self._halves.ended:
            state, id_hash = self._halves.ended[first]
        else:
            raise _unknown(name, topic)
        if message_id and hash64(message_id) != id_hash:
            raise _unknown(name, topic)
        if id_bits != id_hash & ID_BITS_MASK and not (id_bits < 0 and message_id):
            raise _unknown(name, topic)
        end = after(state, event)
        if end is None:
            raise InvalidTransactionIdError(
                f"transaction {name} is {state.name.lower().replace('_', ' ')} already"
            )
        if half is not None:
            if event is HalfEvent.COMMIT:
                self.commit(half, now_ms)
            else:
                self.roll_back(half, CAUSE_PRODUCER, now_ms)
        return end

    def _named(self, topic: str, name: str) -> tuple[int, int]:
        """Find `first` by a transaction id, the message id or `t-…` as operators use it; and bits
        of the hash of its message's id, -1 where the name does not tell. First 0: there is none."""
        owner, id_hash = self._state.catalog.topic(topic), hash64(name)
        named = self._halves.named(id_hash, owner.id) if owner is not None else 0
        return (named, id_hash & ID_BITS_MASK) if named else parse_transaction_id(name) or (0, 0)

    def commit(self, half: HalfMessage, now_ms: int) -> None:
        """Put it into a queue of its topic, which exists; of a message group, behind those there.

        Raises CorruptRecordError: it cannot be read, so it can never be delivered.
        """
        state = self._state
        record = state.read(half.position)
        head = decode_message_head(record.payload)
        topic = state.catalog.topic_by_id(half.topic_id)
        assert topic is not None
        queue_id = queue_for(state, topic, record)
        payload = RefPayload(
            origin=half.position,
            tag_hash=head.tag_hash,
            queue_offset=state.queue(topic.id, queue_id).next,
            due_ms=0,
            length=half.length,
            topic_id=topic.id,
            queue_id=queue_id,
            reason=REF_COMMITTED,
        )
        self._journal.write(RecordType.REF, payload, now_ms)

    def roll_back(self, half: HalfMessage, cause: int, now_ms: int) -> None:
        """Roll a half message back: it is never delivered; the record says why."""
        write_rollback(self._journal, half, cause, now_ms)

    def tick(self, now_ms: int) -> None:
        """Handle a bounded slice of due halves. Raises StoreFullError; the rest stays due."""
        deadlines = self._halves.deadlines
        due = deadlines.expire(now_ms, self._state.config.delivery.tick_leases_max)
        for index, first in enumerate(due):
            half = self._halves.get(first)
            assert half is not None
            try:
                self._reach(half, now_ms)
            except BaseException:
                for undone in due[index:]:
                    deadlines.arm(undone, now_ms)
                raise

    def _reach(self, half: HalfMessage, now_ms: int) -> None:
        hearing = self._state.hearing
        too_old_ms = half.stored_ms + self._config.age_ms_max
        too_old_ms += hearing.missed_since_ms(half.stored_ms)
        answers_by_ms = hearing.extended_ms(half.due_ms)
        if self._state.catalog.topic_by_id(half.topic_id) is None:
            self.roll_back(half, CAUSE_TOPIC_GONE, now_ms)
        elif answers_by_ms > now_ms:  # a producer that was asked could not be heard
            self._halves.deadlines.arm(half.first, answers_by_ms)
        elif half.checks >= self._config.checks_max or now_ms >= too_old_ms:
            self._give_up(half, CAUSE_EXPIRED, now_ms)
        else:
            self._halves.wait(half, too_old_ms)

    def _give_up(self, half: HalfMessage, cause: int, now_ms: int) -> None:
        self.roll_back(half, cause, now_ms)
        log.warning(
            "transaction rolled back: nobody said how it ended",
            extra={
                "transaction": transaction_id(half.first, half.id_hash),
                "checks": half.checks,
                "cause": CAUSES[cause],
            },
        )

    def waiting_topics(self) -> list[str]:
        """Return the topics with halves that are due for a check."""
        topics = map(self._state.catalog.topic_by_id, self._halves.waiting)
        return [topic.name for topic in topics if topic is not None]

    def waiting(self, topic_name: str, count_max: int) -> list[int]:
        """List the topic's halves that are due for a check, up to so many; longest due first."""
        topic = self._state.catalog.topic(topic_name)
        waiting = {} if topic is None else self._halves.waiting.get(topic.id, {})
        return list(islice(waiting, count_max))

    def sender(self, first: int) -> str:
        """Return the access key of who sent this half message; "" when that is not known."""
        half = self._halves.get(first)
        assert half is not None
        return half.sender

    def pass_over(self, first: int) -> None:
        """Put one that nobody there may be asked about behind the others of its topic."""
        half = self._halves.get(first)
        assert half is not None
        self._halves.pass_over(half)

    def check(self, first: int, now_ms: int) -> OrphanCheck | None:
        """Read what to ask a producer about; None: it is damaged, and given up."""
        half = self._halves.get(first)
        assert half is not None
        try:
            rest, sys = stored_slices(self._state.read(half.position))
        except CorruptRecordError as error:
            self._state.damaged.give_up(error)
            self.roll_back(half, CAUSE_DAMAGED, now_ms)
            return None
        name = transaction_id(first, half.id_hash)
        return OrphanCheck(name, rest, sys, half.checks + 1, half.asked_client)

    def asked(self, first: int, client_id: str, now_ms: int) -> None:
        """Note that a producer was asked: the next one is, if it does not answer in time."""
        half = self._halves.get(first)
        assert half is not None
        config = self._config
        checks = half.checks + 1
        due_ms = now_ms + config.check_interval_ms
        if checks >= config.checks_max:
            due_ms = max(due_ms, half.stored_ms + config.age_ms_max)
        payload = TxnPayload(half.position, due_ms, half.length, checks, TXN_CHECKED, 0)
        self._journal.write(RecordType.TXN, payload, now_ms)
        half.asked_client = client_id

    def _first_check_ms(self, message: Outgoing) -> int:
        asked_ms = message.first_check_ms or self._config.first_check_ms
        return min(asked_ms, self._config.age_ms_max)

    def _make_room(self, count: int, now_ms: int) -> None:
        """Give up the oldest halves checked in vain; TooManyRequestsError: there are too few."""
        limit = self._config.half_messages_max
        over = len(self._halves) + count - limit
        if over <= 0:
            return
        if len(self._halves.in_vain) < over:
            raise TooManyRequestsError(f"{limit} transactions are open: end some first")
        for first in list(islice(self._halves.in_vain, over)):
            half = self._halves.get(first)
            assert half is not None
            self._give_up(half, CAUSE_NO_ROOM, now_ms)


def write_rollback(journal: Journal, half: HalfMessage, cause: int, now_ms: int) -> None:
    payload = TxnPayload(half.position, 0, half.length, half.checks, TXN_ROLLED_BACK, cause)
    journal.write(RecordType.TXN, payload, now_ms)


def _sent(half: HalfMessage) -> Sent:
    return Sent(
        position=half.position,
        queue_id=-1,
        queue_offset=-1,
        due_ms=0,
        pending_id="",
        transaction_id=transaction_id(half.first, half.id_hash),
    )


def _unknown(name: str, topic: str) -> InvalidTransactionIdError:
    shown = name if len(name) <= 40 else f"{name[:40]}…"
    return InvalidTransactionIdError(f"topic {topic} has no transaction {shown!r} of that message")
