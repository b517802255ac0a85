"""Topic patterns: what Python's own regular expressions find, in linear time and little memory."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latermq_broker.errors import BadRequestError
from latermq_broker.services.v1.topic_pattern import CHARACTERS_MAX, TopicPattern

NAMES = st.text("ab-A1", max_size=9)
ATOMS = st.sampled_from(
    ["a", "b", "-", "1", ".", "[ab]", "[^a]", "[a-b1-]", r"\w", r"\d", r"\W", r"\-", r"[\d-]", "ab",
     "^", "$", "", "{", "[]b]", "[^]]", r"\b", r"[{,2}]", r"\{,2}", "(?s:.)", "[a[:b-]"]
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
        ("x{,2}", "xx", True),
        ("x{,}y", "xxxy", True),
        ("[x{,2}]", "{", True),
        ("[x{,2}]", "0", False),
        (r"x\{,2}", "x{,2}", True),
        ("(" * 128 + ")" * 128, "", True),
    ],
)
def test_what_people_write(pattern: str, name: str, wanted: bool) -> None:
    assert TopicPattern(pattern).matches(name) is wanted


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "(a", "[a", "a**", "*a", "a|+", "[b-a]", r"[\d-z]", "a{2,1}", r"(a)\1", "(?P=a)",
     "(?=a)", "(?<!a)", "a*+", "(?>a)", "\\", "^*", "{1}", "a(?i)", "(?<n>a)", r"\pL", r"\Qa",
     "[[:alpha:]]", "[a[:alpha:]]", "[a--b]", "(?x)a", r"a\Z", "x" * (CHARACTERS_MAX + 1),
     "((a{30}){30}){30}", "((((){,99}){,99}){99}){99}", "a{1,250}" * 28, "a{999999999}",
     "a{9999999999999}"],
)  # fmt: skip
def test_what_is_refused(pattern: str) -> None:
    with pytest.raises(BadRequestError, match="pattern"):
        TopicPattern(pattern)


def test_backtracking_is_not_what_it_does() -> None:
    """Python's own needs minutes for each of these."""
    name = "x" * 60
    for pattern in (".*" * 8 + "y", "(x+x+)+y", "(x|xx)+y", "(x*)*y", "(.?){60}y"):
        assert not TopicPattern(pattern).matches(name)
