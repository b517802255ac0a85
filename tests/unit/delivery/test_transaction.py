"""The half message's table, pair by pair, and what is known of the halves."""

import itertools

import pytest

from latermq_broker.delivery.halves import (
    HalfEvent,
    HalfMessage,
    HalfMessages,
    HalfState,
    after,
    parse_transaction_id,
    transaction_id,
)

PENDING, COMMITTED, ROLLED_BACK = HalfState.PENDING, HalfState.COMMITTED, HalfState.ROLLED_BACK
COMMIT, ROLLBACK, CHECK = HalfEvent.COMMIT, HalfEvent.ROLLBACK, HalfEvent.CHECK
TABLE = {
    (PENDING, COMMIT): COMMITTED,
    (PENDING, ROLLBACK): ROLLED_BACK,
    (PENDING, CHECK): PENDING,
    (COMMITTED, COMMIT): COMMITTED,
    (COMMITTED, ROLLBACK): None,
    (COMMITTED, CHECK): None,
    (ROLLED_BACK, COMMIT): None,
    (ROLLED_BACK, ROLLBACK): ROLLED_BACK,
    (ROLLED_BACK, CHECK): None,
}


def half(first: int, *, topic_id: int = 1, due_ms: int = 50, checks: int = 0) -> HalfMessage:
    return HalfMessage(
        first=first,
        position=first,
        length=100,
        topic_id=topic_id,
        id_hash=7,
        stored_ms=1,
        due_ms=due_ms,
        checks=checks,
    )


@pytest.mark.parametrize(("state", "event"), list(itertools.product(HalfState, HalfEvent)))
def test_every_pair(state: HalfState, event: HalfEvent) -> None:
    assert after(state, event) is TABLE[state, event]


def test_the_numbers_in_checkpoints_never_change() -> None:
    assert [f"{each.value} {each.name}" for each in HalfState] == [
        "1 PENDING",
        "2 COMMITTED",
        "3 ROLLED_BACK",
    ]


@pytest.mark.parametrize("first", [0, 64, 2**48 - 8, 2**63])
def test_a_transaction_id_names_its_position(first: int) -> None:
    assert parse_transaction_id(transaction_id(first, -2)) == (first, 0xFFFFFFFE)
    assert parse_transaction_id(f"t-{first:x}") == (first, -1)  # of an earlier version


@pytest.mark.parametrize(
    "text",
    [
        "",
        "t-",
        "t",
        "t-xyz",
        "t--1",
        "d-40",
        "t-" + "0" * 17,
        "t-1_0",
        "t-1-",
        "t-1-2-3",
        "t-1-x",
        "t-1-" + "0" * 17,
        "t-\u0661",
    ],
)
def test_what_is_no_transaction_id(text: str) -> None:
    assert parse_transaction_id(text) is None


def test_a_moved_half_is_found_by_its_name_and_where_it_lies() -> None:
    halves = HalfMessages(ended_max=2, checks_max=3)
    halves.add(half(8))
    one = halves.get(8)
    assert one is not None
    for position in (800, 8_000):
        halves.move(one, position, 120)
    assert (halves.at(8_000), halves.at(800), halves.at(8)) == (one, None, None)
    halves.end(one, COMMITTED)
    assert (len(halves), halves.at(8_000), halves.counts) == (0, None, {})


def test_the_last_ends_are_remembered() -> None:
    halves = HalfMessages(ended_max=2, checks_max=3)
    for first in (8, 16, 24):
        halves.add(half(first))
        one = halves.get(first)
        assert one is not None
        halves.end(one, ROLLED_BACK)
    assert list(halves.ended.items()) == [(16, (ROLLED_BACK, 7)), (24, (ROLLED_BACK, 7))]


def test_who_waits_for_a_producer_is_not_due_again_before_its_end() -> None:
    halves = HalfMessages(ended_max=2, checks_max=2)
    halves.add(half(8))
    assert halves.deadlines.expire(50, 10) == [8]
    one = halves.get(8)
    assert one is not None
    halves.wait(one, 900)
    assert (halves.waiting, halves.deadlines.next_deadline_ms()) == ({1: {8: None}}, 900)
    halves.checked(one, 1, 100)
    assert (halves.waiting, halves.deadlines.next_deadline_ms()) == ({}, 100)
    assert not halves.in_vain
    halves.checked(one, 2, 900)
    assert list(halves.in_vain) == [8]
    halves.hurry(2)
    assert halves.deadlines.next_deadline_ms() == 900
    halves.hurry(1)
    assert halves.deadlines.expire(50, 10) == [8]
