"""SQL92 filters: an expression over a message's properties, compiled once into closures.

Protocol: FilterExpression of type SQL. From the loosest to the tightest binding:

    or          and { OR and }
    and         equality { AND equality }
    equality    comparison { = comparison | <> comparison | IS [NOT] NULL }
    comparison  unary { > unary | >= unary | < unary | <= unary | [NOT] BETWEEN unary AND unary
                      | [NOT] IN ( string {, string} )
                      | [NOT] CONTAINS string | [NOT] STARTSWITH string | [NOT] ENDSWITH string }
    unary       + unary | - unary | NOT unary | primary
    primary     literal | property | ( or )

NOT binds tighter than `=`: `NOT (a = 5)` needs its parentheses, and without them is refused rather
than misunderstood. Whatever text comes in, the answer is a filter or IllegalFilterError.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from latermq_broker.delivery.filters.sql_values import (
    COMPARISONS,
    TEXT_TESTS,
    Evaluate,
    Properties,
    Truth,
    Value,
    all_of,
    any_of,
    as_number,
    as_truth,
    compared,
    equal,
    negated,
    text_test,
)
from latermq_broker.delivery.filters.sql_words import (
    EXPRESSION_CHARACTERS_MAX,
    Kind,
    Word,
    illegal,
    words,
)
from latermq_broker.errors import IllegalFilterError

DEPTH_MAX: Final = 48  # of parentheses, signs and NOTs inside each other
SHORT_CHARACTERS_MAX: Final = 512
COMPILED_MAX: Final = 256  # short expressions that stay compiled: some 60 KiB each
COMPILED_LONG_MAX: Final = 16  # longer ones: up to 1.2 MiB each
TAGS: Final = "TAGS"  # the name that a message's tag has


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """Equal when the text is."""

    expression: str
    _truth: Truth = field(repr=False, compare=False)

    def matches(self, properties: Properties) -> bool:
        """Tell whether `properties`, the user's and TAGS, match. NULL is no match."""
        return self._truth(properties) is True


def sql_filter(expression: str) -> SqlFilter:
    """Compile an expression. Raises IllegalFilterError, with the place where it goes wrong."""
    if len(expression) > EXPRESSION_CHARACTERS_MAX:
        raise IllegalFilterError(
            f"SQL filter of {len(expression)} characters, at most {EXPRESSION_CHARACTERS_MAX} "
            "are allowed"
        )
    if len(expression) > SHORT_CHARACTERS_MAX:
        return _compiled_long(expression)
    return _compiled(expression)


@lru_cache(COMPILED_MAX)
def _compiled(expression: str) -> SqlFilter:
    return SqlFilter(expression, _Parser(list(words(expression))).whole())


@lru_cache(COMPILED_LONG_MAX)
def _compiled_long(expression: str) -> SqlFilter:
    return SqlFilter(expression, _Parser(list(words(expression))).whole())


class _Part(NamedTuple):
    """A piece of the expression. `kind`: truth | property | literal | number."""

    kind: str
    at: int
    evaluate: Evaluate
    literal: Value = None
    name: str = ""


