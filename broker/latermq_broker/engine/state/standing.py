"""Where one message stands in one group: to be given yet, or in its hands. Read only."""

from collections.abc import Iterator

from latermq_broker.delivery.leases.lease import Delivery
from latermq_broker.engine.state.state import EngineState, Subscription, lite_reader
from latermq_broker.errors import CorruptRecordError
from latermq_broker.store.records.letter_records import decode_dead_head
from latermq_broker.store.records.record import RecordType


def in_hand(
    state: EngineState, group_id: int, topic_id: int, queue_id: int, offset: int
) -> Delivery | None:
    """Find the group's delivery of that message, leased or to be received again."""
    subscription = state.subscriptions.get((group_id, topic_id))
    if subscription is None or not any(subscription.counts.values()):
        return None
    held: Iterator[Delivery] = state.leases.deliveries.find_all(
        group_id, topic_id, queue_id, offset
    )
    for delivery in held:
        if _is_of(state, topic_id, delivery):
            return delivery
    return None


def is_to_come(
    state: EngineState, group_id: int, topic_id: int, queue_id: int, offset: int, order_key: int
) -> bool:
    """Tell whether the group is given that message anyway, as far as is written.

    It was never given it, or its offset was set back since.
    """
    if offset < state.queue(topic_id, queue_id).first:
        return False
    subscription = state.subscriptions.get((group_id, topic_id))
    group = state.catalog.group_by_id(group_id)
    if group is not None and group.lite_parent:
        return _is_to_come_lite(state, subscription, topic_id, offset, order_key)
    if subscription is None or offset >= subscription.cursors.get(queue_id, 0):
        return True
    gate = subscription.gate
    held = gate.groups.get(order_key) if gate is not None else None
    return held is not None and held.queue_id == queue_id and held.held.place(offset) >= 0


def _is_to_come_lite(
    state: EngineState,
    subscription: Subscription | None,
    topic_id: int,
    offset: int,
    key: int,
) -> bool:
    parent = state.lites.get(topic_id)
    topic = parent.topics.get(key) if parent is not None else None
    if topic is None or topic.place(offset) < 0:
        return False
    reader = lite_reader(state, subscription) if subscription is not None else None
    return reader is None or offset >= reader.next(key)


def _is_of(state: EngineState, topic_id: int, delivery: Delivery) -> bool:
    """It is not a redriven one of a topic that had this name, and this offset, before."""
    try:
        record = state.read(delivery.position)
    except CorruptRecordError:
        return True
    if record.type is not RecordType.DEAD:
        return True
    head = decode_dead_head(record.payload)
    return topic_id in (head.origin_topic_id, head.dlq_topic_id)
