"""The table of attacks in docs/security.md: read, and written again with new figures.

A row keeps the figures of the broker before it was repaired, unless those are what was measured.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from abuse.siege import Case, Figures

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "security.md"
BEGIN: Final = "<!-- attacks: written by make abuse PAGE=1 -->"
END: Final = "<!-- attacks end -->"
HEAD: Final = (
    "| | case | attack | answer | peak RSS before, MiB | now | p99 before, ms | now | calm |\n"
    "|---|---|---|---|---|---|---|---|---|"
)
COLUMNS: Final = 9
ANSWER_CHARACTERS_MAX: Final = 110
NEVER: Final = "none served"


class Row(NamedTuple):
    """Cells that are measured, as text; "" before they were."""

    answer: str = ""
    peak_before: str = ""
    peak: str = ""
    p99_before: str = ""
    p99: str = ""
    calm: str = ""

    def measured(self, figures: Figures, *, before: bool) -> "Row":
        peak, p99 = f"{figures.peak_mib:.0f}", in_ms(figures.p99_ms)
        if before:
            return self._replace(peak_before=peak, p99_before=p99)
        answer = shortened(figures.answer).replace("|", "\\|")
        return self._replace(answer=answer, peak=peak, p99=p99, calm=in_ms(figures.calm_p99_ms))


def shortened(answer: str) -> str:
    """What fits a cell."""
    return answer if len(answer) <= ANSWER_CHARACTERS_MAX else answer[:ANSWER_CHARACTERS_MAX] + "…"


def in_ms(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else NEVER


def rows_of(text: str) -> dict[str, Row]:
    """What a page says, by case."""
    found = {}
    for line in text[text.index(BEGIN) : text.index(END)].splitlines():
        cells = [cell.strip() for cell in line.replace("\\|", "\0").split("|")[1:-1]]
        if len(cells) == COLUMNS and cells[1].startswith("`"):
            answer, peak_before, peak, p99_before, p99, calm = (
                cell.replace("\0", "\\|") for cell in cells[3:]
            )
            found[cells[1].strip("`")] = Row(answer, peak_before, peak, p99_before, p99, calm)
    return found


def table(cases: tuple[Case, ...], rows: Mapping[str, Row]) -> str:
    lines = [HEAD]
    for case in sorted(cases, key=lambda case: case.number):
        row = rows.get(case.name, Row())
        cells = (
            str(case.number), f"`{case.name}`", case.what, row.answer, row.peak_before, row.peak,
            row.p99_before, row.p99, row.calm,
        )  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write(cases: tuple[Case, ...], found: Mapping[str, Figures], *, before: bool) -> None:
    """Bring the page up to date with what was measured just now."""
    text = PAGE.read_text(encoding="utf-8")
    rows = rows_of(text)
    for name, figures in found.items():
        rows[name] = rows.get(name, Row()).measured(figures, before=before)
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    PAGE.write_text(text[:start] + "\n" + table(cases, rows) + "\n" + text[end:], encoding="utf-8")
