"""What a command knows about the terminal it prints on, and the one way to print JSON.

Colour only on a terminal, and not when NO_COLOR is set; a table is cut to the terminal's width, and
never when the output goes to a file or a pipe (unless COLUMNS says how wide the reader's page is).
"""

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, TextIO

import click

from latermq_cli.terminal.output import obeyed
from latermq_cli.terminal.table import Column, render
from latermq_text.printable import escaped

PAGE_WIDTH: Final = 100  # for prose when nobody says how wide the page is


def stdout_is_terminal() -> bool:
    return is_terminal(sys.stdout)


def stderr_is_terminal() -> bool:
    return is_terminal(sys.stderr)


def is_terminal(stream: TextIO | None) -> bool:
    """Tell whether it is a terminal; Python has None for what the shell closed (`>&-`)."""
    return stream is not None and stream.isatty()


def table_width() -> int | None:
    """Count the columns a table may take; None: as many as it needs."""
    if os.environ.get("COLUMNS", "").isdigit() or stdout_is_terminal():
        return max(40, shutil.get_terminal_size((PAGE_WIDTH, 24)).columns)
    return None


def page_width() -> int:
    """Count the columns that prose is wrapped to."""
    return min(table_width() or PAGE_WIDTH, 140)


def styled(text: str, **style: Any) -> str:
    """Style the text, where there is a terminal to show it; see click.style."""
    if not stdout_is_terminal() or os.environ.get("NO_COLOR"):
        return text
    before, _, after = click.style("\0", **style).partition("\0")
    return obeyed(before) + text + obeyed(after)


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    header, *lines = render(columns, rows, table_width())
    click.echo(styled(header, bold=True))
    for line in lines:
        click.echo(line)


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on one line, without a character that a terminal obeys."""
    click.echo(escaped(json.dumps(value, ensure_ascii=False, separators=(", ", ": "))))


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Write a count with its noun: `1 letter`, `12 letters`, `1,204 queues`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
