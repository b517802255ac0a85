"""latermq.spark.limits: shares of a limited batch."""

from hypothesis import given
from hypothesis import strategies as st

from latermq.spark.limits import share

backlogs = st.dictionaries(st.integers(0, 20), st.integers(1, 1_000), max_size=12)


def test_small_backlogs_first_then_equal_shares() -> None:
    assert share({"a": 1_000, "b": 10, "c": 2_000}, 210) == {"a": 100, "b": 10, "c": 100}


def test_what_does_not_divide_falls_to_the_largest() -> None:
    assert share({"a": 5, "b": 6, "c": 7}, 2) == {"a": 0, "b": 1, "c": 1}


@given(backlogs, st.integers(1, 5_000))
def test_takes_the_whole_limit_and_never_more_than_there_is(
    waiting: dict[int, int], limit: int
) -> None:
    taken = share(waiting, limit)
    assert sum(taken.values()) == min(limit, sum(waiting.values()))
    assert all(0 <= taken[key] <= waiting[key] for key in waiting)


@given(backlogs, st.integers(1, 50))
def test_any_limit_empties_every_queue(waiting: dict[int, int], limit: int) -> None:
    total = sum(waiting.values())
    batch_count = 0
    while waiting:
        taken = share(waiting, limit)
        waiting = {key: left for key in waiting if (left := waiting[key] - taken[key])}
        batch_count += 1
    assert batch_count == -(-total // limit)
