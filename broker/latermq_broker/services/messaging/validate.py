"""What SendMessage refuses, in RocketMQ's order: the first rule that is broken gives the code.

Pure checks on one request; they see neither the log nor the network. Whoever breaks one rule with
one message of a batch has the whole batch refused.
"""

import re
from collections.abc import Sequence
from typing import Final

from latermq_broker.catalog.catalog import RETRY_PREFIX
from latermq_broker.config.config import Config
from latermq_broker.engine.state.model import Topic, TopicType
from latermq_broker.errors import (
    BadRequestError,
    BodyEmptyError,
    BodyTooLargeError,
    IllegalLiteTopicError,
    IllegalTopicError,
    MessageCorruptedError,
    PropertiesTooLargeError,
    TypeConflictError,
)
from latermq_broker.services.call import names
from latermq_broker.services.call.bounds import Bounds
from latermq_broker.services.wire import wire
from latermq_broker.services.wire.wire_messages import (
    DEDUP_PROPERTY,
    DELAY,
    LITE,
    PRIORITY,
    TRANSACTION,
)
from latermq_proto.apache.rocketmq.v2 import definition_pb2

KEYS_COUNT_MAX: Final = 255
RECOVERY_MS_MAX: Final = 3_600_000  # until the first check of an orphaned transaction
LITE_TOPIC_BYTES_MAX: Final = 64
_LITE_TOPIC: Final = re.compile(r"[a-zA-Z0-9_-]+")


def check_batch(messages: Sequence[definition_pb2.Message], count_max: int) -> str:
    """Check a batch as a whole; give the one topic of its messages.

    Raises:
        MessageCorruptedError: no message, or messages of several topics.
        IllegalTopicError: against the rules of names, or kept by the broker.
        BadRequestError: too many messages.
    """
    if not messages:
        raise MessageCorruptedError("no message to send")
    topic = messages[0].topic
    name = wire.topic_name(topic)
    if name.startswith(RETRY_PREFIX):
        raise IllegalTopicError(
            f"topic {names.shown(name)} is the broker's: what a group failed stands there"
        )
    count = len(messages)
    if count == 1:
        return name
    if count > count_max:
        raise BadRequestError(f"{count} messages in one request, at most {count_max} are allowed")
    for message in messages:
        if message.topic != topic:
            raise MessageCorruptedError(
                f"messages of several topics in one request: {names.shown(name)} and "
                f"{names.shown(message.topic.name)}"
            )
    return name


class MessageRules:
    """The rules for each message of a request."""

    def __init__(self, config: Config) -> None:
        self._body_bytes_max = config.store.message_body_bytes_max
        self._bounds = Bounds(config)

    def check(self, message: definition_pb2.Message, wall_ms: int) -> None:
        """Check one message by itself.

        Raises:
            BodyTooLargeError, BodyEmptyError: at most `store.message_body_bytes_max`, at least 1.
            PropertiesTooLargeError: too many, or too large together with tag and keys.
            IllegalPropertyKeyError, IllegalTagError, IllegalKeyError, IllegalMessageIdError,
            IllegalMessageGroupError, IllegalLiteTopicError: as their names say.
            BadRequestError: a transaction to be checked for the first time after over an hour; a
                negative priority; a born host with control characters; a dedup id that is none.
            IllegalDeliveryTimeError: beyond `delivery.delay_ms_max`.
        """
        self._check_body(message.body)
        properties = message.system_properties
        size = names.check_properties(message.user_properties)
        size += _check_labels(properties)
        names.check_properties_size(size)
        if DEDUP_PROPERTY in message.user_properties:
            names.check_dedup_id(message.user_properties[DEDUP_PROPERTY])
        names.check_message_id(properties.message_id)
        names.check_born_host(properties.born_host)
        if properties.message_type == TRANSACTION:
            _check_recovery(properties)
        if properties.HasField("delivery_timestamp"):
            self.check_delivery(wire.timestamp_ms(properties.delivery_timestamp), wall_ms)
        if message_group := properties.message_group:
            names.check_message_group(message_group)
        if properties.HasField("priority") and properties.priority < 0:
            raise BadRequestError(f"priority {properties.priority} is negative; 0 is the lowest")
        if properties.HasField("lite_topic"):
            check_lite_topic(properties.lite_topic)

    def _check_body(self, body: bytes) -> None:
        if len(body) > self._body_bytes_max:
            raise BodyTooLargeError(
                f"body has {len(body)} bytes, at most {self._body_bytes_max} are allowed"
            )
        if not body:
            raise BodyEmptyError("body is empty")

    def check_delivery(self, deliver_at_ms: int, wall_ms: int) -> None:
        """Check a delivery time. Raises IllegalDeliveryTimeError: beyond the longest delay."""
        self._bounds.check_delay(deliver_at_ms - wall_ms)


