"""The timer against a sorted list: nothing early, nothing lost, in order."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from latermq_broker.schedule.timer import Timer

MINUTE_MS = 60_000


class TimerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.timer = Timer()
        self.armed: set[tuple[int, int]] = set()
        self.now_ms = 10 * MINUTE_MS + 17
        self.next_position = 64

    @rule(
        wait_ms=st.one_of(st.integers(1, 500), st.integers(1, 5 * MINUTE_MS)), twins=st.booleans()
    )
    def arm(self, wait_ms: int, twins: bool) -> None:
        for _ in range(1 + twins):
            entry = (self.now_ms + wait_ms, self.next_position)
            self.next_position += 8
            self.timer.arm(*entry)
            self.armed.add(entry)

    @precondition(lambda self: self.armed)
    @rule(pick=st.randoms(use_true_random=False), again=st.booleans())
    def cancel(self, pick: object, again: bool) -> None:
        entry = pick.choice(sorted(self.armed))  # type: ignore[attr-defined]
        self.timer.cancel(*entry)
        self.armed.remove(entry)
        assert not self.timer.contains(*entry)
        if again:
            self.timer.arm(*entry)
            self.armed.add(entry)

    @rule(
        step_ms=st.one_of(st.integers(0, 700), st.integers(0, 3 * MINUTE_MS)),
        slice=st.integers(1, 5),
    )
    def fire(self, step_ms: int, slice: int) -> None:
        self.now_ms += step_ms
        expected = sorted(entry for entry in self.armed if entry[0] <= self.now_ms)[:slice]
        assert self.timer.due(self.now_ms, slice) == expected
        for entry in expected:
            self.timer.cancel(*entry)
            self.armed.remove(entry)

    @rule()
    def save_and_load(self) -> None:
        section = self.timer.snapshot()
        self.timer = Timer()
        self.timer.restore(section)

    @rule(after=st.tuples(st.integers(0, 20 * MINUTE_MS), st.integers(0, 400)))
    def list_from(self, after: tuple[int, int]) -> None:
        assert list(self.timer.in_order(after)) == sorted(e for e in self.armed if e > after)

    @invariant()
    def agrees(self) -> None:
        assert len(self.timer) == len(self.armed)
        assert list(self.timer.in_order()) == sorted(self.armed)
        first = min(self.armed)[0] if self.armed else None
        assert self.timer.next_deadline_ms() == first
        assert all(self.timer.contains(*entry) for entry in self.armed)


TestTimer = TimerMachine.TestCase
TestTimer.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
