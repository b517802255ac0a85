"""Records → state: messages on their way into queues. See `journal.py`."""

from collections.abc import Sequence
from typing import Final

from latermq_broker.delivery.filters.filter import hash64
from latermq_broker.delivery.halves import HalfEvent
from latermq_broker.delivery.order.lite import LiteParent
from latermq_broker.engine.journal.apply_deliveries import unpark
from latermq_broker.engine.journal.apply_transactions import end_half
from latermq_broker.engine.journal.indexing import enqueue, reach
from latermq_broker.engine.state.letter_states import LetterStates
from latermq_broker.engine.state.model import DeadState
from latermq_broker.engine.state.state import Applied, Appliers, EngineState, Stamp
from latermq_broker.errors import CorruptRecordError
from latermq_broker.store.derived.consume_queue import ENTRY_LETTER, Entry
from latermq_broker.store.records.letter_records import DeadChangePayload
from latermq_broker.store.records.message_records import (
    MESSAGE_LETTER,
    MESSAGE_LITE,
    REF_COMMITTED,
    REF_DUE,
    MessageHead,
    MessagePayload,
    MessageRow,
    MessageRun,
    RefPayload,
    TimerPayload,
    message_rows,
)
from latermq_broker.store.records.record import RecordType
from latermq_broker.store.records.retention_records import first_position

MARKED: Final = MESSAGE_LETTER | MESSAGE_LITE  # kinds that are more than an entry in a queue


