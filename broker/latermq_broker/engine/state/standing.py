"""Where one message stands in one group: to be given yet, or in its hands. Read only."""

from latermq_broker.delivery.leases.lease import Delivery
from latermq_broker.delivery.leases.shared import Origin
from latermq_broker.engine.state.state import EngineState, Subscription, lite_reader
from latermq_broker.errors import CorruptRecordError
from latermq_broker.store.records.letter_records import REDRIVES_MAX, DeadHead, decode_dead_head
from latermq_broker.store.records.record import RecordType


def redrive_of(head: DeadHead) -> tuple[Origin, int]:
    """Return the identity of a letter's message, and which redrive to its group comes next."""
    origin = Origin(head.origin_topic_id, head.origin_queue_id, head.origin_offset)
    return origin, min(head.redrive_count + 1, REDRIVES_MAX)


def origin_told_by_letter(
    state: EngineState, position: int, topic_id: int
) -> tuple[Origin, int] | None:
    """Read what a redrive of an older version left to the letter at `position`: see `redrive_of`.

    None: the record is no letter, cannot be read, or is a letter that `topic_id` itself holds.
    """
    try:
        record = state.read(position)
    except CorruptRecordError:
        return None
    if record.type is not RecordType.DEAD:
        return None
    head = decode_dead_head(record.payload)
    return None if head.dlq_topic_id == topic_id else redrive_of(head)


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
    for delivery in state.leases.deliveries.of_message(group_id, message):
        if delivery.topic_id == topic_id:
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
