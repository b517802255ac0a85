"""Refuses requests with too many fields before protobuf makes something of each of them.

Two bytes are enough for an element of a repeated field, and it takes up to some hundred bytes once
it is parsed. So what is longer than `UNCOUNTED_BYTES` is walked through first: every field counts,
those of messages inside too, and the walk ends at the limit. Which fields are messages that may
hold many elements is read from the descriptors. What is not well-formed is left to protobuf to
refuse.
"""

from typing import Any, Final

from latermq_broker.errors import BadRequestError

FIELDS_MAX: Final = 131_072  # of one request, those of messages inside included
COMMAND_FIELDS_MAX: Final = 16_384  # of a TelemetryCommand: settings have 1,024 topics at most
UNCOUNTED_BYTES: Final = 131_072  # of one request, in short messages: these may be full of fields
SHORT_BYTES_MAX: Final = 512  # of such a message

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES_MAX: Final = 10


class _Shape:
    """Which fields of a message are messages that may hold many elements, by their tags."""

    __slots__ = ("has_many", "inner")

    def __init__(self, *, has_many: bool) -> None:
        self.has_many = has_many
        self.inner: dict[int, _Shape] = {}


class FieldCount:
    """The check for requests of one kind.

    Args:
        descriptor: the request's.
        fields_max: that it may have.
    """

    def __init__(self, descriptor: Any, fields_max: int = FIELDS_MAX) -> None:
        self._fields_max = fields_max
        self._name: str = descriptor.name
        self._shape = _shape_of(descriptor, {})

    def check(self, data: bytes) -> None:
        """Refuse a request of too many fields.

        Raises:
            BadRequestError: more than `fields_max` fields, or a group.
        """
        if len(data) <= UNCOUNTED_BYTES:
            return
        try:
            _Walk(data, self._name, self._fields_max).through(0, len(data), self._shape)
        except IndexError:
            return  # it is cut short: protobuf says so


def _shape_of(descriptor: Any, known: dict[str, _Shape]) -> _Shape:
    shape = known.get(descriptor.full_name)
    if shape is None:
        many = any(is_repeated(field) for field in descriptor.fields)
        shape = known[descriptor.full_name] = _Shape(has_many=many)
        for field in descriptor.fields:
            if field.message_type is not None:
                inner = _shape_of(field.message_type, known)
                if inner.has_many:
                    shape.has_many = True
                    shape.inner[field.number << 3 | _LENGTH] = inner
    return shape


def is_repeated(field: Any) -> bool:
    """Tell whether a field is repeated: older protobufs have a label, newer ones the answer."""
    known = getattr(field, "is_repeated", None)
    return field.label == field.LABEL_REPEATED if known is None else bool(known)


class _Walk:
    """Through one request.

    Raises:
        BadRequestError: from all methods: too many fields, or a group.
        IndexError: from all methods: the request is cut short.
    """

    __slots__ = ("_data", "_fields_left", "_fields_max", "_name", "_uncounted_left")

    def __init__(self, data: bytes, name: str, fields_max: int = FIELDS_MAX) -> None:
        self._data = data
        self._name = name
        self._fields_max = fields_max
        self._fields_left = fields_max
        self._uncounted_left = UNCOUNTED_BYTES

    def through(self, at: int, end: int, shape: _Shape) -> None:
        """Count the fields from `at` to `end`."""
        data = self._data
        inner_shapes = shape.inner
        left = self._fields_left
        while at < end:
            left -= 1
            if left < 0:
                raise BadRequestError(
                    f"more than {self._fields_max} fields and elements in one {self._name}"
                )
            tag = data[at]
            at += 1
            if tag >= 0x80:
                tag, at = self._varint(at - 1)
            kind = tag & 7
            if kind == _LENGTH:
                size = data[at]
                at += 1
                if size >= 0x80:
                    size, at = self._varint(at - 1)
                if size and tag in inner_shapes:
                    if size <= SHORT_BYTES_MAX and size <= self._uncounted_left:
                        self._uncounted_left -= size
                    else:
                        self._fields_left = left
                        self.through(at, min(at + size, end), inner_shapes[tag])
                        left = self._fields_left
                at += size
            elif kind == _VARINT:
                at = self._varint(at)[1]
            elif kind == _FIXED64:
                at += 8
            elif kind == _FIXED32:
                at += 4
            else:
                raise BadRequestError(f"a {self._name} has no groups (wire type {kind})")
        self._fields_left = left

    def _varint(self, at: int) -> tuple[int, int]:
        """Read the varint at `at`: its value, and where it ends."""
        value = 0
        for number in range(_VARINT_BYTES_MAX):
            byte = self._data[at + number]
            value |= (byte & 0x7F) << 7 * number
            if byte < 0x80:
                return value, at + number + 1
        raise IndexError("a varint that does not end")
