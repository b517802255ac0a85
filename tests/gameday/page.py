"""The table of docs/operating/game-day.md, as a game day wrote it."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from gameday.rules import SPEED

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "operating" / "game-day.md"
BEGIN: Final = "<!-- faults: written by make game-day PAGE=1 -->\n"
END: Final = "<!-- faults end -->"
HEAD: Final = "| fault | alert | after | what names the cause | it says |\n|---|---|---|---|---|\n"
FOOT: Final = (
    "\nThe times go from the beginning of the fault; what a command says is of a day that went by "
    f"{SPEED:.0f} times as fast.\n"
)


class Row(NamedTuple):
    """One command that names the cause of one fault."""

    fault: str
    alert: str
    after_s: float  # of the fast day
    command: str
    said: str
    runbook: str


def write(rows: Sequence[Row]) -> None:
    """Write the table, and leave the page's other words alone."""
    before = PAGE.read_text(encoding="utf-8")
    begin, end = before.index(BEGIN) + len(BEGIN), before.index(END)
    table = HEAD + "".join(map(_line, rows)) + FOOT
    PAGE.write_text(before[:begin] + table + before[end:], encoding="utf-8")


def _line(row: Row) -> str:
    page = row.runbook.removeprefix("docs/operating/")
    said = " ".join(row.said.split()).replace("|", "\\|")
    command, said = (re.sub(r"\S+@\S+", "CLIENT_ID", text) for text in (row.command, said))
    return (
        f"| {row.fault} | [`{row.alert}`]({page}) | {_words(row.after_s * SPEED)} "
        f"| `{command}` | `{said}` |\n"
    )


def _words(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
