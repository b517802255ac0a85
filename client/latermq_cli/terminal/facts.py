"""Labelled values, one below the other: what a thing is, for people."""

from collections.abc import Iterable, Iterator
from typing import Final

from latermq_cli.terminal.console import styled
from latermq_cli.terminal.table import pad, plain, wrap

LABEL_WIDTH: Final = 12
INDENT: Final = 2


def room(width: int) -> int:
    """Count the columns left for a value on a page of `width`."""
    return max(20, width - LABEL_WIDTH - INDENT)


def fact(label: str, values: Iterable[str], width: int) -> Iterator[str]:
    """Yield the lines of one label; what does not fit goes on below it. No values, no lines."""
    shown = label
    for value in values:
        for piece in wrap(plain(value), room(width)):
            yield f"{' ' * INDENT}{styled(pad(shown, LABEL_WIDTH), dim=True)}{piece}".rstrip()
            shown = ""
