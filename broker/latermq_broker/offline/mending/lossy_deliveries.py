"""Deliveries behind a lost range: see `lossy.py`."""

from latermq_broker.delivery.history import Outcome
from latermq_broker.delivery.leases.lease import IN_HAND, State
from latermq_broker.engine.journal.apply_ahead import AheadApplier
from latermq_broker.engine.journal.apply_deliveries import DeliveryApplier
from latermq_broker.engine.journal.indexing import reach
from latermq_broker.engine.state.state import EngineState, Stamp
from latermq_broker.offline.mending.lossy_catalog import CatalogMender, Menders
from latermq_broker.offline.mending.lossy_progress import ProgressMender
from latermq_broker.offline.mending.lossy_queues import is_lost
from latermq_broker.store.derived.consume_queue import Entry
from latermq_broker.store.records.catalog_records import OffsetPayload
from latermq_broker.store.records.lease_records import (
    AHEAD_PASS,
    NO_QUEUE,
    ORDERED_HOLD,
    ORDERED_KEEP,
    ORDERED_TAKE,
    AttemptPayload,
    ExtendPayload,
    LeaseFreshPayload,
    LeaseOrderedPayload,
    LeaseRetryPayload,
    OrderedRow,
)
from latermq_broker.store.records.letter_records import DEAD_WAITING, DeadPayload, RedrivePayload
from latermq_broker.store.records.record import RecordType


