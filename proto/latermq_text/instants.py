"""Instants as people write and read them; inside, an int of milliseconds since the epoch.

Written: ISO 8601, `now`, a distance from now (`10m`, `+10m`, `-1h`), or the milliseconds as they
are, 12 to 14 digits, which is what `--json` prints. Numbers in another unit are refused: seconds
since the epoch have ten digits, microseconds sixteen.
"""

import re
from datetime import datetime, timedelta, tzinfo
from typing import Final

from latermq_text.durations import TooLongError, parse_duration_ms, shown

INSTANT_MS_MAX: Final = 253_402_300_799_999  # the last millisecond of the year 9999
TEXT_CHARACTERS_MAX: Final = 64  # of an instant that is one

_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_DIGITS: Final = re.compile(r"[0-9]+")
_MS_DIGITS: Final = range(12, 15)  # 1973 to 5138
_SECOND_DIGITS: Final = range(9, 12)


def parse_instant_ms(text: str, now_ms: int | None = None, zone: tzinfo | None = None) -> int:
    """Read an instant as milliseconds since the epoch.

    Args:
        now_ms: None: `now` and distances from it are none.
        zone: of a date without one; None: the machine's local one.
    Raises:
        ValueError: with a sentence that names the text, and what is accepted or its bound.
    """
    wanted = text.strip()
    if len(wanted) <= TEXT_CHARACTERS_MAX:
        if _DIGITS.fullmatch(wanted) and len(wanted) != len("20260501"):
            return _counted(wanted)
        if now_ms is not None and wanted.lower() == "now":
            return now_ms
        at_ms = _away(wanted, now_ms) if now_ms is not None else None
        if at_ms is None:
            at_ms = _dated(wanted, zone)
        if at_ms is not None:
            if not 0 <= at_ms <= INSTANT_MS_MAX:
                raise ValueError(f"{shown(text)} is not between the years 1970 and 9999")
            return at_ms
    near = "" if now_ms is None else "now, -1h, 10m, or "
    raise ValueError(
        f"{shown(text)} is not a time: say {near}a date such as 2026-05-01T18:30:00, "
        "2026-05-01T18:30:00Z, or milliseconds since 1970"
    )


def _counted(digits: str) -> int:
    """Read the milliseconds themselves. Raises ValueError: another unit, or no time."""
    if len(digits) in _MS_DIGITS:
        return int(digits)
    if len(digits) in _SECOND_DIGITS:
        hint = f"for seconds append three zeros: {digits}000"
    elif len(digits) >= _MS_DIGITS.stop:
        hint = "microseconds and nanoseconds are too fine"
    else:
        hint = "or a date such as 2026-05-01T18:30:00Z"
    raise ValueError(
        f"{shown(digits)} is not a time in milliseconds since 1970, of 12 to 14 digits; {hint}"
    )


def _away(wanted: str, now_ms: int) -> int | None:
    """Read a distance from now; None: it is none."""
    sign = -1 if wanted.startswith("-") else 1
    distance = wanted[wanted.startswith(("+", "-")) :]
    try:
        return now_ms + sign * parse_duration_ms(distance)
    except TooLongError:
        raise
    except ValueError:
        return None


def _dated(wanted: str, zone: tzinfo | None) -> int | None:
    """Read a date; None: it is none."""
    try:
        when = datetime.fromisoformat(wanted)
        local = when.replace(tzinfo=zone) if when.tzinfo is None else when
        if local.tzinfo is None:
            local = local.astimezone()
        return round((local - _EPOCH) / timedelta(milliseconds=1))
    except (ValueError, OverflowError, OSError):
        return None
