"""Which names, texts and choices a request may carry: topics, groups, tags, keys, properties.

Pure checks that raise with a text naming the value and the limit. They say nothing about what
exists: that is the catalogue's. Never changes a value.
"""

import re
from collections.abc import Mapping
from enum import IntEnum
from functools import lru_cache
from typing import Final, TypeVar

from latermq_broker.catalog.catalog import INTERNAL_PREFIXES, SCHEDULE_TOPIC
from latermq_broker.errors import (
    BadRequestError,
    IllegalGroupError,
    IllegalKeyError,
    IllegalMessageGroupError,
    IllegalMessageIdError,
    IllegalPropertyKeyError,
    IllegalTagError,
    IllegalTopicError,
    PropertiesTooLargeError,
    RequestError,
)

Choice = TypeVar("Choice", bound=IntEnum)

TOPIC_CHARACTERS_MAX: Final = 127
INTERNAL_TOPIC_CHARACTERS_MAX: Final = 255  # %RETRY%group, %DLQ%group
GROUP_CHARACTERS_MAX: Final = 120
MESSAGE_GROUP_BYTES_MAX: Final = 63
DEDUP_ID_BYTES_MAX: Final = 128  # its size is a byte in DEDUP records
USER_PROPERTIES_COUNT_MAX: Final = 128
NAMES_KEPT_MAX: Final = 1_024  # that were looked at lately
PROPERTIES_BYTES_MAX: Final = 16_384  # property keys and values, tag and keys, as UTF-8

_SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
_SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYSTEM_TOPICS: Final = frozenset((
    "TBW102", SCHEDULE_TOPIC, "BenchmarkTest", "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "CHECKPOINT_TOPIC",
))  # fmt: skip

# Names that RocketMQ keeps for itself among a message's properties. Ours live in fields of their
# own, so nothing would collide; they are refused because every RocketMQ broker refuses them.
RESERVED_PROPERTIES: Final = frozenset((
    "TRACE_ON", "MSG_REGION", "KEYS", "TAGS", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC",
    "REAL_QID", "TRAN_MSG", "PGROUP", "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID",
    "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "RECONSUME_TIME",
    "UNIQ_KEY", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "POP_CK", "POP_CK_OFFSET",
    "1ST_POP_TIME", "TRAN_PREPARED_QUEUE_OFFSET", "DUP_INFO", "EXTEND_UNIQ_INFO", "INSTANCE_ID",
    "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "CLUSTER",
    "MSG_TYPE", "INNER_MULTI_QUEUE_OFFSET", "TIMER_DELAY_MS", "TIMER_DELAY_SEC",
    "TIMER_DELIVER_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES",
    "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY", "TIMER_DELAY_LEVEL", "__BORNHOST", "BORN_TIMESTAMP",
    "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "__CRC32#", "_SYS_MSG_PRIORITY_",
))  # fmt: skip

_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SHOWN_CHARACTERS_MAX: Final = 64


def shown(value: str) -> str:
    """Quote the value, cut to what belongs into an error's text."""
    if len(value) > _SHOWN_CHARACTERS_MAX:
        return f"{value[:_SHOWN_CHARACTERS_MAX]!r}… ({len(value)} characters)"
    return repr(value)


def has_control_character(text: str) -> bool:
    """Find C0, DEL or C1. The first test is quick and true for nearly every text."""
    return not text.isprintable() and _CONTROL.search(text) is not None


def _check_controls(what: str, text: str, error: type[RequestError]) -> None:
    if has_control_character(text):
        raise error(f"{what} {shown(text)} must not contain control characters")


def check_topic(name: str) -> None:
    """Check the name of a topic.

    Raises:
        IllegalTopicError: blank, too long, other characters, or a name RocketMQ keeps.
    """
    internal = name.startswith(INTERNAL_PREFIXES)
    limit = INTERNAL_TOPIC_CHARACTERS_MAX if internal else TOPIC_CHARACTERS_MAX
    _check_name("topic", name, limit, IllegalTopicError)
    if name in SYSTEM_TOPICS or name.startswith(_SYSTEM_TOPIC_PREFIX):
        raise IllegalTopicError(f"topic {shown(name)} is a system topic")


def check_group(name: str) -> None:
    """Check the name of a consumer group.

    Raises:
        IllegalGroupError: blank, too long, other characters, or a name RocketMQ keeps.
    """
    _check_name("consumer group", name, GROUP_CHARACTERS_MAX, IllegalGroupError)
    if name.startswith(_SYSTEM_GROUP_PREFIX):
        raise IllegalGroupError(
            f"consumer group {shown(name)} is a system group: names must not start with "
            f"{_SYSTEM_GROUP_PREFIX}"
        )


