"""The demo's shop: which orders can be billed, what goes wrong with the others, and the way on."""

from importlib import import_module
from itertools import islice
from pathlib import Path

import pytest

from latermq.demo.shop import CardExpiredError, Order, charge, orders

MONTH = "2026-06"


def outcome(order: Order, *, attempt: int, fixed: bool) -> int | str:
    try:
        return charge(order, attempt, MONTH, fixed=fixed)
    except (CardExpiredError, TimeoutError, ValueError) as error:
        return type(error).__name__


def test_six_orders_are_one_of_each_kind() -> None:
    outcomes = [
        [outcome(order, attempt=attempt, fixed=False) for attempt in (1, 2, 3)]
        for order in islice(orders(1001), 6)
    ]
    assert outcomes == [
        [1990, 1990, 1990],
        [8500, 8500, 8500],
        ["TimeoutError", 4250, 4250],
        ["CardExpiredError"] * 3,
        ["ValueError"] * 3,
        [725, 725, 725],
    ]


def test_release_2_can_read_a_comma_but_not_renew_a_card() -> None:
    fixed = [outcome(order, attempt=1, fixed=True) for order in islice(orders(1004), 2)]
    assert fixed == ["CardExpiredError", 4990]


def test_numbering_decides_the_kind() -> None:
    by_number = {order.number: order for order in islice(orders(1001), 20)}
    for order in islice(orders(1005), 10):
        assert order == by_number[order.number]


def test_an_order_survives_its_body() -> None:
    [order] = islice(orders(1003), 1)
    assert Order.from_body(order.to_body()) == order


def test_an_expired_card_says_which() -> None:
    [order] = islice(orders(1004), 1)
    with pytest.raises(CardExpiredError, match="4242 expired in 2024-02"):
        charge(order, 1, MONTH, fixed=False)


def test_the_way_on_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    demo = import_module("latermq_cli.demo.demo")  # where a command has the module's name
    assert any(line.startswith("make serve") for line in demo._ways_on())
    monkeypatch.setattr(demo, "CLONE", tmp_path)  # as installed
    assert [line.split()[:2] for line in demo._ways_on()] == [["latermq", "serve"]]
