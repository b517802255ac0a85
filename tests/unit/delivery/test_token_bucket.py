"""Rates: a second's worth at once, then as it comes back; debts are paid first."""

from hypothesis import given
from hypothesis import strategies as st

from latermq_broker.catalog.token_bucket import TokenBucket


def test_a_second_s_worth_then_one_by_one() -> None:
    bucket = TokenBucket(10, 0)
    for _ in range(10):
        assert bucket.wait_ms(0) == 0
        bucket.take(1)
    wait_ms = bucket.wait_ms(0)
    assert wait_ms == 1
    assert bucket.wait_ms(wait_ms) == 0


def test_what_is_larger_than_a_second_s_worth_passes_and_is_paid_for() -> None:
    bucket = TokenBucket(10, 0)
    bucket.take(60)
    assert bucket.wait_ms(0) == 5_001
    assert bucket.wait_ms(5_000) == 1
    assert bucket.wait_ms(5_001) == 0


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(1, 10_000)
    bucket.take(1)
    assert bucket.wait_ms(0) > 0
    assert bucket.wait_ms(1_000) == 0


@given(st.integers(1, 1_000), st.lists(st.tuples(st.integers(0, 400), st.integers(1, 50))))
def test_over_time_the_rate_holds(per_s: int, steps: list[tuple[int, int]]) -> None:
    bucket = TokenBucket(per_s, 0)
    now_ms = taken = largest = 0
    for step_ms, count in steps:
        now_ms += step_ms
        if bucket.wait_ms(now_ms) == 0:
            bucket.take(count)
            taken, largest = taken + count, max(largest, count)
    assert taken <= per_s + now_ms * per_s / 1_000 + largest + 1e-6
