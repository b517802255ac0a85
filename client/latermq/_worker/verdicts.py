"""What becomes of a message whose listener raised, by the exception."""

import asyncio
import logging
import random
from datetime import timedelta
from typing import Any, Final, NamedTuple

from latermq._values.arguments import wrong
from latermq._values.failure import class_name_of, tell, text_of
from latermq.backoff import (
    RETRY_IN,
    Backoff,
    Kinds,
    WaitOf,
    check_kinds,
    fits_kind,
    parts_of,
    wait_of,
)
from latermq.delivery import Outcome, Verdict

log = logging.getLogger("latermq.worker")

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
            if kinds is not None:
                check_kinds(name, kinds)
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
        """Decide; a wait that the exception names and that is none counts as not named.

        A rule that raises, as a metaclass's `__subclasscheck__` may, decides nothing: the attempt
        has failed.
        """
        try:
            return self._verdict(error)
        except Exception as failed:  # noqa: BLE001  the attempt has to end
            tell(
                log, logging.ERROR, "the rules for %s cannot be applied: %s: %s",
                class_name_of(error), class_name_of(failed), text_of(failed),
            )  # fmt: skip
            return Verdict()

    def _verdict(self, error: Exception) -> Verdict:
        """Judge each exception of a group by itself; the strictest outcome is that of the group."""
        if self._rules == Rules():  # most listeners have none, and a wait is all that is asked
            return Verdict(Outcome.FAILED, self._wait(error))
        parts = parts_of(error)
        outcomes = {self._outcome(error, part) for part in parts}
        if Outcome.DEAD_LETTERED in outcomes:
            return Verdict(Outcome.DEAD_LETTERED)
        if Outcome.FAILED in outcomes:
            return Verdict(Outcome.FAILED, self._wait(error))
        return Verdict(Outcome.RETURNED, self._wait(error) or self._away())

    def _outcome(self, whole: Exception, part: BaseException) -> Outcome:
        rules = self._rules

        def fits(kinds: Kinds) -> bool:
            return fits_kind(part, kinds) or fits_kind(whole, kinds)

        if fits(rules.give_back_on):
            return Outcome.RETURNED
        if fits(rules.dead_letter_on):
            return Outcome.DEAD_LETTERED
        if rules.retry_on is not None and not fits(rules.retry_on):
            return Outcome.DEAD_LETTERED
        return Outcome.FAILED

    def _wait(self, error: Exception) -> timedelta | None:
        """Return what the error names, or else the longest wait that one of its group names."""
        wait = wait_of(error, self._rules.retry_in)
        if wait is None:
            named = (wait_of(part, self._rules.retry_in) for part in parts_of(error))
            wait = max((each for each in named if each is not None), default=None)
        return wait

    def _away(self) -> timedelta:
        """Return how long to wait: longer from round to round, however many a round gives back."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._next_s:
            self._rounds += 1
            self._next_s = now_s + AWAY.wait(self._rounds, 0).total_seconds()
        return AWAY.wait(self._rounds, random.random())


def _several(kinds: Kinds) -> tuple[Any, ...]:
    return kinds if isinstance(kinds, tuple) else (kinds,)
