"""The division of the loop's time among works, under a clock of the model's.

Works of a few users ask for turns, run for some time, rest and end, while calls are answered beside
them or not. A work that runs may take longer than its slice, as a step can.
"""

from collections import Counter
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from latermq_broker.background.fair_share import (
    SLICE_NS,
    TURN_NS_MAX,
    FairShare,
    Work,
)
from latermq_broker.errors import TooManyRequestsError

PERCENT: Final = 20
RUNNING_MAX: Final = 2
WAITING_MAX: Final = 3
USERS: Final = ("a", "b", "c")
KINDS: Final = ("list", "read")
SECOND_NS: Final = 1_000_000_000
STEP_NS_MAX: Final = 400_000  # what a work takes beyond its slice


class FairShareMachine(RuleBasedStateMachine):
    """What may be counted of the works, and who may not be passed over for long."""

    def __init__(self) -> None:
        super().__init__()
        self.fair = FairShare(PERCENT, RUNNING_MAX, WAITING_MAX)
        self.now_ns = 0
        self.works: list[Work] = []
        self.waiting: list[Work] = []  # for a turn, in the order in which they asked
        self.ahead_ns: Counter[tuple[Work, str]] = Counter()  # used by others while one waited

    def begun(self, user: str) -> int:
        return sum(work.user == user for work in self.works)

    @rule(user=st.sampled_from(USERS), kind=st.sampled_from(KINDS))
    def begin(self, user: str, kind: str) -> None:
        work = Work(user, kind)
        if self.begun(user) >= RUNNING_MAX + WAITING_MAX:
            with pytest.raises(TooManyRequestsError, match=f"at most {RUNNING_MAX} run"):
                self.fair.begin(work)
            return
        self.fair.begin(work)
        self.works.append(work)

    @precondition(lambda self: len(self.waiting) < len(self.works))
    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        work = data.draw(st.sampled_from([each for each in self.works if each.asked_ns < 0]))
        self.fair.ask(work, self.now_ns)
        self.waiting.append(work)

    @precondition(lambda self: self.works)
    @rule(data=st.data(), ends=st.booleans())
    def rest(self, data: st.DataObject, *, ends: bool) -> None:
        work = data.draw(st.sampled_from(self.works))
        if ends:
            self.fair.end(work)
            self.works.remove(work)
        else:
            self.fair.rest(work)
        if work in self.waiting:
            self.waiting.remove(work)
        self._forget(work)

    @rule(ns=st.integers(0, 20_000_000))
    def time_passes(self, ns: int) -> None:
        self.now_ns += ns

    @rule()
    def a_call_is_answered(self) -> None:
        self.fair.foreground(self.now_ns)

    @rule(share=st.floats(0.05, 1), over_ns=st.integers(0, STEP_NS_MAX), asks_again=st.booleans())
    def turn(self, share: float, over_ns: int, *, asks_again: bool) -> None:
        wait_ns = self.fair.wait_ns(self.now_ns)
        turn = self.fair.take(self.now_ns)
        if turn is None:
            assert wait_ns or not self.fair.wanted
            self.now_ns += wait_ns
            turn = self.fair.take(self.now_ns)
            assert turn is not None or not self.fair.wanted
        if turn is None:
            return
        work = turn.work
        assert turn.slice_ns <= TURN_NS_MAX
        assert turn.waited_ns >= 0
        assert work.seated
        self.waiting.remove(work)
        self._forget(work)
        used_ns = int(turn.slice_ns * share) + over_ns
        self.now_ns += used_ns
        if asks_again:
            self.fair.ask(work, self.now_ns)
            self.waiting.append(work)
        self.fair.charge(work, used_ns)
        for other in self.waiting:
            if other.seated and other is not work:
                self.ahead_ns[other, work.user] += used_ns

    def _forget(self, work: Work) -> None:
        for key in [key for key in self.ahead_ns if key[0] is work]:
            del self.ahead_ns[key]

    @invariant()
    def no_user_has_more_than_may_run(self) -> None:
        for user in USERS:
            seated = sum(work.seated for work in self.works if work.user == user)
            assert seated <= RUNNING_MAX
            kept_waiting = [work for work in self.waiting if work.user == user and not work.seated]
            assert not kept_waiting or seated == RUNNING_MAX

    @invariant()
    def who_waits_is_counted(self) -> None:
        assert self.fair.waiting_count == len(self.waiting)
        assert self.fair.begun_count == len(self.works)
        assert self.fair.wanted == any(work.seated for work in self.waiting)

    @invariant()
    def nobody_is_passed_over(self) -> None:
        """While one work of a user waits, another user has at most what that user owed and a turn
        for each of the works of the first that go before."""
        longest_ns = TURN_NS_MAX + STEP_NS_MAX
        for (work, other), used_ns in self.ahead_ns.items():
            if other != work.user:
                assert used_ns <= (RUNNING_MAX + 2) * longest_ns * (len(KINDS) + 1)


TestFairShare = FairShareMachine.TestCase
TestFairShare.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)


