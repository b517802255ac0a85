"""How far a consumer group is behind on a topic. Read only."""

from typing import NamedTuple

from latermq_broker.delivery.leases.lease import State
from latermq_broker.engine.state.group_flow import MINUTE_MS
from latermq_broker.engine.state.model import Topic
from latermq_broker.engine.state.state import (
    EngineState,
    Subscription,
    lite_reader,
)
from latermq_broker.errors import DamagedQueueError
from latermq_broker.store.derived.consume_queue import count_since


class Lag(NamedTuple):
    ready_count: int  # messages that a receive may give now: unread ones, and ready retries
    oldest_ms: int  # when the oldest that it was not given came into its queue; 0: there is none
    held_count: int = 0  # unread messages, and ready retries, behind blocked message groups


def entering_per_s(state: EngineState, topic: Topic, now_ms: int) -> float:
    """Count the messages that came into a topic in the last minute, for each second of it.

    What came into a queue that is damaged is not known, and hides no group from whoever looks.
    """
    came = 0
    for queue_id in range(topic.queue_count):
        queue = state.queue(topic.id, queue_id)
        try:
            came += count_since(queue, now_ms - MINUTE_MS)
        except DamagedQueueError as error:
            state.damaged.note_queue(error)
    return came / 60


def lag_of(state: EngineState, subscription: Subscription, topic: Topic) -> Lag:
    """Count a group's unread and retried messages of a topic, and find the oldest unread one.

    Where a group may hold back no more messages (`delivery.held_messages_max`), its receives stop
    before the next one of a blocked message group: then all unread messages count as held.
    """
    fresh = oldest_ms = 0
    reader = lite_reader(state, subscription)
    gate = subscription.gate
    for queue_id in range(1 if reader is not None else topic.queue_count):
        queue = state.queue(topic.id, queue_id)
        if queue.first == queue.next:
            continue
        offset = state.cursor(subscription, queue)
        fresh += subscription.count_unread(queue_id, offset, queue.next)
        if gate is not None and (held := gate.first_held(queue_id)) is not None:
            offset = min(offset, held)
        if offset < queue.next:
            entered_ms = queue.entered_ms(offset)
            if entered_ms and (not oldest_ms or entered_ms < oldest_ms):
                oldest_ms = entered_ms
    retries = subscription.counts[State.READY]
    if reader is not None:
        fresh = reader.unread_count()
    if gate is None:
        return Lag(fresh + retries, oldest_ms)
    held = gate.behind_count
    if reader is not None:
        held += sum(reader.unread(key) for key, group in gate.groups.items() if group.blocked)
    elif held and gate.held_count + retries >= state.config.delivery.held_messages_max:
        held += fresh
    return Lag(fresh + gate.held_count + retries - held, oldest_ms, held)


def has_messages(state: EngineState, topic: Topic) -> bool:
    """Return whether any queue of the topic holds a message, read or not."""
    queues = (state.queue(topic.id, queue_id) for queue_id in range(topic.queue_count))
    return any(queue.next > queue.first for queue in queues)
