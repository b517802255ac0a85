"""Encoding without state: static entries and literals that no table remembers, no Huffman.

What it makes is valid whatever table size the peer allows, and two peers get the same bytes, so
whole blocks can be made once.
"""

from collections.abc import Iterable
from typing import Final

from latermq_h2.hpack.tables import STATIC

_WHOLE_INDICES: Final = {
    entry[:2]: index for index, entry in enumerate(STATIC) if entry and entry[1]
}
_NAME_INDICES: Final[dict[bytes, int]] = {}
for _index, _entry in enumerate(STATIC):
    if _entry:
        _NAME_INDICES.setdefault(_entry[0], _index)


def integer(value: int, prefix_bits: int, first: int = 0) -> bytes:
    """Encode an integer (RFC 7541 §5.1) whose first byte also carries the bits `first`."""
    full = (1 << prefix_bits) - 1
    if value < full:
        return bytes((first | value,))
    out = bytearray((first | full,))
    value -= full
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def literal(name: bytes, value: bytes) -> bytes:
    """Encode a literal field without indexing (§6.2.2)."""
    index = _NAME_INDICES.get(name)
    head = integer(index, 4) if index else b"\0" + integer(len(name), 7) + name
    return head + integer(len(value), 7) + value


def encode(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Encode a header block."""
    parts = []
    for name, value in fields:
        index = _WHOLE_INDICES.get((name, value))
        parts.append(integer(index, 7, 0x80) if index else literal(name, value))
    return b"".join(parts)
