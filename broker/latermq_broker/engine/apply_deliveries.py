"""Records → state: deliveries through the table of `delivery/lease.py`. See `journal.py`."""

from collections.abc import Sequence
from typing import Final

from latermq_broker.delivery.history import Outcome
from latermq_broker.delivery.lease import Delivery, Event, State
from latermq_broker.engine.indexing import index_letter
from latermq_broker.engine.model import DeadState
from latermq_broker.engine.state import EngineState, Stamp, Subscription
from latermq_broker.store import payload_lease, payload_message
from latermq_broker.store.consume_queue import ENTRY_LETTER, Entry
from latermq_broker.store.payload_lease import (
    NO_QUEUE,
    ORDERED_HOLD,
    ORDERED_TAKE,
    AttemptPayload,
    ExtendPayload,
    LeaseFreshPayload,
    LeaseOrderedPayload,
    LeaseRetryPayload,
)
from latermq_broker.store.payload_message import DEAD_PARKS, DeadPayload, RedrivePayload

RENEW_MARGIN_MS: Final = 10_000  # an auto-renewed lease is looked at so long before its deadline


class DeliveryApplier:
    """LEASE_*, ACK, EXTEND, ATTEMPT, DEAD, REDRIVE: who holds what."""

    def __init__(self, state: EngineState) -> None:
        self._state = state

    def lease_fresh(self, lease: LeaseFreshPayload, at: Stamp) -> None:
        state = self._state
        subscription = state.subscription(lease.group_id, lease.topic_id)
        queue = state.queue(lease.topic_id, lease.queue_id)
        entries = queue.scan(lease.first_offset, lease.span)
        for index, delta in enumerate(lease.deltas):
            entry = entries[delta]
            delivery = Delivery(
                id=lease.first_id + index,
                group_id=lease.group_id,
                topic_id=lease.topic_id,
                queue_id=lease.queue_id,
                offset=lease.first_offset + delta,
                position=entry.position,
                length=entry.length,
                tag_hash=entry.tag_hash,
            )
            self._add(subscription, delivery)
            self._grant(subscription, delivery, lease, at)
        subscription.cursors[lease.queue_id] = lease.first_offset + lease.span
        subscription.last_consumed_ms = at.store_ms

    def lease_retry(self, lease: LeaseRetryPayload, at: Stamp) -> None:
        state = self._state
        for delivery_id in lease.ids:
            delivery = state.leases.deliveries[delivery_id]
            subscription = state.subscription(delivery.group_id, delivery.topic_id)
            self._ripen(subscription, delivery)
            self._grant(subscription, delivery, lease, at)
            subscription.last_consumed_ms = at.store_ms

    def lease_ordered(self, lease: LeaseOrderedPayload, at: Stamp) -> None:
        state = self._state
        subscription = state.subscription(lease.group_id, lease.topic_id)
        gate = subscription.ordered()
        delivery_id = lease.first_id
        for row in lease.rows:
            if row.act == ORDERED_HOLD:
                gate.hold(row.order_key, row.queue_id, row.offset)
                continue
            gate.unhold(row.order_key, row.offset)
            if row.act != ORDERED_TAKE:
                continue
            entry = state.queue(lease.topic_id, row.queue_id).get(row.offset)
            delivery = Delivery(
                id=delivery_id,
                group_id=lease.group_id,
                topic_id=lease.topic_id,
                queue_id=row.queue_id,
                offset=row.offset,
                position=entry.position,
                length=entry.length,
                tag_hash=entry.tag_hash,
                order_key=row.order_key,
            )
            delivery_id += 1
            self._add(subscription, delivery)
            self._grant(subscription, delivery, lease, at)
            subscription.last_consumed_ms = at.store_ms
        if lease.queue_id != NO_QUEUE:
            subscription.cursors[lease.queue_id] = lease.next_offset

    def ack(self, ids: Sequence[int], at: Stamp) -> None:
        state = self._state
        for delivery_id in ids:
            delivery = state.leases.deliveries[delivery_id]
            subscription = state.subscription(delivery.group_id, delivery.topic_id)
            self._move(subscription, delivery, Event.ACK)
            state.recently_done.remember(delivery, at.store_ms)

    def extend(self, extend: ExtendPayload, at: Stamp) -> None:
        delivery = self._state.leases.deliveries[extend.id]
        subscription = self._state.subscription(delivery.group_id, delivery.topic_id)
        self._move(subscription, delivery, Event.EXTEND)
        if not extend.flags & payload_lease.EXTEND_KEEP_HANDLE:
            delivery.generation += 1
        if extend.flags & payload_lease.EXTEND_RENEWAL:
            delivery.renewals += 1
        self._hold(delivery, at.store_ms + extend.invisible_ms)

    def attempt(self, attempt: AttemptPayload, at: Stamp) -> None:
        delivery = self._state.leases.deliveries[attempt.id]
        subscription = self._state.subscription(delivery.group_id, delivery.topic_id)
        delivery.last_attempt = at.position
        if not delivery.first_attempt:
            delivery.first_attempt = at.position
            self._state.uses.chain(delivery)
        if attempt.outcome == Outcome.EXPIRED:
            self.make_ready(subscription, delivery)
            return
        if attempt.outcome == Outcome.SUSPENDED:
            delivery.attempt -= 1
            self._move(subscription, delivery, Event.SUSPEND)
        else:
            self._move(subscription, delivery, Event.NACK)
        delivery.generation += 1
        self._hold(delivery, at.store_ms + attempt.backoff_ms)

    def make_ready(self, subscription: Subscription, delivery: Delivery) -> None:
        """DUE: of a lease by an ATTEMPT record, of a backoff by time alone."""
        self._move(subscription, delivery, Event.DUE)
        if not delivery.order_key:
            subscription.ready.append((delivery.id, delivery.generation))
            self._state.announce(subscription)

    def dead(self, dead: DeadPayload, at: Stamp) -> None:
        state = self._state
        head = dead.head
        delivery = state.leases.deliveries[head.id]
        subscription = state.subscription(delivery.group_id, delivery.topic_id)
        exhausted = head.reason == payload_message.DEAD_EXHAUSTED
        if exhausted:
            self._ripen(subscription, delivery)
        if head.flags & DEAD_PARKS:
            letter = (head.dlq_topic_id, head.queue_offset)
            state.parking[letter] = (head.group_id, delivery.topic_id, delivery.order_key)
            subscription.ordered().park(delivery.order_key, letter)
        self._move(subscription, delivery, Event.EXHAUST if exhausted else Event.FORWARD)
        state.recently_done.remember(delivery, at.store_ms)
        self.bury(dead, at)

    def bury(self, dead: DeadPayload, at: Stamp) -> None:
        """The letter enters the dead-letter topic."""
        head = dead.head
        index_letter(self._state.store.index, dead, at.position)
        entry = Entry(at.position, at.length, ENTRY_LETTER, 0, head.tag_hash, at.store_ms)
        self._state.enqueue(head.dlq_topic_id, 0, entry, head.queue_offset)

    def redrive(self, redrive: RedrivePayload, at: Stamp) -> None:
        state = self._state
        letters = state.dead.setdefault(redrive.dlq_topic_id, {})
        letters[redrive.letter_offset] = (DeadState.REDRIVEN, at.store_ms)
        subscription = state.subscription(redrive.group_id, redrive.topic_id)
        delivery = Delivery(
            id=redrive.id,
            group_id=redrive.group_id,
            topic_id=redrive.topic_id,
            queue_id=redrive.queue_id,
            offset=redrive.origin_offset,
            position=redrive.letter,
            length=redrive.length,
            tag_hash=redrive.tag_hash,
            order_key=redrive.order_key,
        )
        self._add(subscription, delivery)
        state.unpark((redrive.dlq_topic_id, redrive.letter_offset))
        if not delivery.order_key:
            subscription.ready.append((delivery.id, delivery.generation))
        state.announce(subscription)

    def restore_delivery(self, delivery: Delivery) -> None:
        """From a checkpoint, in the state it had then; READY ones in the order of their lane."""
        self._state.leases.add(delivery)
        self._state.uses.hold(delivery)
        if delivery.first_attempt:
            self._state.uses.chain(delivery)
        subscription = self._state.subscription(delivery.group_id, delivery.topic_id)
        subscription.ids.add(delivery.id)
        subscription.counts[delivery.state] += 1
        if delivery.order_key:
            subscription.ordered().enter(delivery.order_key, delivery.offset, delivery.id)
        if delivery.state is State.READY:
            if not delivery.order_key:
                subscription.ready.append((delivery.id, delivery.generation))
        else:
            if delivery.order_key:
                subscription.ordered().seize(delivery.order_key)
            self._hold(delivery, delivery.deadline_ms)

    def _grant(
        self,
        subscription: Subscription,
        delivery: Delivery,
        lease: LeaseFreshPayload | LeaseRetryPayload | LeaseOrderedPayload,
        at: Stamp,
    ) -> None:
        self._move(subscription, delivery, Event.RECEIVE)
        delivery.attempt += 1
        delivery.generation += 1
        delivery.leased_ms = at.store_ms
        delivery.client = lease.client
        delivery.client_id = self._state.client_names.get(lease.client, "")
        delivery.auto_renew = bool(lease.flags & payload_lease.LEASE_AUTO_RENEW)
        delivery.renewals = 0
        self._hold(delivery, at.store_ms + lease.invisible_ms)

    def _hold(self, delivery: Delivery, deadline_ms: int) -> None:
        renewable = delivery.auto_renew and delivery.state is State.LEASED
        margin_ms = min(RENEW_MARGIN_MS, (deadline_ms - delivery.leased_ms) // 2)
        self._state.leases.hold(delivery, deadline_ms, margin_ms=margin_ms if renewable else 0)

    def _ripen(self, subscription: Subscription, delivery: Delivery) -> None:
        """In replay only: the end of a backoff is not written, what followed it shows it."""
        if delivery.state is State.BACKOFF:
            self._move(subscription, delivery, Event.DUE)

    def _add(self, subscription: Subscription, delivery: Delivery) -> None:
        self._state.leases.add(delivery)
        self._state.uses.hold(delivery)
        subscription.ids.add(delivery.id)
        subscription.counts[State.READY] += 1
        if delivery.order_key:
            subscription.ordered().enter(delivery.order_key, delivery.offset, delivery.id)

    def _move(self, subscription: Subscription, delivery: Delivery, event: Event) -> None:
        counts = subscription.counts
        before = delivery.state
        counts[before] -= 1
        state = self._state.leases.step(delivery, event)
        if state in counts:
            counts[state] += 1
        else:
            subscription.ids.discard(delivery.id)
            self._state.uses.release(delivery)
        if delivery.order_key:
            self._move_in_order(subscription, delivery, before, state)

    def _move_in_order(
        self, subscription: Subscription, delivery: Delivery, before: State, state: State
    ) -> None:
        """What the step means for its message group."""
        key, gate = delivery.order_key, subscription.ordered()
        if state in (State.DONE, State.DEAD):
            gate.leave(key, delivery.offset, delivery.id, ready=before is State.READY)
        elif state is State.READY:
            gate.ease(key)
        elif before is State.READY:
            gate.seize(key)
        if key in gate.runnable:
            self._state.announce(subscription)
