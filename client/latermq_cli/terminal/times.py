"""Instants as the terminal shows them; inside, an int of milliseconds since the epoch."""

from datetime import datetime, tzinfo

from latermq_text.durations import format_duration


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
