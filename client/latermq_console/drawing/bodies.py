"""A message's body and properties for a page: pretty JSON, text, hex; secrets masked; bounded."""

import json
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from latermq_console.drawing.words import lines_of
from latermq_text.bodies import DamagedBodyError, unpacked

SHOWN_BYTES_MAX: Final = 64 << 10
HEX_BYTES_MAX: Final = 4 << 10
HEX_ROW: Final = 16
MASK: Final = "••••••"
SECRET_NAMES: Final = re.compile(
    r"(?i)pass(word|wd|phrase)?$|secret|token|api[-_]?key|authorization|credential|cookie|session"
    r"|^pin$|cvv|card[-_]?number|iban"
)


class Body(NamedTuple):
    """What is shown of a body: kind is json, text, hex or empty."""

    kind: str
    text: str
    size: int
    cut: bool  # there is more than is shown
    damage: str = ""  # why it cannot be decoded


class Property(NamedTuple):
    name: str
    value: str
    masked: bool


def body_of(data: bytes, encoding: str) -> Body:
    """Return the body as it is shown."""
    size = len(data)
    try:
        raw = unpacked(data, encoding)
    except DamagedBodyError as error:
        return _shown(data, size)._replace(damage=str(error))
    return _shown(raw, size)


def _shown(raw: bytes, size: int) -> Body:
    if not raw:
        return Body("empty", "", size, False)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return Body("hex", _hex(raw[:HEX_BYTES_MAX]), size, len(raw) > HEX_BYTES_MAX)
    if len(raw) <= SHOWN_BYTES_MAX and text.lstrip()[:1] in "{[":
        try:
            pretty = _pretty(json.loads(text))
            return Body("json", lines_of(pretty), size, len(pretty) == SHOWN_BYTES_MAX)
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


def _pretty(value: object) -> str:
    """Write JSON with indentation, up to `SHOWN_BYTES_MAX` characters: what is nested takes many
    times its own length."""
    parts, size = list[str](), 0
    for part in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(value):
        parts.append(part)
        size += len(part)
        if size >= SHOWN_BYTES_MAX:
            break
    return "".join(parts)[:SHOWN_BYTES_MAX]


def _hex(data: bytes) -> str:
    rows = []
    for at in range(0, len(data), HEX_ROW):
        row = data[at : at + HEX_ROW]
        codes = row[:8].hex(" ").ljust(23) + "  " + row[8:].hex(" ").ljust(23)
        letters = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in row)
        rows.append(f"{at:06x}  {codes}  {letters}")
    return "\n".join(rows)
