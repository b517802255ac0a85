"""Messages on their way in → the payloads of their records: due times, queues, offsets, hashes."""

from collections.abc import Sequence
from typing import Final

from latermq_broker.delivery.filters.filter import hash64
from latermq_broker.engine.state.model import Outgoing, Topic, TopicType
from latermq_broker.engine.state.state import EngineState
from latermq_broker.schedule.levels import level_ms
from latermq_broker.store.records.message_records import (
    MESSAGE_LETTER,
    MESSAGE_LITE,
    MESSAGE_ORDERED,
    MESSAGE_PRIORITY,
    NO_PRIORITY,
    QUEUE_UNSET,
    MessagePayload,
)

tuple_new: Final = tuple.__new__  # as MessagePayload(...), without its keyword handling


def payloads_of(
    state: EngineState, topic: Topic, messages: Sequence[Outgoing], now_ms: int
) -> list[MessagePayload]:
    """Give each message of a topic its place, as if all were written next."""
    lite = topic.type is TopicType.LITE
    turn = -1  # the queue of those that have no message group
    nexts: dict[int, int] = {}
    letter = MESSAGE_LETTER if topic.internal else 0
    levels_ms = state.config.delivery.delay_levels_ms
    wall_ms = state.wall.at(now_ms)
    payloads: list[MessagePayload] = []
    for message in messages:
        due_ms = _due_ms(message, wall_ms, levels_ms)
        waits = due_ms > wall_ms
        order_key = hash64(message.message_group or message.lite_topic)
        if order_key or topic.type is TopicType.PRIORITY:
            queue_id = state.turns.next_queue(topic, order_key, message.priority)
        else:
            queue_id = turn = state.turns.next_queue(topic) if turn < 0 else turn
        offset = nexts.get(queue_id, -1)
        if offset < 0:
            offset = state.queue(topic.id, queue_id).next
        nexts[queue_id] = offset + (not waits)
        fields = (
            topic.id,
            QUEUE_UNSET if waits else queue_id,
            letter | _kind_bits(message, order_key, lite=lite),
            -1 if waits else offset,
            due_ms,
            hash64(message.tag),
            hash64(message.message_id),
            message.delay_level,
            tuple(map(hash64, message.keys)) if message.keys else (),
            message.rest,
            message.sys,
            order_key,
            message.priority,
            message.lite_topic,
        )
        payloads.append(tuple_new(MessagePayload, fields))
    return payloads


def _kind_bits(message: Outgoing, order_key: int, *, lite: bool) -> int:
    if order_key:
        return MESSAGE_ORDERED | MESSAGE_LITE if lite else MESSAGE_ORDERED
    return MESSAGE_PRIORITY if message.priority != NO_PRIORITY else 0


def _due_ms(message: Outgoing, wall_ms: int, delay_levels_ms: tuple[int, ...]) -> int:
    if message.delay_level:
        return wall_ms + level_ms(message.delay_level, delay_levels_ms)
    return message.deliver_at_ms
