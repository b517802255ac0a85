"""Messages that the broker itself withholds when their queue is about to let go of them.

What stands behind others in a blocked message group or lite topic was not given because one of
those is leased, waits for its retry or is parked: no consumer could have it. So it does not expire
with its queue: it becomes a delivery that is ready and was never given, stays in its place in its
message group, and is rolled forward like any retry. What may go on and is not asked for expires,
like what nobody has read.

Bounded: a FIFO group holds back and has ready `delivery.held_messages_max` of a topic together, at
which it reads no further; of lite topics as many are kept, and the others expire.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from latermq_broker.delivery.leases.lease import State
from latermq_broker.delivery.order.fifo import FifoGate
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.state.state import EngineState, Subscription, lite_reader
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
LOOK_COST: Final = 32  # of a message group


class WithheldMessages:
    def __init__(self, state: EngineState, journal: Journal) -> None:
        self._state = state
        self._journal = journal

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

    def _write(self, subscription: Subscription, rows: list[OrderedRow], now_ms: int) -> None:
        payload = LeaseOrderedPayload(
            first_id=self._state.leases.next_id,
            client=0,
            group_id=subscription.group_id,
            topic_id=subscription.topic_id,
            invisible_ms=0,
            queue_id=NO_QUEUE,
            flags=0,
            next_offset=0,
            rows=tuple(rows),
        )
        self._journal.write(RecordType.LEASE_ORDERED, payload, now_ms)


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
