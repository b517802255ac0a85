"""Requests as nobody sensible would send them: whole messages of absurd values, and broken bytes.

`message_of` fills any message type from its descriptor, half of the time with values that mean
something in a test's world, so that requests get past the first check.
"""

from collections.abc import Callable
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

DEPTH_MAX: Final = 6
REPEATED_MAX: Final = 3

_NAMES: Final = (
    "orders", "billing", "%DLQ%billing", "%RETRY%billing", "SCHEDULE_TOPIC_XXXX", "*", "",
)  # fmt: skip
_TEXTS: Final = st.one_of(
    st.sampled_from(_NAMES),
    st.sampled_from(
        ["a || b", "||", "a = 1", "a b", "\t", "ä", "☃", "\x00", "‮", "\U0001d546", "%", "d-1-1"]
    ),
    st.text(max_size=20),
    st.integers(0, 20_000).map(lambda count: "x" * count),
)
_EDGES_64: Final = (0, 1, -1, 1_000, 2**31, 2**53, 253_402_300_799, 2**62, 2**63 - 1, -(2**63))
_EDGES_32: Final = (0, 1, -1, 32, 999_999_999, 10**9, 2**31 - 1, -(2**31))
_BY_TYPE: Final[dict[int, st.SearchStrategy[Any]]] = {
    FieldDescriptor.TYPE_STRING: _TEXTS,
    FieldDescriptor.TYPE_BYTES: st.binary(max_size=64),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_INT32: st.sampled_from(_EDGES_32),
    FieldDescriptor.TYPE_INT64: st.sampled_from(_EDGES_64),
    FieldDescriptor.TYPE_UINT32: st.sampled_from([0, 1, 2**32 - 1]),
    FieldDescriptor.TYPE_UINT64: st.sampled_from([0, 1, 2**64 - 1]),
    FieldDescriptor.TYPE_FIXED64: st.sampled_from([0, 1, 2**64 - 1]),
    FieldDescriptor.TYPE_DOUBLE: st.floats(),
    FieldDescriptor.TYPE_FLOAT: st.floats(width=32),
}


def message_of(
    request_class: Callable[[], Message], draw: Callable[[st.SearchStrategy[Any]], Any]
) -> Message:
    """A message with some of its fields set, each to anything its type can hold."""
    made = request_class()
    _fill(made, draw, 0)
    return made


def _fill(made: Any, draw: Callable[[st.SearchStrategy[Any]], Any], depth: int) -> None:
    fields = list(made.DESCRIPTOR.fields)
    if not fields or depth > DEPTH_MAX:
        return
    for field in draw(st.lists(st.sampled_from(fields), unique_by=id, max_size=len(fields))):
        place = getattr(made, field.name)
        if _is_map(field):
            for _ in range(draw(st.integers(0, REPEATED_MAX))):
                place[draw(_TEXTS)] = draw(_TEXTS)
        elif hasattr(place, "extend"):
            for _ in range(draw(st.integers(0, REPEATED_MAX))):
                if field.message_type is not None:
                    _fill(place.add(), draw, depth + 1)
                else:
                    place.append(_value(field, draw))
        elif field.message_type is not None:
            place.SetInParent()
            _fill(place, draw, depth + 1)
        else:
            setattr(made, field.name, _value(field, draw))


def _is_map(field: Any) -> bool:
    entry = field.message_type
    return entry is not None and bool(entry.GetOptions().map_entry)


def _value(field: Any, draw: Callable[[st.SearchStrategy[Any]], Any]) -> Any:
    if field.type == FieldDescriptor.TYPE_ENUM:
        return draw(st.one_of(st.integers(0, 8), st.sampled_from([77, 2**31 - 1, -1])))
    return draw(_BY_TYPE[field.type])


def broken(data: bytes, draw: Callable[[st.SearchStrategy[Any]], Any]) -> bytes:
    """The bytes cut, flipped, repeated, followed by others; or as they are."""
    kind = draw(st.sampled_from(["as it is", "as it is", "cut", "flipped", "more", "twice"]))
    if kind == "cut":
        size: int = draw(st.integers(0, len(data)))
        return data[:size]
    if kind == "flipped" and data:
        flipped = bytearray(data)
        for _ in range(draw(st.integers(1, 4))):
            flipped[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
        return bytes(flipped)
    if kind == "more":
        more: bytes = draw(st.binary(max_size=20))
        return data + more
    return data * 2 if kind == "twice" else data


HEADERS: Final = (
    "x-mq-language", "x-mq-client-version", "x-mq-protocol", "x-mq-request-id", "x-mq-date-time",
    "x-mq-namespace", "authorization", "x-mq-session-token", "latermq-delay-level",
)  # fmt: skip


def headers(draw: Callable[[st.SearchStrategy[Any]], Any]) -> dict[str, str]:
    """Some of those we look at, with anything in them."""
    names = draw(st.lists(st.sampled_from(HEADERS), unique=True, max_size=4))
    words = st.sampled_from(
        ["JAVA", "HTTP", "1.0.7", "5.1.2", "3", "-1", "9" * 30, "MQv2-HMAC-SHA1 "]
    )
    return {name: draw(st.one_of(_TEXTS, words)) for name in names}
