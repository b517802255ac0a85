"""Queues, timers and what is dropped behind a lost range: see `lossy.py`."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from latermq_broker.delivery.halves import HalfMessage, HalfState
from latermq_broker.engine.checkpoint.snapshot import is_whole
from latermq_broker.engine.journal.apply_deliveries import DeliveryApplier
from latermq_broker.engine.journal.apply_retention import BASE_QUEUE, QUEUES_SECTION, trim
from latermq_broker.engine.journal.indexing import reach
from latermq_broker.engine.state.state import EngineState, Stamp
from latermq_broker.errors import CorruptRecordError
from latermq_broker.offline.mending.lossy_catalog import CatalogMender, Menders
from latermq_broker.store.derived.checkpoint import decode_sections
from latermq_broker.store.derived.consume_queue import Entry
from latermq_broker.store.records.dedup_records import DedupRow, decode_dedup_value
from latermq_broker.store.records.message_records import (
    QUEUE_UNSET,
    REF_COMMITTED,
    REF_DUE,
    MessageHead,
    RefPayload,
    TimerPayload,
    decode_message_head,
)
from latermq_broker.store.records.record import RecordType
from latermq_broker.store.records.retention_records import (
    DROP_TRIM,
    MOVE_HISTORY,
    BaseParts,
    DropPayload,
    MovePayload,
)
from latermq_broker.store.records.transaction_records import HalfSenderPayload, TxnPayload


class QueueMender:
    """MESSAGE, REF, TIMER, HALF, HALF_SENDER, TXN, MOVE, DROP, DEDUP."""

    def __init__(
        self, state: EngineState, deliveries: DeliveryApplier, catalog: CatalogMender
    ) -> None:
        self._state = state
        self._catalog = catalog
        self._deliveries = deliveries
        self._base = BaseParts()
        self._armed: dict[int, int] = {}  # position of what waits in the timer: due time
        self.told_anew = False  # what waits, by a BASE that is about to be applied

    def menders(self) -> Menders:
        return {
            RecordType.MESSAGE: self.message,
            RecordType.REF: self.ref,
            RecordType.TIMER: self.timer,
            RecordType.HALF: self.half,
            RecordType.HALF_SENDER: partial(_half_sender, self._state),
            RecordType.TXN: self.txn,
            RecordType.MOVE: self.move,
            RecordType.DROP: self.drop,
            RecordType.DEDUP: self.dedup,
        }

    def begin(self, *, first: bool) -> None:
        """Begin behind a lost range, the first one of this replay or a further one."""
        self._base.forget()
        if first:
            self.note_armed()

    def headless(self, type: RecordType, payload: Any, at: Stamp) -> Any:
        """Mend any record while replay has no state yet: only timers need it."""
        if type is RecordType.MESSAGE and payload.queue_offset < 0:
            self._armed[at.position] = payload.due_ms
        elif type is RecordType.REF and payload.reason == REF_DUE:
            self._ensure_armed(payload.due_ms, payload.origin, payload.length, payload.topic_id)
        elif type is RecordType.TIMER:
            return self.timer(payload, at)
        elif type is RecordType.MOVE and payload.due_ms and payload.type != RecordType.HALF:
            self._move_timer(payload, at)
        elif type is RecordType.DROP:
            return self.drop(payload, at)
        return payload

    def message(self, message: MessageHead, at: Stamp) -> MessageHead:
        self._catalog.ensure_topic(message.topic_id, message.queue_id, at)
        if message.queue_offset < 0:
            self._armed[at.position] = message.due_ms
        return message

    def ref(self, ref: RefPayload, at: Stamp) -> RefPayload:
        self._catalog.ensure_topic(ref.topic_id, ref.queue_id, at)
        if ref.reason == REF_DUE:
            self._ensure_armed(ref.due_ms, ref.origin, ref.length, ref.topic_id)
        elif ref.reason == REF_COMMITTED:
            self._ensure_half(ref.origin, ref.length, ref.topic_id, at)
        return ref

    def dedup(self, rows: Sequence[DedupRow], at: Stamp) -> list[DedupRow]:
        """Keep the ids of messages that are there: a lost one may be sent again."""
        del at
        return [row for row in rows if self._is_there(decode_dedup_value(row[1]).position)]

    def _is_there(self, position: int) -> bool:
        try:
            self._state.read(position)
        except CorruptRecordError:
            return False
        return True

    def half(self, message: MessageHead, at: Stamp) -> MessageHead:
        self._catalog.ensure_topic(message.topic_id, QUEUE_UNSET, at)
        return message

    def txn(self, txn: TxnPayload, at: Stamp) -> TxnPayload | None:
        """Return the record as it came; None: its half message is one that nobody remembers."""
        del at
        state = self._state
        known = state.is_gone(txn.position) or state.halves.at(txn.position) is not None
        return txn if known else None

    def _ensure_half(self, position: int, length: int, topic_id: int, at: Stamp) -> None:
        """Have a half message lie there, as it did when this was written."""
        state = self._state
        if state.is_gone(position) or state.halves.at(position) is not None:
            return
        state.uses.arm(position, length)
        state.halves.add(
            HalfMessage(
                first=position,
                position=position,
                length=length,
                topic_id=topic_id,
                id_hash=0,
                stored_ms=at.store_ms,
                due_ms=at.store_ms,
            )
        )

    def timer(self, timer: TimerPayload, at: Stamp) -> TimerPayload:
        del at
        self._ensure_armed(timer.due_ms, timer.position, timer.length, timer.topic_id)
        if timer.new_due_ms:
            self._armed[timer.position] = timer.new_due_ms
        return timer

    def _ensure_armed(self, due_ms: int, position: int, length: int, topic_id: int) -> None:
        """Have the message wait for `due_ms`, as when this was written; it will wait no more."""
        state = self._state
        if state.is_gone(position):  # dropped: nothing is counted of it
            return
        armed_ms = self._armed.pop(position, None)
        if armed_ms == due_ms:
            return
        if armed_ms is not None:  # how it was postponed is lost
            state.timer.cancel(armed_ms, position)
            state.timer.arm(due_ms, position)
            return
        state.timer.arm(due_ms, position)
        state.uses.arm(position, length)
        counts = state.delayed_counts
        counts[topic_id] = counts.get(topic_id, 0) + 1

    def move(self, move: MovePayload, at: Stamp) -> MovePayload | None:
        state = self._state
        ids = tuple(
            delivery_id for delivery_id in move.ids if delivery_id in state.leases.deliveries
        )
        if move.kind == MOVE_HISTORY:
            if not ids:
                return None
            delivery = state.leases.deliveries[ids[0]]
            if not delivery.first_attempt:
                delivery.first_attempt = delivery.last_attempt = at.position
                state.uses.chain(at.position)
            return move
        if move.due_ms:
            topic_id = decode_message_head(move.inner).topic_id
            self._catalog.ensure_topic(topic_id, QUEUE_UNSET, at)
            if move.type == RecordType.HALF:
                self._ensure_half(move.old, move.old_length, topic_id, at)
            else:
                self._move_timer(move, at)
        entries = tuple(entry for entry in move.entries if self._may_move(entry, at))
        return move._replace(ids=ids, entries=entries)

    def _move_timer(self, move: MovePayload, at: Stamp) -> None:
        topic_id = decode_message_head(move.inner).topic_id
        self._ensure_armed(move.due_ms, move.old, move.old_length, topic_id)
        self._armed[at.position] = move.due_ms

    def _may_move(self, entry: Any, at: Stamp) -> bool:
        state = self._state
        self._catalog.ensure_topic(entry.topic_id, entry.queue_id, at)
        queue = state.queue(entry.topic_id, entry.queue_id)
        if entry.queue_offset < queue.first:
            return False
        reach(self._state, entry.topic_id, entry.queue_id, entry.queue_offset + 1, at.store_ms)
        before = queue.get(entry.queue_offset)
        if is_lost(before):  # it is not counted yet; what replaces it will be
            key = (entry.topic_id, entry.queue_id)
            state.uses.refer(before.position, key, entry.queue_offset)
        return True

    def drop(self, drop: DropPayload, at: Stamp) -> DropPayload | None:
        if drop.kind == DROP_TRIM:
            queues = tuple(queue for queue in drop.queues if self._may_trim(queue, at))
            return drop._replace(queues=queues)
        data = self._base.add(drop)
        if data is None:
            return drop
        sections = decode_sections(data)
        if self._state.store.dropped.headless:
            self.told_anew = is_whole(sections)
        else:
            self._settle(drop.start, sections, at)
        return drop

    def note_armed(self) -> None:
        """Learn from the timer what waits in it."""
        self.told_anew = False
        self._armed = {position: due_ms for due_ms, position in self._state.timer.in_order()}

    def _settle(self, start: int, sections: dict[str, bytes], at: Stamp) -> None:
        """End what lies below `start`: nothing that counts lay there then; how it ended is lost."""
        state = self._state
        for delivery in list(state.leases.deliveries.values()):
            if delivery.position < start:
                self._deliveries.ack((delivery.id,), at)
            elif 0 < delivery.first_attempt < start:
                delivery.first_attempt = delivery.last_attempt = 0
        for half in list(state.halves):
            if half.position < start:
                state.halves.end(half, HalfState.ROLLED_BACK)
        for position in [position for position in self._armed if position < start]:
            state.timer.cancel(self._armed.pop(position), position)
        counters = json.loads(sections["counters"])
        state.delayed_counts = {int(topic): n for topic, n in counters["delayed"].items()}
        for topic_id, queue_id, first, next_ in BASE_QUEUE.iter_unpack(sections[QUEUES_SECTION]):
            reach(state, topic_id, queue_id, next_, at.store_ms)
            queue = state.queue(topic_id, queue_id)
            if first > queue.first:
                trim(state, topic_id, queue_id, first)

    def _may_trim(self, trimmed: Any, at: Stamp) -> bool:
        state = self._state
        if state.store.dropped.headless or state.catalog.topic_by_id(trimmed.topic_id) is None:
            return False
        reach(self._state, trimmed.topic_id, trimmed.queue_id, trimmed.first, at.store_ms)
        return bool(state.queue(trimmed.topic_id, trimmed.queue_id).first < trimmed.first)


def is_lost(entry: Entry) -> bool:
    """Tell whether an entry stands for a message whose record is lost."""
    return not entry.length


def _half_sender(state: EngineState, payload: HalfSenderPayload, at: Stamp) -> HalfSenderPayload:
    """Keep whose the half messages are that are there."""
    del at
    there = tuple(each for each in payload.positions if state.halves.at(each) is not None)
    return payload._replace(positions=there)