class MessageApplier:
    """MESSAGE, REF, TIMER, DEAD_CHANGE: what enters a queue, and when."""

    def __init__(self, state: EngineState) -> None:
        self._state = state

    def appliers(self) -> Appliers:
        return {
            RecordType.MESSAGE: Applied(self.message, self.message),
            RecordType.REF: Applied(self.ref, self.ref),
            RecordType.TIMER: Applied(self.timer, self.timer),
            RecordType.DEAD_CHANGE: Applied(self.dead_change),
        }

    def message(self, message: MessagePayload | MessageHead, at: Stamp) -> None:
        self.messages(message_rows([message], [at.position], [at.length], at.store_ms))

    def messages(self, rows: Sequence[MessageRow]) -> None:
        """Apply records of many messages, in the order of the log."""
        state = self._state
        state.store.index.add_rows(rows)
        topic_id = queue_id = -1
        delayed: list[MessageRow] = []
        for row in rows:
            position, length, store_ms, topic, queue, kind, offset, _, tag_hash, _, _, _ = row
            if offset < 0:
                delayed.append(row)
                continue
            if queue != queue_id or topic != topic_id:
                topic_id, queue_id = topic, queue
                state.announced.topics.add(topic)
                waiting = state.store.queue(topic, queue)
            if waiting.next != offset:
                reach(state, topic, queue, offset, store_ms)
            if kind & MARKED:
                self._enter_marked(row)
            else:
                waiting.append((position, length, 0, 0, tag_hash, store_ms))
        if delayed:
            state.timer.arm_fresh([(row[7], row[0]) for row in delayed])
            arm, counts = state.uses.arm, state.delayed_counts
            for row in delayed:
                arm(row[0], row[1])
                counts[row[3]] = counts.get(row[3], 0) + 1

    def _enter_marked(self, row: MessageRow) -> None:
        """Put a letter, or a message of a lite topic, into its queue."""
        assert row.kind & MARKED
        state = self._state
        if row.kind & MESSAGE_LITE:
            name = row.lite_topic
            state.lites.setdefault(row.topic_id, LiteParent()).enter(
                hash64(name), name, row.queue_offset, row.store_ms
            )
        flags = ENTRY_LETTER if row.kind & MESSAGE_LETTER else 0
        entry = Entry(row.position, row.length, flags, 0, row.tag_hash, row.store_ms)
        enqueue(state, row.topic_id, row.queue_id, entry, row.queue_offset)

    def message_run(
        self, run: MessageRun, positions: Sequence[int], lengths: Sequence[int], store_ms: int
    ) -> None:
        """Apply the messages of a run, each as `message` does."""
        state = self._state
        state.store.index.add_run(positions, run.id_hashes, run.topic_id, run.key_hashes)
        flags = ENTRY_LETTER if run.kind & MESSAGE_LETTER else 0
        queue = state.store.queue(run.topic_id, run.queue_id)
        assert queue.next == run.queue_offset
        queue.extend(positions, lengths, flags, run.tag_hashes, store_ms)
        if flags:
            key = (run.topic_id, run.queue_id)
            for offset, position in enumerate(positions, run.queue_offset):
                state.uses.refer(position, key, offset)
        state.announced.topics.add(run.topic_id)

    def ref(self, ref: RefPayload, at: Stamp) -> None:
        self.refs([ref], at.store_ms)

    def refs(self, refs: Sequence[RefPayload], store_ms: int) -> None:
        """Apply references of one instant, in the order of the log."""
        state = self._state
        uses = state.uses
        moved = state.timers_moved
        key = (-1, -1)
        due: dict[int, int] = {}  # how many, by topic
        for ref in refs:
            origin, tag_hash, offset, due_ms, length, topic_id, queue_id, reason = ref
            if reason == REF_DUE:
                if not state.is_gone(origin):
                    self._disarm(due_ms, origin, length)
                    due[topic_id] = due.get(topic_id, 0) + 1
                    if moved:
                        moved.end(origin)
            elif reason == REF_COMMITTED:
                end_half(state, origin, length, HalfEvent.COMMIT)
            if queue_id != key[1] or topic_id != key[0]:
                key = topic_id, queue_id
                state.announced.topics.add(topic_id)
                waiting = state.store.queue(topic_id, queue_id)
            if waiting.next != offset:
                reach(state, topic_id, queue_id, offset, store_ms)
            waiting.append((origin, length, reason, 0, tag_hash, store_ms))
            uses.refer(origin, key, offset)
        for topic_id, count in due.items():
            self._count_delayed(topic_id, -count)

    def timer(self, timer: TimerPayload, at: Stamp) -> None:
        state = self._state
        if state.is_gone(timer.position):
            return
        self._disarm(timer.due_ms, timer.position, timer.length)
        if timer.new_due_ms:
            first = _first_position(state, timer.position)
            state.timers_moved.move(timer.position, first, timer.new_due_ms)
            state.timer.arm(timer.new_due_ms, timer.position)
            state.uses.arm(timer.position, timer.length)
        else:
            state.timers_moved.cancel(timer.position)
            self._count_delayed(timer.topic_id, -1)

    def dead_change(self, change: DeadChangePayload, at: Stamp) -> None:
        letters = self._state.dead.setdefault(change.dlq_topic_id, LetterStates())
        for offset in change.offsets:
            letters.put(offset, DeadState(change.state), at.store_ms)
            unpark(self._state, (change.dlq_topic_id, offset))

    def _disarm(self, due_ms: int, position: int, length: int) -> None:
        state = self._state
        state.timer.cancel(due_ms, position)
        state.uses.disarm(position, length)
        if state.timers_touched is not None:
            state.timers_touched.add(position)

    def _count_delayed(self, topic_id: int, change: int) -> None:
        counts = self._state.delayed_counts
        if topic_id in counts:  # not of a deleted topic
            # Timers that a log cancels twice, which no broker of ours wrote, count once.
            counts[topic_id] = max(0, counts[topic_id] + change)
            if not counts[topic_id]:
                del counts[topic_id]


def _first_position(state: EngineState, position: int) -> int:
    """Find where the delayed message that stands at `position` stood when it was sent."""
    known = state.timers_moved.first(position)
    if known is not None:
        return known
    try:
        return first_position(state.store.log.read(position))
    except CorruptRecordError:
        return position
