"""SQL92 filters: what they mean, what is refused and where, and that nothing crashes them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latermq_broker.delivery.filters.sql_filter import DEPTH_MAX, sql_filter
from latermq_broker.delivery.filters.sql_words import EXPRESSION_CHARACTERS_MAX, KEYWORDS
from latermq_broker.errors import IllegalFilterError

MESSAGE = {
    "a": "5",
    "b": "7.5",
    "name": "O'Neil & Sons",
    "yes": "True",
    "no": "false",
    "word": "abc",
    "TAGS": "paid",
    "_x$1": "1e2",
    "empty": "",
}


@pytest.mark.parametrize(
    "expression",
    [
        "a = 5",
        "5 = a",
        "a = 5.0",
        "a = '5'",
        "a=5L",
        "a = +5",
        "-a = -5",
        "a <> 6",
        "a > 4 and a < 6 AND a >= 5 And a <= 5",
        "b > 7 AND b < 8",
        "b = .75e1",
        "_x$1 = 100",
        "a BETWEEN 5 AND 6",
        "a between -1 and 5 AND NOT (a BETWEEN 6 AND 9)",
        "a NOT BETWEEN 6 AND 9",
        "TAGS IN ('paid')",
        "TAGS in ('open', 'paid') and TAGS not in ('open')",
        "name = 'O''Neil & Sons'",
        "name STARTSWITH 'O''N' AND name EndsWith 'Sons' AND name contains '& '",
        "name NOT CONTAINS 'x' AND name NOT STARTSWITH 'S' AND name NOT ENDSWITH 'O'",
        "missing IS NULL",
        "a IS NOT NULL",
        "empty IS NOT NULL AND empty = ''",
        "yes",
        "yes = TRUE",
        "no = false",
        "NOT no",
        "NOT NOT yes",
        "TRUE",
        "a = 6 OR a = 5",
        "missing = 1 OR a = 5",
        "NOT (missing = 1 AND a = 6)",
        "(((a = 5)))",
        "a = 5 -- the rest is said to people",
        "/* here */ a /* and */ = /* there */ 5",
        "a = 5 OR a = 6 AND missing = 1",  # AND binds tighter
        "(a > 4) = (b > 4)",
        "a = 5 = TRUE",
        "word <> 'x'",
        "(missing IS NULL) = TRUE",
        "word > TAGS OR word <= TAGS",
        "a = 9223372036854775807 OR a = 5",
    ],
)
def test_matches(expression: str) -> None:
    assert sql_filter(expression).matches(MESSAGE)


@pytest.mark.parametrize(
    "expression",
    [
        "FALSE",
        "NULL",
        "a = 6",
        "A = 5",  # names have cases
        "missing = 1",
        "missing <> 1",
        "NOT (missing = 1)",
        "missing > 1",
        "missing BETWEEN 1 AND 2",
        "missing NOT BETWEEN 1 AND 2",
        "missing IN ('a')",
        "missing NOT IN ('a')",
        "missing CONTAINS 'a'",
        "missing NOT CONTAINS 'a'",
        "missing IS NOT NULL",
        "a IS NULL",
        "missing = 1 AND a = 5",
        "missing = 1 OR a = 6",
        "NOT missing",
        "word > 1",  # cannot be converted
        "NOT (word > 1)",
        "word = 1",
        "word <> 1",
        "word = TRUE",
        "word",
        "empty = 0",
        "-word = 1",
        "a = TRUE",
        "TAGS IN ('PAID')",
        "name = 'o''neil & sons'",
        "a BETWEEN 6 AND 4",
        "word BETWEEN 1 AND 2",
    ],
)
def test_does_not_match(expression: str) -> None:
    assert not sql_filter(expression).matches(MESSAGE)


@pytest.mark.parametrize(
    ("expression", "at", "words"),
    [
        ("", 1, "empty"),
        ("  /* nothing */ ", 1, "empty"),
        ("a >", 4, "missing before the end"),
        ("a > 5 garbage", 7, "'garbage'"),
        ("a = 5 b = 6", 7, "'b'"),
        ("a != 5", 3, "'<>'"),
        ('a = "x"', 5, "single quotes"),
        ("a = 'x", 5, "closing quote"),
        ("a = 1 /* x", 7, "comment"),
        ("a + 1 = 2", 3, "'+'"),
        ("a * 2 = 4", 3, "no arithmetic"),
        ("a LIKE 'x%'", 3, "'LIKE'"),
        ("a = NULL", 5, "IS NULL"),
        ("a > 'x'", 5, "no order"),
        ("a > TRUE", 5, "no order"),
        ("a BETWEEN 'x' AND 'y'", 11, "no order"),
        ("a BETWEEN 1", 12, "AND is missing"),
        ("a BETWEEN 1 OR 2", 13, "AND is missing"),
        ("a IN ()", 7, "string in quotes"),
        ("a IN (1)", 7, "string in quotes"),
        ("a IN 'x'", 6, "( is missing"),
        ("a IN ('x'", 10, ") is missing"),
        ("5 IN ('x')", 1, "after a property"),
        ("'abc' CONTAINS 'a'", 1, "after a property"),
        ("a CONTAINS b", 12, "string in quotes"),
        ("a NOT 5", 3, "NOT"),
        ("a IS 5", 6, "NULL is missing"),
        ("(a = 5", 7, ") is missing"),
        ("a = 5)", 6, "')'"),
        ("NOT a = 5", 9, "NOT (a = 5)"),
        ("NOT 5", 5, "neither true nor false"),
        ("5", 1, "neither true nor false"),
        ("'x'", 1, "neither true nor false"),
        ("-a", 1, "neither true nor false"),
        ("a = 5 AND 7", 11, "neither true nor false"),
        ("-TRUE = a", 1, "before a number"),
        ("-'5' = a", 1, "before a number"),
        ("a = 5x", 6, "ends in"),
        ("a = 1.5.2", 8, "ends in"),
        ("a = 9223372036854775808", 5, "too large"),
        ("a = 1e999", 5, "too large"),
        ("a = " + "9" * 5_000, 5, "too large"),
        ("ä = 1", 1, "no meaning"),
        ("a = \x00", 5, "no meaning"),
        ("AND", 1, "'AND'"),
    ],
)
def test_refused_with_the_place(expression: str, at: int, words: str) -> None:
    with pytest.raises(IllegalFilterError) as refused:
        sql_filter(expression)
    assert f"SQL filter, at character {at}: " in str(refused.value)
    assert words in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("around", ["()", "NOT ", "-"])
def test_depth_is_bounded(around: str) -> None:
    def nested(depth: int) -> str:
        opening, closing = (around[0], around[1]) if around == "()" else (around, "")
        inner = "1" if around == "-" else "yes"
        text = " ".join([opening] * depth) + inner + closing * depth
        return f"{text} = 1" if around == "-" else text

    assert sql_filter(nested(46)).matches(MESSAGE)
    for depth in (DEPTH_MAX + 1, 1_000):
        with pytest.raises(IllegalFilterError, match="deeper"):
            sql_filter(nested(depth))


def test_chains_of_equalities_are_bounded_and_others_are_not() -> None:
    with pytest.raises(IllegalFilterError, match="equalities"):
        sql_filter("yes" + " = yes" * 500)
    inner = "yes = yes" + " = yes" * DEPTH_MAX
    with pytest.raises(IllegalFilterError, match="equalities"):
        sql_filter(f"({inner}) = ({inner})")
    assert sql_filter(" AND ".join(["a = 5"] * 800)).matches(MESSAGE)
    assert sql_filter(" OR ".join(["a = 6"] * 700 + ["a = 5"])).matches(MESSAGE)
    with pytest.raises(IllegalFilterError, match=str(EXPRESSION_CHARACTERS_MAX)):
        sql_filter("a" * (EXPRESSION_CHARACTERS_MAX + 1))


def test_the_same_text_is_compiled_once() -> None:
    assert sql_filter("a = 1") is sql_filter("a = 1")
    assert sql_filter("a = 1") != sql_filter("a  = 1")


TOKENS = st.sampled_from(
    [*sorted(KEYWORDS), "a", "word", "5", "1.5", "'x'", "(", ")", ",", "=", "<>", ">", "<=",
     "-", "+", "--", "/*", "*/", "'", "\n", "é"]
)  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(["5", "-1", "1e999", "nan", "inf", "٣", "true", "", "9" * 40]),
    st.text(max_size=8),
)


@settings(max_examples=400)
@given(
    st.one_of(st.text(max_size=60), st.lists(TOKENS, max_size=25).map(" ".join)),
    st.dictionaries(st.sampled_from(["a", "word", "TAGS"]), VALUES),
)
def test_whatever_comes_in_is_a_filter_or_refused(
    expression: str, properties: dict[str, str]
) -> None:
    try:
        compiled = sql_filter(expression)
    except IllegalFilterError:
        return
    assert compiled.matches(properties) in (True, False)


LEAVES = st.sampled_from(["a = 1", "a > 3", "b IN ('x')", "b IS NULL", "c", "a BETWEEN 1 AND 4"])


def joined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(parts, st.sampled_from(["AND", "OR"]), parts).map(
            lambda p: "({} {} {})".format(*p)
        ),
        parts.map(lambda part: f"NOT ({part})"),
    )


def model(expression: str, properties: dict[str, str]) -> bool | None:
    """Three-valued logic on the fully parenthesised text, with Python's own words."""
    leaves = {
        leaf: leaf_value(leaf, properties)
        for leaf in ("a BETWEEN 1 AND 4", "a = 1", "a > 3", "b IN ('x')", "b IS NULL")
    }
    for leaf, value in leaves.items():
        expression = expression.replace(leaf, f"K({value})")
    expression = expression.replace("c", f"K({leaf_value('c', properties)})")
    for word, sign in (("AND", "&"), ("OR", "|"), ("NOT", "~")):
        expression = expression.replace(word, sign)
    result: Kleene = eval(expression, {"K": Kleene})
    return result.value


