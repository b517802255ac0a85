"""Figures: a number, its line over some time, and what it means."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from latermq_console.drawing import charts


class Figure(NamedTuple):
    """A number as a page shows it. `level` is "", warn or bad."""

    name: str
    value: str
    unit: str
    line: Markup
    note: str
    level: str = ""
    href: str = ""


def figure(
    name: str,
    value: str,
    values: Sequence[float | None],
    write: Callable[[float], str] | None,
    note: str,
    *,
    unit: str = "",
    kind: str = "",
    level: str = "",
    href: str = "",
) -> Figure:
    """Return a number with a line through `values`, and up to where that goes.

    Args:
        write: how the highest is written; None: it is not told.
    """
    known = [each for each in values if each is not None]
    peak = f"at most {write(max(known))}{unit}" if write is not None and len(known) > 1 else ""
    line = charts.spark(values, ", ".join(filter(None, (f"{name}: {value}{unit} now", peak))), kind)
    return Figure(name, value, unit, line, ", ".join(filter(None, (note, peak))), level, href)
