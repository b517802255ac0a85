"""Records → state: deliveries through the table of `delivery/leases/lease.py`. See `journal.py`."""

from collections.abc import Collection, Sequence
from typing import Final

from latermq_broker.delivery.history import Outcome
from latermq_broker.delivery.leases.lease import IN_HAND, Delivery, Event, State
from latermq_broker.delivery.leases.leases import Ended
from latermq_broker.delivery.leases.renewals import margin_ms
from latermq_broker.delivery.leases.shared import (
    DeliveryKey,
    Holder,
    Origin,
    place_of,
    places_of,
    tuple_new,
)
from latermq_broker.delivery.order.fifo import Letter
from latermq_broker.delivery.order.lite import LiteParent
from latermq_broker.engine.journal.indexing import enqueue, index_letter
from latermq_broker.engine.state.letter_states import LetterStates
from latermq_broker.engine.state.model import DeadState
from latermq_broker.engine.state.standing import origin_told_by_letter
from latermq_broker.engine.state.state import (
    Applied,
    Appliers,
    EngineState,
    Stamp,
    Subscription,
    lite_reader,
)
from latermq_broker.store.derived.consume_queue import ENTRY_LETTER, Entry
from latermq_broker.store.records import lease_records
from latermq_broker.store.records.lease_records import (
    LEASE_ENDED,
    NO_QUEUE,
    ORDERED_HOLD,
    ORDERED_KEEP,
    ORDERED_PASS,
    AttemptPayload,
    ExtendPayload,
    LeaseFreshPayload,
    LeaseOrderedPayload,
    LeaseRetryPayload,
)
from latermq_broker.store.records.letter_records import (
    DEAD_PARKS,
    DEAD_WAITING,
    DeadPayload,
    RedrivePayload,
)
from latermq_broker.store.records.record import RecordType

DELIVERY_IDS_END: Final = 1 << 63  # an id beyond has no room for those of later lives


