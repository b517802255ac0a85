"""Records → state: what is rolled forward, what is expired, what may go. See `journal.py`."""

import struct
from typing import Final

from latermq_broker.engine.checkpoint.snapshot import TOLD_BY_THE_LOG, restore, snapshot
from latermq_broker.engine.journal.apply_deliveries import unpark
from latermq_broker.engine.journal.apply_transactions import move_half
from latermq_broker.engine.journal.indexing import index_moved, reach
from latermq_broker.engine.state.state import Applied, Appliers, EngineState, Stamp
from latermq_broker.store.derived.checkpoint import decode_sections, encode_sections
from latermq_broker.store.derived.consume_queue import ENTRY_MOVED, Entry
from latermq_broker.store.records.record import RecordType
from latermq_broker.store.records.retention_records import (
    DROP_TRIM,
    MOVE_HISTORY,
    DropPayload,
    MovedEntry,
    MovePayload,
)

#  queues   0      4      6    8      16    24     one for each queue
#           | topic| queue| pad| first| next|
BASE_QUEUE: Final = struct.Struct("<IHxxQQ")
assert BASE_QUEUE.size == 24
QUEUES_SECTION: Final = "queues"


class RetentionApplier:
    """MOVE, DROP."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._parts: list[bytes] = []  # of a base that is being read

    def appliers(self) -> Appliers:
        return {
            RecordType.MOVE: Applied(self.move, self.move),
            RecordType.DROP: Applied(self.drop, self.drop),
        }

    def move(self, move: MovePayload, at: Stamp) -> int:
        """Returns how long the record is."""
        if move.kind == MOVE_HISTORY:
            self._move_history(move, at)
            return at.length
        state = self._state
        index_moved(state.store.index, move, at.position)
        if move.due_ms and move.type == RecordType.HALF:
            move_half(state, move, at)
        elif move.due_ms:
            if not state.is_gone(move.old):
                state.timer.cancel(move.due_ms, move.old)
                state.uses.disarm(move.old, move.old_length)
            state.timers_moved.roll(move.old, at.position)
            state.timer.arm_fresh([(move.due_ms, at.position)])
            state.uses.arm(at.position, at.length)
        if not state.store.dropped.headless:
            for delivery_id in move.ids:
                delivery = state.leases.deliveries[delivery_id]
                state.uses.unhold(delivery.position)
                delivery.position, delivery.length = at.position, at.length
                state.uses.hold(delivery.position)
        for entry in move.entries:
            self._move_entry(entry, at)
        return at.length

    def _move_history(self, move: MovePayload, at: Stamp) -> None:
        state = self._state
        if state.store.dropped.headless:
            return
        delivery = state.leases.deliveries[move.ids[0]]
        state.uses.unchain(delivery.first_attempt)
        delivery.first_attempt = delivery.last_attempt = at.position
        state.uses.chain(delivery.first_attempt)

    def _move_entry(self, moved: MovedEntry, at: Stamp) -> None:
        state = self._state
        key = (moved.topic_id, moved.queue_id)
        queue = state.queue(*key)
        offset = moved.queue_offset
        if queue.first <= offset < queue.next:
            state.uses.unrefer(queue.get(offset).position, key)
        else:
            assert state.store.dropped.headless
            known = queue.moved_entry(offset)
            if known is not None:
                state.uses.unrefer(known.position, key)
        flags = moved.flags | ENTRY_MOVED
        queue.move(offset, Entry(at.position, at.length, flags, 0, moved.tag_hash, moved.time_ms))
        state.uses.refer(at.position, key, offset)

    def drop(self, drop: DropPayload, at: Stamp) -> None:
        state = self._state
        headless = state.store.dropped.headless
        if drop.kind == DROP_TRIM:
            if not headless:
                for topic_id, queue_id, first in drop.queues:
                    trim(state, topic_id, queue_id, first)
            return
        self._parts = [*self._parts, bytes(drop.sections)] if drop.part else [bytes(drop.sections)]
        if drop.part + 1 < drop.parts:
            return
        sections = decode_sections(b"".join(self._parts))
        self._parts = []
        if headless and drop.start >= state.store.log.segments[0].base:
            self._begin_with(sections, at)
        state.store.dropped.drop_before(drop.start)
        state.uses.drop_before(drop.start)
        state.store.index.drop_before(drop.start)

    def _begin_with(self, sections: dict[str, bytes], at: Stamp) -> None:
        """The state that a replay behind the dropped segments was waiting for."""
        state = self._state
        restore(state, sections)
        for topic_id, queue_id, first, next_ in BASE_QUEUE.iter_unpack(sections[QUEUES_SECTION]):
            queue = state.queue(topic_id, queue_id)
            reach(state, topic_id, queue_id, next_, at.store_ms)
            moved_first = queue.moved.first
            if moved_first is not None:
                queue.first = min(queue.first, moved_first)
            if first > queue.first:
                trim(state, topic_id, queue_id, first)
            queue.first = first
        state.store.dropped.headless = False


def trim(state: EngineState, topic_id: int, queue_id: int, first: int) -> None:
    """Expire what lies below `first` in the queue."""
    queue = state.queue(topic_id, queue_id)
    for entry in queue.scan(queue.first, first - queue.first):
        if entry.flags:
            state.uses.unrefer(entry.position, (topic_id, queue_id))
    if topic_id in state.dead:
        state.dead[topic_id].trim(first)
    if state.parking:
        for offset in range(queue.first, first):
            unpark(state, (topic_id, offset))
    queue.trim(first)
    if topic_id in state.lites:
        state.lites[topic_id].trim(first)
    for (_, read_id), subscription in state.subscriptions.items():
        if read_id == topic_id and subscription.gate is not None:
            subscription.gate.trim(queue_id, first)


def base_sections(state: EngineState) -> bytes:
    """Encode what a DROP record of kind BASE carries."""
    sections = {name: data for name, data in snapshot(state).items() if name not in TOLD_BY_THE_LOG}
    queues = (state.queue(*key) for key in state.store.queue_keys())
    sections[QUEUES_SECTION] = b"".join(
        BASE_QUEUE.pack(queue.topic_id, queue.queue_id, queue.first, queue.next) for queue in queues
    )
    return encode_sections(sections)
