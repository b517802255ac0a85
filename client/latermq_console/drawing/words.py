"""Numbers, durations and instants as people read them, for templates: text, or a bit of HTML."""

from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup, escape

from latermq_text.durations import format_duration
from latermq_text.printable import escaped

BYTES_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
ESCAPED_AT_ONCE: Final = 1_024  # characters; one escaped character takes up to twelve
_SHORT: Final = ((10**9, "G"), (10**6, "M"), (10**3, "k"))


def number(value: float) -> str:
    """Write 12345 as `12,345`."""
    return f"{value:,.0f}"


def short(value: float) -> str:
    """Write with three digits at most: `950`, `12.3k`, `4M`."""
    for size, unit in _SHORT:
        if abs(value) >= size:
            scaled = value / size
            digits = 0 if abs(scaled) >= 99.95 else 1
            return f"{scaled:.{digits}f}".removesuffix(".0") + unit
    return f"{value:.0f}"


def rate(value: float) -> str:
    """Write a rate per second: `0`, `0.4`, `12`, `3.1k`."""
    if 0 < value < 10:
        return f"{value:.1f}".removesuffix(".0") if value >= 0.05 else "<0.1"
    return short(value)


def counted(count: int, noun: str, plural: str = "") -> str:
    """Write `1 letter`, `12,000 letters`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def size(count: float) -> str:
    """Write bytes: `812 B`, `4.2 MiB`."""
    unit = 0
    while abs(count) >= 1024 and unit < len(BYTES_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    digits = 0 if unit == 0 or abs(count) >= 100 else 1
    return f"{count:.{digits}f} {BYTES_UNITS[unit]}"


def utc(ms: int, *, millis: bool = False) -> str:
    """Write an instant in UTC; `-` when it is not set."""
    when = _instant(ms)
    if when is None:
        return "-"
    text = f"{when:%Y-%m-%d %H:%M:%S}"
    return f"{text}.{ms % 1000:03d}" if millis else text


def when(ms: int, *, millis: bool = False) -> Markup:
    """Write an instant as an element that the page's script turns into local time."""
    instant = _instant(ms)
    if instant is None:
        return Markup('<span class="none">-</span>')
    form = "ms" if millis else "s"
    return Markup('<time datetime="{}" data-form="{}" title="{} UTC">{} UTC</time>').format(
        instant.isoformat(timespec="milliseconds"),
        form,
        utc(ms, millis=True),
        utc(ms, millis=millis),
    )


def clock_time(ms: int) -> Markup:
    """Write the time of day to the millisecond, as an element like `when`."""
    instant = _instant(ms)
    if instant is None:
        return Markup("-")
    return Markup('<time datetime="{}" data-form="clock" title="{} UTC">{}.{:03d}</time>').format(
        instant.isoformat(timespec="milliseconds"),
        utc(ms, millis=True),
        f"{instant:%H:%M:%S}",
        ms % 1000,
    )


def ago(ms: int, now_ms: int) -> Markup:
    """Write how far an instant is from now, as an element that goes on counting."""
    instant = _instant(ms)
    if instant is None:
        return Markup('<span class="none">never</span>')
    distance = now_ms - ms
    words = (
        f"{format_duration(distance)} ago" if distance >= 0 else f"in {format_duration(-distance)}"
    )
    if abs(distance) < 1_000:
        words = "now"
    return Markup('<time datetime="{}" data-form="ago" title="{} UTC">{}</time>').format(
        instant.isoformat(timespec="milliseconds"), utc(ms, millis=True), words
    )


def plain(text: str) -> str:
    """Show what is not printable, and what would turn text around, as escapes."""
    return escaped(text)


def lines_of(text: str) -> str:
    """Keep line ends and tabs of a text, and make everything else printable."""
    return "\n".join(escaped(line.replace("\t", "    ")) for line in text.splitlines())


def beginning_of(text: str, characters_max: int, lines_max: int) -> tuple[str, bool]:
    """Return as much of `lines_of` as fits, and tell whether that is less than all.

    The time that it takes grows with what is shown, not with the text.
    """
    shown: list[str] = []
    room, whole = characters_max, len(text) <= characters_max
    for line in text[:characters_max].splitlines():
        if len(shown) == lines_max or room <= 0:
            return "\n".join(shown), True
        pieces = list[str]()
        for at in range(0, len(line), ESCAPED_AT_ONCE):
            part = escaped(line[at : at + ESCAPED_AT_ONCE].replace("\t", "    "))
            pieces.append(part[: max(0, room)])
            room -= len(part)
            if room < 0:
                return "\n".join([*shown, "".join(pieces)]), True
        shown.append("".join(pieces))
        room -= 1  # its end
    return "\n".join(shown), not whole


def cut_short(text: str, characters_max: int, lines_max: int) -> str:
    """Return the beginning of a text, with a last line that tells of the rest."""
    shown, cut = beginning_of(text, characters_max, lines_max)
    return f"{shown}\n… cut: it has {len(text):,} characters" if cut else shown


def breakable(text: str) -> Markup:
    """Let a long name break behind dots, dashes and their like."""
    shown = str(escape(escaped(text)))
    for mark in "._-/@%":
        shown = shown.replace(mark, f"{mark}<wbr>")
    return Markup(shown)


def _instant(ms: int) -> datetime | None:
    if ms <= 0:
        return None
    try:
        return datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # far outside what a calendar knows
        return None