class DeliveryApplier:
    """LEASE_*, ACK, EXTEND, ATTEMPT, DEAD, REDRIVE: who holds what."""

    def __init__(self, state: EngineState) -> None:
        self._state = state

    def appliers(self) -> Appliers:
        return {
            RecordType.LEASE_FRESH: Applied(self.lease_fresh),
            RecordType.LEASE_RETRY: Applied(self.lease_retry),
            RecordType.LEASE_ORDERED: Applied(self.lease_ordered),
            RecordType.ACK: Applied(self.ack),
            RecordType.EXTEND: Applied(self.extend),
            RecordType.ATTEMPT: Applied(self.attempt),
            RecordType.DEAD: Applied(self.dead, self.add_letter),
            RecordType.REDRIVE: Applied(self.redrive),
        }

    def lease_fresh(self, lease: LeaseFreshPayload, at: Stamp) -> Sequence[int]:
        """Lend fresh messages of a queue; return the ids of what was lent."""
        state = self._state
        subscription = leasing_subscription(state, lease.group_id, lease.topic_id)
        queue = state.queue(lease.topic_id, lease.queue_id)
        positions, lengths, tags = queue.columns(lease.first_offset, lease.span)
        assert len(positions) == lease.span
        offsets: Sequence[int] = range(lease.first_offset, lease.first_offset + lease.span)
        if len(lease.deltas) < lease.span:
            positions = [positions[delta] for delta in lease.deltas]
            lengths = [lengths[delta] for delta in lease.deltas]
            tags = [tags[delta] for delta in lease.deltas]
            offsets = [offsets[delta] for delta in lease.deltas]
        places = places_of(lease.group_id, lease.topic_id, lease.queue_id, offsets, tags)
        subscription.move(lease.queue_id, lease.first_offset + lease.span)
        return self.lend(subscription, lease, places, offsets, positions, lengths, at)

    def lease_retry(self, lease: LeaseRetryPayload, at: Stamp) -> None:
        state = self._state
        for delivery_id in lease.ids:
            delivery = state.leases.deliveries[delivery_id]
            subscription = state.subscription(delivery.group_id, delivery.topic_id)
            self._ripen(subscription, delivery)
            self._move(subscription, delivery, Event.RECEIVE)
            state.leases.lend(delivery, _holder(state, lease), at.store_ms)
            _hold(state, delivery, at.store_ms + lease.invisible_ms)
            subscription.last_consumed_ms = at.store_ms

    def lease_ordered(self, lease: LeaseOrderedPayload, at: Stamp) -> Sequence[int]:
        """Lend, hold back and pass over messages in order; return the ids of what was lent."""
        state = self._state
        subscription = leasing_subscription(state, lease.group_id, lease.topic_id)
        gate = subscription.ordered()
        reader = lite_reader(state, subscription)
        where = (lease.group_id, lease.topic_id)
        kept = 0
        places: list[DeliveryKey] = []
        offsets: list[int] = []
        positions: list[int] = []
        lengths: list[int] = []
        for key, offset, queue_id, act in lease.rows:
            if act == ORDERED_HOLD:
                gate.hold(key, queue_id, offset)
                continue
            gate.unhold(key, offset)
            if act == ORDERED_PASS:
                continue
            entry = state.queue(lease.topic_id, queue_id).get(offset)
            if act == ORDERED_KEEP:
                self.add(
                    subscription,
                    id=lease.first_id + kept,
                    queue_id=queue_id,
                    offset=offset,
                    position=entry.position,
                    length=entry.length,
                    tag_hash=entry.tag_hash,
                    order_key=key,
                )
                kept += 1
                if reader is not None:
                    reader.cursors[key] = offset + 1
                continue
            if key:
                gate.lend(key, offset, lease.first_id + len(offsets))
            if reader is not None:
                reader.cursors[key] = offset + 1
            places.append(place_of(*where, queue_id, offset, entry.tag_hash, key))
            offsets.append(offset)
            positions.append(entry.position)
            lengths.append(entry.length)
        if lease.queue_id != NO_QUEUE:
            subscription.move(lease.queue_id, lease.next_offset)
        return self.lend(subscription, lease, places, offsets, positions, lengths, at)

    def lend(
        self,
        subscription: Subscription,
        lease: LeaseFreshPayload | LeaseOrderedPayload,
        places: Sequence[DeliveryKey],
        offsets: Sequence[int],
        positions: Sequence[int],
        lengths: Sequence[int],
        at: Stamp,
    ) -> Sequence[int]:
        """Lend messages that the group had not received yet."""
        if not positions:
            return ()
        assert len(places) == len(offsets) == len(positions) == len(lengths)
        require_id(lease.first_id)
        state = self._state
        holder = _holder(state, lease)
        state.leases.lend_new(
            lease.first_id,
            places,
            offsets,
            positions,
            lengths,
            holder,
            at.store_ms,
            lease.invisible_ms,
        )
        state.uses.hold_all(positions)
        subscription.count(State.LEASED, len(positions))
        subscription.last_consumed_ms = at.store_ms
        return range(lease.first_id, lease.first_id + len(positions))

    def ack(self, ids: Sequence[int], at: Stamp) -> None:
        if not self._ack(ids):
            for delivery_id in ids:
                self._ack((delivery_id,))
        self._state.recently_done.forget(at.store_ms)

    def _ack(self, ids: Sequence[int]) -> bool:
        """Finish them together, and what waited for that; False: they are not alike."""
        ended = self._finish(ids)
        if ended is None:
            return False
        if key := ended.place.order_key:
            subscription = self._state.subscription(ended.place.group_id, ended.place.topic_id)
            if subscription.counts[State.ACKED]:
                self._finish_acked(subscription, key)
        return True

    def _finish(self, ids: Sequence[int]) -> Ended | None:
        """End them by an ACK, and count; None: they are not alike, and nothing is done."""
        state = self._state
        ended = state.leases.finish(ids, Event.ACK)
        if ended is None:
            return None
        _, before, place, offset, positions, generation, deadline_ms, first_attempt, _ = ended
        subscription = state.subscription(place.group_id, place.topic_id)
        subscription.count(before, -len(ids))
        if state.counts_flow and (before is State.LEASED or before is State.ACKED):
            _count_acks(state, subscription, ended)
        state.uses.hold_all(positions, -1)
        if first_attempt:
            state.uses.unchain(first_attempt)
        state.recently_done.remember(ids, generation, place, deadline_ms)
        if place.order_key:
            _leave_in_order(state, subscription, place.order_key, offset, ids[0], before)
        return ended

    def _finish_acked(self, subscription: Subscription, key: int) -> None:
        """Finish what was acknowledged of a message group and has nothing before it any more."""
        assert key
        deliveries, gate = self._state.leases.deliveries, subscription.ordered()
        while (group := gate.groups.get(key)) is not None and group.live:
            delivery_id = group.live[0][1]
            if deliveries[delivery_id].state is not State.ACKED:
                return
            self._finish((delivery_id,))

    def extend(self, extend: ExtendPayload, at: Stamp) -> None:
        delivery = self._state.leases.deliveries[extend.id]
        subscription = self._state.subscription(delivery.group_id, delivery.topic_id)
        self._move(subscription, delivery, Event.EXTEND)
        if not extend.flags & lease_records.EXTEND_KEEP_HANDLE:
            delivery.generation += self._state.leases.stride
        if extend.flags & lease_records.EXTEND_RENEWAL:
            delivery.renewals += 1
        if extend.flags & lease_records.EXTEND_GONE:
            delivery.lose()
        elif extend.flags & lease_records.EXTEND_BOUNDS:
            delivery.bound()
        elif extend.flags & lease_records.EXTEND_AGAIN:
            delivery.renewals = 0
        _hold(self._state, delivery, at.store_ms + extend.invisible_ms)

    def attempt(self, attempt: AttemptPayload, at: Stamp) -> None:
        delivery = self._state.leases.deliveries[attempt.id]
        subscription = self._state.subscription(delivery.group_id, delivery.topic_id)
        delivery.last_attempt = at.position
        if not delivery.first_attempt:
            delivery.first_attempt = at.position
            self._state.uses.chain(delivery.first_attempt)
        if attempt.outcome in LEASE_ENDED:
            self.make_ready(subscription, delivery)
            return
        if attempt.outcome == Outcome.ACKNOWLEDGED:
            key = delivery.order_key
            self._move(subscription, delivery, Event.FOLLOW)
            self._finish_acked(subscription, key)  # what stood before it may be lost
            return
        if attempt.outcome == Outcome.SUSPENDED:
            assert delivery.attempt > 0
            delivery.attempt -= 1
            self._move(subscription, delivery, Event.SUSPEND)
        else:
            self._move(subscription, delivery, Event.NACK)
        delivery.generation += self._state.leases.stride
        _hold(self._state, delivery, at.store_ms + attempt.backoff_ms)

    def make_ready(self, subscription: Subscription, delivery: Delivery) -> None:
        """Apply DUE: to a lease by an ATTEMPT record, to a backoff by time alone."""
        self._move(subscription, delivery, Event.DUE)
        if not delivery.order_key:
            subscription.ready.append(delivery)
            self._state.announced.add(subscription)

    def dead(self, dead: DeadPayload, at: Stamp) -> None:
        state = self._state
        head = dead.head
        delivery = state.leases.deliveries[head.id]
        subscription = state.subscription(delivery.group_id, delivery.topic_id)
        waiting = head.reason in DEAD_WAITING
        if waiting:
            self._ripen(subscription, delivery)
        if head.flags & DEAD_PARKS:
            letter = (head.dlq_topic_id, head.queue_offset)
            state.parking[letter] = (head.group_id, delivery.topic_id, delivery.order_key)
            subscription.ordered().park(delivery.order_key, letter)
        state.recently_done.remember(
            (head.id,), delivery.generation, delivery.place, delivery.deadline_ms
        )
        state.recently_done.forget(at.store_ms)
        self._move(subscription, delivery, Event.EXHAUST if waiting else Event.FORWARD)
        self.add_letter(dead, at)

    def add_letter(self, dead: DeadPayload, at: Stamp) -> None:
        """Have the letter enter the dead-letter topic."""
        head = dead.head
        index_letter(self._state.store.index, dead, at.position)
        entry = Entry(at.position, at.length, ENTRY_LETTER, 0, head.tag_hash, at.store_ms)
        enqueue(self._state, head.dlq_topic_id, 0, entry, head.queue_offset)

    def redrive(self, redrive: RedrivePayload, at: Stamp) -> None:
        state = self._state
        require_id(redrive.id)
        if state.catalog.topic_by_id(redrive.dlq_topic_id) is not None:  # else it is redriven again
            letters = state.dead.setdefault(redrive.dlq_topic_id, LetterStates())
            if redrive.letter_offset >= state.queue(redrive.dlq_topic_id, 0).first:
                letters.put(redrive.letter_offset, DeadState.REDRIVEN, at.store_ms)
        subscription = state.subscription(redrive.group_id, redrive.topic_id)
        origin = Origin(redrive.origin_topic_id, redrive.origin_queue_id, redrive.origin_offset)
        number = redrive.redrive
        if not number:  # an older version's
            redriven = origin_told_by_letter(state, redrive.letter, redrive.topic_id)
            own = Origin(redrive.topic_id, redrive.queue_id, redrive.origin_offset)
            origin, number = redriven or (own, 1)
        delivery = self.add(
            subscription,
            id=redrive.id,
            queue_id=redrive.queue_id,
            offset=redrive.origin_offset,
            position=redrive.letter,
            length=redrive.length,
            tag_hash=redrive.tag_hash,
            order_key=redrive.order_key,
            origin_topic_id=origin.topic_id,
            origin_queue_id=origin.queue_id,
            redrive=number,
        )
        unpark(state, (redrive.dlq_topic_id, redrive.letter_offset))
        if not delivery.order_key:
            subscription.ready.append(delivery)
        else:
            group = state.catalog.group_by_id(redrive.group_id)
            if group is not None and group.lite_parent:  # to which nothing may have been sent yet
                state.lites.setdefault(redrive.topic_id, LiteParent())
            if state.lites:
                lite_may_go(state, subscription, delivery.order_key)
        state.announced.add(subscription)

    def _ripen(self, subscription: Subscription, delivery: Delivery) -> None:
        """End a backoff, in replay only: its end is not written, what followed it shows it."""
        if delivery.state is State.BACKOFF:
            self._move(subscription, delivery, Event.DUE)

    def add(self, subscription: Subscription, **numbers: int) -> Delivery:
        """Add a delivery to the leases, as `Leases.add` does, and count it."""
        assert numbers["id"] not in self._state.leases.deliveries
        delivery = self._state.leases.add(
            group_id=subscription.group_id, topic_id=subscription.topic_id, **numbers
        )
        self._state.uses.hold(delivery.position)
        subscription.count(State.READY, 1)
        if delivery.order_key:
            subscription.ordered().enter(delivery.order_key, delivery.offset, delivery.id)
        return delivery

    def _move(self, subscription: Subscription, delivery: Delivery, event: Event) -> None:
        counts = subscription.counts
        before = delivery.state
        subscription.count(before, -1)
        state = self._state.leases.step(delivery, event)
        if state in counts:
            subscription.count(state, 1)
        else:
            self._state.uses.release(delivery)
        if key := delivery.order_key:
            self._move_in_order(subscription, delivery, before, state)
            if state not in counts and counts[State.ACKED]:
                self._finish_acked(subscription, key)

    def _move_in_order(
        self, subscription: Subscription, delivery: Delivery, before: State, state: State
    ) -> None:
        """Tell its message group what the step means for it."""
        key = delivery.order_key
        assert key
        if state in (State.DONE, State.DEAD):
            _leave_in_order(self._state, subscription, key, delivery.offset, delivery.id, before)
            return
        gate = subscription.ordered()
        if before in IN_HAND and state not in IN_HAND:
            gate.ease(key)
        elif before not in IN_HAND and state in IN_HAND:
            gate.seize(key)
        if key in gate.runnable:
            self._state.announced.add(subscription)
        if self._state.lites and state is not State.LEASED:
            lite_may_go(self._state, subscription, key)


