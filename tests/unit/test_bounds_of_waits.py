"""Backoffs, rates, intervals and attempts: refused by name, by the SDK as by the broker."""

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import latermq
from latermq.backoff import Backoff, retry
from latermq.errors import LaterMQError
from latermq_broker.catalog.catalog import Backoff as Policy
from latermq_broker.catalog.catalog import BackoffKind
from latermq_broker.engine.catalog.groups import _check_backoff
from latermq_broker.errors import BadRequestError
from latermq_text.durations import format_exact

APP = latermq.App()
DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("say", "why"),
    [
        (lambda: Backoff("exponential 2h 5s"), "first <= longest"),
        (lambda: Backoff("exponential 0 5s"), "1 <= first"),
        (lambda: Backoff("exponential 1s 31d"), "longest <= 2592000000"),
        (lambda: Backoff("exponential 1s 1h nan"), "'nan' is not a factor"),
        (lambda: Backoff("exponential 1s 1h 0"), "'0' is not a factor"),
        (lambda: Backoff("exponential 1s 1h inf"), "'inf' is not a factor"),
        (lambda: Backoff("exponential 1s 1h 101"), "'101' is not a factor"),
        (lambda: Backoff("fixed 31d"), "is not within 0 to 2592000000"),
        (lambda: Backoff(" ".join(["1s"] * 65)), "1 to 64 steps, not 65"),
        (lambda: Backoff("1s", jitter=math.nan), "jitter nan is not within 0 to 1"),
        (lambda: Backoff("1s", jitter=-0.1), "jitter -0.1 is not"),
        (lambda: Backoff("1s", jitter="20%"), "jitter must be a share"),  # type: ignore[arg-type]
        (lambda: APP.group("a", max_attempts=0), "max_attempts must be at least 1"),
        (lambda: APP.group("a", max_attempts=-1), "max_attempts must be at least 1"),
        (lambda: APP.group("a", max_attempts=2**33), "max_attempts must be at most 2147483647"),
        (lambda: APP.group("a", max_attempts=math.nan), "max_attempts must be an int"),  # type: ignore[arg-type]
        (lambda: APP.topic("a", queues=2**33), "queues must be at most"),
        (lambda: APP.listener("a", group="b", rate="0/s"), "rate must be"),
        (lambda: APP.listener("a", group="b", rate="-1/s"), "rate must be"),
        (lambda: APP.listener("a", group="b", rate="nan/s"), "rate must be"),
        (lambda: APP.listener("a", group="b", rate="999999999/ms"), "rate is a million a second"),
        (lambda: APP.schedule("a", "b", every=timedelta(0)), "every must be at least a second"),
        (lambda: APP.schedule("a", "b", every=timedelta.max), "every must be at most 36600 days"),
        (lambda: retry(tries=math.nan), "tries must be an int"),  # type: ignore[arg-type]
        (lambda: retry(tries=0), "tries must be at least 1"),
        (lambda: retry(within=5), "within must be a timedelta"),  # type: ignore[arg-type]
        (lambda: retry(on="x"), "on must be an exception class"),  # type: ignore[arg-type]
    ],
)
def test_a_bound_is_named(say: Callable[[], Any], why: str) -> None:
    with pytest.raises((ValueError, TypeError), match=why):
        say()


WAITS = st.sampled_from((0, 1, 1_000, DAY_MS, 30 * DAY_MS, 30 * DAY_MS + 1, 2**33 * 1_000))
FACTORS = st.sampled_from((0.0, 0.5, 1.0, 2.0, 100.0, 100.5, math.nan, math.inf, -2.0))


def _taken_by_the_broker(policy: Policy) -> bool:
    try:
        _check_backoff(policy)
    except BadRequestError:
        return False
    return True


def _taken(words: str, jitter: float) -> bool:
    try:
        Backoff(words, jitter=jitter)
    except (ValueError, LaterMQError):
        return False
    return True


@given(WAITS, WAITS, FACTORS, st.floats(-0.5, 1.5) | st.just(math.nan))
def test_the_broker_and_the_sdk_take_the_same_growth(
    first: int, longest: int, factor: float, jitter: float
) -> None:
    policy = Policy(
        kind=BackoffKind.EXPONENTIAL, jitter=jitter, initial_ms=first, max_ms=longest,
        multiplier=factor,
    )  # fmt: skip
    words = f"exponential {format_exact(first)} {format_exact(longest)} {factor}"
    assert _taken(words, jitter) == _taken_by_the_broker(policy)


@given(st.lists(WAITS, min_size=1, max_size=66))
def test_the_broker_and_the_sdk_take_the_same_ladders(waits: list[int]) -> None:
    policy = Policy(kind=BackoffKind.LADDER, delays_ms=tuple(waits))
    assert _taken(" ".join(map(format_exact, waits)), 0.0) == _taken_by_the_broker(policy)


def test_a_group_of_exceptions_is_tried_again_if_all_of_it_is_worth_it() -> None:
    calls: list[int] = []
    errors = [ConnectionError("a"), ValueError("b")]

    @retry("0", tries=3, on=ConnectionError)
    def both() -> None:
        calls.append(1)
        raise ExceptionGroup("several", errors[: 1 if len(calls) == 1 else 2])

    with pytest.raises(ExceptionGroup):
        both()
    assert len(calls) == 2
