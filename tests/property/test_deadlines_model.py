"""Lease deadlines against a dict: nothing early, nothing lost, earliest first."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from latermq_broker.delivery.deadlines import _SLOT_MS, Deadlines

IDS = st.integers(1, 12)


class DeadlinesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.deadlines = Deadlines()
        self.armed: dict[int, int] = {}
        self.now_ms = 1_000_000

    @rule(item=IDS, wait_ms=st.one_of(st.integers(-5, 300), st.integers(0, 60_000)))
    def arm(self, item: int, wait_ms: int) -> None:
        self.deadlines.arm(item, self.now_ms + wait_ms)
        self.armed[item] = self.now_ms + wait_ms

    @rule(item=IDS)
    def disarm(self, item: int) -> None:
        self.deadlines.disarm(item)
        self.armed.pop(item, None)

    @rule(step_ms=st.one_of(st.integers(0, 300), st.integers(0, 60_000)), slice=st.integers(1, 4))
    def expire(self, step_ms: int, slice: int) -> None:
        self.now_ms += step_ms
        due = sorted((ms, item) for item, ms in self.armed.items() if ms <= self.now_ms)
        expected = [item for _, item in due[:slice]]
        assert self.deadlines.expire(self.now_ms, slice) == expected
        for item in expected:
            del self.armed[item]

    @rule(step_ms=st.one_of(st.integers(0, 300), st.integers(0, 60_000)))
    def forget_empty(self, step_ms: int) -> None:
        self.now_ms += step_ms
        self.deadlines.forget_empty(self.now_ms)
        waiting = {ms // _SLOT_MS for ms in self.armed.values()}
        past = {slot for slot in self.deadlines._slots if slot < self.now_ms // _SLOT_MS}
        assert past <= waiting

    @invariant()
    def agrees(self) -> None:
        expected = sorted((ms, item) for item, ms in self.armed.items())
        assert list(self.deadlines.in_order()) == expected
        assert len(self.deadlines) == len(self.armed)
        assert self.deadlines.next_deadline_ms() == (expected[0][0] if expected else None)


TestDeadlines = DeadlinesMachine.TestCase
TestDeadlines.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
