"""When cron schedules tick: days on which the clocks change, both ways, and what is refused."""

import contextlib
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from latermq_broker.errors import BadRequestError
from latermq_broker.services.scheduling.calendars import (
    check_steps,
    first_after,
    last_until,
    zone_of,
)

BERLIN = "Europe/Berlin"
SPRING = "2026-03-29"  # 02:00 CET is 03:00 CEST
AUTUMN = "2026-10-25"  # 03:00 CEST is 02:00 CET


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1_000)


def ticks(cron: str, begin: str, end: str, zone: str = BERLIN) -> list[str]:
    """All ticks between two instants, by the clocks of the zone."""
    found = []
    at_ms, end_ms = ms(begin), ms(end)
    while (at_ms := first_after(cron, zone, at_ms)) <= end_ms:
        at = datetime.fromtimestamp(at_ms / 1_000, ZoneInfo(zone))
        found.append(at.isoformat(timespec="minutes"))
    return found


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("30 2 * * *", ["28T02:30+01:00", "29T03:00+02:00", "30T02:30+02:00"]),
        ("0,30 2,3 * * *", [
            "28T02:00+01:00", "28T02:30+01:00", "28T03:00+01:00", "28T03:30+01:00",
            "29T03:00+02:00", "29T03:30+02:00",
            "30T02:00+02:00", "30T02:30+02:00", "30T03:00+02:00", "30T03:30+02:00",
        ]),
        ("0 4 29 3 *", ["29T04:00+02:00"]),
    ],
)  # fmt: skip
def test_an_hour_that_is_left_out(cron: str, expected: list[str]) -> None:
    found = ticks(cron, "2026-03-28T00:00+01:00", "2026-03-30T12:00+02:00")
    assert found == [f"2026-03-{each}" for each in expected]


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("30 2 * * *", ["24T02:30+02:00", "25T02:30+02:00", "26T02:30+01:00"]),
        ("0 2,3 25 10 *", ["25T02:00+02:00", "25T03:00+01:00"]),
        ("30 * 25 10 *", None),
    ],
)  # fmt: skip
def test_an_hour_that_comes_twice(cron: str, expected: list[str] | None) -> None:
    found = ticks(cron, "2026-10-24T00:00+02:00", "2026-10-26T12:00+01:00")
    if expected is None:  # each of the day's 25 hours
        assert len(found) == 25
        assert [each for each in found if "T02" in each] == [
            "2026-10-25T02:30+02:00", "2026-10-25T02:30+01:00",
        ]  # fmt: skip
    else:
        assert found == [f"2026-10-{each}" for each in expected]


@pytest.mark.parametrize("cron", ["*/20 * * * *", "30 2 * * *", "15 2,3 * * *", "0 */2 * * *"])
@pytest.mark.parametrize("zone", [BERLIN, "America/New_York", "Australia/Lord_Howe", ""])
@pytest.mark.parametrize("day", [f"{SPRING}T00:00+01:00", f"{AUTUMN}T00:00+02:00"])
def test_the_last_tick_is_the_one_before_the_first_that_is_later(
    cron: str, zone: str, day: str
) -> None:
    """Every seven minutes of two days, beside ticks that were walked through one by one."""
    begin_ms = ms(day)
    end_ms = begin_ms + 48 * 3_600_000
    walked = [first_after(cron, zone, begin_ms - 86_400_000)]
    while walked[-1] <= end_ms:
        walked.append(first_after(cron, zone, walked[-1]))
    assert walked == sorted(set(walked))
    for at_ms in range(begin_ms, end_ms, 420_123):
        until = [tick_ms for tick_ms in walked if tick_ms <= at_ms]
        assert last_until(cron, zone, walked[0], at_ms) == until[-1]
        assert first_after(cron, zone, at_ms) == walked[len(until)]


@pytest.mark.parametrize(
    ("nickname", "first"),
    [
        ("@hourly", "2026-01-31T13:00+00:00"),
        ("@daily", "2026-02-01T00:00+00:00"),
        ("@WEEKLY", "2026-02-01T00:00+00:00"),
        ("@monthly", "2026-02-01T00:00+00:00"),
        ("@yearly", "2027-01-01T00:00+00:00"),
    ],
)
def test_nicknames(nickname: str, first: str) -> None:
    assert first_after(nickname, "", ms("2026-01-31T12:00+00:00")) == ms(first)