def _count_acks(state: EngineState, subscription: Subscription, ended: Ended) -> None:
    """Count them for whoever watches the group; their age is that of the first."""
    now_ms = state.store.log.last_store_ms
    place = ended.place
    entered_ms = state.queue(place.topic_id, place.queue_id).entered_ms(ended.offset)
    subscription.flowing().acknowledge(
        len(ended.ids),
        max(0, now_ms - ended.leased_ms),
        max(0, now_ms - entered_ms) if entered_ms else -1,
        now_ms,
    )


def _hold(state: EngineState, delivery: Delivery, deadline_ms: int) -> None:
    state.leases.hold(delivery, deadline_ms, margin_ms=margin_ms(delivery, deadline_ms))


def _leave_in_order(
    state: EngineState,
    subscription: Subscription,
    key: int,
    offset: int,
    delivery_id: int,
    before: State,
) -> None:
    """Take a finished delivery out of its message group, which may go on behind it."""
    gate = subscription.ordered()
    gate.leave(key, offset, delivery_id, ready=before not in IN_HAND)
    if key in gate.runnable:
        state.announced.add(subscription)
    if state.lites:
        lite_may_go(state, subscription, key)


def void(state: EngineState, subscription: Subscription, delivery: Delivery) -> None:
    """Forget a delivery, whatever its state: its handles are good for nothing."""
    before = delivery.state
    subscription.count(before, -1)
    if key := delivery.order_key:
        ready = before not in IN_HAND
        subscription.ordered().leave(key, delivery.offset, delivery.id, ready=ready)
    state.uses.release(delivery)
    state.leases.drop(delivery)


