"""Where one message stands in one group: to be given yet, or in its hands. Read only."""

from collections.abc import Iterator
from typing import NamedTuple

from latermq_broker.delivery.leases.lease import Delivery
from latermq_broker.engine.state.state import EngineState, Subscription, lite_reader
from latermq_broker.errors import CorruptRecordError
from latermq_broker.store.records.letter_records import decode_dead_head
from latermq_broker.store.records.record import RecordType


class Origin(NamedTuple):
    """Which message it is: where it stood first, in a topic that may be gone."""

    topic_id: int
    queue_id: int
    offset: int


def origin_of(state: EngineState, delivery: Delivery) -> Origin:
    """Tell which message a delivery is of. One that was redriven may stand in a topic made anew,
    where another message has its offset; its letter knows which topic it was of."""
    own = Origin(delivery.topic_id, delivery.queue_id, delivery.offset)
    queue = state.queue(delivery.topic_id, delivery.queue_id)
    if queue.first <= own.offset < queue.next and queue.get(own.offset).position == (
        delivery.position
    ):
        return own  # also of a letter that was redriven to the topic itself
    try:
        record = state.read(delivery.position)
    except CorruptRecordError:
        return own
    if record.type is not RecordType.DEAD:
        return own
    head = decode_dead_head(record.payload)
    if head.dlq_topic_id == own.topic_id:  # a reader of that dead-letter topic has it
        return own
    return Origin(head.origin_topic_id, head.origin_queue_id, head.origin_offset)


def in_hand(
    state: EngineState, group_id: int, message: Origin, topic_id: int = 0
) -> Delivery | None:
    """Find the group's delivery of that message, leased or to be received again.

    Args:
        topic_id: if the message's topic is gone, the one into which its letters are redriven.
    """
    topic_id = topic_id or message.topic_id
    subscription = state.subscriptions.get((group_id, topic_id))
    if subscription is None or not any(subscription.counts.values()):
        return None
    queue_id = message.queue_id if topic_id == message.topic_id else -1
    held: Iterator[Delivery] = state.leases.deliveries.find_all(
        group_id, topic_id, queue_id, message.offset
    )
    for delivery in held:
        if origin_of(state, delivery) == message:
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
