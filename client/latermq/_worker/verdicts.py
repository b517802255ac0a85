"""What becomes of a message whose listener raised, by the exception."""

import asyncio
import random
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from latermq._values.arguments import wrong
from latermq.backoff import RETRY_IN, WAIT_MAX, Backoff, WaitOf, wait_of
from latermq.delivery import Outcome, Verdict

Kinds: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]

# Between two looks at a dependency that is down; it grows while nothing succeeds.
AWAY: Final = Backoff("exponential 1s 1m 2 jitter 20%")


class Rules(NamedTuple):
    """What a listener says of its exceptions; see `App.listener`."""

    retry_on: Kinds | None = None
    dead_letter_on: Kinds = ()
    give_back_on: Kinds = ()
    retry_in: WaitOf = RETRY_IN

    def words(self) -> list[str]:
        """Say what differs from having no rules."""
        named = (
            ("only", self.retry_on, "tried again"),
            ("", self.dead_letter_on, "dead letters"),
            ("", self.give_back_on, "given back uncounted"),
        )
        return [
            " ".join(filter(None, (only, ", ".join(k.__name__ for k in _several(kinds)), what)))
            for only, kinds, what in named
            if kinds
        ]

    def check(self) -> None:
        """Raises TypeError: not exception classes, or not a name or a function."""
        for name in ("retry_on", "dead_letter_on", "give_back_on"):
            kinds = getattr(self, name)
            if kinds is not None and not all(map(_is_kind, _several(kinds))):
                raise wrong(name, "an exception class, or a tuple of them", kinds)
        if not isinstance(self.retry_in, str) and not callable(self.retry_in):
            raise wrong("retry_in", "the name of an attribute, or a function", self.retry_in)


class Judge:
    """Applies the rules of one listener, whose dependencies it remembers to be away."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._rounds = 0  # of tries in a row, that ended with something given back
        self._next_s = 0.0  # when the next one begins, by the loop's clock

    def succeeded(self) -> None:
        """Know that nothing it needs is away."""
        self._rounds, self._next_s = 0, 0.0

    def verdict(self, error: Exception) -> Verdict:
        """Decide; a wait that the exception names and that is none counts as not named."""
        rules = self._rules
        wait = wait_of(error, rules.retry_in)
        wait = None if wait is None else min(wait, WAIT_MAX)
        if isinstance(error, rules.give_back_on):
            return Verdict(Outcome.RETURNED, wait or self._away())
        if isinstance(error, rules.dead_letter_on):
            return Verdict(Outcome.DEAD_LETTERED)
        if rules.retry_on is not None and not isinstance(error, rules.retry_on):
            return Verdict(Outcome.DEAD_LETTERED)
        return Verdict(Outcome.FAILED, wait)

    def _away(self) -> timedelta:
        """Return how long to wait: longer from round to round, however many a round gives back."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._next_s:
            self._rounds += 1
            self._next_s = now_s + AWAY.wait(self._rounds, 0).total_seconds()
        return AWAY.wait(self._rounds, random.random())


def _several(kinds: Kinds) -> tuple[Any, ...]:
    return kinds if isinstance(kinds, tuple) else (kinds,)


def _is_kind(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)