class Kleene:
    def __init__(self, value: bool | None) -> None:
        self.value = value

    def __and__(self, other: "Kleene") -> "Kleene":
        values = (self.value, other.value)
        return Kleene(False if False in values else None if None in values else True)

    def __or__(self, other: "Kleene") -> "Kleene":
        values = (self.value, other.value)
        return Kleene(True if True in values else None if None in values else False)

    def __invert__(self) -> "Kleene":
        return Kleene(None if self.value is None else not self.value)


def leaf_value(leaf: str, properties: dict[str, str]) -> bool | None:
    a = int(properties["a"]) if "a" in properties else None
    match leaf:
        case "a = 1":
            return None if a is None else a == 1
        case "a > 3":
            return None if a is None else a > 3
        case "a BETWEEN 1 AND 4":
            return None if a is None else 1 <= a <= 4
        case "b IN ('x')":
            return None if "b" not in properties else properties["b"] == "x"
        case "b IS NULL":
            return "b" not in properties
    return None if "c" not in properties else properties["c"] == "true"


@settings(max_examples=300)
@given(
    st.recursive(LEAVES, joined, max_leaves=12),
    st.fixed_dictionaries(
        {},
        optional={
            "a": st.integers(0, 6).map(str),
            "b": st.sampled_from(["x", "y"]),
            "c": st.sampled_from(["true", "false"]),
        },
    ),
)
def test_logic_is_the_models(expression: str, properties: dict[str, str]) -> None:
    assert sql_filter(expression).matches(properties) is (model(expression, properties) is True)