def lite_may_go(state: EngineState, subscription: Subscription, key: int) -> None:
    """Let a lite topic go on if the group has nothing of it in hand, or is to receive it again."""
    reader = lite_reader(state, subscription)
    if reader is not None:
        group = subscription.ordered().groups.get(key)
        if group is None or not group.blocked:
            reader.may_go(key, retries=group is not None)
            state.announced.add(subscription)


def lite_retries_may_go(state: EngineState, topic_id: int) -> None:
    """Let retries of its lite topics be received, also where the lite topic is no more."""
    for subscription in state.subscriptions.values():
        reader, gate = subscription.lite, subscription.gate
        if subscription.topic_id == topic_id and reader is not None and gate is not None:
            for key in gate.runnable:
                reader.may_go(key, retries=True)


def unpark(state: EngineState, letter: Letter) -> None:
    """Let go on what a letter stopped, as it is redriven, dropped or expired."""
    parked = state.parking.pop(letter, None)
    if parked is not None:
        subscription = state.subscription(parked[0], parked[1])
        subscription.ordered().unpark(parked[2], letter)
        lite_may_go(state, subscription, parked[2])
        state.announced.add(subscription)


def require_id(delivery_id: int) -> None:
    """Check that deliveries of lives to come have ids behind one. Raises ValueError."""
    if delivery_id >= DELIVERY_IDS_END:
        raise ValueError(f"delivery {delivery_id}: none is from {DELIVERY_IDS_END} on")


