"""The words of a SQL92 filter: literals, names, keywords, symbols, each with its place.

Protocol: FilterExpression of type SQL. Keywords in any case; comments `-- …` and `/* … */`.
"""

import math
import re
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from latermq_broker.errors import IllegalFilterError

EXPRESSION_CHARACTERS_MAX: Final = 8_192
INTEGER_MAX: Final = (1 << 63) - 1

KEYWORDS: Final = frozenset(
    {
        "AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE",
        "CONTAINS", "STARTSWITH", "ENDSWITH",
    }
)  # fmt: skip


class Kind(Enum):
    NAME = "a property"
    TEXT = "a string"
    NUMBER = "a number"
    WORD = "a keyword"
    SYMBOL = "a symbol"
    END = "the end"


class Word(NamedTuple):
    kind: Kind
    value: str | int | float
    at: int  # place in the expression, from 0

    def __str__(self) -> str:
        return self.kind.value if self.kind is Kind.END else repr(self.value)


_WORD: Final = re.compile(
    r"""(?P<blank>\s+|--[^\n]*|/\*.*?\*/)
      | (?P<float>(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
      | (?P<integer>\d+)[lL]?
      | (?P<name>[a-zA-Z_$][a-zA-Z0-9_$]*)
      | (?P<text>'(?:[^']|'')*')
      | (?P<symbol><>|<=|>=|[=<>(),+-])""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_NAME_CHARACTER: Final = re.compile(r"[a-zA-Z0-9_$.]", re.ASCII)


def illegal(text: str, at: int) -> IllegalFilterError:
    """Make the error that refuses the expression for what stands at `at`."""
    return IllegalFilterError(f"SQL filter, at character {at + 1}: {text}")


def words(expression: str) -> Iterator[Word]:
    """Yield all words, and END last. Raises IllegalFilterError."""
    at = 0
    while at < len(expression):
        match = _WORD.match(expression, at)
        if match is None:
            raise illegal(_complaint(expression, at), at)
        kind = match.lastgroup
        end = match.end()
        if kind in ("float", "integer") and _NAME_CHARACTER.match(expression, end):
            raise illegal("a number ends in what is no part of one", end)
        if kind != "blank":
            yield _word(kind or "", match.group(kind or 0), at)
        at = end
    yield Word(Kind.END, "", len(expression))


def _word(kind: str, text: str, at: int) -> Word:
    match kind:
        case "float":
            number = float(text)
            if not math.isfinite(number):
                raise illegal(f"{text[:40]} is too large a number", at)
            return Word(Kind.NUMBER, number, at)
        case "integer":
            if len(text.lstrip("0")) > 19 or int(text) > INTEGER_MAX:
                raise illegal(f"{text[:40]} is too large a number", at)
            return Word(Kind.NUMBER, int(text), at)
        case "text":
            return Word(Kind.TEXT, text[1:-1].replace("''", "'"), at)
        case "symbol":
            return Word(Kind.SYMBOL, text, at)
    keyword = text.upper()
    return Word(Kind.WORD, keyword, at) if keyword in KEYWORDS else Word(Kind.NAME, text, at)


def _complaint(expression: str, at: int) -> str:
    if expression[at] == "'":
        return "a string without its closing quote"
    if expression.startswith("/*", at):
        return "a comment without its end"
    if expression.startswith("!=", at):
        return "'!=' is not known here; unequal is '<>'"
    if expression[at] == '"':
        return "strings stand in single quotes"
    if expression[at] in "*/%":
        return "there is no arithmetic in filters"
    return f"{expression[at]!r} has no meaning here"
