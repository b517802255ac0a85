"""A message's body and properties for a page: pretty JSON, text, hex; secrets masked; bounded."""

import codecs
import json
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from latermq_console.drawing.words import beginning_of
from latermq_text.bodies import DamagedBodyError, TooLargeBodyError, unpacked

SHOWN_BYTES_MAX: Final = 64 << 10
UNPACKED_BYTES_MAX: Final = 1 << 20  # of a packed body; damage behind them is not noticed
LINES_SHOWN_MAX: Final = 4_000
PROPERTIES_SHOWN_MAX: Final = 200
VALUE_CHARACTERS_MAX: Final = 4_096  # of one property's value
HEX_BYTES_MAX: Final = 4 << 10
HEX_ROW: Final = 16
_DECODER: Final = codecs.getincrementaldecoder("utf-8")
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


def body_of(data: bytes, encoding: str, bytes_max: int = SHOWN_BYTES_MAX) -> Body:
    """Return the body as it is shown: at most `bytes_max` bytes or characters of it."""
    try:
        return _shown(unpacked(data, encoding, UNPACKED_BYTES_MAX), len(data), bytes_max)
    except TooLargeBodyError as large:
        return _shown(large.beginning[:UNPACKED_BYTES_MAX], len(data), bytes_max, more=True)
    except DamagedBodyError as damaged:
        return _shown(data, len(data), bytes_max)._replace(damage=str(damaged))


def _shown(raw: bytes, size: int, bytes_max: int, *, more: bool = False) -> Body:
    """Show the beginning of a body; `more`: it goes on behind `raw`."""
    if not raw:
        return Body("empty", "", size, False)
    part = raw[:bytes_max]
    more = more or len(part) < len(raw)
    try:
        text = _DECODER().decode(part, final=not more)  # a character at the cut is left out
    except UnicodeDecodeError:
        part = part[:HEX_BYTES_MAX]
        return Body("hex", _hex(part), size, more or len(part) < len(raw))
    if not more and text.lstrip()[:1] in "{[":
        try:
            pretty, cut = _pretty(json.loads(text), bytes_max)
        except (ValueError, RecursionError):
            pass  # it only looked like JSON
        else:
            shown, cut_again = beginning_of(pretty, bytes_max, LINES_SHOWN_MAX)
            return Body("json", shown, size, cut or cut_again)
    shown, cut = beginning_of(text, bytes_max, LINES_SHOWN_MAX)
    return Body("text", shown, size, more or cut)


def properties_of(properties: Mapping[str, str]) -> list[Property]:
    """Return properties by name; those whose names tell of secrets without their values."""
    shown = [
        Property(name, MASK, True)
        if SECRET_NAMES.search(name)
        else Property(name, _beginning(value), False)
        for name, value in sorted(properties.items())[:PROPERTIES_SHOWN_MAX]
    ]
    if len(properties) > len(shown):
        shown.append(Property("…", f"{len(properties) - len(shown):,} more", False))
    return shown


def _beginning(value: str) -> str:
    if len(value) <= VALUE_CHARACTERS_MAX:
        return value
    return f"{value[:VALUE_CHARACTERS_MAX]}… ({len(value):,} characters)"


def _pretty(value: object, characters_max: int) -> tuple[str, bool]:
    """Write JSON with indentation, many times its length if nested; tell whether it is cut."""
    parts, size = list[str](), 0
    for part in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(value):
        parts.append(part)
        size += len(part)
        if size > characters_max:
            return "".join(parts)[:characters_max], True
    return "".join(parts), False


def _hex(data: bytes) -> str:
    rows = []
    for at in range(0, len(data), HEX_ROW):
        row = data[at : at + HEX_ROW]
        codes = row[:8].hex(" ").ljust(23) + "  " + row[8:].hex(" ").ljust(23)
        letters = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in row)
        rows.append(f"{at:06x}  {codes}  {letters}")
    return "\n".join(rows)
