"""Values of a SQL92 filter and what can be done with them: three-valued logic, conversions.

A value is a str, an int or float, a bool, or None for NULL. An expression is a function of the
message's properties to a value; none of these functions raises. What cannot be converted or
compared is NULL, and NULL at the end of it all is no match.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

Value = str | int | float | bool | None
Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Value]
Truth = Callable[[Properties], bool | None]
Test = Callable[[str, str], bool]

_NUMBER: Final = re.compile(r"\s*[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?\s*", re.ASCII)
_INTEGER: Final = re.compile(r"\s*[+-]?\d{1,30}\s*", re.ASCII)
COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def as_number(value: Value) -> int | float | None:
    """Read a value as a number, which a text may be too; NULL: it is none."""
    if isinstance(value, str):
        if _INTEGER.fullmatch(value):
            return int(value)
        return float(value) if _NUMBER.fullmatch(value) else None
    return None if value is None or isinstance(value, bool) else value


def as_truth(value: Value) -> bool | None:
    """Read a value as a truth value, which a text may be too, in any case; NULL: it is none."""
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.lower())
    return value if isinstance(value, bool) else None


def equal(left: Value, right: Value) -> bool | None:
    """Compare two texts as texts; a text beside a number or a truth value is converted."""
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    if isinstance(left, bool) or isinstance(right, bool):
        a, b = as_truth(left), as_truth(right)
        return None if a is None or b is None else a == b
    x, y = as_number(left), as_number(right)
    return None if x is None or y is None else x == y


def compared(left: Value, right: Value, symbol: str) -> bool | None:
    """Compare two texts by the order of their characters, else two numbers."""
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        return {">": left > right, ">=": left >= right, "<": left < right}.get(
            symbol, left <= right
        )
    x, y = as_number(left), as_number(right)
    return None if x is None or y is None else COMPARISONS[symbol](x, y)


def negated(value: bool | None) -> bool | None:
    return None if value is None else not value


def all_of(parts: Sequence[Truth]) -> Truth:
    """Join truths by AND: false if one is false, else NULL if one is NULL."""

    def evaluate(properties: Properties) -> bool | None:
        result: bool | None = True
        for part in parts:
            value = part(properties)
            if value is False:
                return False
            if value is None:
                result = None
        return result

    return evaluate


def any_of(parts: Sequence[Truth]) -> Truth:
    """Join truths by OR: true if one is true, else NULL if one is NULL."""

    def evaluate(properties: Properties) -> bool | None:
        result: bool | None = False
        for part in parts:
            value = part(properties)
            if value:
                return True
            if value is None:
                result = None
        return result

    return evaluate


def text_test(test: Test, name: str, wanted: str) -> Truth:
    """Make the test of one property, which must be there."""

    def evaluate(properties: Properties) -> bool | None:
        value = properties.get(name)
        return None if value is None else test(value, wanted)

    return evaluate


TEXT_TESTS: Final[Mapping[str, Test]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
