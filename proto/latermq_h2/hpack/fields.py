"""What one header field is: its bytes, what it counts, and what a receiver must do about it.

A field is classified once, when it is made, and carries the result (table entries are shared by
all blocks that refer to them). `Gist` is the part of a block that a receiver has to understand;
two blocks with equal gists mean the same request, or the same kind of answer.
"""

import re
from typing import Final, NamedTuple

from latermq_h2.hpack import huffman

tuple_new: Final = tuple.__new__  # as Field(...), without its keyword handling

# Kinds of fields
CODED: Final = -1  # regular, its value still in the Huffman code: see `value_of`
REGULAR: Final = 0  # handed on unread
TIMEOUT: Final = 1  # of one call alone: a gist with it would be new in nearly each
SEMANTIC: Final = 2  # HTTP/2 or gRPC gives it a meaning
PSEUDO: Final = 3
INVALID: Final = 4  # makes its message malformed


class Field(NamedTuple):
    """One object, however many blocks refer to it: a plain tuple may be copied where it is read."""

    name: bytes
    value: bytes  # in the Huffman code if CODED: see `value_of`
    size: int  # as it is counted
    kind: int


FIELD_OVERHEAD_BYTES: Final = 32

_PSEUDO_NAMES: Final = frozenset({b":method", b":scheme", b":path", b":authority", b":status"})
_SEMANTIC_NAMES: Final = frozenset(
    {b"content-type", b"content-length", b"te", b"grpc-encoding", b"grpc-accept-encoding",
     b"grpc-status"}
)  # fmt: skip
_CONNECTION_NAMES: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)
_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
KNOWN_NAMES_MAX: Final = 1_024
KNOWN_NAME_BYTES_MAX: Final = 64
_name_kinds: dict[bytes, int] = {}

# Stands in a gist for a pseudo field that came after a regular one.
MISORDERED: Final = Field(b"", b"", 0, INVALID)


def field(name: bytes, value: bytes) -> Field:
    """Make a field, classified.

    Blanks around a value are let through, as gRPC does: its clients send what users set.
    """
    kind = _kind(name)
    if 0 in value or 10 in value or 13 in value:  # huffman.NO_FIELD
        kind = INVALID
    size = len(name) + len(value) + FIELD_OVERHEAD_BYTES
    return tuple_new(Field, (name, value, size, kind))


def coded_field(name: bytes, coded: bytes) -> Field:
    """Make a field of a value in the Huffman code, kept so if regular. Raises HuffmanError.

    A long one is decoded here, once: any number of calls can name an entry of the table, and read
    it, and what decoding it gave is not remembered.
    """
    if len(coded) <= huffman.CACHED_TEXT_BYTES_MAX and _kind(name) == REGULAR:
        count = huffman.measure(coded)
        if count >= 0:
            size = len(name) + count + FIELD_OVERHEAD_BYTES
            return tuple_new(Field, (name, coded, size, CODED))
    return field(name, huffman.decode(coded))


def value_of(entry: Field) -> bytes:
    """Return the text of a field's value."""
    return huffman.decode(entry[1]) if entry[3] == CODED else entry[1]


def _kind(name: bytes) -> int:
    kind = _name_kinds.get(name)
    return _learn_name(name) if kind is None else kind


def _learn_name(name: bytes) -> int:
    if name in _PSEUDO_NAMES:
        kind = PSEUDO
    elif name in _SEMANTIC_NAMES:
        kind = SEMANTIC
    elif name == b"grpc-timeout":
        kind = TIMEOUT
    elif name in _CONNECTION_NAMES or not _NAME.fullmatch(name):
        kind = INVALID
    else:
        kind = REGULAR
    if len(name) <= KNOWN_NAME_BYTES_MAX:
        if len(_name_kinds) >= KNOWN_NAMES_MAX:
            _name_kinds.clear()
        _name_kinds[name] = kind
    return kind


class Gist:
    """Every field of a block from SEMANTIC on, in order, with MISORDERED where one is due.

    `meaning` belongs to whoever reads gists: what it made of this one, so that it need not again.
    """

    __slots__ = ("fields", "meaning")

    def __init__(self, fields: tuple[Field, ...]) -> None:
        self.fields = fields
        self.meaning: object | None = None
