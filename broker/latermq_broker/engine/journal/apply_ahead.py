"""Records → state: what a group is given behind messages that another of its consumers wants, and
what its consumers filter by. See `journal.py`."""

from collections.abc import Sequence

from latermq_broker.delivery.leases.shared import places_of
from latermq_broker.engine.journal.apply_deliveries import DeliveryApplier, leasing_subscription
from latermq_broker.engine.state.state import Applied, Appliers, EngineState, Stamp
from latermq_broker.store.records.catalog_records import WantedPayload
from latermq_broker.store.records.lease_records import (
    AHEAD_PASS,
    NO_QUEUE,
    LeaseOrderedPayload,
    OrderedRow,
)
from latermq_broker.store.records.record import RecordType


class AheadApplier:
    """LEASE_AHEAD, WANTED."""

    def __init__(self, state: EngineState, deliveries: DeliveryApplier) -> None:
        self._state = state
        self._deliveries = deliveries

    def appliers(self) -> Appliers:
        return {
            RecordType.LEASE_AHEAD: Applied(self.lease_ahead),
            RecordType.WANTED: Applied(self.wanted),
        }

    def lease_ahead(self, lease: LeaseOrderedPayload, at: Stamp) -> Sequence[int]:
        """Lend, hold back and pass over messages of a queue; what is not among them stays.

        Returns the ids of what was lent.
        """
        subscription = leasing_subscription(self._state, lease.group_id, lease.topic_id)
        queue_id = lease.queue_id
        assert queue_id != NO_QUEUE
        rows: list[OrderedRow] = []
        for row in lease.rows:
            count = row.order_key if row.act == AHEAD_PASS else 1
            assert row.queue_id == queue_id
            assert count > 0
            subscription.pass_ahead(queue_id, row.offset, row.offset + count)
            if row.act != AHEAD_PASS:
                rows.append(row)
        subscription.move(queue_id, subscription.cursors.get(queue_id, lease.next_offset))
        if any(row.order_key for row in rows):
            ordered = lease._replace(queue_id=NO_QUEUE, rows=tuple(rows))
            return self._deliveries.lease_ordered(ordered, at)
        queue = self._state.queue(lease.topic_id, queue_id)
        offsets = [row.offset for row in rows]
        entries = [queue.get(offset) for offset in offsets]
        tags = [entry.tag_hash for entry in entries]
        return self._deliveries.lend(
            subscription,
            lease,
            places_of(lease.group_id, lease.topic_id, queue_id, offsets, tags),
            offsets,
            [entry.position for entry in entries],
            [entry.length for entry in entries],
            at,
        )

    def wanted(self, wanted: WantedPayload, at: Stamp) -> None:
        subscription = self._state.subscription(wanted.group_id, wanted.topic_id)
        subscription.wanted = wanted.filters
