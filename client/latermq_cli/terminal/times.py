"""Durations and instants as people write and read them.

Written: `500ms 10s 5m 2h 1d 1h30m`; instants as ISO 8601 (local time unless a zone is given), as a
distance from now (`10m`, `+10m`, `-1h`), as `now`, or as milliseconds since the epoch, which is
what `--json` prints. Inside, everything is an int of milliseconds.
"""

import re
from datetime import datetime, tzinfo
from typing import Final

from latermq_text.durations import format_duration, parse_duration_ms

_EPOCH_MS: Final = re.compile(r"\d{12,14}")


def parse_instant_ms(text: str, now_ms: int, zone: tzinfo | None = None) -> int:
    """Read an instant as milliseconds since the epoch; `zone` None is the machine's local one.

    Raises:
        ValueError: with a sentence that says what is accepted.
    """
    wanted = text.strip()
    if wanted.lower() == "now":
        return now_ms
    if _EPOCH_MS.fullmatch(wanted):
        return int(wanted)
    sign = -1 if wanted.startswith("-") else 1
    try:
        return now_ms + sign * parse_duration_ms(wanted[wanted.startswith(("+", "-")) :])
    except ValueError:
        pass  # not a distance; the other way to say it is a date
    try:
        when = datetime.fromisoformat(wanted)
        local = when.replace(tzinfo=zone) if when.tzinfo is None else when
        return round(local.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text!r} is not a time: say now, -1h, 10m, or a date such as 2026-05-01T18:30:00, "
            "2026-05-01T18:30:00Z"
        ) from None


def format_instant(ms: int, zone: tzinfo | None = None, *, millis: bool = False) -> str:
    """Write the local date and time to the second (or millisecond); `-` when not set."""
    if ms <= 0:
        return "-"
    when = _local(ms, zone)
    text = when.strftime("%Y-%m-%d %H:%M:%S")
    return f"{text}.{when.microsecond // 1000:03d}" if millis else text


def format_due(ms: int, zone: tzinfo | None = None) -> str:
    """Write an instant to come, in full: milliseconds where there are any, and the zone."""
    if ms <= 0:
        return "-"
    return f"{format_instant(ms, zone, millis=ms % 1000 != 0)} {zone_name(ms, zone)}".rstrip()


def format_clock(ms: int, zone: tzinfo | None = None) -> str:
    """Write the time of day to the millisecond."""
    when = _local(ms, zone)
    return f"{when:%H:%M:%S}.{when.microsecond // 1000:03d}"


def same_day(first_ms: int, second_ms: int, zone: tzinfo | None = None) -> bool:
    return _local(first_ms, zone).date() == _local(second_ms, zone).date()


def zone_name(ms: int, zone: tzinfo | None = None) -> str:
    """Return the zone's short name at that instant, e.g. `CET`."""
    return _local(ms, zone).tzname() or ""


def format_ago(ms: int, now_ms: int) -> str:
    """Write `3.2 s ago`, `in 4m 12s`, or `now`."""
    distance = ms - now_ms
    if distance == 0:
        return "now"
    if distance > 0:
        return f"in {format_duration(distance)}"
    return f"{format_duration(-distance)} ago"


def _local(ms: int, zone: tzinfo | None) -> datetime:
    seconds, millis = divmod(ms, 1000)
    try:
        when = datetime.fromtimestamp(seconds, zone).replace(microsecond=millis * 1000)
        return when.astimezone(zone)
    except (ValueError, OverflowError, OSError):  # a time far outside what a calendar knows
        return datetime.max.replace(tzinfo=zone)