def _check_name(what: str, name: str, characters_max: int, error: type[RequestError]) -> None:
    if not name or name.isspace():
        raise error(f"{what} is blank: 1 to {characters_max} characters are required")
    if len(name) > characters_max:
        raise error(f"{what} {shown(name)} is longer than {characters_max} characters")
    if not has_name_characters(name):
        raise error(f"{what} {shown(name)} has other characters than a-z A-Z 0-9 _ - % |")


@lru_cache(maxsize=NAMES_KEPT_MAX)
def has_name_characters(name: str) -> bool:
    """Tell whether a name, no longer than names may be, has no others; each call brings some."""
    return _NAME.fullmatch(name) is not None


def check_tag(tag: str) -> None:
    """Check a tag: an empty one is none and allowed.

    Raises:
        IllegalTagError: only blanks, a `|` (the filters' separator), a control character.
    """
    if not tag:
        return
    if tag.isspace():
        raise IllegalTagError("tag is only blanks")
    if "|" in tag:
        raise IllegalTagError(f"tag {shown(tag)} must not contain '|'")
    _check_controls("tag", tag, IllegalTagError)


def check_key(key: str) -> None:
    """Check a key: an empty one is none and allowed.

    Raises:
        IllegalKeyError: only blanks, or a control character.
    """
    if not key:
        return
    if key.isspace():
        raise IllegalKeyError("message key is only blanks")
    _check_controls("message key", key, IllegalKeyError)


def check_message_id(message_id: str) -> None:
    """Check a message id.

    Raises:
        IllegalMessageIdError: blank, or a control character.
    """
    if not message_id or message_id.isspace():
        raise IllegalMessageIdError("message id is blank")
    _check_controls("message id", message_id, IllegalMessageIdError)


def check_dedup_id(dedup_id: str) -> None:
    """Check a dedup id.

    Raises:
        BadRequestError: blank, longer than 128 bytes, a control character.
    """
    if not dedup_id or dedup_id.isspace():
        raise BadRequestError("dedup id is blank")
    size = utf8_bytes(dedup_id)
    if size > DEDUP_ID_BYTES_MAX:
        raise BadRequestError(
            f"dedup id {shown(dedup_id)} has {size} bytes of UTF-8, at most {DEDUP_ID_BYTES_MAX} "
            "are allowed"
        )
    _check_controls("dedup id", dedup_id, BadRequestError)


def check_born_host(born_host: str) -> None:
    """Check the address that a message names as its producer's; an empty one is none and allowed.

    Raises:
        BadRequestError: a control character.
    """
    _check_controls("born host", born_host, BadRequestError)


def check_message_group(message_group: str) -> None:
    """Check a message group: an empty one is none and allowed.

    Raises:
        IllegalMessageGroupError: only blanks, longer than 63 bytes, a control character.
    """
    if not message_group:
        return
    if message_group.isspace():
        raise IllegalMessageGroupError("message group is only blanks")
    size = len(message_group.encode())
    if size > MESSAGE_GROUP_BYTES_MAX:
        raise IllegalMessageGroupError(
            f"message group {shown(message_group)} has {size} bytes of UTF-8, at most "
            f"{MESSAGE_GROUP_BYTES_MAX} are allowed"
        )
    _check_controls("message group", message_group, IllegalMessageGroupError)


def check_properties(properties: Mapping[str, str]) -> int:
    """Check user properties; give their size in bytes, keys and values.

    Raises:
        PropertiesTooLargeError: more than 128.
        IllegalPropertyKeyError: a reserved key, or a control character in a key or a value.
    """
    count = len(properties)
    if not count:
        return 0
    if count > USER_PROPERTIES_COUNT_MAX:
        raise PropertiesTooLargeError(
            f"{count} user properties, at most {USER_PROPERTIES_COUNT_MAX} are allowed"
        )
    size = 0
    for key, value in properties.items():
        if key in RESERVED_PROPERTIES:
            raise IllegalPropertyKeyError(f"property key {shown(key)} is reserved")
        _check_controls("property key", key, IllegalPropertyKeyError)
        if has_control_character(value):
            raise IllegalPropertyKeyError(
                f"the value {shown(value)} of property {shown(key)} must not contain control "
                "characters"
            )
        size += utf8_bytes(key) + utf8_bytes(value)
    return size


def check_properties_size(size: int) -> None:
    """Check the size of a message's properties.

    Raises:
        PropertiesTooLargeError: properties, tag and keys together exceed 16384 bytes.
    """
    if size > PROPERTIES_BYTES_MAX:
        raise PropertiesTooLargeError(
            f"user properties, tag and keys have {size} bytes together, at most "
            f"{PROPERTIES_BYTES_MAX} are allowed"
        )


def utf8_bytes(text: str) -> int:
    """Count the bytes of a text as UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def choice(choices: type[Choice], number: int, what: str) -> Choice | None:
    """Read one of several; None for 0, which leaves it unsaid. Raises BadRequestError: unknown."""
    if not number:
        return None
    try:
        return choices(number)
    except ValueError as error:
        raise BadRequestError(f"{what} {number} is unknown") from error
