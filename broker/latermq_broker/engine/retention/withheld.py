"""Messages that the broker itself withholds when their queue is about to let go of them.

What stands behind others in a blocked message group or lite topic was not given because one of
those is leased, waits for its retry or is parked: no consumer could have it. So it does not expire
with its queue: it becomes a delivery that is ready and was never given, stays in its place in its
message group, and is rolled forward like any retry. What may go on and is not asked for expires,
like what nobody has read.

What a receive of a FIFO group has looked at since it was blocked is held in its gate. What none has
looked at is found by its message group's key, which is read from the messages. The group's progress
does not pass those, so they become deliveries in the same atomic group of records in which their
queue lets go of them.

Bounded: a FIFO group holds back and has ready `delivery.held_messages_max` of a topic together, at
which it reads no further; of lite topics as many are kept, and the others expire.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from latermq_broker.delivery.leases.lease import State
from latermq_broker.delivery.order.fifo import FifoGate
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.outcome.attempts import stored_order_key
from latermq_broker.engine.state.state import (
    EngineState,
    Subscription,
    is_done_ahead,
    lite_reader,
)
from latermq_broker.errors import CorruptRecordError
from latermq_broker.store.records.lease_records import (
    NO_QUEUE,
    ORDERED_KEEP,
    LeaseOrderedPayload,
    OrderedRow,
)
from latermq_broker.store.records.record import RecordType
from latermq_broker.store.records.retention_records import TrimmedQueue

KEEP_ROWS: Final = 1_024  # messages kept by one record
ROW_COST: Final = 64
ROW_BYTES: Final = 24  # of one message in a record
LOOK_COST: Final = 32  # of a message group
READS_MAX: Final = 64  # messages read for their key in one go: less than a millisecond
SEGMENT_SHARE: Final = 4  # the group of records has a quarter of a segment at most
READ_COST: Final = 1_024  # of one of them, beside its bytes

Place = tuple[int, int, int]  # topic id, queue id, offset


class WithheldMessages:
    def __init__(self, state: EngineState, journal: Journal) -> None:
        self._state = state
        self._journal = journal
        self._rows_max = state.config.store.segment_bytes // SEGMENT_SHARE // ROW_BYTES
        self._keys: dict[Place, int] = {}  # order keys of the messages that were read for them

    def keep(self, queues: Sequence[TrimmedQueue], now_ms: int) -> int:
        """Keep some of what would expire with the queues; what it cost, 0 when nothing is left.

        Raises StoreFullError, with nothing kept.
        """
        for (_, topic_id), subscription in self._state.subscriptions.items():
            gate = subscription.gate
            if gate is None:
                continue
            for queue_id, upto in ((q, upto) for t, q, upto in queues if t == topic_id):
                if rows := self._rows(subscription, gate, queue_id, upto):
                    self._write(subscription, rows, now_ms)
                    return len(rows) * ROW_COST + len(gate.groups) * LOOK_COST
        return 0

    def _rows(
        self, subscription: Subscription, gate: FifoGate, queue_id: int, upto: int
    ) -> list[OrderedRow]:
        first = gate.first_held(queue_id)
        places: list[tuple[int, int]] = []
        if first is not None and first < upto:
            places = gate.withheld(queue_id, upto, KEEP_ROWS)
        elif lite_reader(self._state, subscription) is not None:
            places = list(self._unread(subscription, gate, upto))
        return [OrderedRow(key, offset, queue_id, ORDERED_KEEP) for key, offset in places]

    def _unread(
        self, subscription: Subscription, gate: FifoGate, upto: int
    ) -> Iterator[tuple[int, int]]:
        """Find what the group was not given of lite topics that are blocked."""
        reader = lite_reader(self._state, subscription)
        assert reader is not None
        topics = self._state.lites[subscription.topic_id].topics
        held_max = self._state.config.delivery.held_messages_max
        room = min(KEEP_ROWS, held_max - subscription.counts[State.READY])
        for key, group in gate.groups.items():
            if not group.blocked or key not in topics:
                continue
            for offset in topics[key].since(reader.next(key)):
                if offset >= upto:
                    break
                if room <= 0:
                    return
                room -= 1
                yield key, offset

    def look(self, queues: Sequence[TrimmedQueue]) -> int:
        """Read some messages for their keys; what it cost, 0 when all that `fresh` needs are known.

        Raises DamagedQueueError.
        """
        cost = reads = 0
        for _, _, place in self._in_question(queues):
            if place in self._keys:
                continue
            entry = self._state.queue(*place[:2]).get(place[2])
            self._keys[place] = self._key(entry.position)
            cost += READ_COST + entry.length
            reads += 1
            if reads == READS_MAX:
                break
        return cost

    def fresh(self, queues: Sequence[TrimmedQueue]) -> list[LeaseOrderedPayload]:
        """Make records that keep what no receive has looked at; to be written with the trim."""
        first_id, count = self._state.leases.next_id, 0
        rows: dict[tuple[int, int], list[OrderedRow]] = {}
        for subscription, gate, (topic_id, queue_id, offset) in self._in_question(queues):
            key = self._keys[topic_id, queue_id, offset]
            group = gate.groups.get(key)
            if not key or group is None or not group.blocked:
                continue
            kept = rows.setdefault((subscription.group_id, topic_id), [])
            if count < self._rows_max and len(kept) < self._room(subscription, gate):
                kept.append(OrderedRow(key, offset, queue_id, ORDERED_KEEP))
                count += 1
        payloads: list[LeaseOrderedPayload] = []
        for where, kept in rows.items():
            for index in range(0, len(kept), KEEP_ROWS):
                part = kept[index : index + KEEP_ROWS]
                payloads.append(_keep(where, first_id, part))
                first_id += len(part)
        self._keys.clear()
        return payloads

    def _in_question(
        self, queues: Sequence[TrimmedQueue]
    ) -> Iterator[tuple[Subscription, FifoGate, Place]]:
        """Find what the queues let go of and groups have not looked at, that have blocked ones."""
        for (_, topic_id), subscription in self._state.subscriptions.items():
            gate = subscription.gate
            ends = [(queue_id, upto) for topic, queue_id, upto in queues if topic == topic_id]
            if gate is None or not ends or lite_reader(self._state, subscription) is not None:
                continue
            if self._state.catalog.topic_by_id(topic_id) is None:
                continue
            if not any(group.blocked for group in gate.groups.values()):
                continue
            for queue_id, upto in ends:
                cursor = self._state.cursor(subscription, self._state.queue(topic_id, queue_id))
                for offset in range(cursor, upto):
                    if is_done_ahead(subscription, queue_id, offset):
                        continue
                    yield subscription, gate, (topic_id, queue_id, offset)

    def _key(self, position: int) -> int:
        try:
            return stored_order_key(self._state.read(position))
        except CorruptRecordError:
            return 0  # nobody can be given it

    def _room(self, subscription: Subscription, gate: FifoGate) -> int:
        held_max = self._state.config.delivery.held_messages_max
        return held_max - gate.held_count - subscription.counts[State.READY]

    def _write(self, subscription: Subscription, rows: list[OrderedRow], now_ms: int) -> None:
        where = subscription.group_id, subscription.topic_id
        payload = _keep(where, self._state.leases.next_id, rows)
        self._journal.write(RecordType.LEASE_ORDERED, payload, now_ms)


def _keep(where: tuple[int, int], first_id: int, rows: list[OrderedRow]) -> LeaseOrderedPayload:
    """Make what keeps messages for a group of a topic, by their ids."""
    return LeaseOrderedPayload(
        first_id=first_id,
        client=0,
        group_id=where[0],
        topic_id=where[1],
        invisible_ms=0,
        queue_id=NO_QUEUE,
        flags=0,
        next_offset=0,
        rows=tuple(rows),
    )


def expiring(gate: FifoGate, queue_id: int, upto: int) -> int:
    """Count what message groups that may go on hold below `upto`: it is not kept."""
    first = gate.first_held(queue_id)
    if first is None or first >= upto:
        return 0
    return sum(
        group.held.count_below(upto)
        for group in gate.groups.values()
        if group.queue_id == queue_id and not group.blocked
    )
