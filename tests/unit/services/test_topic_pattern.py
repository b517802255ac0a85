"""Topic patterns: what Python's own regular expressions find, in a bounded number of steps."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latermq_broker.errors import BadRequestError
from latermq_broker.services.v1.topic_pattern import (
    CHARACTERS_MAX,
    INSTRUCTIONS_MAX,
    NESTED_MAX,
    STEPS_MAX,
    TopicPattern,
)

NAMES = st.text("ab-A1", max_size=9)
ATOMS = st.sampled_from(
    ["a", "b", "-", "1", ".", "[ab]", "[^a]", "[a-b1-]", r"\w", r"\d", r"\W", r"\-", r"[\d-]", "ab",
     "^", "$", "", "{", "[]b]", "[^]]"]
)  # fmt: skip
REPEATS = st.sampled_from(["", "*", "+", "?", "{2}", "{1,}", "{,2}", "{1,3}", "*?", "+?", "{0}"])


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = st.builds("({}{}){}".format, st.sampled_from(["", "?:"]), inner, REPEATS)
    return st.one_of(
        group, st.builds("{}{}".format, inner, inner), st.builds("{}|{}".format, inner, inner)
    )


PATTERNS = st.recursive(st.builds("{}{}".format, ATOMS, REPEATS), _grown, max_leaves=8)


@given(flag=st.sampled_from(["", "(?i)"]), pattern=PATTERNS, names=st.lists(NAMES, max_size=8))
def test_it_finds_what_python_finds(flag: str, pattern: str, names: list[str]) -> None:
    try:
        ours = TopicPattern(flag + pattern)
    except BadRequestError:
        return
    theirs = re.compile(flag + pattern)
    for name in ["", "a", *names]:
        assert ours.matches(name) is (theirs.fullmatch(name) is not None), (pattern, name)


@pytest.mark.parametrize(
    ("pattern", "name", "wanted"),
    [
        ("orders(-eu|-us)?", "orders-eu", True),
        ("orders(-eu|-us)?", "orders-de", False),
        ("orders", "my-orders", False),
        ("(?i)orders-[a-z]{2}", "Orders-EU", True),
        ("^(shop|bank)[-_].*$", "bank_eu", True),
        (r"%DLQ%.+", "%DLQ%billing", True),
        (r"tenant-\d{1,3}-(?P<kind>in|out)", "tenant-042-out", True),
        (r"tenant-\d{1,3}-(?P<kind>in|out)", "tenant-0042-out", False),
        ("(a+)+", "aaaa", True),
        ("(a|b)*c", "ababc", True),
        ("a||b", "", True),
        ("é|a", "a", True),
        ("x{}", "x{}", True),
    ],
)
def test_what_people_write(pattern: str, name: str, wanted: bool) -> None:
    assert TopicPattern(pattern).matches(name) is wanted


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "(a", "[a", "a**", "*a", "a|+", "[b-a]", r"[\d-z]", "a{2,1}", r"(a)\1", "(?P=a)",
     "(?=a)", "(?<!a)", "a*+", "(?>a)", r"\b", "\\", "^*", "{1}", "(?s)a", "a(?i)",
     "x" * (CHARACTERS_MAX + 1), "((a{30}){30}){30}", "((((){,99}){,99}){99}){99}", "a{999999999}",
     "(" * (NESTED_MAX + 1) + ")" * (NESTED_MAX + 1)],
)  # fmt: skip
def test_what_is_refused(pattern: str) -> None:
    with pytest.raises(BadRequestError, match="pattern"):
        TopicPattern(pattern)


def test_backtracking_is_not_what_it_does() -> None:
    """Python's own needs minutes for each of these."""
    name = "x" * 60
    for pattern in (".*" * 8 + "y", "(x+x+)+y", "(x|xx)+y", "(x*)*y", "(.?){60}y"):
        asked = TopicPattern(pattern)
        assert not asked.matches(name)
        assert asked.steps <= 60 * INSTRUCTIONS_MAX


def test_a_name_that_was_met_costs_nothing_again() -> None:
    asked = TopicPattern("orders-.*")
    assert asked.matches("orders-eu-1")
    steps = asked.steps
    assert all(asked.matches("orders-eu-1") for _ in range(1_000))
    assert asked.steps == steps


def test_all_names_together_are_bounded() -> None:
    asked = TopicPattern("(.*a.{120})+")
    names = (f"{number:b}".replace("1", "a") * 3 for number in range(1_000_000))
    with pytest.raises(BadRequestError, match=f"more than {STEPS_MAX} steps"):
        any(map(asked.matches, names))
