"""Records → state: what is rolled forward, expired, may go, was given up. See `journal.py`.

Where records are missing, in front of the log or in a range that was given up, a BASE behind them
says from what replay goes on. One of retention leaves timers to the log: that tells them where it
lacks its front only. The one that closes a log which was repaired (`offline/mending`) has all but
queue entries, and of these what the log no longer tells.
"""

import struct
from collections.abc import Mapping
from typing import Any, Final

from latermq_broker.engine.checkpoint.snapshot import (
    TOLD_BY_THE_LOG,
    is_whole,
    restore,
    restore_told,
    snapshot,
)
from latermq_broker.engine.journal.apply_deliveries import lite_retries_may_go, unpark
from latermq_broker.engine.journal.apply_transactions import move_half
from latermq_broker.engine.journal.indexing import index_moved, reach
from latermq_broker.engine.state.state import Applied, Appliers, EngineState, Stamp
from latermq_broker.errors import GivenUpError
from latermq_broker.store.derived.checkpoint import (
    MOVED_SECTION,
    decode_moved,
    decode_sections,
    encode_sections,
)
from latermq_broker.store.derived.consume_queue import ENTRY_MOVED, Entry
from latermq_broker.store.records.record import RECORD_ALIGN, RecordType
from latermq_broker.store.records.retention_records import (
    DROP_TRIM,
    MOVE_HISTORY,
    BaseParts,
    DropPayload,
    MovedEntry,
    MovePayload,
)

#  queues   0      4      6    8      16    24     one for each queue
#           | topic| queue| pad| first| next|
BASE_QUEUE: Final = struct.Struct("<IHxxQQ")
assert BASE_QUEUE.size == 24
QUEUES_SECTION: Final = "queues"
COUNT_SLICE: Final = 65_536


class RetentionApplier:
    """MOVE, DROP, LOST."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._base = BaseParts()
        self._untold = False  # what waits in the timer: records that told it are given up

    def appliers(self) -> Appliers:
        return {
            RecordType.MOVE: Applied(self.move, self.move),
            RecordType.DROP: Applied(self.drop, self.drop),
            RecordType.LOST: Applied(self.lost, self.lost_headless),
        }

    def lost(self, lost: Any, at: Stamp) -> None:
        """Raise GivenUpError: what follows cannot be applied to a state that lacks these."""
        raise GivenUpError(at.position)

    def lost_headless(self, lost: Any, at: Stamp) -> None:
        self._state.lost_at = at.position
        self._untold = True
        self._base.forget()

    def move(self, move: MovePayload, at: Stamp) -> int:
        """Move what refers to a record to its new place; return how long the record is."""
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
        assert delivery.first_attempt
        state.uses.unchain(delivery.first_attempt)
        delivery.first_attempt = delivery.last_attempt = at.position
        state.uses.chain(delivery.first_attempt)

    def _move_entry(self, moved: MovedEntry, at: Stamp) -> None:
        state = self._state
        key = (moved.topic_id, moved.queue_id)
        queue = state.queue(*key)
        offset = moved.queue_offset
        if queue.first <= offset < queue.next:
            before = queue.get(offset)
            if before.flags:  # else its record is lost: it did not count
                state.uses.unrefer(before.position, key)
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
        data = self._base.add(drop)
        if data is None:
            return
        sections = decode_sections(data)
        if headless:
            self._take(drop.start, sections, at)
        elif is_whole(sections):  # with an older checkpoint: made of less than the repair knew
            raise GivenUpError(at.position - RECORD_ALIGN)
        state.store.dropped.drop_before(drop.start)
        state.uses.drop_before(drop.start)
        state.store.index.drop_before(drop.start)

    def _take(self, start: int, sections: Mapping[str, bytes], at: Stamp) -> None:
        """Take from a BASE what it is good for, while replay has no state."""
        state = self._state
        whole = is_whole(sections)
        if self._untold and not whole:
            return
        self._take_queues(sections, at)
        if whole:
            restore_told(state, sections)
            self._untold = False
        dropped = state.store.dropped
        if start >= state.store.log.segments[0].base and at.position > dropped.behind:
            restore(state, sections)
            dropped.headless = False
            self._forget_queues()
        if whole:
            count_entries(state)

    def _forget_queues(self) -> None:
        """Forget queues of topics that are gone, though the record that said so is lost."""
        state = self._state
        for topic_id in {topic_id for topic_id, _ in state.store.queue_keys()}:
            if state.catalog.topic_by_id(topic_id) is None:
                state.uses.forget_topic(topic_id)
                state.store.drop_topic(topic_id)

    def _take_queues(self, sections: Mapping[str, bytes], at: Stamp) -> None:
        """Have each queue begin and end as it did then."""
        state = self._state
        for key, (_, entries) in decode_moved(sections.get(MOVED_SECTION, b"")).items():
            state.queue(*key).moved.restore(entries)
        for topic_id, queue_id, first, next_ in BASE_QUEUE.iter_unpack(sections[QUEUES_SECTION]):
            queue = state.queue(topic_id, queue_id)
            reach(state, topic_id, queue_id, next_, at.store_ms)
            moved_first = queue.moved.first
            if moved_first is not None:
                queue.first = min(queue.first, moved_first)
            if first > queue.first:
                trim(state, topic_id, queue_id, first)
            queue.first = first


def count_entries(state: EngineState) -> None:
    """Count anew which segments queue entries need: some may be lost since a base was written."""
    state.uses.forget_queues()
    for key in state.store.queue_keys():
        queue = state.queue(*key)
        for begin in range(queue.first, queue.next, COUNT_SLICE):
            for offset, entry in enumerate(queue.scan(begin, COUNT_SLICE), begin):
                if entry.flags:
                    state.uses.refer(entry.position, key, offset)


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
        lite_retries_may_go(state, topic_id)
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
