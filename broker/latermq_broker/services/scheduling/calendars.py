"""When a schedule ticks: the only reader of time zones. Nothing is loaded before it is asked.

Ticks are instants, so a day on which the clocks change is decided here, as in Debian's cron: a time
in the hour that is left out comes at the end of that hour; a time in an hour that comes twice comes
the first time. A `*` for the minute or the hour follows the minutes that there are. A zone's rules
are the system's, or those of the package `tzdata`. `cronsim` reads the expression; its search is
not used: it loses ticks after a gap at midnight, and does not end in a day that a zone left out.
"""

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from latermq_broker.errors import BadRequestError

if TYPE_CHECKING:
    from cronsim import CronSim

CRON_CHARACTERS_MAX: Final = 256
ZONE_CHARACTERS_MAX: Final = 64
CRON_FIELDS: Final = 5
STEPS_MAX: Final = (("minute", 59), ("hour", 23), ("day", 31), ("month", 12), ("weekday", 7))
SEARCH_DAYS_MAX: Final = 50 * 366  # days of one search; 29 February is a Monday within 40 years
NICKNAMES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY: Final = timedelta(days=1)
_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000


def first_after(cron: str, zone: str, after_ms: int) -> int:
    """Find the first tick after an instant.

    Raises:
        BadRequestError: no cron expression, no time zone, or it never comes.
    """
    expression, clock = _expression(cron), zone_of(zone)
    found_ms: int | None = None
    try:
        day = _day_of(after_ms, clock) - _DAY
        for _ in range(SEARCH_DAYS_MAX):
            ticks = (at_ms for at_ms in expression.ticks(day, clock) if at_ms > after_ms)
            tick_ms = next(iter(ticks), None)
            if found_ms is not None:  # an hour repeated around midnight mixes the ticks of two days
                return found_ms if tick_ms is None else min(found_ms, tick_ms)
            found_ms = tick_ms
            day += _DAY
    except (
        OverflowError,
        ValueError,
        OSError,
    ):  # beyond the year 9999, or a year that gmtime lacks
        pass
    if found_ms is None:
        raise BadRequestError(f"cron {cron!r} never comes")
    return found_ms


def last_until(cron: str, zone: str, first_ms: int, until_ms: int) -> int:
    """Find the last tick up to an instant, which is not before the tick `first_ms`.

    Raises BadRequestError, as `first_after`.
    """
    expression, clock = _expression(cron), zone_of(zone)
    found_ms: int | None = None
    try:
        day, first = _day_of(until_ms, clock) + _DAY, _day_of(first_ms, clock)
        while day >= first:
            ticks = (at_ms for at_ms in expression.ticks(day, clock) if at_ms <= until_ms)
            tick_ms = max(ticks, default=None)
            if found_ms is not None:
                return max(first_ms, found_ms, first_ms if tick_ms is None else tick_ms)
            found_ms = tick_ms
            day -= _DAY
    except (OverflowError, ValueError, OSError):
        pass
    return first_ms if found_ms is None else max(first_ms, found_ms)


def check_steps(cron: str) -> None:
    """Refuse a step that its field cannot hold: `*/90` minutes would tick every hour.

    Schedules that were stored before this check go on as they are. Raises BadRequestError.
    """
    for (name, step_max), field in zip(STEPS_MAX, cron.split(), strict=False):
        for term in field.split(","):
            step = term.partition("/")[2]
            if step.isdecimal() and int(step) > step_max:
                raise BadRequestError(
                    f"cron {cron!r}: step {step} is too large for the {name}, at most {step_max}; "
                    "for such intervals say every=, as 90m or 36h"
                )


class _Expression:
    """Five fields that were read."""

    def __init__(self, cron: str) -> None:
        parsed = _parse(cron)
        minute, hour = _fields(cron).split()[:2]
        self._follows_minutes = minute.startswith("*") or hour.startswith("*")
        self._months = parsed.months
        self._on_day = parsed.match_day
        self._hours = tuple(sorted(parsed.hours))
        self._minutes = tuple(sorted(parsed.minutes))

    def ticks(self, day: date, clock: tzinfo) -> Iterable[int]:
        """Return the ticks of a local day, in the order of time."""
        if day.month not in self._months or not self._on_day(day):
            return ()
        midnight = datetime.combine(day, time(), clock)
        offset = midnight.utcoffset()
        # no zone changes its clocks twice within half a day, so these three show each change
        for other in (midnight + _DAY / 2, midnight + _DAY, (midnight + _DAY).replace(fold=1)):
            if other.utcoffset() != offset:
                return _uneven(self._hours, self._minutes, self._follows_minutes, day, clock)
        begin_ms = _ms(midnight)
        return (
            begin_ms + hour * _HOUR_MS + minute * _MINUTE_MS
            for hour in self._hours
            for minute in self._minutes
        )


_expression: Final = lru_cache(maxsize=1_024)(_Expression)  # as many as there may be schedules


@lru_cache(maxsize=16)
def _uneven(
    hours: tuple[int, ...],
    minutes: tuple[int, ...],
    follows_minutes: bool,
    day: date,
    clock: tzinfo,
) -> tuple[int, ...]:
    """Find the ticks of a day on which the clocks change."""
    ticks: set[int] = set()
    for hour in hours:
        for minute in minutes:
            first = datetime.combine(day, time(hour, minute), clock)
            second = first.replace(fold=1)
            skipped = first.astimezone(UTC).astimezone(clock).replace(tzinfo=None) != (
                first.replace(tzinfo=None)
            )
            if not skipped:
                ticks.add(_ms(first))
                if follows_minutes:
                    ticks.add(_ms(second))
            elif not follows_minutes:
                ticks.add(_end_of_gap(_ms(second), _ms(first), clock))
    return tuple(sorted(ticks))


def _end_of_gap(before_ms: int, after_ms: int, clock: tzinfo) -> int:
    """Find the one change of the clock between two instants, the later of which may be it."""
    after = _at(after_ms, clock).utcoffset()
    while after_ms - before_ms > 1_000:
        middle_ms = (before_ms + after_ms) // 2_000 * 1_000
        if _at(middle_ms, clock).utcoffset() == after:
            after_ms = middle_ms
        else:
            before_ms = middle_ms
    return after_ms


def _at(at_ms: int, clock: tzinfo) -> datetime:
    return (_EPOCH + timedelta(milliseconds=at_ms)).astimezone(clock)


def _day_of(at_ms: int, clock: tzinfo) -> date:
    return _at(at_ms, clock).date()


def _ms(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(seconds=1) * 1_000


def _fields(cron: str) -> str:
    return NICKNAMES.get(cron.strip().lower(), cron)


def _parse(cron: str) -> "CronSim":
    try:
        from cronsim import CronSim, CronSimError
    except ImportError:
        raise BadRequestError(
            "this broker knows no cron expressions: pip install 'latermq[broker]'"
        ) from None
    if len(cron) > CRON_CHARACTERS_MAX:
        raise BadRequestError(f"cron has {len(cron)} characters, at most {CRON_CHARACTERS_MAX}")
    fields = _fields(cron)
    if len(fields.split()) != CRON_FIELDS:
        raise BadRequestError(
            f"cron {cron!r} has not five fields: minute hour day month weekday, as '0 6 * * 1-5'"
        )
    try:
        return CronSim(fields, _EPOCH)
    except (CronSimError, ValueError, AssertionError) as error:
        raise BadRequestError(f"cron {cron!r}: {str(error).lower() or 'not understood'}") from None


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
