"""Durations and instants, as written and as shown."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from latermq_cli.terminal.times import (
    format_ago,
    format_clock,
    format_due,
    format_instant,
    same_day,
    zone_name,
)
from latermq_text.durations import format_duration, format_exact, parse_duration_ms
from latermq_text.instants import parse_instant_ms

NOW_MS = round(datetime(2026, 5, 1, 12, 0, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500ms", 500),
        ("10s", 10_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("1.5s", 1_500),
        ("1H", 3_600_000),
        ("0", 0),
        ("0s", 0),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "10", "s", "-5s", "10x", "1h30", "99999999d", "1e3s", "½s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_duration_ms(text)


@pytest.mark.parametrize("text", ["0.4ms", "0.0001s", "0.9ms", "0." + "0" * 400 + "1d"])
def test_less_than_a_millisecond_is_not_nothing(text: str) -> None:
    with pytest.raises(ValueError, match="shorter than a millisecond"):
        parse_duration_ms(text)


def test_a_number_without_a_unit_gets_a_hint() -> None:
    with pytest.raises(ValueError, match=r"say the unit, e\.g\. 10s"):
        parse_duration_ms("10")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("now", NOW_MS),
        ("-1h", NOW_MS - 3_600_000),
        ("10m", NOW_MS + 600_000),
        ("+10m", NOW_MS + 600_000),
        ("2026-05-01T12:00:00Z", NOW_MS),
        ("2026-05-01T14:00:00+02:00", NOW_MS),
        ("2026-05-01 12:00:00.250", NOW_MS + 250),
        ("2026-05-01", NOW_MS - 12 * 3_600_000),
        (str(NOW_MS), NOW_MS),
    ],
)
def test_instants(text: str, ms: int) -> None:
    assert parse_instant_ms(text, NOW_MS, UTC) == ms


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "--1h", "12:00", "1-1h"])
def test_what_is_no_instant(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        parse_instant_ms(text, NOW_MS, UTC)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (12_340, "12.3 s"),
        (59_949, "59.9 s"),
        (59_960, "1m"),
        (252_000, "4m 12s"),
        (3_600_000, "1h"),
        (7_500_000, "2h 5m"),
        (273_600_000, "3d 4h"),
        (-1_500, "-1.5 s"),
    ],
)
def test_durations_for_people(ms: int, text: str) -> None:
    assert format_duration(ms) == text


@pytest.mark.parametrize("ms", [0, 1, 500, 1_500, 60_000, 5_400_000, 90_061_001])
def test_exact_durations_parse_back(ms: int) -> None:
    assert parse_duration_ms(format_exact(ms)) == ms


def test_instants_for_people() -> None:
    east = timezone(timedelta(hours=2), "EST2")
    assert format_instant(NOW_MS + 5, UTC) == "2026-05-01 12:00:00"
    assert format_instant(NOW_MS + 5, east, millis=True) == "2026-05-01 14:00:00.005"
    assert format_instant(0, UTC) == "-"
    assert format_due(NOW_MS, UTC) == "2026-05-01 12:00:00 UTC"
    assert format_due(NOW_MS + 5, east) == "2026-05-01 14:00:00.005 EST2"
    assert format_due(0, UTC) == "-"
    assert format_clock(NOW_MS + 5, UTC) == "12:00:00.005"
    assert zone_name(NOW_MS, east) == "EST2"
    assert same_day(NOW_MS, NOW_MS + 11 * 3_600_000, UTC)
    assert not same_day(NOW_MS, NOW_MS + 12 * 3_600_000, UTC)
    assert format_ago(NOW_MS - 3_200, NOW_MS) == "3.2 s ago"
    assert format_ago(NOW_MS + 252_000, NOW_MS) == "in 4m 12s"
    assert format_ago(NOW_MS, NOW_MS) == "now"


def test_a_time_no_calendar_knows_does_not_break_a_listing() -> None:
    assert format_instant(1 << 62, UTC).startswith("9999-12-31")
