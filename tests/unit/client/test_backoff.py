"""Waits: the producer's, the reconnecting client's, the broker's ladder."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from latermq.backoff import (
    RETRY_IN,
    SEND_BACKOFF,
    Exponential,
    Ladder,
    Pace,
    RetryPolicy,
    wait_of,
)

ALMOST_ONE = 1 - 2**-53
MIDDLE = 0.5  # a draw without jitter


def seconds(*numbers: float) -> tuple[timedelta, ...]:
    return tuple(timedelta(seconds=number) for number in numbers)


def test_send_backoff_grows_by_1_6() -> None:
    waits = [SEND_BACKOFF.wait(retry, MIDDLE) for retry in (1, 2, 3)]
    assert waits == list(seconds(1, 1.6, 2.56))


def test_send_backoff_is_off_by_a_fifth_at_most() -> None:
    assert SEND_BACKOFF.wait(1, 0.0) == timedelta(seconds=0.8)
    assert SEND_BACKOFF.wait(1, ALMOST_ONE) == timedelta(seconds=1.2)


@pytest.mark.parametrize("draw", [0.0, MIDDLE, ALMOST_ONE])
@pytest.mark.parametrize("retry", [11, 12, 100, 10**6])
def test_send_backoff_stops_at_two_minutes(retry: int, draw: float) -> None:
    assert timedelta(seconds=87) < SEND_BACKOFF.wait(retry, draw) <= timedelta(seconds=120)


def test_a_backoff_that_makes_no_sense_is_refused() -> None:
    second = timedelta(seconds=1)
    for initial, multiplier, limit, jitter in [
        (timedelta(0), 1.6, second, 0.0),
        (second, 1.6, second / 2, 0.0),
        (second, 0.9, second, 0.0),
        (second, 1.6, second, 1.0),
    ]:
        with pytest.raises(ValueError, match="must be"):
            Pace(initial=initial, multiplier=multiplier, limit=limit, jitter=jitter)


def test_ladder_is_indexed_by_attempt_and_repeats_its_last_rung() -> None:
    policy = RetryPolicy(17, Ladder(seconds(1, 5, 10)))
    assert [policy.wait(attempt) for attempt in (1, 2, 3, 4, 99)] == list(seconds(1, 5, 10, 10, 10))


def test_ladder_without_rungs_is_refused() -> None:
    with pytest.raises(ValueError, match="rung"):
        Ladder(())


def test_exponential_is_indexed_by_attempt_and_capped() -> None:
    waits = Exponential(initial=timedelta(seconds=5), limit=timedelta(seconds=60), multiplier=2)
    assert [waits.wait(attempt) for attempt in (1, 2, 3, 4, 5, 1000)] == list(
        seconds(5, 10, 20, 40, 60, 60)
    )


def test_an_absurd_multiplier_is_only_capped() -> None:
    limit = timedelta(hours=2)
    waits = Exponential(initial=timedelta(seconds=1), limit=limit, multiplier=1e300)
    assert waits.wait(1000) == limit


class Busy(Exception):
    def __init__(self, retry_in: object) -> None:
        super().__init__("busy")
        self.retry_in = retry_in


def test_a_wait_may_be_named_by_a_date_as_retry_after_has_it() -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    for text in (format_datetime(at, usegmt=True), format_datetime(at.replace(tzinfo=None))):
        wait = wait_of(Busy(text), RETRY_IN)
        assert wait is not None
        assert timedelta(minutes=59) < wait <= timedelta(hours=1)
    past = format_datetime(datetime.now(UTC) - timedelta(hours=1), usegmt=True)
    for named in (past, "tomorrow", "", -1, float("nan"), object()):
        assert wait_of(Busy(named), RETRY_IN) is None
    for named in (90, "90", "90s", "1m30s", timedelta(seconds=90)):
        assert wait_of(Busy(named), RETRY_IN) == timedelta(seconds=90)
