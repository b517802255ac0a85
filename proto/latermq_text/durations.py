"""Durations as people write and read them; inside, an int of milliseconds.

Written: `500ms 10s 5m 2h 1d 1h30m`.
"""

import re
from typing import Final

UNITS_MS: Final = {
    "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip
DURATION_MS_MAX: Final = 100 * 366 * UNITS_MS["d"]
SHOWN_CHARACTERS_MAX: Final = 60  # of a text that is refused
QUOTED_CHARACTERS_MAX: Final = 90  # of the same as `repr` writes it

_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|min|m|h|d)")
_WHOLE: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|min|m|h|d))+")
_NOTHING: Final = re.compile(r"[0.a-z]+")
_NUMBER: Final = re.compile(r"[0-9]+")


class TooLongError(ValueError):
    """A duration of more than a hundred years."""


def parse_duration_ms(text: str) -> int:
    """Parse a duration such as `1h30m` into milliseconds; never negative.

    Raises:
        ValueError: with a sentence that says what is accepted; more than nothing, and less than
            a millisecond.
        TooLongError: more than a hundred years.
    """
    wanted = text.strip().replace(" ", "").lower()
    if wanted == "0":
        return 0
    if not _WHOLE.fullmatch(wanted):
        hint = f"; say the unit, e.g. {shown(wanted)[1:-1]}s" if _NUMBER.fullmatch(wanted) else ""
        raise ValueError(
            f"{shown(text)} is not a duration such as 500ms, 10s, 5m, 2h, 1d, 1h30m{hint}"
        )
    total = sum(float(count) * UNITS_MS[unit] for count, unit in _PART.findall(wanted))
    if total > DURATION_MS_MAX:
        raise TooLongError(f"{shown(text)} is longer than a hundred years, the longest duration")
    if total < 1 and not _NOTHING.fullmatch(wanted):  # 0 is no bound at all in many places
        raise ValueError(f"{shown(text)} is shorter than a millisecond, the shortest duration")
    return round(total)


def shown(text: str) -> str:
    """Quote a text that is refused, for one line: its beginning, if it is long."""
    quoted = repr(text[:SHOWN_CHARACTERS_MAX])
    if len(quoted) > QUOTED_CHARACTERS_MAX:
        quoted = f"{quoted[:QUOTED_CHARACTERS_MAX]}'"
    elif len(text) <= SHOWN_CHARACTERS_MAX:
        return quoted
    return f"{quoted}… ({len(text)} characters)"


def format_exact(ms: int) -> str:
    """Write a duration that parses back to the same milliseconds, e.g. `1h30m`, `500ms`."""
    if ms == 0:
        return "0s"
    parts: list[str] = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, ms = divmod(ms, UNITS_MS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def format_ticks(every_ms: int, cron: str, zone: str) -> str:
    """Write when a schedule ticks: `every 15m`, or `0 6 * * 1-5 Europe/Berlin`."""
    return f"every {format_exact(every_ms)}" if every_ms else f"{cron} {zone or 'UTC'}"


def format_duration(ms: float) -> str:
    """Write a duration with two units at most, e.g. `850 ms`, `12.3 s`, `4m 12s`, `3d 4h`."""
    ms = round(ms)
    if ms < 0:
        return f"-{format_duration(-ms)}"
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 59_950:
        return f"{ms / 1000:.1f}".removesuffix(".0") + " s"
    ms = (ms + 500) // 1_000 * 1_000
    names = ("d", "h", "m", "s")
    first = next(index for index, name in enumerate(names) if ms >= UNITS_MS[name])
    whole, rest = divmod(ms, UNITS_MS[names[first]])
    text = f"{whole}{names[first]}"
    if first + 1 == len(names):
        return text
    part = rest // UNITS_MS[names[first + 1]]
    return f"{text} {part}{names[first + 1]}" if part else text