def leasing_subscription(state: EngineState, group_id: int, topic_id: int) -> Subscription:
    """Return the subscription that a lease is of. Raises ValueError: of no group or no topic."""
    catalog = state.catalog
    if catalog.group_by_id(group_id) is None or catalog.topic_by_id(topic_id) is None:
        raise ValueError(f"group {group_id} or topic {topic_id} is not there")
    return state.subscription(group_id, topic_id)


def drop_subscriptions(state: EngineState, keys: Collection[tuple[int, int]]) -> None:
    """Forget the progress of groups on topics, (group id, topic id), and their deliveries there."""
    dropped = [state.subscriptions.pop(key) for key in keys]
    for (group_id, topic_id), subscription in zip(keys, dropped, strict=True):
        if topic_id in state.lites:
            state.lites[topic_id].readers.pop(group_id, None)
        if subscription.gate is not None:
            for letter in subscription.gate.letters():
                del state.parking[letter]
    for delivery in state.leases.of(keys):
        state.uses.release(delivery)
        state.leases.drop(delivery)
    for subscription in dropped:
        subscription.count(State.LEASED, -subscription.counts[State.LEASED])
        subscription.ready.close()


def _holder(
    state: EngineState, lease: LeaseFreshPayload | LeaseRetryPayload | LeaseOrderedPayload
) -> Holder:
    client_id = state.clients.known(lease.client)
    auto_renew = lease.flags & lease_records.LEASE_AUTO_RENEW != 0
    return tuple_new(Holder, (lease.client, client_id, auto_renew))
