"""Protobuf ↔ core: times, names, filters, failures, statuses.

Together with its parts the only translator: `wire_messages` takes messages apart on send,
`wire_delivery` puts them together again for a consumer, `wire_stored` reads stored ones,
`wire_fields` is the encoding of single fields. What a request may not say is raised as a
`RequestError`; `answers` turns that into the status of the response.
"""

from typing import Final

from google.protobuf.message import DecodeError

from latermq_broker.config.config import DeliveryConfig
from latermq_broker.engine.state.model import (
    EVERYTHING,
    Failure,
    MessageFilter,
    TagFilter,
    sql_filter,
)
from latermq_broker.errors import (
    IllegalDeliveryTimeError,
    IllegalFilterError,
)
from latermq_broker.services.call import names
from latermq_broker.services.call.handler import Call
from latermq_broker.services.wire.wire_fields import bytes_field
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.google.protobuf import duration_pb2, timestamp_pb2
from latermq_proto.latermq.v1 import failure_pb2

DELAY_LEVEL_HEADER: Final = "latermq-delay-level"
FAILURE_HEADER: Final = "latermq-failure-bin"
WAIT_HEADER: Final = "latermq-wait"
INSISTS: Final = "insist"  # of WAIT_HEADER: the wait asked for, whatever the group's backoff is
CHANGE_HEADER: Final = "latermq-change"  # of ChangeInvisibleDuration: what it means
EXTENDS: Final = "extend"  # more time, of a push consumer too; the handle stays
ENDS: Final = "end"  # the lease's end, which may be told again

STACK_HASH_CHARACTERS_MAX: Final = 16
_DELAY_LEVEL_DIGITS_MAX: Final = 9
_NANOS_PER_MS: Final = 1_000_000
_NANOS_PER_SECOND: Final = 1_000_000_000
_SECONDS_MAX: Final = 253_402_300_799  # the last of the year 9999; beyond is no Timestamp


def status(code: definition_pb2.Code, message: str) -> bytes:
    """Serialise a Status."""
    return definition_pb2.Status(code=code, message=message).SerializeToString()


# Every response of apache.rocketmq.v2 that has a status has it as field 1.
OK_STATUS: Final[bytes] = status(definition_pb2.OK, "OK")
OK_FIELD: Final[bytes] = bytes_field(b"\x0a", OK_STATUS)


def duration_ms(duration: duration_pb2.Duration) -> int:
    """Count whole milliseconds, rounded up: nothing comes back earlier than asked for."""
    return duration.seconds * 1_000 - (-duration.nanos // _NANOS_PER_MS)


def timestamp_ms(timestamp: timestamp_pb2.Timestamp) -> int:
    """Count the milliseconds since the epoch, rounded up: nothing happens before its time."""
    return timestamp.seconds * 1_000 - (-timestamp.nanos // _NANOS_PER_MS)


def is_proper(timestamp: timestamp_pb2.Timestamp) -> bool:
    """Tell whether a time is within what a Timestamp may be, from the epoch on.

    Clients fail on others.
    """
    return 0 <= timestamp.seconds <= _SECONDS_MAX and 0 <= timestamp.nanos < _NANOS_PER_SECOND


def set_timestamp(timestamp: timestamp_pb2.Timestamp, ms: int) -> None:
    timestamp.seconds, rest_ms = divmod(ms, 1_000)
    timestamp.nanos = rest_ms * _NANOS_PER_MS


def topic_name(topic: definition_pb2.Resource) -> str:
    """Read the topic a request names; its namespace is empty (`namespaces`).

    Raises:
        IllegalTopicError: against the rules of names.
    """
    name = topic.name
    names.check_topic(name)
    return name


def group_name(group: definition_pb2.Resource) -> str:
    """Read the consumer group a request names; its namespace is empty.

    Raises:
        IllegalGroupError: against the rules of names.
    """
    name = group.name
    names.check_group(name)
    return name


def message_filter(expression: definition_pb2.FilterExpression) -> MessageFilter:
    """Read what an expression lets through; an unset type means TAG, an unset TAG expression all.

    Raises:
        IllegalFilterError: only separators, an unknown type, too long, or SQL that is none.
    """
    if expression.type == definition_pb2.SQL:
        return sql_filter(expression.expression)
    if expression.type not in (definition_pb2.FILTER_TYPE_UNSPECIFIED, definition_pb2.TAG):
        raise IllegalFilterError(f"filter type {expression.type} is unknown")
    text = expression.expression
    if text in ("", "*"):
        return EVERYTHING
    if len(text) > names.PROPERTIES_BYTES_MAX:
        raise IllegalFilterError(
            f"filter expression has {len(text)} characters, at most {names.PROPERTIES_BYTES_MAX} "
            "are allowed"
        )
    tags = frozenset(tag for part in text.split("||") if (tag := part.strip()))
    if not tags:
        if not text.strip():
            return EVERYTHING
        raise IllegalFilterError(f"filter expression {names.shown(text)} has no tag in it")
    return EVERYTHING if tags == {"*"} else TagFilter(tags)


def delay_level(call: Call) -> int:
    """Read the level that every message of this call is delayed by; 0 for none.

    Raises:
        IllegalDeliveryTimeError: not a decimal number from 0.
    """
    text = call.metadata(DELAY_LEVEL_HEADER)
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= _DELAY_LEVEL_DIGITS_MAX):
        raise IllegalDeliveryTimeError(
            f"{DELAY_LEVEL_HEADER} {names.shown(text)} is not a delay level: 1, 2, …"
        )
    return int(text)


def failure(call: Call, config: DeliveryConfig) -> Failure | None:
    """Read why the attempt failed, if the consumer tells; each part cut to the broker's limit.

    Told only to explain: what cannot be read is ignored, the acknowledgement counts for more.
    """
    header = call.metadata_bin(FAILURE_HEADER)
    if not header:
        return None
    parsed = failure_pb2.Failure()
    try:
        parsed.ParseFromString(header)
    except DecodeError:
        return None
    return Failure(
        class_name=_cut(parsed.class_name, config.failure_class_bytes_max),
        text=_cut(parsed.text, config.failure_text_bytes_max),
        stack_hash=_cut(parsed.stack_hash, STACK_HASH_CHARACTERS_MAX),
        stack=_cut(parsed.stack, config.failure_stack_bytes_max),
        rejected=parsed.rejected,
    )


def _cut(text: str, bytes_max: int) -> str:
    """Cut a text to the longest start that takes at most `bytes_max` bytes of UTF-8."""
    if 4 * len(text) <= bytes_max:
        return text
    return text.encode()[:bytes_max].decode(errors="ignore")
