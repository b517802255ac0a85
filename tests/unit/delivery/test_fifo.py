"""The gate: what blocks a message group, what is held behind it, what is remembered at all."""

import pytest

from latermq_broker.delivery.order import fifo
from latermq_broker.delivery.order.fifo import FifoGate, RisingOffsets

KEY, OTHER = 7, 8
LETTER = (3, 0)


@pytest.fixture
def gate() -> FifoGate:
    return FifoGate()


def test_blocked_from_lease_to_end(gate: FifoGate) -> None:
    gate.enter(KEY, 0, 1)
    assert list(gate.runnable) == [KEY]
    gate.seize(KEY)
    assert not gate.runnable
    gate.ease(KEY)  # the lease ended, or the backoff was over
    assert list(gate.runnable) == [KEY]
    gate.seize(KEY)
    gate.leave(KEY, 0, 1, ready=False)
    assert not gate.groups


def test_all_of_a_batch_have_to_end(gate: FifoGate) -> None:
    for offset, delivery_id in ((4, 2), (2, 1)):  # redriven ones come in any order
        gate.enter(KEY, offset, delivery_id)
        gate.seize(KEY)
    assert gate.groups[KEY].live == [(2, 1), (4, 2)]
    gate.leave(KEY, 4, 2, ready=False)
    assert not gate.runnable
    gate.ease(KEY)
    assert list(gate.runnable) == [KEY]


def test_held_ones_follow_in_order(gate: FifoGate) -> None:
    gate.enter(KEY, 0, 1)
    gate.seize(KEY)
    for offset in (3, 5, 9):
        gate.hold(KEY, 0, offset)
    assert (gate.held_count, gate.first_held(0), gate.first_held(1)) == (3, 3, None)
    held = gate.groups[KEY].held
    assert (held.place(5), held.place(4)) == (1, -1)
    gate.leave(KEY, 0, 1, ready=False)
    assert list(gate.runnable) == [KEY]
    gate.unhold(KEY, 5)
    assert list(gate.groups[KEY].held) == [9]
    gate.unhold(KEY, 9)
    assert (gate.held_count, gate.groups) == (0, {})


def test_others_are_not_blocked(gate: FifoGate) -> None:
    gate.enter(KEY, 0, 1)
    gate.seize(KEY)
    gate.hold(OTHER, 0, 1)
    assert list(gate.runnable) == [OTHER]


def test_parked_until_every_letter_is_gone(gate: FifoGate) -> None:
    gate.hold(KEY, 0, 1)
    gate.park(KEY, LETTER)
    gate.park(KEY, (3, 1))
    assert not gate.runnable
    assert sorted(gate.letters()) == [LETTER, (3, 1)]
    gate.unpark(KEY, LETTER)
    assert not gate.runnable
    gate.unpark(KEY, (3, 1))
    assert list(gate.runnable) == [KEY]


def test_a_parked_one_without_messages_is_remembered_and_then_forgotten(gate: FifoGate) -> None:
    gate.park(KEY, LETTER)
    gate.hold(KEY, 0, 1)
    gate.trim(0, 2)
    assert list(gate.groups) == [KEY]
    gate.unpark(KEY, LETTER)
    assert not gate.groups


def test_what_expired_is_forgotten_on_its_queue_only(gate: FifoGate) -> None:
    for offset in (1, 2, 3):
        gate.hold(KEY, 0, offset)
        gate.hold(OTHER, 1, offset)
    gate.trim(0, 3)
    assert [list(gate.groups[key].held) for key in (KEY, OTHER)] == [[3], [1, 2, 3]]
    gate.forget_held(0)
    assert (list(gate.groups), gate.held_count) == ([OTHER], 3)


def test_taken_offsets_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fifo, "_DROPPED_MIN", 4)
    held = RisingOffsets()
    for offset in range(10):
        held.add(offset)
    assert [held.drop_upto(end) for end in (3, 3, 6, 7)] == [3, 0, 3, 1]
    assert (list(held), len(held._offsets), held.first, held.place(8)) == ([7, 8, 9], 4, 7, 1)


def test_lending_is_entering_and_leasing_at_once() -> None:
    gate, steps = FifoGate(), FifoGate()
    for offset, delivery_id in ((7, 1), (9, 2)):
        gate.lend(KEY, offset, delivery_id)
        steps.enter(KEY, offset, delivery_id)
        steps.seize(KEY)
    assert gate.facts() == steps.facts()
