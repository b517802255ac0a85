"""Columns that line up on a terminal, whatever the text holds.

Widths are what a terminal shows: wide East Asian characters count two, combining ones none. Control
characters are shown escaped, so that a message cannot drive the terminal it is printed on.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

GAP: Final = "  "
ELLIPSIS: Final = "…"
_FLEX_WIDTH_MIN: Final = 8
_FLEX_WIDTH_READABLE: Final = 20


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    right: numbers. flex: gives way first on a narrow terminal. optional: left out altogether (the
    rightmost first) rather than squeezing the flexible ones beyond reading. spare: left out of a
    page that is too narrow where no row has anything there but "-", or where squeezing is not
    enough, those of the greatest number first. by_end: of its cells the end is what is shown.
    """

    header: str
    right: bool = False
    flex: bool = False
    optional: bool = False
    spare: int = 0
    by_end: bool = False


def plain(text: str) -> str:
    """Make one printable line: control and bidirectional-format characters escaped."""
    if text.isprintable():
        return text
    return "".join(ch if ch.isprintable() else _escape(ch) for ch in text)


def plain_lines(text: str) -> list[str]:
    """Make printable lines of a longer text: line ends and tabs keep their meaning."""
    return [plain(line.expandtabs(4)) for line in text.splitlines()]


def _escape(ch: str) -> str:
    return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(ch) or (
        f"\\x{ord(ch):02x}" if ord(ch) < 0x100 else f"\\u{ord(ch):04x}"
    )


def display_width(text: str) -> int:
    """Count the columns the text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(_char_width(ch) for ch in text)


def _char_width(ch: str) -> int:
    if unicodedata.combining(ch) or ch == "\u200d":
        return 0
    return 2 if unicodedata.east_asian_width(ch) in "WF" else 1


def cut(text: str, width: int) -> str:
    """Cut the text to at most `width` columns, with an ellipsis where something is left out."""
    if display_width(text) <= width:
        return text
    taken: list[str] = []
    room = width - 1
    for ch in text:
        room -= _char_width(ch)
        if room < 0:
            break
        taken.append(ch)
    return "".join(taken).rstrip() + ELLIPSIS


def cut_front(text: str, width: int) -> str:
    """Cut the text to its last `width` columns, with an ellipsis where something is left out."""
    if display_width(text) <= width:
        return text
    room, begin = width - 1, len(text)
    while begin and _char_width(text[begin - 1]) <= room:
        begin -= 1
        room -= _char_width(text[begin])
    return ELLIPSIS + text[begin:]


def pad(text: str, width: int, *, right: bool = False) -> str:
    blanks = " " * max(0, width - display_width(text))
    return blanks + text if right else text + blanks


def render(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None
) -> list[str]:
    """Write header and rows as lines of at most `width` columns (None: as wide as they are)."""
    cells = [[plain(cell) for cell in row] for row in rows]
    widths = [
        max([display_width(column.header), *(display_width(row[index]) for row in cells)])
        for index, column in enumerate(columns)
    ]
    if width is not None:
        silent = {
            index
            for index, column in enumerate(columns)
            if column.spare and all(row[index] == "-" for row in cells)
        }
        kept = _readable(columns, widths, silent, width)
        columns = [columns[index] for index in kept]
        cells = [[row[index] for index in kept] for row in cells]
        widths = [widths[index] for index in kept]
        _shrink(columns, widths, width - len(GAP) * (len(columns) - 1))
    lines = [[column.header for column in columns], *cells]
    return [_line(columns, widths, line) for line in lines]


def _readable(
    columns: Sequence[Column], widths: Sequence[int], silent: set[int], width: int
) -> list[int]:
    """Pick the columns for a page of `width`: optional ones go as long as it is too narrow, then
    those that are silent, and spare ones as long as it is too narrow for all that are left."""
    kept = list(range(len(columns)))

    def needed(flexible_width: int) -> int:
        wanted = (
            min(widths[index], flexible_width) if columns[index].flex else widths[index]
            for index in kept
        )
        return sum(wanted) + len(GAP) * (len(kept) - 1)

    for index in reversed(range(len(columns))):
        if columns[index].optional and needed(_FLEX_WIDTH_READABLE) > width:
            kept.remove(index)
    for index in sorted(silent & {*kept}):
        if needed(_FLEX_WIDTH_READABLE) > width:
            kept.remove(index)
    for index in sorted(kept, key=lambda index: -columns[index].spare):
        if columns[index].spare and needed(_FLEX_WIDTH_MIN) > width:
            kept.remove(index)
    return kept


def _shrink(columns: Sequence[Column], widths: list[int], room: int) -> None:
    """Take what is missing from the widest flexible column, one at a time."""
    flexible = [index for index, column in enumerate(columns) if column.flex]
    while sum(widths) > room and flexible:
        widest = max(flexible, key=lambda index: widths[index])
        if widths[widest] <= _FLEX_WIDTH_MIN:
            return
        widths[widest] -= 1


def _line(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[str]) -> str:
    shown = [
        pad(_cut(column, cell, width), width, right=column.right)
        for column, width, cell in zip(columns, widths, cells, strict=True)
    ]
    return GAP.join(shown).rstrip()


def _cut(column: Column, cell: str, width: int) -> str:
    if column.by_end and cell != column.header:
        return cut_front(cell, width)
    return cut(cell, width)


def wrap(text: str, width: int) -> list[str]:
    """Wrap the text to lines of at most `width` columns, between words where there are any."""
    if display_width(text) <= width:
        return [text]  # as it is, indentation too
    lines: list[str] = []
    current = ""
    for word in text.split(" "):
        joined = f"{current} {word}" if current else word
        if display_width(joined) <= width:
            current = joined
            continue
        if current:
            lines.append(current)
        *whole, current = _pieces(word, width)
        lines += whole
    if current or not lines:
        lines.append(current)
    return lines


def _pieces(word: str, width: int) -> Iterator[str]:
    """Cut a word into pieces of at most `width` columns, but of one character at least."""
    begin, room = 0, width
    for index, ch in enumerate(word):
        wide = _char_width(ch)
        if wide > room and index > begin:
            yield word[begin:index]
            begin, room = index, width
        room -= wide
    yield word[begin:]
