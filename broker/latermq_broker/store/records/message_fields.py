"""Single fields out of a stored message, without a protobuf library and without touching the body.

The core stores messages as two serialised slices, `rest` and `sys`, and hands them on as they are.
What the core itself must know of them is read here: keys for the index, user properties and the tag
for filters. Malformed bytes give what was read up to there: they were checked when they came in.
"""

from collections.abc import Iterator
from typing import Final

# Fields of apache.rocketmq.v2.Message and SystemProperties, as `field number << 3 | wire type`.
_USER_PROPERTIES: Final = 2 << 3 | 2
_BODY: Final = 4 << 3 | 2
_TAG: Final = 1 << 3 | 2
_KEYS: Final = 2 << 3 | 2
_MESSAGE_ID: Final = 3 << 3 | 2
_LITE_TOPIC: Final = 21 << 3 | 2
_MAP_KEY: Final = 1 << 3 | 2
_MAP_VALUE: Final = 2 << 3 | 2
_ONE_BYTE_MAX: Final = 0x7F  # a length of one byte
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_TAG_MIN: Final = 1 << 3
_UNREADABLE: Final = -1


def user_properties(rest: bytes) -> dict[str, str]:
    """Read the user properties of the slice with the user's part of the message."""
    properties: dict[str, str] = {}
    at = _short_properties(rest, properties)
    for tag, entry in _byte_fields(rest, _USER_PROPERTIES, at):
        if tag == _USER_PROPERTIES:
            name = value = ""
            for part, data in _byte_fields(entry, 0):
                if part == _MAP_KEY:
                    name = _text(data)
                elif part == _MAP_VALUE:
                    value = _text(data)
            properties[name] = value
    return properties


def _short_properties(rest: bytes, properties: dict[str, str]) -> int:
    """Take those at the start that are of the usual form, five times as fast; where they end.

    The usual form: name, then value, all lengths below 128.
    """
    at = 0
    try:
        while rest[at] == _USER_PROPERTIES and rest[at + 2] == _MAP_KEY:
            name_at = at + 4
            name_end = name_at + rest[at + 3]
            value_at = name_end + 2
            end = value_at + rest[name_end + 1]
            if (
                rest[name_end] != _MAP_VALUE
                or end != at + 2 + rest[at + 1]
                or rest[at + 1] > _ONE_BYTE_MAX
                or end > len(rest)
            ):
                break
            properties[rest[name_at:name_end].decode()] = rest[value_at:end].decode()
            at = end
    except (IndexError, UnicodeDecodeError):
        pass  # another form, or the end
    return at


def message_tag(sys: bytes) -> str:
    """Read the tag; empty: none."""
    for tag, data in _byte_fields(sys, _TAG):
        if tag == _TAG:
            return _text(data)
    return ""


def message_id(sys: bytes) -> str:
    """Read the message id; empty: none."""
    for tag, data in _byte_fields(sys, _MESSAGE_ID):
        if tag == _MESSAGE_ID:
            return _text(data)
    return ""


def message_lite_topic(sys: bytes) -> str:
    """Read the name of the lite topic; empty: none."""
    for tag, data in _byte_fields(sys, _LITE_TOPIC):
        if tag == _LITE_TOPIC:
            return _text(data)
    return ""


def message_keys(sys: bytes) -> tuple[str, ...]:
    return tuple(_text(data) for tag, data in _byte_fields(sys, _KEYS) if tag == _KEYS)


def well_formed(data: bytes) -> bool:
    """Tell whether the data is fields to its very end, as damaged bytes seldom are."""
    return all(tag != _UNREADABLE for tag, _ in _byte_fields(data, _UNREADABLE))


def body_bytes(rest: bytes) -> int:
    """Measure the body, in bytes, in the slice with the user's part of the message."""
    size = 0
    for tag, data in _byte_fields(rest, _BODY):
        if tag == _BODY:
            size = len(data)
    return size


def _byte_fields(data: bytes, only: int, at: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield (tag, bytes) of the length-delimited fields; of others than `only`, if given, no bytes.

    Where what follows is no field, (_UNREADABLE, b"") comes last.
    """
    while at < len(data):
        tag, at = _varint(data, at)
        kind, size = tag & 7, _UNREADABLE
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind == _VARINT:
            value, at = _varint(data, at)
            size = min(value, 0)
        elif kind == _FIXED64:
            size = 8
        elif kind == _FIXED32:
            size = 4
        if tag < _TAG_MIN or size < 0 or at + size > len(data):
            yield _UNREADABLE, b""
            return
        if kind == _BYTES:
            yield tag, data[at : at + size] if tag == only or not only else b""
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            break
    return _UNREADABLE, len(data)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
