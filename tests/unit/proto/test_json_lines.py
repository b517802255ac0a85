"""Log lines in JSON: one strict object each, whatever was given."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latermq_text.json_lines import DEPTH_MAX, json_line


class Mute:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Shifty(dict[str, int]):
    def items(self) -> Any:
        raise RuntimeError("no items")


def strict(line: str) -> dict[str, Any]:
    def refuse(word: str) -> None:
        raise ValueError(word)

    parsed = json.loads(line, parse_constant=refuse)
    assert isinstance(parsed, dict)
    assert "\n" not in line
    return parsed


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
KEYS = st.text() | st.integers() | st.tuples(st.text(), st.floats())
ANYTHING = st.recursive(
    PLAIN | st.builds(Mute) | st.builds(Shifty) | st.sets(st.integers()),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), ANYTHING))
def test_each_record_is_one_strict_object(extra: dict[str, Any]) -> None:
    own = {"time": "now", "level": "INFO", "message": "m"}
    parsed = strict(json_line(own, extra))
    assert {name: parsed[name] for name in own} == own
    assert len(parsed) == len(own) + len(extra)


def test_a_record_s_own_fields_keep_their_names() -> None:
    line = json_line({"level": "INFO"}, {"level": 9, "level_": 8, "n": 1})
    assert strict(line) == {"level": "INFO", "level_": 9, "level__": 8, "n": 1}


def test_cycles_and_depth_end() -> None:
    ring: dict[str, Any] = {}
    ring["ring"] = [ring]
    deep: Any = 1
    for _ in range(10 * DEPTH_MAX):
        deep = [deep]
    parsed = strict(json_line({}, {"ring": ring, "deep": deep, "many": list(range(100_000))}))
    assert parsed["ring"] == {"ring": ["<cycle>"]}
    assert parsed["many"] == "<list of 100000>"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_has_not_are_text(value: float) -> None:
    assert strict(json_line({}, {"took": value, "all": [value]})) == {
        "took": str(value),
        "all": [str(value)],
    }
