"""When malloc is told to give memory back."""

from latermq_broker.transport.grpc.reply_memory import ReplyBudget
from latermq_broker.transport.memory import (
    CALLS_MIN,
    FREED_BYTES_MIN,
    INTERVAL_MS_MIN,
    QUIET_CALLS,
    Freed,
)


def test_memory_is_given_back_after_a_storm_and_not_more_often_than_that() -> None:
    now_ms, given = 0, []
    budget = ReplyBudget(1 << 40, 1 << 40)
    freed = Freed((budget,), lambda: 0, lambda: now_ms, lambda: given.append(now_ms))

    def storm(size: int) -> None:
        budget.change(size)
        freed.look()
        budget.change(-size)
        freed.look()

    storm(FREED_BYTES_MIN - 1)
    assert not given
    storm(FREED_BYTES_MIN)
    assert given == [0]
    freed.look()
    storm(4 * FREED_BYTES_MIN)
    assert given == [0]
    now_ms = INTERVAL_MS_MIN
    freed.look()
    assert given == [0, INTERVAL_MS_MIN]
    budget.change(FREED_BYTES_MIN)
    now_ms *= 3
    freed.look()
    assert len(given) == 2  # all of it is in use


def test_memory_is_given_back_when_calls_are_few_after_many() -> None:
    now_ms, calls, given = 0, 0, []
    freed = Freed((), lambda: calls, lambda: now_ms, lambda: given.append(calls))

    def second(more: int) -> None:
        nonlocal now_ms, calls
        now_ms += 1_000
        calls += more
        freed.look()

    for _ in range(20):
        second(CALLS_MIN)
    assert not given  # what is free now is wanted again at once
    second(QUIET_CALLS)
    assert given == [calls]
    for _ in range(20):
        second(QUIET_CALLS)
    assert len(given) == 1
    second(CALLS_MIN)
    second(0)
    assert len(given) == 2
