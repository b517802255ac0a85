from latermq_broker.catalog.catalog import Backoff, BackoffKind
from latermq_broker.delivery.retry import BACKOFF_MS_MAX, auto_renew_ms, backoff_ms

LADDER = Backoff(kind=BackoffKind.LADDER, delays_ms=(1_000, 5_000, 10_000))
EXPONENTIAL = Backoff(
    kind=BackoffKind.EXPONENTIAL, initial_ms=5_000, max_ms=7_200_000, multiplier=2.0
)


def test_a_ladder_repeats_its_last_step() -> None:
    assert [backoff_ms(LADDER, n, 0) for n in (1, 2, 3, 4, 99)] == [1_000, 5_000, *[10_000] * 3]


def test_exponential_grows_to_its_maximum() -> None:
    assert [backoff_ms(EXPONENTIAL, n, 0) for n in (1, 2, 3)] == [5_000, 10_000, 20_000]
    assert backoff_ms(EXPONENTIAL, 1_000, 0) == 7_200_000


def test_fixed_is_always_the_same() -> None:
    fixed = Backoff(kind=BackoffKind.FIXED, delays_ms=(300,))
    assert {backoff_ms(fixed, n, 0) for n in (1, 2, 17)} == {300}


def test_jitter_spreads_within_its_bounds_and_repeats() -> None:
    jittered = Backoff(kind=BackoffKind.FIXED, delays_ms=(1_000,), jitter=0.2)
    drawn = [backoff_ms(jittered, 1, message) for message in range(1_000)]
    assert min(drawn) >= 800
    assert max(drawn) <= 1_200
    assert len(set(drawn)) > 200
    assert abs(sum(drawn) / len(drawn) - 1_000) < 20
    assert drawn == [backoff_ms(jittered, 1, message) for message in range(1_000)]


def test_never_negative_never_beyond_the_limit() -> None:
    wide = Backoff(
        kind=BackoffKind.EXPONENTIAL,
        initial_ms=1,
        max_ms=BACKOFF_MS_MAX,
        multiplier=100.0,
        jitter=1.0,
    )
    drawn = [backoff_ms(wide, attempt, 7) for attempt in range(1, 100)]
    assert 0 <= min(drawn) <= max(drawn) <= BACKOFF_MS_MAX


def test_renewals_reach_further_each_time() -> None:
    assert [auto_renew_ms(n) for n in (0, 1, 5, 50)] == [60_000, 180_000, 3_600_000, 3_600_000]
