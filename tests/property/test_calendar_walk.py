"""Cron schedules against a walk through every minute of days on which a zone's clocks change."""

from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from hypothesis import example, given, settings
from hypothesis import strategies as st

from latermq_broker.errors import BadRequestError
from latermq_broker.services.scheduling.calendars import first_after, last_until

MINUTE = timedelta(minutes=1)
CHANGES = (  # a zone, and a day on which its clocks change, or beside which they do
    ("Africa/Cairo", "2026-04-24"),  # forward at midnight
    ("Africa/Cairo", "2026-10-29"),  # back at midnight
    ("America/Santiago", "2026-09-06"),
    ("America/Santiago", "2026-04-05"),
    ("America/St_Johns", "2006-04-02"),  # forward at 00:01
    ("America/St_Johns", "2006-10-29"),  # back at 00:01, to the day before
    ("America/Sao_Paulo", "2017-10-15"),
    ("America/Sao_Paulo", "2018-02-18"),
    ("Australia/Lord_Howe", "2026-10-04"),  # half an hour
    ("Australia/Lord_Howe", "2026-04-05"),
    ("Antarctica/Troll", "2026-03-29"),  # two hours
    ("Africa/Casablanca", "2026-02-15"),
    ("Asia/Gaza", "2026-03-28"),
    ("Asia/Kathmandu", "1986-01-01"),  # a quarter of an hour, once
    ("Europe/Berlin", "2026-03-29"),
    ("Europe/Berlin", "2026-10-25"),
    ("Europe/Dublin", "2026-10-25"),
    ("Pacific/Apia", "2011-12-30"),  # a day that was left out
    ("Pacific/Kwajalein", "1993-08-21"),
    ("UTC", "2026-02-28"),
)


@dataclass(frozen=True)
class Cron:
    """A drawn expression: its text, and what each field means."""

    minute: tuple[str, frozenset[int]]
    hour: tuple[str, frozenset[int]]
    day: tuple[str, frozenset[int]]
    weekday: tuple[str, frozenset[int]]

    @property
    def text(self) -> str:
        return f"{self.minute[0]} {self.hour[0]} {self.day[0]} * {self.weekday[0]}"

    def is_on(self, at: datetime) -> bool:
        by_day = at.day in self.day[1]
        by_weekday = at.isoweekday() % 7 in self.weekday[1]
        if self.day[0].startswith("*") or self.weekday[0].startswith("*"):
            return by_day and by_weekday
        return by_day or by_weekday

    @property
    def follows_minutes(self) -> bool:
        return self.minute[0].startswith("*") or self.hour[0].startswith("*")


def fields(begin: int, end: int) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    everything = range(begin, end + 1)
    numbers = st.sets(st.sampled_from(everything), min_size=1, max_size=4)
    return st.one_of(
        st.just(("*", frozenset(everything))),
        st.integers(2, end).map(lambda step: (f"*/{step}", frozenset(everything[::step]))),
        numbers.map(lambda chosen: (",".join(map(str, chosen)), frozenset(chosen))),
        st.tuples(st.sampled_from(everything), st.sampled_from(everything)).map(
            lambda two: (f"{min(two)}-{max(two)}", frozenset(range(min(two), max(two) + 1)))
        ),
    )


CRONS = st.builds(Cron, fields(0, 59), fields(0, 23), fields(1, 31), fields(0, 6))


@lru_cache(maxsize=len(CHANGES))
def minutes_of(zone: str, day: str) -> list[tuple[int, datetime]]:
    """Every minute of six days about it: the instant, and what the clocks of the zone show."""
    begin = datetime.fromisoformat(day).replace(tzinfo=UTC) - timedelta(days=3)
    clock = ZoneInfo(zone)
    instants = [begin + each * MINUTE for each in range(6 * 1_440)]
    return [
        (int(at.timestamp()) * 1_000, at.astimezone(clock).replace(tzinfo=None)) for at in instants
    ]


def walked(cron: Cron, minutes: list[tuple[int, datetime]]) -> list[int]:
    """Find all ticks by looking at each minute, and at those that a clock passed over."""
    found: list[int] = []
    seen: set[datetime] = set()
    for index, (at_ms, shown) in enumerate(minutes):
        passed = [shown]
        if index and not cron.follows_minutes:
            before = minutes[index - 1][1]
            ahead = (shown - before) // MINUTE
            passed = [before + n * MINUTE for n in range(1, ahead + 1)] or [shown]
        for each in passed:
            is_again = each in seen and not cron.follows_minutes
            seen.add(each)
            is_due = each.minute in cron.minute[1] and each.hour in cron.hour[1]
            if is_due and cron.is_on(each) and not is_again and at_ms not in found[-1:]:
                found.append(at_ms)
    return found


MIDNIGHT = Cron(("0", frozenset((0,))), ("0", frozenset((0,))), ("*", frozenset(range(1, 32))),
                ("*", frozenset(range(7))))  # fmt: skip
LOST = Cron(("*/15", frozenset((0, 15, 30, 45))), ("1", frozenset((1,))),
            ("*", frozenset(range(1, 32))), ("5", frozenset((5,))))  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(CRONS, st.sampled_from(CHANGES), st.lists(st.integers(0, 4 * 1_440 * 60_000), max_size=5))
@example(LOST, CHANGES[0], [])
@example(MIDNIGHT, CHANGES[1], [])
def test_ticks_are_those_of_a_walk_through_every_minute(
    cron: Cron, change: tuple[str, str], moments: list[int]
) -> None:
    minutes = minutes_of(*change)
    expected = walked(cron, minutes)
    begin_ms, end_ms = minutes[1_440][0], minutes[-1_440][0]  # a whole day is known on either side
    inside = [at_ms for at_ms in expected if begin_ms < at_ms <= end_ms]
    for at_ms in inside:  # each from the one before, in one go
        assert first_after(cron.text, change[0], begin_ms) == at_ms
        begin_ms = at_ms
    for moment in moments:
        at_ms = minutes[1_440][0] + moment
        until = [each for each in expected if each <= at_ms]
        if until:
            assert last_until(cron.text, change[0], expected[0], at_ms) == until[-1]
        later = expected[bisect_right(expected, at_ms) :]
        if later and at_ms <= end_ms:
            assert first_after(cron.text, change[0], at_ms) == later[0]


@settings(max_examples=300, deadline=2_000)
@given(
    st.one_of(CRONS.map(lambda cron: cron.text), st.text("*/-,LW#0123456789 MONJA", max_size=30)),
    st.sampled_from(CHANGES),
    st.integers(0, 1 << 50),
)
def test_every_search_ends(cron: str, change: tuple[str, str], at_ms: int) -> None:
    """Whatever is asked for, from whenever on: a later tick, or a refusal of ours."""
    try:
        assert first_after(cron, change[0], at_ms) > at_ms
        assert last_until(cron, change[0], at_ms, at_ms + 1) >= at_ms
    except BadRequestError:
        pass