class DeliveryMender:
    """LEASE_*, ACK, EXTEND, ATTEMPT, DEAD, REDRIVE; OFFSET, which moves what leases do."""

    def __init__(
        self,
        state: EngineState,
        deliveries: DeliveryApplier,
        catalog: CatalogMender,
        progress: ProgressMender,
    ) -> None:
        self._progress = progress
        self._state = state
        self._deliveries = deliveries
        self._ahead = AheadApplier(state, deliveries)
        self._catalog = catalog

    def menders(self) -> Menders:
        return {
            RecordType.LEASE_FRESH: self.lease_fresh,
            RecordType.LEASE_RETRY: self.lease_retry,
            RecordType.LEASE_ORDERED: self.lease_ordered,
            RecordType.LEASE_AHEAD: self.lease_ahead,
            RecordType.ACK: self.ack,
            RecordType.EXTEND: self.extend,
            RecordType.ATTEMPT: self.attempt,
            RecordType.DEAD: self.dead,
            RecordType.REDRIVE: self.redrive,
            RecordType.OFFSET: self.offset,
        }

    def ack(self, ids: tuple[int, ...], at: Stamp) -> tuple[int, ...] | None:
        del at
        return self._known(ids) or None

    def _known(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        deliveries = self._state.leases.deliveries
        return tuple(delivery_id for delivery_id in ids if delivery_id in deliveries)

    def _state_of(self, delivery_id: int) -> State | None:
        delivery = self._state.leases.deliveries.get(delivery_id)
        return None if delivery is None else delivery.state

    def lease_fresh(self, lease: LeaseFreshPayload, at: Stamp) -> LeaseFreshPayload | None:
        if not self._catalog.has_group(lease.group_id):
            return None
        self._catalog.ensure_topic(lease.topic_id, lease.queue_id, at)
        reach(
            self._state,
            lease.topic_id,
            lease.queue_id,
            lease.first_offset + lease.span,
            at.store_ms,
        )
        state = self._state
        queue = state.queue(lease.topic_id, lease.queue_id)
        subscription = state.subscription(lease.group_id, lease.topic_id)
        if lease.first_offset < queue.first:  # much is lost: what is not is delivered again
            subscription.cursors[lease.queue_id] = queue.first
            return None
        moves = self._progress.jump(
            lease.group_id, lease.topic_id, lease.queue_id, lease.first_offset, at
        )
        cursor = subscription.cursors.get(lease.queue_id, queue.first)
        entries = queue.scan(lease.first_offset, lease.span)
        self._deliveries.lease_fresh(lease, at)
        if not moves:
            subscription.cursors[lease.queue_id] = cursor
        lost = (index for index, delta in enumerate(lease.deltas) if is_lost(entries[delta]))
        self._deliveries.ack([lease.first_id + index for index in lost], at)
        return None

    def lease_ordered(self, lease: LeaseOrderedPayload, at: Stamp) -> LeaseOrderedPayload | None:
        state = self._state
        if not self._catalog.has_group(lease.group_id):
            return None
        moves = lease.queue_id != NO_QUEUE
        if moves:
            self._catalog.ensure_topic(lease.topic_id, lease.queue_id, at)
            reach(state, lease.topic_id, lease.queue_id, lease.next_offset, at.store_ms)
        for row in lease.rows:
            self._catalog.ensure_topic(lease.topic_id, row.queue_id, at)
            reach(state, lease.topic_id, row.queue_id, row.offset + 1, at.store_ms)
        if moves:
            here = [row.offset for row in lease.rows if row.queue_id == lease.queue_id]
            looked_from = min([*here, lease.next_offset])
            moves = self._progress.jump(
                lease.group_id, lease.topic_id, lease.queue_id, looked_from, at
            )
        queue_id = lease.queue_id if moves else NO_QUEUE
        if any(self._expired(lease, row) for row in lease.rows):  # much is lost: delivered again
            return None
        rows = tuple(row for row in lease.rows if self._may_hold(lease, row))
        self._deliveries.lease_ordered(lease._replace(rows=rows, queue_id=queue_id), at)
        taken = [row for row in rows if row.act in (ORDERED_TAKE, ORDERED_KEEP)]
        lost = (index for index, row in enumerate(taken) if is_lost(self._entry(lease, row)))
        self._deliveries.ack([lease.first_id + index for index in lost], at)
        return None

    def lease_ahead(self, lease: LeaseOrderedPayload, at: Stamp) -> LeaseOrderedPayload | None:
        state = self._state
        if state.catalog.group_by_id(lease.group_id) is None:
            return None
        self._catalog.ensure_topic(lease.topic_id, lease.queue_id, at)
        for row in lease.rows:
            count = row.order_key if row.act == AHEAD_PASS else 1
            reach(state, lease.topic_id, lease.queue_id, row.offset + count, at.store_ms)
        if any(self._expired(lease, row) for row in lease.rows):  # much is lost: delivered again
            return None
        rows = tuple(
            row for row in lease.rows if row.act == AHEAD_PASS or self._may_hold(lease, row)
        )
        self._ahead.lease_ahead(lease._replace(rows=rows), at)
        taken = [row for row in rows if row.act == ORDERED_TAKE]
        lost = (index for index, row in enumerate(taken) if is_lost(self._entry(lease, row)))
        self._deliveries.ack([lease.first_id + index for index in lost], at)
        return None

    def _expired(self, lease: LeaseOrderedPayload, row: OrderedRow) -> bool:
        queue = self._state.queue(lease.topic_id, row.queue_id)
        return row.act in (ORDERED_TAKE, ORDERED_KEEP) and row.offset < queue.first

    def _may_hold(self, lease: LeaseOrderedPayload, row: OrderedRow) -> bool:
        """Tell whether what is held back is behind what was held before, and in the same queue."""
        gate = self._state.subscription(lease.group_id, lease.topic_id).ordered()
        group = gate.groups.get(row.order_key)
        if row.act != ORDERED_HOLD or group is None or group.queue_id == -1:
            return True
        return group.queue_id == row.queue_id and row.offset > max(group.held, default=-1)

    def _entry(self, lease: LeaseOrderedPayload, row: OrderedRow) -> Entry:
        return self._state.queue(lease.topic_id, row.queue_id).get(row.offset)

    def lease_retry(self, lease: LeaseRetryPayload, at: Stamp) -> LeaseRetryPayload | None:
        ids = self._known(lease.ids)
        for delivery_id in ids:
            if self._state_of(delivery_id) is State.LEASED:  # how that lease ended is lost
                delivery = self._state.leases.deliveries[delivery_id]
                subscription = self._state.subscription(delivery.group_id, delivery.topic_id)
                self._deliveries.make_ready(subscription, delivery)
        return lease._replace(ids=ids) if ids else None

    def extend(self, extend: ExtendPayload, at: Stamp) -> ExtendPayload | None:
        held = self._state_of(extend.id) in IN_HAND
        return extend if held else None

    def attempt(self, attempt: AttemptPayload, at: Stamp) -> AttemptPayload | None:
        state = self._state_of(attempt.id)
        again = attempt.outcome in (Outcome.NACK, Outcome.ACKNOWLEDGED)
        if state is State.LEASED or (state is State.BACKOFF and again):
            return attempt
        return None

    def dead(self, dead: DeadPayload, at: Stamp) -> DeadPayload | None:
        head = dead.head
        self._catalog.ensure_letters(head.dlq_topic_id, head.group_id, at)
        state = self._state_of(head.id)
        waiting = state is State.READY and head.reason in DEAD_WAITING
        if state in IN_HAND or waiting:
            return dead
        if state is not None:
            self._deliveries.ack((head.id,), at)
        self._deliveries.add_letter(dead, at)
        return None

    def redrive(self, redrive: RedrivePayload, at: Stamp) -> RedrivePayload | None:
        known = self._catalog.has_group(redrive.group_id)
        if not known or redrive.id in self._state.leases.deliveries:
            return None
        self._catalog.ensure_topic(redrive.topic_id, redrive.queue_id, at)
        self._catalog.ensure_letters(redrive.dlq_topic_id, redrive.group_id, at)
        return redrive

    def offset(self, offset: OffsetPayload, at: Stamp) -> OffsetPayload | None:
        mended = self._catalog.offset(offset, at)
        if mended is None or not self._progress.jump(*offset[:4], at):
            return None
        return mended