class _Parser:
    def __init__(self, sequence: list[Word]) -> None:
        self._words = sequence
        self._next = 0
        self._depth = 0
        self._chained = 0

    def whole(self) -> Truth:
        if len(self._words) == 1:
            raise illegal("the expression is empty", 0)
        part = self._or()
        rest = self._word
        if rest.kind is not Kind.END:
            raise illegal(f"{rest} does not go on what stands before it", rest.at)
        return _truth(part)

    # --- words ---------------------------------------------------------------------------------

    @property
    def _word(self) -> Word:
        return self._words[self._next]

    def _take(self, *values: str) -> Word | None:
        """Take the next word if it is one of these keywords or symbols; None: it is not."""
        word = self._word
        if word.kind in (Kind.WORD, Kind.SYMBOL) and word.value in values:
            self._next += 1
            return word
        return None

    def _require(self, value: str) -> None:
        if self._take(value) is None:
            raise illegal(f"{value} is missing before {self._word}", self._word.at)

    def _text(self, after: str) -> str:
        word = self._word
        if word.kind is not Kind.TEXT:
            raise illegal(f"{after} takes a string in quotes, not {word}", word.at)
        self._next += 1
        return str(word.value)

    # --- grammar -------------------------------------------------------------------------------

    def _or(self) -> _Part:
        return self._chain("OR", self._and, any_of)

    def _and(self) -> _Part:
        return self._chain("AND", self._equality, all_of)

    def _chain(
        self, keyword: str, parse: Callable[[], _Part], join: Callable[[list[Truth]], Truth]
    ) -> _Part:
        first = parse()
        if self._take(keyword) is None:
            return first
        parts = [_truth(first), _truth(parse())]
        assert self._next > 2
        while self._take(keyword):
            parts.append(_truth(parse()))
        return _Part("truth", first.at, join(parts))

    def _equality(self) -> _Part:
        left = self._comparison()
        while word := self._take("=", "<>", "IS"):
            if left.kind == "truth":  # one inside the other, as parentheses are
                self._chained += 1
                if self._chained > DEPTH_MAX:
                    raise illegal(f"more than {DEPTH_MAX} equalities of equalities", word.at)
            if word.value == "IS":
                left = self._is_null(left)
            else:
                left = _equality(left, self._comparison(), unequal=word.value == "<>")
        return left

    def _is_null(self, left: _Part) -> _Part:
        inverted = self._take("NOT") is not None
        self._require("NULL")
        evaluate = left.evaluate
        return _Part("truth", left.at, lambda p: (evaluate(p) is None) is not inverted)

    def _comparison(self) -> _Part:
        left = self._unary()
        while True:
            inverted = self._take("NOT")
            word = self._take("BETWEEN", "IN", *TEXT_TESTS)
            if word is not None:
                part = self._special(left, str(word.value))
                left = _not(part) if inverted else part
            elif inverted is not None:
                raise illegal(f"NOT {self._word} does not go on what stands before it", inverted.at)
            elif (word := self._take(*COMPARISONS)) is not None:
                left = _order(left, self._unary(), str(word.value))
            else:
                return left

    def _special(self, left: _Part, keyword: str) -> _Part:
        if keyword == "BETWEEN":
            low = self._unary()
            self._require("AND")
            high = self._unary()
            bounds = [_truth(_order(left, low, ">=")), _truth(_order(left, high, "<="))]
            return _Part("truth", left.at, all_of(bounds))
        if left.kind != "property":
            raise illegal(f"{keyword} stands after a property", left.at)
        if keyword != "IN":
            wanted = self._text(keyword)
            return _Part("truth", left.at, text_test(TEXT_TESTS[keyword], left.name, wanted))
        self._require("(")
        listed = {self._text("IN")}
        while self._take(","):
            listed.add(self._text("IN"))
        self._require(")")
        name, values = left.name, frozenset(listed)

        def evaluate(properties: Properties) -> bool | None:
            value = properties.get(name)
            return None if value is None else value in values

        return _Part("truth", left.at, evaluate)

    def _unary(self) -> _Part:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise illegal(f"nested deeper than {DEPTH_MAX}", self._word.at)
        try:
            word = self._take("+", "-", "NOT")
            if word is None:
                return self._primary()
            part = self._unary()
            return _not(part) if word.value == "NOT" else _signed(part, word)
        finally:
            self._depth -= 1
            assert self._depth >= 0

    def _primary(self) -> _Part:
        word = self._word
        if word.kind is Kind.NAME:
            self._next += 1
            name = str(word.value)
            return _Part("property", word.at, lambda p: p.get(name), name=name)
        if word.kind in (Kind.TEXT, Kind.NUMBER):
            self._next += 1
            return _literal(word.value, word.at)
        if constant := self._take("TRUE", "FALSE", "NULL"):
            value = {"TRUE": True, "FALSE": False}.get(str(constant.value))
            return _literal(value, word.at)
        if self._take("("):
            part = self._or()
            self._require(")")
            return part
        raise illegal(f"a property, a literal or '(' is missing before {word}", word.at)


def _literal(value: Value, at: int) -> _Part:
    return _Part("literal", at, lambda _: value, literal=value)


def _truth(part: _Part) -> Truth:
    """Compile a part to the truth value that is wanted there. A property may be one."""
    evaluate = part.evaluate
    if part.kind == "number" or (
        part.kind == "literal" and not isinstance(part.literal, bool | None)
    ):
        raise illegal("this is neither true nor false", part.at)
    return lambda properties: as_truth(evaluate(properties))


def _not(part: _Part) -> _Part:
    truth = _truth(part)
    return _Part("truth", part.at, lambda properties: negated(truth(properties)))


def _signed(part: _Part, sign: Word) -> _Part:
    if part.kind == "truth" or (
        part.kind == "literal" and (isinstance(part.literal, bool | str) or part.literal is None)
    ):
        raise illegal(f"{sign.value} stands before a number or a property", sign.at)
    evaluate, minus = part.evaluate, sign.value == "-"
    if part.kind == "literal":
        number = as_number(part.literal)
        return _literal(-number if minus and number is not None else number, sign.at)

    def signed(properties: Properties) -> Value:
        value = as_number(evaluate(properties))
        return -value if minus and value is not None else value

    return _Part("number", sign.at, signed)


def _equality(left: _Part, right: _Part, *, unequal: bool) -> _Part:
    for part, other in ((left, right), (right, left)):
        if part.kind == "literal" and part.literal is None:
            raise illegal("nothing equals NULL; say IS NULL or IS NOT NULL", part.at)
        plain = other.kind == "number" or (
            other.kind == "literal" and not isinstance(other.literal, bool)
        )
        if part.kind == "truth" and plain:
            raise illegal(
                "this is true or false and cannot equal that; is a parenthesis missing, as in "
                "NOT (a = 5)?",
                other.at,
            )
    a, b = left.evaluate, right.evaluate
    if unequal:
        return _Part("truth", left.at, lambda p: negated(equal(a(p), b(p))))
    return _Part("truth", left.at, lambda p: equal(a(p), b(p)))


def _order(left: _Part, right: _Part, symbol: str) -> _Part:
    for part in (left, right):
        number = isinstance(part.literal, int | float) and not isinstance(part.literal, bool)
        if part.kind == "truth" or (part.kind == "literal" and not number):
            raise illegal("this has no order: compare a property with a number", part.at)
    a, b = left.evaluate, right.evaluate
    return _Part("truth", left.at, lambda p: compared(a(p), b(p), symbol))
