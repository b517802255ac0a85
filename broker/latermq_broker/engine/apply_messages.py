"""Records → state: messages on their way into queues. See `journal.py`."""

from latermq_broker.engine.model import DeadState
from latermq_broker.engine.state import EngineState, Stamp
from latermq_broker.errors import CorruptRecordError
from latermq_broker.store import payload_message
from latermq_broker.store.consume_queue import Entry
from latermq_broker.store.payload_message import (
    DeadChangePayload,
    MessageHead,
    MessagePayload,
    RefPayload,
    TimerPayload,
)


class MessageApplier:
    """MESSAGE, REF, TIMER, DEAD_CHANGE: what enters a queue, and when."""

    def __init__(self, state: EngineState) -> None:
        self._state = state

    def message(self, message: MessagePayload | MessageHead, at: Stamp) -> None:
        state = self._state
        if message.queue_offset < 0:
            state.timer.arm(message.due_ms, at.position)
            counts = state.delayed_counts
            counts[message.topic_id] = counts.get(message.topic_id, 0) + 1
            return
        entry = Entry(at.position, at.length, 0, 0, message.tag_hash, at.store_ms)
        self._state.enqueue(message.topic_id, message.queue_id, entry)

    def ref(self, ref: RefPayload, at: Stamp) -> None:
        if ref.reason == payload_message.REF_DUE:
            self._state.timer.cancel(ref.due_ms, ref.origin)
            self._count_delayed(ref.topic_id, -1)
        entry = Entry(ref.origin, ref.length, ref.reason, 0, ref.tag_hash, at.store_ms)
        self._state.enqueue(ref.topic_id, ref.queue_id, entry)

    def timer(self, timer: TimerPayload, at: Stamp) -> None:
        state = self._state
        state.timer.cancel(timer.due_ms, timer.position)
        if timer.new_due_ms:
            state.timer.arm(timer.new_due_ms, timer.position)
            return
        try:
            record = state.store.log.read(timer.position)
        except CorruptRecordError:
            return  # whose count it was is not known any more
        head = payload_message.decode_message_head(record.payload)
        self._count_delayed(head.topic_id, -1)

    def dead_change(self, change: DeadChangePayload, at: Stamp) -> None:
        letters = self._state.dead.setdefault(change.dlq_topic_id, {})
        for offset in change.offsets:
            letters[offset] = (DeadState(change.state), at.store_ms)

    def _count_delayed(self, topic_id: int, change: int) -> None:
        counts = self._state.delayed_counts
        if topic_id in counts:  # not of a deleted topic
            counts[topic_id] += change
            if not counts[topic_id]:
                del counts[topic_id]
