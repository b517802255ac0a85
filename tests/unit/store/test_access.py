"""Users: what a pattern covers, what grants add up to, and the bytes of an ACCESS record."""

import pytest

from latermq_broker.catalog.access import (
    Kind,
    Right,
    User,
    Users,
    covers,
    decode_user,
    encode_user,
    is_pattern,
)
from latermq_broker.store.records.change_records import (
    PUT,
    REMOVE,
    ChangePayload,
    decode_change,
    encode_change,
)

SHOP = User(access_key="shop", secret="hush-hush", created_ms=7, rotated_ms=8).granted(
    Kind.TOPIC, "orders-*", frozenset({Right.SUB, Right.PUB})
)
# Never changes: a record of this type that is out there must stay readable.
GOLDEN = (
    '{"access_key":"shop","admin":false,"created_ms":7,"disabled":false,"grants":[{"kind":"topic",'
    '"pattern":"orders-*","rights":["pub","sub"]}],"rotated_ms":8,"secret":"hush-hush"}'
)


@pytest.mark.parametrize(
    ("pattern", "name", "yes"),
    [
        ("orders", "orders", True),
        ("orders", "orders-1", False),
        ("orders", "Orders", False),
        ("orders-*", "orders-1", True),
        ("orders-*", "orders-", True),
        ("orders-*", "orders", False),
        ("*", "orders", True),
        ("*", "%DLQ%billing", False),
        ("%DLQ%*", "%DLQ%billing", True),
        ("%*", "%DLQ%billing", True),
        ("orders-*", "*", False),
        ("*", "*", True),
    ],
)
def test_what_a_pattern_covers(pattern: str, name: str, yes: bool) -> None:
    assert covers(pattern, name) is yes


@pytest.mark.parametrize("text", ["orders", "orders-*", "*", "%DLQ%*", "a|b_c-9", "x" * 128])
def test_patterns(text: str) -> None:
    assert is_pattern(text)


@pytest.mark.parametrize("text", ["", "**", "*a", "a*b", "a.b", "a b", "ä", "a\n", "x" * 129])
def test_no_patterns(text: str) -> None:
    assert not is_pattern(text)


def test_a_secret_is_in_no_repr() -> None:
    assert "hush" not in repr(SHOP)
    users = Users()
    users.put(SHOP)
    assert "hush" not in repr(users.all())


def test_golden_records() -> None:
    put = b"".join(encode_change(ChangePayload(PUT, encode_user(SHOP))))
    assert put == bytes.fromhex("0100000000000000") + GOLDEN.encode()
    assert decode_user(decode_change(put).body) == SHOP
    gone = b"".join(encode_change(ChangePayload(REMOVE, b"shop")))
    assert gone == bytes.fromhex("020000000000000073686f70")
    assert decode_change(gone) == (REMOVE, b"shop")


def test_grants_add_up_and_are_taken_as_they_were_given() -> None:
    user = SHOP.granted(Kind.TOPIC, "orders-1", frozenset({Right.BROWSE}))
    assert user.may(Right.PUB, Kind.TOPIC, "orders-1")
    assert user.may(Right.BROWSE, Kind.TOPIC, "orders-1")
    assert not user.may(Right.BROWSE, Kind.TOPIC, "orders-2")
    assert not user.may(Right.SUB, Kind.GROUP, "orders-1")
    less = user.revoked(Kind.TOPIC, "orders-*", frozenset({Right.PUB}))
    assert not less.may(Right.PUB, Kind.TOPIC, "orders-1")
    assert less.may(Right.SUB, Kind.TOPIC, "orders-1")
    assert less.revoked(Kind.TOPIC, "orders-1", frozenset({Right.SUB})) == less
    none = less.revoked(Kind.TOPIC, "orders-*", frozenset({Right.SUB}))
    assert [grant.pattern for grant in none.grants] == ["orders-1"]
