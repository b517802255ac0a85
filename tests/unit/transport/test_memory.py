"""When malloc is told to give memory back."""

from latermq_broker.transport.grpc.reply_memory import ReplyBudget
from latermq_broker.transport.memory import (
    CALLS_MIN,
    FREED_BYTES_MIN,
    INTERVAL_MS_MIN,
    QUIET_BYTES,
    QUIET_CALLS,
    QUIET_LOOKS,
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


class Seconds:
    """What is given back at the end of each second, and what was done in it."""

    def __init__(self) -> None:
        self.given: list[int] = []
        self._now_ms = self._calls = 0
        self._budget = ReplyBudget(1 << 40, 1 << 40)
        self._freed = Freed(
            (self._budget,),
            lambda: self._calls,
            lambda: self._now_ms,
            lambda: self.given.append(self._calls),
        )

    def pass_one(self, calls: int, held_bytes: int = 0) -> None:
        """Count so many calls, one after the other, which hold so much."""
        self._now_ms += 1_000
        self._calls += calls
        self._budget.change(held_bytes)
        self._budget.change(-held_bytes)
        self._freed.look()


def test_memory_is_given_back_when_calls_are_few_after_many() -> None:
    seconds = Seconds()
    for _ in range(20):
        seconds.pass_one(CALLS_MIN)
    for _ in range(QUIET_LOOKS - 1):
        seconds.pass_one(QUIET_CALLS)
    assert not seconds.given  # what is free now may be wanted again at once
    seconds.pass_one(0)
    assert len(seconds.given) == 1
    for _ in range(2 * QUIET_LOOKS):
        seconds.pass_one(QUIET_CALLS)
    assert len(seconds.given) == 1
    seconds.pass_one(CALLS_MIN)
    for _ in range(QUIET_LOOKS):
        seconds.pass_one(0)
    assert len(seconds.given) == 2


def test_bursts_keep_what_they_want_again() -> None:
    seconds = Seconds()
    for _ in range(5):
        seconds.pass_one(CALLS_MIN)
        for _ in range(QUIET_LOOKS - 1):
            seconds.pass_one(0)
    assert not seconds.given


def test_few_calls_that_carry_much_are_not_quiet() -> None:
    seconds = Seconds()
    for _ in range(CALLS_MIN // QUIET_CALLS + 2 * QUIET_LOOKS):
        seconds.pass_one(QUIET_CALLS, QUIET_BYTES + 1)
    assert not seconds.given
