"""Lines of parked receivers: order, one message wakes one, bounds."""

from collections import deque
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from latermq_broker.errors import TooManyRequestsError
from latermq_broker.services.messaging.long_poll import LongPolls, Parked


class Supply:
    """Messages for one filter, and who was tried for them."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.tried: list[str] = []
        self.served: list[str] = []

    def __call__(self, receiver: str) -> bool:
        self.tried.append(receiver)
        if not self.count:
            return False
        self.count -= 1
        self.served.append(receiver)
        return True


def line_of(*receivers: str, filter_key: str = "*") -> LongPolls[str]:
    polls: LongPolls[str] = LongPolls(100, 100)
    for receiver in receivers:
        polls.park("g", "t", filter_key, receiver)
    return polls


def test_one_message_serves_the_first_and_tries_one_more() -> None:
    polls = line_of("a", "b", "c", "d")
    supply = Supply(1)
    polls.serve("g", "t", supply)
    assert (supply.served, supply.tried, len(polls)) == (["a"], ["a", "b"], 3)


def test_who_came_away_empty_keeps_its_place() -> None:
    polls = line_of("a", "b")
    polls.serve("g", "t", Supply(0))
    supply = Supply(2)
    polls.serve("g", "t", supply)
    assert supply.served == ["a", "b"]
    assert not polls.waits("g", "t")


def test_lines_of_other_groups_and_topics_are_not_concerned() -> None:
    polls = line_of("a")
    polls.park("h", "t", "*", "b")
    polls.park("g", "u", "*", "c")
    supply = Supply(9)
    polls.serve("h", "t", supply)
    polls.serve("nobody", "t", supply)
    polls.serve("g", "nothing", supply)
    assert supply.served == ["b"]
    assert polls.groups("t") == ["g"]
    assert polls.groups("nothing") == []


def test_an_empty_handed_wish_does_not_hide_another() -> None:
    polls: LongPolls[str] = LongPolls(100, 100)
    for number, filter_key in enumerate(["red", "blue", "red", "blue"]):
        polls.park("g", "t", filter_key, f"{filter_key}{number}")
    tried: list[str] = []

    def only_blue(receiver: str) -> bool:
        tried.append(receiver)
        return receiver.startswith("blue")

    polls.serve("g", "t", only_blue)
    assert tried == ["red0", "blue1", "blue3"]
    assert sorted(parked.receiver for parked in polls) == ["red0", "red2"]


def test_wishes_are_served_in_the_order_of_arrival() -> None:
    polls: LongPolls[str] = LongPolls(100, 100)
    for number, filter_key in enumerate(["x", "y", "y", "x"]):
        polls.park("g", "t", filter_key, str(number))
    supply = Supply(4)
    polls.serve("g", "t", supply)
    assert supply.served == ["0", "1", "2", "3"]


def test_leaving_twice_is_told() -> None:
    polls = line_of()
    parked = polls.park("g", "t", "*", "a")
    assert polls.leave(parked)
    assert not polls.leave(parked)
    assert len(polls) == 0


def test_the_broker_and_each_group_have_a_bound() -> None:
    polls: LongPolls[str] = LongPolls(3, 2)
    first = polls.park("g", "t", "*", "a")
    polls.park("g", "u", "*", "b")
    with pytest.raises(TooManyRequestsError, match="g wait, at most 2"):
        polls.park("g", "t", "*", "c")
    polls.park("h", "t", "*", "d")
    with pytest.raises(TooManyRequestsError, match="at most 3"):
        polls.park("i", "t", "*", "e")
    polls.leave(first)
    polls.park("g", "t", "*", "f")


class Lines(RuleBasedStateMachine):
    """Against one plain list of (group, topic, filter key, receiver)."""

    places: Bundle[Parked[int]] = Bundle("places")
    names = st.sampled_from(["x", "y"])

    def __init__(self) -> None:
        super().__init__()
        self.polls: LongPolls[int] = LongPolls(6, 4)
        self.model: list[tuple[str, str, str, int]] = []
        self.next = 0

    @rule(target=places, group=names, topic=names, filter_key=names)
    def park(self, group: str, topic: str, filter_key: str) -> Any:
        full = len(self.model) >= 6 or sum(entry[0] == group for entry in self.model) >= 4
        if full:
            with pytest.raises(TooManyRequestsError):
                self.polls.park(group, topic, filter_key, self.next)
            return None
        self.model.append((group, topic, filter_key, self.next))
        self.next += 1
        return self.polls.park(group, topic, filter_key, self.next - 1)

    @rule(place=consumes(places))
    def leave(self, place: Parked[int] | None) -> None:
        if place is None:
            return
        entry = (place.group, place.topic, str(place.filter_key), place.receiver)
        assert self.polls.leave(place) == (entry in self.model)
        if entry in self.model:
            self.model.remove(entry)

    @rule(group=names, topic=names, x=st.integers(0, 3), y=st.integers(0, 3))
    def serve(self, group: str, topic: str, x: int, y: int) -> None:
        supply = {"x": x, "y": y}
        wishes = {entry[3]: entry[2] for entry in self.model}
        expected: deque[int] = deque()
        left = dict(supply)
        for entry in list(self.model):
            if entry[:2] == (group, topic) and left[entry[2]]:
                left[entry[2]] -= 1
                expected.append(entry[3])
                self.model.remove(entry)
        served: list[int] = []

        def take(receiver: int) -> bool:
            if not supply[wishes[receiver]]:
                return False
            supply[wishes[receiver]] -= 1
            served.append(receiver)
            return True

        self.polls.serve(group, topic, take)
        assert served == list(expected)

    @invariant()
    def same(self) -> None:
        assert len(self.polls) == len(self.model)
        assert sorted(parked.receiver for parked in self.polls) == sorted(
            entry[3] for entry in self.model
        )
        for group in "xy":
            for topic in "xy":
                waits = any(entry[:2] == (group, topic) for entry in self.model)
                assert self.polls.waits(group, topic) == waits
                assert (group in self.polls.groups(topic)) == waits


TestLines = Lines.TestCase
TestLines.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