def _check_labels(properties: definition_pb2.SystemProperties) -> int:
    """Check tag and keys; give their size in bytes."""
    tag = properties.tag
    names.check_tag(tag)
    size = names.utf8_bytes(tag)
    keys = properties.keys
    if not keys:
        return size
    for key in keys:
        names.check_key(key)
        size += names.utf8_bytes(key)
    if len(keys) > KEYS_COUNT_MAX:
        raise PropertiesTooLargeError(
            f"{len(keys)} message keys, at most {KEYS_COUNT_MAX} are allowed"
        )
    return size


def _check_recovery(properties: definition_pb2.SystemProperties) -> None:
    recovery_ms = wire.duration_ms(properties.orphaned_transaction_recovery_duration)
    if recovery_ms > RECOVERY_MS_MAX:
        raise BadRequestError(
            f"orphaned_transaction_recovery_duration {recovery_ms} ms, at most {RECOVERY_MS_MAX} "
            "ms are allowed"
        )


def first_check_ms(message: definition_pb2.Message) -> int:
    """Tell when the producer of a half message wants to be asked first.

    0: whenever the broker does.
    """
    asked = message.system_properties.orphaned_transaction_recovery_duration
    return max(wire.duration_ms(asked), 0)


def are_halves(messages: Sequence[definition_pb2.Message]) -> bool:
    """Tell whether a request that stands is one of half messages."""
    return bool(messages) and messages[0].system_properties.message_type == TRANSACTION


def check_halves(kinds: Sequence[definition_pb2.MessageType]) -> None:
    """Check that halves are not sent with other kinds.

    Raises:
        BadRequestError: half messages and others in one request.
    """
    if TRANSACTION in kinds and len(set(kinds)) > 1:
        raise BadRequestError("messages of transactions and others in one request")


def check_lite_topic(lite_topic: str) -> None:
    """Check the name of a lite topic.

    Raises:
        IllegalLiteTopicError: blank, too long, other characters.
    """
    size = names.utf8_bytes(lite_topic)
    if size > LITE_TOPIC_BYTES_MAX:
        raise IllegalLiteTopicError(
            f"lite topic {names.shown(lite_topic)} has {size} bytes, at most "
            f"{LITE_TOPIC_BYTES_MAX} are allowed"
        )
    if _LITE_TOPIC.fullmatch(lite_topic) is None:
        raise IllegalLiteTopicError(
            f"lite topic {names.shown(lite_topic)} is blank or has other characters than "
            "a-z A-Z 0-9 _ -"
        )


def check_pairs(
    message: definition_pb2.Message, kind: definition_pb2.MessageType, delay_level: int
) -> None:
    """Check that a message does not ask for two things of which one would be dropped.

    The table of all pairs is in docs/protocol.md.

    Raises:
        TypeConflictError: a half message with a delivery time, a delay level, a message group, a
            priority, a lite topic or a dedup id; a message group with a delivery time or level; a
            lite topic with any of these.
    """
    properties = message.system_properties
    delayed = bool(delay_level) or properties.HasField("delivery_timestamp")
    asked = [
        what
        for what, is_there in (
            ("a delivery time", properties.HasField("delivery_timestamp")),
            ("a delay level", bool(delay_level)),
            ("a message group", bool(properties.message_group)),
            ("a priority", properties.HasField("priority")),
            ("a lite topic", bool(properties.lite_topic)),
        )
        if is_there
    ]
    if kind == TRANSACTION:
        if asked:
            raise TypeConflictError(f"a message of a transaction has not {' or '.join(asked)}")
        if DEDUP_PROPERTY in message.user_properties:
            raise TypeConflictError(
                f"a message of a transaction has no dedup id ({DEDUP_PROPERTY})"
            )
    if delayed and properties.message_group:
        raise TypeConflictError("a message has a message group or a delivery time, not both")
    if properties.lite_topic and len(asked) > 1:
        others = [what for what in asked if what != "a lite topic"]
        raise TypeConflictError(f"a message for a lite topic has not {' or '.join(others)}")


def check_type(
    topic: Topic | None, kind: definition_pb2.MessageType, *, ranked: bool = False
) -> None:
    """Check that the topic takes the message: a topic takes messages of its own type.

    One that does not exist yet will be a mixed one.

    Args:
        ranked: the message has a priority. Then a topic of type PRIORITY takes it delayed, too.
    Raises:
        TypeConflictError: another type. Never for dead-letter topics; for mixed ones only if it is
            PRIORITY or LITE: their queues are not made for it.
    """
    if topic is not None and topic.internal:
        return
    type = topic.type if topic is not None else TopicType.MIXED
    if type is TopicType.MIXED:
        fits = kind not in (LITE, PRIORITY)
    else:
        fits = int(kind) == int(type)  # the same numbers
        fits |= ranked and kind == DELAY and type is TopicType.PRIORITY
    if not fits:
        name = definition_pb2.MessageType.Name(kind)
        where = f"topic {topic.name}" if topic is not None else "a new topic"
        raise TypeConflictError(f"message type {name} does not fit {where} of type {type.name}")
