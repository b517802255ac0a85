"""Records → state: the same functions serve live and in replay, so the two cannot differ.

Each takes a decoded payload and the `Stamp` of its record. `Journal.write` encodes, appends to the
log and applies; `Journal.replay` decodes and applies. Nothing here decides anything.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from latermq_broker.delivery.history import Outcome
from latermq_broker.delivery.lease import Delivery, Event, State
from latermq_broker.engine.model import DeadState
from latermq_broker.engine.state import EngineState, Subscription
from latermq_broker.store import payload_catalog, payload_lease, payload_message
from latermq_broker.store.catalog import decode_group, decode_topic
from latermq_broker.store.consume_queue import Entry
from latermq_broker.store.payload_catalog import ConfigPayload, OffsetPayload, ResetPayload
from latermq_broker.store.payload_lease import (
    AttemptPayload,
    ExtendPayload,
    LeaseFreshPayload,
    LeaseRetryPayload,
)
from latermq_broker.store.payload_message import (
    DeadChangePayload,
    DeadPayload,
    MessageHead,
    MessagePayload,
    RedrivePayload,
    RefPayload,
    TimerPayload,
)
from latermq_broker.store.record import HEADER_BYTES, Record, RecordType

RENEW_MARGIN_MS: Final = 10_000  # an auto-renewed lease is looked at so long before its deadline


class Stamp(NamedTuple):
    position: int
    store_ms: int
    length: int  # of the record: header and payload


class Applier:
    """One method per record type."""

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
        self._enqueue(message.topic_id, message.queue_id, entry)

    def ref(self, ref: RefPayload, at: Stamp) -> None:
        if ref.reason == payload_message.REF_DUE:
            self._state.timer.cancel(ref.due_ms, ref.origin)
            self._count_delayed(ref.topic_id, -1)
        entry = Entry(ref.origin, ref.length, ref.reason, 0, ref.tag_hash, at.store_ms)
        self._enqueue(ref.topic_id, ref.queue_id, entry)

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
        self._move(subscription, delivery, Event.EXHAUST if exhausted else Event.FORWARD)
        state.recently_done.remember(delivery, at.store_ms)
        entry = Entry(at.position, at.length, 0, 0, head.tag_hash, at.store_ms)
        self._enqueue(head.dlq_topic_id, 0, entry)

    def dead_change(self, change: DeadChangePayload, at: Stamp) -> None:
        letters = self._state.dead.setdefault(change.dlq_topic_id, {})
        for offset in change.offsets:
            letters[offset] = (DeadState(change.state), at.store_ms)

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
        )
        self._add(subscription, delivery)
        subscription.ready.append((delivery.id, delivery.generation))
        state.announce(subscription)

    def timer(self, timer: TimerPayload, at: Stamp) -> None:
        state = self._state
        state.timer.cancel(timer.due_ms, timer.position)
        if timer.new_due_ms:
            state.timer.arm(timer.new_due_ms, timer.position)
            return
        record = state.store.log.read(timer.position)
        head = payload_message.decode_message_head(record.payload)
        self._count_delayed(head.topic_id, -1)

    def config(self, config: ConfigPayload, at: Stamp) -> None:
        state = self._state
        put = config.operation == payload_catalog.CONFIG_PUT
        if config.kind == payload_catalog.CONFIG_GROUP:
            if put:
                state.catalog.put_group(decode_group(config.body))
                return
            state.catalog.remove_group(config.id)
            for key in [key for key in state.subscriptions if key[0] == config.id]:
                state.drop_subscription(key)
            return
        if put:
            state.catalog.put_topic(decode_topic(config.body))
            return
        state.catalog.remove_topic(config.id)
        for key in [key for key in state.subscriptions if key[1] == config.id]:
            state.drop_subscription(key)
        state.delayed_counts.pop(config.id, None)
        state.dead.pop(config.id, None)
        state.store.drop_topic(config.id)

    def offset(self, offset: OffsetPayload, at: Stamp) -> None:
        subscription = self._state.subscription(offset.group_id, offset.topic_id)
        subscription.cursors[offset.queue_id] = offset.offset
        subscription.scanned.pop(offset.queue_id, None)
        self._state.announce(subscription)

    def reset(self, reset: ResetPayload, at: Stamp) -> None:
        state = self._state
        key = (reset.group_id, reset.topic_id)
        if key in state.subscriptions:
            state.drop_subscription(key)
        subscription = state.subscription(*key)
        subscription.cursors = dict(enumerate(reset.offsets))
        state.announce(subscription)

    def client(self, client_id: str, at: Stamp) -> None:
        state = self._state
        known = state.client_positions
        known[client_id] = at.position
        state.client_names[at.position] = client_id
        if len(known) > state.config.delivery.client_names_max:
            _, position = known.popitem(last=False)
            state.client_names.pop(position, None)

    def restore_delivery(self, delivery: Delivery) -> None:
        """From a checkpoint, in the state it had then; READY ones in the order of their lane."""
        self._state.leases.add(delivery)
        subscription = self._state.subscription(delivery.group_id, delivery.topic_id)
        subscription.ids.add(delivery.id)
        subscription.counts[delivery.state] += 1
        if delivery.state is State.READY:
            subscription.ready.append((delivery.id, delivery.generation))
        else:
            self._hold(delivery, delivery.deadline_ms)

    def _grant(
        self,
        subscription: Subscription,
        delivery: Delivery,
        lease: LeaseFreshPayload | LeaseRetryPayload,
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
        subscription.ids.add(delivery.id)
        subscription.counts[State.READY] += 1

    def _move(self, subscription: Subscription, delivery: Delivery, event: Event) -> None:
        counts = subscription.counts
        counts[delivery.state] -= 1
        state = self._state.leases.step(delivery, event)
        if state in counts:
            counts[state] += 1
        else:
            subscription.ids.discard(delivery.id)

    def _enqueue(self, topic_id: int, queue_id: int, entry: Entry) -> None:
        self._state.queue(topic_id, queue_id).append(entry)
        self._state.announce_topic(topic_id)

    def _count_delayed(self, topic_id: int, change: int) -> None:
        counts = self._state.delayed_counts
        if topic_id in counts:  # not of a deleted topic
            counts[topic_id] += change
            if not counts[topic_id]:
                del counts[topic_id]


class _Kind(NamedTuple):
    encode: Callable[[Any], list[payload_lease.Bytes]]
    decode: Callable[[Any], Any]
    apply: Callable[[Any, Stamp], None]


class Journal:
    """The log and the state, changed together."""

    def __init__(self, state: EngineState) -> None:
        self._log = state.store.log
        self.applier = applier = Applier(state)
        message, lease, catalog = payload_message, payload_lease, payload_catalog
        self._kinds: dict[RecordType, _Kind] = {
            RecordType.MESSAGE: _Kind(
                message.encode_message, message.decode_message_head, applier.message
            ),
            RecordType.REF: _Kind(message.encode_ref, message.decode_ref, applier.ref),
            RecordType.LEASE_FRESH: _Kind(
                lease.encode_lease_fresh, lease.decode_lease_fresh, applier.lease_fresh
            ),
            RecordType.LEASE_RETRY: _Kind(
                lease.encode_lease_retry, lease.decode_lease_retry, applier.lease_retry
            ),
            RecordType.ACK: _Kind(
                lambda ids: [lease.encode_ids(ids)], lease.decode_ids, applier.ack
            ),
            RecordType.EXTEND: _Kind(lease.encode_extend, lease.decode_extend, applier.extend),
            RecordType.ATTEMPT: _Kind(lease.encode_attempt, lease.decode_attempt, applier.attempt),
            RecordType.DEAD: _Kind(message.encode_dead, message.decode_dead, applier.dead),
            RecordType.DEAD_CHANGE: _Kind(
                message.encode_dead_change, message.decode_dead_change, applier.dead_change
            ),
            RecordType.REDRIVE: _Kind(
                message.encode_redrive, message.decode_redrive, applier.redrive
            ),
            RecordType.TIMER: _Kind(message.encode_timer, message.decode_timer, applier.timer),
            RecordType.CONFIG: _Kind(catalog.encode_config, catalog.decode_config, applier.config),
            RecordType.OFFSET: _Kind(catalog.encode_offset, catalog.decode_offset, applier.offset),
            RecordType.RESET: _Kind(catalog.encode_reset, catalog.decode_reset, applier.reset),
            RecordType.CLIENT: _Kind(lease.encode_client, lease.decode_client, applier.client),
        }

    def write(self, type: RecordType, payload: Any, now_ms: int) -> Stamp:
        """Append one record to the batch and apply it.

        Raises StoreFullError, StoreReadOnlyError before anything has changed.
        """
        kind = self._kinds[type]
        parts = kind.encode(payload)
        position = self._log.append(type, parts, now_ms)
        stamp = Stamp(position, self._log.last_store_ms, HEADER_BYTES + sum(map(len, parts)))
        kind.apply(payload, stamp)
        return stamp

    def write_group(self, items: Sequence[tuple[RecordType, Any]], now_ms: int) -> list[Stamp]:
        """The same for several records that recovery takes all or none of."""
        encoded = [self._kinds[type].encode(payload) for type, payload in items]
        sizes = [sum(map(len, parts)) for parts in encoded]
        self._log.reserve(sizes)
        stamps = []
        last = len(items) - 1
        for index, ((type, payload), parts) in enumerate(zip(items, encoded, strict=True)):
            position = self._log.append(type, parts, now_ms, more=index < last)
            stamp = Stamp(position, self._log.last_store_ms, HEADER_BYTES + sizes[index])
            self._kinds[type].apply(payload, stamp)
            stamps.append(stamp)
        return stamps

    def replay(self, record: Record) -> None:
        kind = self._kinds[record.type]
        stamp = Stamp(record.position, record.store_ms, record.length)
        kind.apply(kind.decode(record.payload), stamp)
