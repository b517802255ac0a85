"""When a schedule ticks: the only reader of time zones. Nothing is loaded before it is asked.

Ticks are instants, so a day on which the clocks change is decided here, as Debian's cron does it,
which `cronsim` follows: what is due in the hour that is left out comes at its end; what is due at
an hour that comes twice comes the first time. What has a `*` for the minute or the hour follows
the minutes that there are. A zone's rules are the system's, or those of the package `tzdata`.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from typing import Final

from latermq_broker.errors import BadRequestError

CRON_CHARACTERS_MAX: Final = 256
ZONE_CHARACTERS_MAX: Final = 64
CRON_FIELDS: Final = 5
NICKNAMES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


def first_after(cron: str, zone: str, after_ms: int) -> int:
    """Find the first tick after an instant.

    Raises:
        BadRequestError: no cron expression, no time zone, or it never comes.
    """
    start = datetime.fromtimestamp(after_ms // 1_000, zone_of(zone))
    for tick_ms in _ticks(cron, start, reverse=False):
        if tick_ms > after_ms:  # in the second of two equal hours, the first one's come again
            return tick_ms
    raise BadRequestError(f"cron {cron!r} never comes")


def last_until(cron: str, zone: str, first_ms: int, until_ms: int) -> int:
    """Find the last tick up to an instant, which is not before the tick `first_ms`.

    Raises BadRequestError, as `first_after`.
    """
    start = datetime.fromtimestamp(until_ms // 1_000 + 1, zone_of(zone))
    found_ms = first_ms
    for tick_ms in _ticks(cron, start, reverse=True):
        if tick_ms <= until_ms:
            found_ms = max(found_ms, tick_ms)
            break
    while (next_ms := first_after(cron, zone, found_ms)) <= until_ms:
        found_ms = next_ms
    return found_ms


def _ticks(cron: str, start: datetime, *, reverse: bool) -> Iterator[int]:
    try:
        from cronsim import CronSim, CronSimError
    except ImportError:
        raise BadRequestError(
            "this broker knows no cron expressions: pip install 'latermq[broker]'"
        ) from None
    if len(cron) > CRON_CHARACTERS_MAX:
        raise BadRequestError(f"cron has {len(cron)} characters, at most {CRON_CHARACTERS_MAX}")
    fields = NICKNAMES.get(cron.strip().lower(), cron)
    if len(fields.split()) != CRON_FIELDS:
        raise BadRequestError(
            f"cron {cron!r} has not five fields: minute hour day month weekday, as '0 6 * * 1-5'"
        )
    try:
        moments = CronSim(fields, start, reverse=reverse)
    except (CronSimError, ValueError, AssertionError) as error:
        raise BadRequestError(f"cron {cron!r}: {str(error).lower() or 'not understood'}") from None
    for moment in moments:
        yield int(moment.timestamp()) * 1_000


def zone_of(name: str) -> tzinfo:
    """Find a time zone by its name, such as Europe/Berlin; "" is UTC. Raises BadRequestError."""
    if not name or name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo

    try:
        if len(name) <= ZONE_CHARACTERS_MAX:
            return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # a file that is none, a path, a folder
        pass
    raise BadRequestError(f"time zone {name[:ZONE_CHARACTERS_MAX]!r} is not known to this broker")
