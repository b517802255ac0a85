"""A message's body and properties for a page: pretty JSON, text, hex; secrets masked; bounded."""

import json
import re
import zlib
from collections.abc import Mapping
from typing import Final, NamedTuple

from latermq_console.drawing.words import lines_of

SHOWN_BYTES_MAX: Final = 64 << 10
INFLATED_BYTES_MAX: Final = 1 << 20
HEX_BYTES_MAX: Final = 4 << 10
HEX_ROW: Final = 16
MASK: Final = "••••••"
SECRET_NAMES: Final = re.compile(
    r"(?i)pass(word|wd|phrase)?$|secret|token|api[-_]?key|authorization|credential|cookie|session"
    r"|^pin$|cvv|card[-_]?number|iban"
)
_ANY_WRAPPER: Final = 47  # zlib's window bits for "gzip or zlib, find out"


class Body(NamedTuple):
    """What is shown of a body: kind is json, text, hex or empty."""

    kind: str
    text: str
    size: int
    cut: bool  # there is more than is shown


class Property(NamedTuple):
    name: str
    value: str
    masked: bool


def body_of(data: bytes, encoding: str) -> Body:
    """Return the body as it is shown."""
    raw = _decoded(data, encoding)
    size = len(data)
    if not raw:
        return Body("empty", "", size, False)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return Body("hex", _hex(raw[:HEX_BYTES_MAX]), size, len(raw) > HEX_BYTES_MAX)
    if len(raw) <= SHOWN_BYTES_MAX and text.lstrip()[:1] in "{[":
        try:
            pretty = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
            return Body("json", lines_of(pretty), size, False)
        except (ValueError, RecursionError):
            pass  # it only looked like JSON
    return Body("text", lines_of(text[:SHOWN_BYTES_MAX]), size, len(text) > SHOWN_BYTES_MAX)


def properties_of(properties: Mapping[str, str]) -> list[Property]:
    """Return properties by name; those whose names tell of secrets without their values."""
    return [
        Property(
            name, MASK if SECRET_NAMES.search(name) else value, bool(SECRET_NAMES.search(name))
        )
        for name, value in sorted(properties.items())
    ]


def _decoded(data: bytes, encoding: str) -> bytes:
    """Return the body as it was before its encoding, as it is if that cannot be undone."""
    if encoding != "gzip":
        return data
    try:
        return zlib.decompressobj(_ANY_WRAPPER).decompress(data, INFLATED_BYTES_MAX)
    except zlib.error:
        return data


def _hex(data: bytes) -> str:
    rows = []
    for at in range(0, len(data), HEX_ROW):
        row = data[at : at + HEX_ROW]
        codes = row[:8].hex(" ").ljust(23) + "  " + row[8:].hex(" ").ljust(23)
        letters = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in row)
        rows.append(f"{at:06x}  {codes}  {letters}")
    return "\n".join(rows)
