"""Lease deadlines against a dict: nothing early, nothing lost, earliest first."""

from itertools import islice

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from latermq_broker.delivery.leases.row_deadlines import SLOT_MS, RowDeadlines
from latermq_broker.delivery.leases.slab import Slab

IDS = st.sampled_from([*range(1, 11), 1 << 40, (1 << 64) - 1])


class RowDeadlinesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.slab = Slab()
        self.rows: dict[int, int] = {}
        for item in [*range(1, 11), 1 << 40, (1 << 64) - 1]:
            self.rows[item] = row = self.slab.take()
            self.slab.id[row] = item
            self.slab.index.add((row,))
        self.deadlines = RowDeadlines(self.slab)
        self.armed: dict[int, int] = {}
        self.now_ms = 1_000_000

    @rule(
        item=IDS,
        wait_ms=st.one_of(st.integers(-5, 300), st.integers(0, 60_000)),
        early_ms=st.sampled_from([0, 0, 1, 10_000]),
    )
    def arm(self, item: int, wait_ms: int, early_ms: int) -> None:
        self.deadlines.disarm(self.rows[item])
        self.deadlines.arm((self.rows[item],), self.now_ms + wait_ms, early_ms)
        self.armed[item] = self.now_ms + wait_ms - early_ms

    @rule(item=IDS)
    def disarm(self, item: int) -> None:
        self.deadlines.disarm(self.rows[item])
        self.armed.pop(item, None)

    @rule(step_ms=st.one_of(st.integers(0, 300), st.integers(0, 60_000)), slice=st.integers(1, 4))
    def expire(self, step_ms: int, slice: int) -> None:
        self.now_ms += step_ms
        due = sorted((ms, item) for item, ms in self.armed.items() if ms <= self.now_ms)
        expected = [item for _, item in due[:slice]]
        found = self.deadlines.expire(self.now_ms, slice)
        assert [self.slab.id[row] for row in found] == expected
        for item in expected:
            del self.armed[item]
        told_ms = self.deadlines.next_deadline_ms()
        if len(due) < slice:
            assert told_ms is None or told_ms > self.now_ms, "nothing is left to do now"

    @rule(step_ms=st.one_of(st.integers(0, 300), st.integers(0, 60_000)))
    def forget_empty(self, step_ms: int) -> None:
        self.now_ms += step_ms
        self.deadlines.forget_empty(self.now_ms)
        waiting = {ms // SLOT_MS for ms in self.armed.values()}
        assert {slot for slot in self.deadlines._rings if slot < self.now_ms // SLOT_MS} <= waiting

    @rule(page=st.integers(1, 3))
    def list_in_pages(self, page: int) -> None:
        expected = sorted((ms, item) for item, ms in self.armed.items())
        found: list[tuple[int, int]] = []
        after = (-1, -1)
        while more := list(islice(self.deadlines.in_order(after), page)):
            found += more
            after = more[-1]
        assert found == expected

    @invariant()
    def agrees(self) -> None:
        expected = sorted((ms, item) for item, ms in self.armed.items())
        assert list(self.deadlines.in_order()) == expected
        assert len(self.deadlines) == len(self.armed)

    @invariant()
    def sleeps_neither_too_long_nor_much_too_short(self) -> None:
        told_ms = self.deadlines.next_deadline_ms()
        if not self.armed:
            assert told_ms is None
            return
        first_ms = min(self.armed.values())
        assert told_ms is not None
        assert told_ms <= first_ms < told_ms + SLOT_MS


TestRowDeadlines = RowDeadlinesMachine.TestCase
TestRowDeadlines.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
