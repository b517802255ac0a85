"""Log lines in JSON: each record is one strict object (RFC 8259), whatever was given with it.

Numbers that JSON has not (NaN, infinities), keys that are no text, values that have no JSON, cycles
and values whose text cannot be had are written as text. What a record says of itself keeps its
name: a field of the same name that was given gets an underscore behind it.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

DEPTH_MAX: Final = 16  # of lists and mappings in each other
ITEMS_MAX: Final = 10_000  # values of one record
NO_TEXT: Final = "<no text>"


def json_line(own: Mapping[str, object], given: Mapping[str, object]) -> str:
    """Return one object with what a record says of itself, and what was given with it."""
    fields: dict[str, object] = dict(own)
    for name, value in given.items():
        key = text_of(name)
        while key in fields:
            key += "_"
        fields[key] = value
    return json.dumps(_Plain().of(fields, 0), ensure_ascii=False, allow_nan=False)


def text_of(value: object, write: Callable[[Any], str] = str) -> str:
    """Return a value's text; where it raises, its class alone. Of UTF-8, in any case."""
    try:
        text = write(value)
    except Exception:  # noqa: BLE001  it is the application's
        text = f"{NO_TEXT}: {type(value).__name__}"
    return text.encode("utf-8", "backslashreplace").decode()


class _Plain:
    """Makes plain values of any, a bounded number."""

    def __init__(self) -> None:
        self._left = ITEMS_MAX
        self._outer: list[int] = []  # ids of what the present value is in

    def of(self, value: object, depth: int) -> object:
        self._left -= 1
        if value is None or value is True or value is False:
            return value
        if type(value) is int:
            return value
        if type(value) is float:
            return value if math.isfinite(value) else text_of(value)
        if not isinstance(value, dict | list | tuple) or id(value) in self._outer:
            return text_of(value) if id(value) not in self._outer else "<cycle>"
        if depth >= DEPTH_MAX or self._left < len(value):
            return f"<{type(value).__name__} of {len(value)}>"
        self._outer.append(id(value))
        try:
            if isinstance(value, dict):
                return {text_of(key): self.of(each, depth + 1) for key, each in value.items()}
            return [self.of(each, depth + 1) for each in value]
        except Exception:  # noqa: BLE001  subclasses are the application's
            return f"{NO_TEXT}: {type(value).__name__}"
        finally:
            self._outer.pop()
