"""The shop's orders, and how they are charged: plain Python that knows no broker.

What goes wrong goes wrong by itself: a bank that is slow once, a card that has expired, and a bug
in `cents` that only an amount with a comma meets.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count, cycle
from typing import Final, Self

ORDERS_TOPIC: Final = "orders"
DEADLINES_TOPIC: Final = "payment-deadlines"
BILLING_GROUP: Final = "billing"


class CardExpiredError(Exception):
    """The customer has to name another card; no retry can help."""


@dataclass(frozen=True, slots=True)
class Order:
    number: str
    amount: str  # as the web form sent it
    card: str
    card_valid_until: str  # YYYY-MM
    bank: str

    def to_body(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_body(cls, body: bytes) -> Self:
        return cls(**json.loads(body))


def orders(first: int) -> Iterator[Order]:
    """Yield orders without end, numbered from `first`; every sixth, counted from 1001, is alike."""
    kinds = [
        ("19.90", "4929", "2031-04", "Northern Bank"),
        ("85.00", "5105", "2029-11", "Harbour Bank"),
        ("42.50", "4000", "2030-01", "Slow Bank"),
        ("120.00", "4242", "2024-02", "Northern Bank"),
        ("49,90", "5200", "2028-08", "Harbour Bank"),
        ("7.25", "4111", "2032-12", "Northern Bank"),
    ]
    start = (first - 1001) % len(kinds)
    for number, kind in zip(count(first), cycle(kinds[start:] + kinds[:start])):
        yield Order(f"A-{number}", *kind)


def cents(amount: str) -> int:
    """Read `19.90` as 1990."""
    euros, rest = amount.split(".")
    return int(euros) * 100 + int(rest)


def cents_of_any_country(amount: str) -> int:
    """Read `19.90` and `19,90` as 1990: what `cents` should have been."""
    return cents(amount.replace(",", "."))


def charge(order: Order, attempt: int, month: str, *, fixed: bool) -> int:
    """Charge the card; return the cents.

    Args:
        attempt: which delivery of the order this is, from 1: the slow bank answers the second.
        month: the current one, YYYY-MM.
        fixed: the release in which amounts may have a comma.

    Raises:
        ValueError: the amount has a comma and this is not the fixed release.
        CardExpiredError: for good.
        TimeoutError: this time.
    """
    amount = cents_of_any_country(order.amount) if fixed else cents(order.amount)
    if order.card_valid_until < month:
        raise CardExpiredError(f"card …{order.card} expired in {order.card_valid_until}")
    if order.bank == "Slow Bank" and attempt == 1:
        raise TimeoutError(f"{order.bank} did not answer within 2 s")
    return amount
