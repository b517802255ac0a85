"""Protobuf fields by hand, for the few replies that are hot. Pure; bytes in, bytes out.

A field is its tag (number << 3 | wire type) as a varint, then a varint, or a length and that many
bytes. Tags are written as literals where they are used, beside the field's name.
"""

from typing import Final

_ONE_BYTE: Final = tuple(bytes((n,)) for n in range(128))
_LOW_GROUP: Final = tuple(bytes((n | 128,)) for n in range(128))
_UINT64: Final = (1 << 64) - 1


def varint(number: int) -> bytes:
    """Encode as base-128, low group first.

    A negative number as 64-bit two's complement (ten bytes).
    """
    if 0 <= number < 128:
        return _ONE_BYTE[number]
    number &= _UINT64
    groups = b""
    while number > 127:
        groups += _LOW_GROUP[number & 127]
        number >>= 7
    return groups + _ONE_BYTE[number]


def varints(first: int, count: int) -> list[bytes]:
    """Encode those of consecutive numbers, none of them negative."""
    made: list[bytes] = []
    number, end = first, first + count
    while number < end:  # all of one round have the same high groups
        upto = min((number | 127) + 1, end)
        if number < 128:
            made += _ONE_BYTE[number:upto]
        else:
            high = varint(number >> 7)
            made += [low + high for low in _LOW_GROUP[number & 127 : (upto - 1 & 127) + 1]]
        number = upto
    return made


def length_at(data: bytes, at: int) -> tuple[int, int]:
    """Read (the number at `at`, where it ends), of at most five bytes and none too many.

    The number is -1 where there is none such. Raises IndexError: the bytes end inside it.
    """
    number = data[at]
    if number < 128:
        return number, at + 1
    number &= 127
    for shift in (7, 14, 21, 28):
        at += 1
        byte = data[at]
        number |= (byte & 127) << shift
        if byte < 128:
            return number if byte else -1, at + 1
    return -1, at


class Doubt(Exception):
    """Protobuf might write these bytes otherwise, or something in them is rare."""


def span(data: bytes, at: int) -> tuple[int, int]:
    """Find where the value of the field with a length whose tag is at `at` begins and ends.

    Raises Doubt: its length is none. It may end behind the bytes.
    """
    size, start = length_at(data, at + 1)
    if size < 0:
        raise Doubt
    return start, start + size


def bytes_field(tag: bytes, value: bytes) -> bytes:
    """Make a length-delimited field, also when it is empty."""
    return b"".join((tag, varint(len(value)), value))


def text_field(tag: bytes, value: str) -> bytes:
    return bytes_field(tag, value.encode())


def timestamp(ms: int) -> bytes:
    """Encode the content of a google.protobuf.Timestamp; `ms` since the epoch, at least 0."""
    seconds, rest_ms = divmod(ms, 1_000)
    encoded = b"\x08" + varint(seconds) if seconds else b""
    return encoded + b"\x10" + varint(rest_ms * 1_000_000) if rest_ms else encoded