@pytest.mark.parametrize(
    ("cron", "said"),
    [
        ("61 * * * *", "'61 * * * *': bad minute"),
        ("* * * *", "five fields"),
        ("0 0 0 * * *", "five fields"),
        ("", "five fields"),
        ("@often", "five fields"),
        ("0 0 31 2 *", "bad day-of-month"),
        ("0 0 * * MOX", "bad day-of-week"),
        ("*/0 * * * *", "bad minute"),
        ("L/2 * * * *", "bad minute"),
        ("1 " * 129, "258 characters, at most 256"),
        (f"{'9' * 200} * * * *", "bad minute"),
    ],
)
def test_what_is_no_cron_expression(cron: str, said: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        first_after(cron, BERLIN, 0)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "zone", ["Europe/Atlantis", "Europe", "../../etc/passwd", "/etc/passwd", "x" * 300, "a\0b", " "]
)
def test_what_is_no_time_zone(zone: str) -> None:
    with pytest.raises(BadRequestError, match=r"time zone .* is not known"):
        zone_of(zone)


@pytest.mark.parametrize(
    ("cron", "zone", "begin", "end", "expected"),
    [
        (
            "*/15 1 * * 5", "Africa/Cairo", "2026-04-23T12:00+02:00", "2026-04-24T12:00+03:00",
            ["01:00", "01:15", "01:30", "01:45"],
        ),
        (
            "*/30 1 * * 0", "America/Santiago", "2026-09-05T12:00-04:00",
            "2026-09-06T12:00-03:00", ["01:00", "01:30"],
        ),
        (
            "*/15 1-2 * * 0", "Australia/Lord_Howe", "2026-10-03T12:00+10:30",
            "2026-10-04T12:00+11:00", ["01:00", "01:15", "01:30", "01:45", "02:30", "02:45"],
        ),
        (
            "0 12 30 12 *", "Pacific/Apia", "2011-12-28T12:00-10:00", "2011-12-31T12:00+14:00",
            ["00:00"],
        ),
        (
            "* * 30 12 *", "Pacific/Apia", "2011-12-28T12:00-10:00", "2012-01-31T12:00+14:00", [],
        ),
    ],
)  # fmt: skip
def test_days_on_which_clocks_change_around_midnight(
    cron: str, zone: str, begin: str, end: str, expected: list[str]
) -> None:
    assert [each[11:16] for each in ticks(cron, begin, end, zone)] == expected


def test_the_search_for_a_tick_ends() -> None:
    """29 February that is a Monday: 28 years, and 40 around 2100, which is no leap year."""
    assert first_after("0 0 29 2 */1", BERLIN, ms("2096-03-01T00:00+00:00")) == ms(
        "2104-02-29T00:00+01:00"
    )
    for never in ("0 0 30 2 MON", "0 0 31 4,6 *", "0 0 * 2 MON#5"):
        with contextlib.suppress(BadRequestError):
            first_after(never, BERLIN, ms("2097-01-01T00:00+00:00"))
    with pytest.raises(BadRequestError, match="never comes"):
        first_after("* * * * *", "", 1 << 60)


@pytest.mark.parametrize(
    ("cron", "said"),
    [
        ("*/90 * * * *", "step 90 is too large for the minute, at most 59"),
        ("0/120 * * * *", "step 120"),
        ("5,10-50/060 * * * *", "step 060"),
        ("0 */36 * * *", "step 36 is too large for the hour, at most 23"),
        ("0 0 */40 * *", "step 40 is too large for the day, at most 31"),
        ("0 0 1 */13 *", "step 13 is too large for the month, at most 12"),
        ("0 0 * * */8", "step 8 is too large for the weekday, at most 7"),
    ],
)
def test_steps_that_a_field_cannot_hold(cron: str, said: str) -> None:
    with pytest.raises(BadRequestError, match=said):
        check_steps(cron)


@pytest.mark.parametrize("cron", ["*/59 */23 */31 */12 */7", "0 0 * * *", "@hourly", ""])
def test_steps_that_a_field_can_hold(cron: str) -> None:
    check_steps(cron)