def ran_for(
    fair: FairShare, works: list[Work], until_ns: int, slice_percent: dict[str, int], calls_ns: int
) -> dict[str, int]:
    """Have all works want turns all the time; return how long each user had, for so long.

    Args:
        slice_percent: of its slice that a work of a user takes; above 100, a step was too long.
        calls_ns: between two calls that are answered at once; 0: there are none.
    """
    now_ns = next_call_ns = 0
    used: Counter[str] = Counter()
    for work in works:
        fair.begin(work)
        fair.ask(work, now_ns)
    while now_ns < until_ns:
        if calls_ns and now_ns >= next_call_ns:
            fair.foreground(now_ns)
            next_call_ns = now_ns + calls_ns
        turn = fair.take(now_ns)
        if turn is None:
            now_ns += max(1, fair.wait_ns(now_ns))
            continue
        ns = turn.slice_ns * slice_percent[turn.work.user] // 100
        now_ns += ns
        used[turn.work.user] += ns
        fair.ask(turn.work, now_ns)
        fair.charge(turn.work, ns)
        now_ns += 50_000  # the loop's own
    return dict(used)


@given(
    st.lists(st.integers(1, 12), min_size=2, max_size=4),
    st.lists(st.integers(10, 300), min_size=4, max_size=4),
    st.sampled_from([0, 1_000_000, 20_000_000]),
)
@settings(max_examples=40, deadline=None)
def test_users_share_alike_over_any_second(
    works_of: list[int], percents: list[int], calls_ns: int
) -> None:
    fair = FairShare(PERCENT, 8, 100)
    names = [f"u{number}" for number in range(len(works_of))]
    works = [
        Work(name, KINDS[number % 2])
        for name, count in zip(names, works_of, strict=True)
        for number in range(count)
    ]
    used = ran_for(fair, works, SECOND_NS, dict(zip(names, percents, strict=False)), calls_ns)
    alike_ns = sum(used.values()) / len(names)
    assert set(used) == set(names)
    assert all(abs(ns - alike_ns) <= max(0.1 * alike_ns, 3 * SLICE_NS) for ns in used.values())


@pytest.mark.parametrize("percent", [5, 20, 50])
@pytest.mark.parametrize("calls_ns", [1_000_000, 20_000_000, 40_000_000])
def test_beside_calls_all_together_have_their_share(percent: int, calls_ns: int) -> None:
    works = [Work(user, kind) for user in USERS for kind in KINDS for _ in range(5)]
    used = ran_for(
        FairShare(percent, 8, 100), works, SECOND_NS, dict.fromkeys(USERS, 100), calls_ns
    )
    share = sum(used.values()) / SECOND_NS
    assert 0.9 * percent <= 100 * share <= 1.1 * percent


def test_without_calls_they_have_all_the_time_there_is() -> None:
    works = [Work("a", "list")]
    used = ran_for(FairShare(PERCENT, 8, 100), works, SECOND_NS, {"a": 100}, 0)
    assert used["a"] >= 0.9 * SECOND_NS


def test_kinds_of_a_user_share_alike() -> None:
    fair = FairShare(PERCENT, 100, 0)
    works = [Work("a", "list") for _ in range(50)] + [Work("a", "read")]
    used: Counter[str] = Counter()
    for work in works:
        fair.begin(work)
        fair.ask(work, 0)
    for now_ns in range(0, 100 * SLICE_NS, SLICE_NS):
        turn = fair.take(now_ns)
        assert turn is not None
        used[turn.work.kind] += SLICE_NS
        fair.ask(turn.work, now_ns)
        fair.charge(turn.work, SLICE_NS)
    assert used == {"list": 50 * SLICE_NS, "read": 50 * SLICE_NS}


def test_a_user_who_comes_late_has_no_arrears_and_one_with_a_debt_waits() -> None:
    fair = FairShare(PERCENT, 8, 8)
    early, late = Work("early", "list"), Work("late", "list")
    for work in (early, late):
        fair.begin(work)
    now_ns = 0
    for _ in range(100):
        fair.ask(early, now_ns)
        assert fair.take(now_ns) is not None
        fair.charge(early, SLICE_NS)
        now_ns += SLICE_NS
    used: Counter[str] = Counter()
    fair.ask(early, now_ns)
    fair.ask(late, now_ns)
    for _ in range(20):
        turn = fair.take(now_ns)
        assert turn is not None
        used[turn.work.user] += 1
        fair.ask(turn.work, now_ns)
        fair.charge(turn.work, SLICE_NS)
    assert used == {"early": 10, "late": 10}
    turn = fair.take(now_ns)
    assert turn is not None
    fair.ask(turn.work, now_ns)
    fair.charge(turn.work, 10 * SLICE_NS)  # a step that could not be cut
    others = [fair.take(now_ns)]
    for _ in range(8):
        last = others[-1]
        assert last is not None
        fair.ask(last.work, now_ns)
        fair.charge(last.work, SLICE_NS)
        others.append(fair.take(now_ns))
    assert {other.work.user for other in others if other is not None} != {turn.work.user}
    assert all(other is not None and other.work.user != turn.work.user for other in others)
