"""A group's progress behind a lost range: see `lossy.py`.

A lease moves a group's cursor on a queue. If the record of one is lost, the next one seems to jump:
what lies between was handed out, or passed over by a filter, and nobody knows which. So it becomes
ready to be handed out again. Only the first jump behind a lost range can hide a lease.
"""

from typing import Final

from latermq_broker.engine.journal.apply_deliveries import DeliveryApplier
from latermq_broker.engine.state.state import EngineState, Stamp
from latermq_broker.errors import CorruptRecordError
from latermq_broker.offline.mending.lossy_queues import is_lost
from latermq_broker.store.derived.consume_queue import Entry
from latermq_broker.store.records.letter_records import dead_order_key
from latermq_broker.store.records.message_records import message_order_key
from latermq_broker.store.records.record import RecordType

MADE_UP_ID: Final = 1 << 63  # ids from here on were given by no broker
JUMP_BITS: Final = 12
JUMP_MAX: Final = 1 << JUMP_BITS


class ProgressMender:
    def __init__(self, state: EngineState, deliveries: DeliveryApplier) -> None:
        self._state = state
        self._deliveries = deliveries
        self._groups: set[int] = set()  # that may have had leases in the lost range
        self._known: set[tuple[int, int, int]] = set()  # group, topic, queue: what follows is whole

    def begin(self) -> None:
        """Begin behind a lost range: any group may have had leases in it, no progress is known."""
        self._groups = {group.id for group in self._state.catalog.groups()}
        self._known.clear()

    def jump(self, group_id: int, topic_id: int, queue_id: int, offset: int, at: Stamp) -> bool:
        """Move the group's progress on to `offset`; tell whether it may.

        False: too much lies between to be remembered one by one. The cursor must stay.
        """
        key = (group_id, topic_id, queue_id)
        if key in self._known or group_id not in self._groups:
            return True
        state = self._state
        queue = state.queue(topic_id, queue_id)
        subscription = state.subscription(group_id, topic_id)
        cursor = max(queue.first, subscription.cursors.get(queue_id, queue.first))
        if offset - cursor > JUMP_MAX:
            return False
        self._known.add(key)
        next_id = state.leases.next_id
        spans = subscription.ahead.get(queue_id)
        for index, entry in enumerate(queue.scan(cursor, max(0, offset - cursor))):
            if spans is not None and spans.holds(cursor + index):
                continue
            order_key = self._order_key(entry)
            if order_key is None:
                continue
            delivery = self._deliveries.add(
                subscription,
                id=MADE_UP_ID | at.position << JUMP_BITS | index,
                queue_id=queue_id,
                offset=cursor + index,
                position=entry.position,
                length=entry.length,
                tag_hash=entry.tag_hash,
                order_key=order_key,
            )
            if not order_key:
                subscription.ready.append(delivery)
        state.leases.next_id = next_id
        return True

    def _order_key(self, entry: Entry) -> int | None:
        """Read the order key of an entry's message; None: the message is lost."""
        if is_lost(entry):
            return None
        try:
            record = self._state.read(entry.position)
        except CorruptRecordError:
            return None
        dead = record.type is RecordType.DEAD
        return (dead_order_key if dead else message_order_key)(record.payload)
