"""How long to wait before the next try: chance comes in as a number, time as a count.

`Backoff` is what a program says, in words: of a group's messages, or of calls of its own. `Pace`
spaces out what this client tries again by itself. `RetryPolicy` is the broker's: how long a failed
message waits before its next delivery, counted by its attempt.
"""

import asyncio
import functools
import inspect
import logging
import math
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

from latermq_text.backoffs import (
    FACTOR_MAX,
    refusal_of_growth,
    refusal_of_jitter,
    refusal_of_ladder,
)
from latermq_text.durations import TooLongError, format_exact, parse_duration_ms, shown

__all__ = ["FIFO_RETRY", "Backoff", "retry"]

Function = TypeVar("Function", bound=Callable[..., Any])
Errors: TypeAlias = type[Exception] | tuple[type[Exception], ...]
Kinds: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]
Wait: TypeAlias = timedelta | float | str | None
WaitOf: TypeAlias = str | Callable[[Any], Wait]

log = logging.getLogger("latermq")

_EXCEPTIONS: Final = BaseExceptionGroup.__dict__["exceptions"]  # past one that a class may have
RETRY_IN: Final = "retry_in"  # the attribute of an exception that says how long to wait

# 2 ** 32 of anything is past every maximum, and a larger power could leave the floats.
EXPONENT_MAX: Final = 32


def _grown(initial: timedelta, multiplier: float, exponent: int, limit: timedelta) -> timedelta:
    try:
        seconds = initial.total_seconds() * multiplier ** min(exponent, EXPONENT_MAX)
    except OverflowError:
        return limit
    return timedelta(seconds=min(seconds, limit.total_seconds()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Waits that grow by `multiplier`, each off by up to `jitter` (a share of it), never above
    `limit`."""

    initial: timedelta
    multiplier: float
    limit: timedelta
    jitter: float = 0.0

    def __post_init__(self) -> None:
        if self.initial <= timedelta(0) or self.limit < self.initial:
            raise ValueError("a wait must be positive and not above its limit")
        if self.multiplier < 1 or not 0 <= self.jitter < 1:
            raise ValueError("multiplier must be at least 1, jitter in [0, 1)")

    def wait(self, retry: int, draw: float) -> timedelta:
        """Return the wait before retry number `retry`, from 1; `draw` is uniform in [0, 1)."""
        exact = _grown(self.initial, self.multiplier, retry - 1, self.limit)
        return min(exact * (1 + self.jitter * (2 * draw - 1)), self.limit)


@dataclass(frozen=True, slots=True)
class Ladder:
    """The wait after attempt n is `waits[n - 1]`; the last one repeats."""

    waits: tuple[timedelta, ...]

    def __post_init__(self) -> None:
        if not self.waits:
            raise ValueError("a ladder has at least one rung")

    def wait(self, attempt: int) -> timedelta:
        return self.waits[min(max(attempt, 1), len(self.waits)) - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential:
    """The wait after attempt n is `min(limit, initial * multiplier ** (n - 1))`."""

    initial: timedelta
    limit: timedelta
    multiplier: float

    def wait(self, attempt: int) -> timedelta:
        return _grown(self.initial, self.multiplier, max(attempt, 1) - 1, self.limit)


@dataclass(frozen=True, slots=True)
class Fixed:
    """The wait after each attempt is the same."""

    each: timedelta

    def wait(self, attempt: int) -> timedelta:
        del attempt
        return self.each


_JITTER: Final = re.compile(r"\s*\bjitter\s+(\d+(?:\.\d+)?)(%?)\s*$")
_HINT: Final = 'say "1s 5s 10s", "exponential 5s 2h 2" or "fixed 10s"'
_MS: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, init=False)
class Backoff:
    """Waits before tries, in words; `str` gives the words back.

        1s 5s 10s 1m          a ladder; the last step repeats
        exponential 5s 2h 2   first wait, longest wait, factor (2 when left out)
        fixed 10s
        … jitter 20%          after any of them: each wait is drawn from ± 20 %

    Args:
        jitter: the share, instead of in the words; 0 to 1.
    Raises:
        ValueError: other words; it says what is accepted.
        TypeError: no words.
    """

    waits: Ladder | Exponential | Fixed
    jitter: float

    def __init__(self, words: str, *, jitter: float | None = None) -> None:
        if not isinstance(words, str):
            raise TypeError(f"a backoff is text: {_HINT}; not {words!r}")
        shares = _JITTER.search(words)
        if shares is not None and jitter is None:
            jitter = float(shares[1]) / (100 if shares[2] else 1)
        if jitter is not None and not _is_number(jitter):
            raise TypeError(f"jitter must be a share from 0 to 1, not {jitter!r}")
        waits = _waits(words[: shares.start()] if shares else words)
        if refusal := refusal_of_jitter(jitter or 0.0) or _refusal(waits):
            raise ValueError(f"backoff {shown(words)}: {refusal}")
        object.__setattr__(self, "jitter", float(jitter or 0.0))
        object.__setattr__(self, "waits", waits)

    @classmethod
    def of(cls, waits: Ladder | Exponential | Fixed, jitter: float) -> "Backoff":
        """Make one of its parts, whatever they are: a broker's."""
        made = object.__new__(cls)
        object.__setattr__(made, "waits", waits)
        object.__setattr__(made, "jitter", jitter)
        return made

    def wait(self, retry: int, draw: float = 0.5) -> timedelta:
        """Return the wait before retry number `retry`, from 1; `draw` is uniform in [0, 1)."""
        return self.waits.wait(retry) * (1 + self.jitter * (2 * draw - 1))

    def __str__(self) -> str:
        match self.waits:
            case Ladder(waits):
                text = " ".join(map(_spelled, waits))
            case Exponential(initial=initial, limit=limit, multiplier=multiplier):
                text = f"exponential {_spelled(initial)} {_spelled(limit)} {multiplier:g}"
            case Fixed(each):
                text = f"fixed {_spelled(each)}"
        return f"{text} jitter {self.jitter * 100:g}%" if self.jitter else text

    def __repr__(self) -> str:
        return f"Backoff({str(self)!r})"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _refusal(waits: Ladder | Exponential | Fixed) -> str:
    """Return why a broker refuses these waits; "": it takes them."""
    match waits:
        case Exponential(initial=initial, limit=limit, multiplier=multiplier):
            return refusal_of_growth(initial // _MS, limit // _MS, multiplier)
        case Ladder(several):
            return refusal_of_ladder([each // _MS for each in several])
        case Fixed(each):
            return refusal_of_ladder([each // _MS])


def _spelled(wait: timedelta) -> str:
    return format_exact(wait // _MS)


def _waits(words: str) -> Ladder | Exponential | Fixed:
    kind, *rest = words.replace(",", " ").split() or [""]
    if kind == "exponential":
        return _exponential(rest)
    if kind == "fixed":
        if len(rest) != 1:
            raise ValueError('say one wait, e.g. "fixed 10s"')
        return Fixed(_span(rest[0]))
    if not kind[:1].isdigit():
        why = f"unknown backoff {shown(kind)}" if kind else "a backoff is needed"
        raise ValueError(f"{why}: {_HINT}")
    return Ladder(tuple(map(_span, (kind, *rest))))


def _exponential(words: list[str]) -> Exponential:
    if len(words) not in (2, 3):
        raise ValueError(
            'say the first wait, the longest and the factor, e.g. "exponential 5s 2h 2"'
        )
    try:
        multiplier = float(words[2]) if len(words) == 3 else 2.0
    except ValueError:
        multiplier = math.nan
    if not 1 <= multiplier <= FACTOR_MAX:
        raise ValueError(
            f"{shown(words[2])} is not a factor such as 2 or 1.5, from 1 to {FACTOR_MAX:g}"
        )
    return Exponential(initial=_span(words[0]), limit=_span(words[1]), multiplier=multiplier)


def _span(word: str) -> timedelta:
    return parse_duration_ms(word) * _MS


FIFO_RETRY: Final = Backoff("fixed 3s")
"""What a group that keeps message groups in order is made with, unless it is told otherwise."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The broker's word on redelivery: deliveries in all (the first included), and the waits."""

    max_attempts: int
    waits: Ladder | Exponential

    def wait(self, attempt: int) -> timedelta:
        """Return how long a message waits that failed on delivery `attempt`, from 1."""
        return self.waits.wait(attempt)


# Sends that were refused with TOO_MANY_REQUESTS.
SEND_BACKOFF: Final = Pace(
    initial=timedelta(seconds=1), multiplier=1.6, limit=timedelta(seconds=120), jitter=0.2
)
# Streams and calls that found no broker: quick at first, because a restart takes about a second.
RECONNECT_BACKOFF: Final = Pace(
    initial=timedelta(milliseconds=200), multiplier=1.6, limit=timedelta(seconds=10), jitter=0.2
)
# Acknowledgements and returned leases that the broker could not take.
SETTLE_BACKOFF: Final = Pace(
    initial=timedelta(seconds=1), multiplier=1.6, limit=timedelta(seconds=30), jitter=0.2
)
# What a consumer does until the broker has told its group's policy.
DEFAULT_RETRY_POLICY: Final = RetryPolicy(
    17, Exponential(initial=timedelta(seconds=1), limit=timedelta(hours=2), multiplier=2.0)
)


# A broker refuses to be asked for more; a group's own backoff, which it keeps, may be longer.
WAIT_MAX: Final = timedelta(hours=12)


def wait_of(error: BaseException, retry_in: WaitOf) -> timedelta | None:
    """Return the wait an exception names; None where it names none, or nothing that is one.

    Named as a timedelta, seconds, text such as "90s", or as Retry-After has it: seconds, or a date,
    which names none once it is past. A longer one than WAIT_MAX is WAIT_MAX, and the log says so.
    """
    try:
        named = getattr(error, retry_in, None) if isinstance(retry_in, str) else retry_in(error)
        if isinstance(named, str):
            named = _said(named.strip())
        if isinstance(named, int | float):
            is_long = named > WAIT_MAX.total_seconds()
            named = timedelta.max if is_long else timedelta(seconds=named)
        if isinstance(named, timedelta) and named > WAIT_MAX:
            log.warning("%s names a wait of over 12h, the longest: 12h", type(error).__name__)
            return WAIT_MAX
        return named if isinstance(named, timedelta) and named >= timedelta(0) else None
    except BaseException:  # noqa: BLE001  what failed is told; how long to wait is an extra
        return None


def _said(text: str) -> timedelta | float | None:
    if text.isdigit():
        return float(text)
    try:
        return _span(text)
    except TooLongError:
        return timedelta.max
    except ValueError:
        from email.utils import parsedate_to_datetime  # few need what it brings

        at = parsedate_to_datetime(text)
        wait = (at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime.now(UTC)
        return wait if wait > timedelta(0) else None


def parts_of(error: BaseException) -> Sequence[BaseException]:
    """Return the exceptions of a group, nested groups flattened; of any other error, itself."""
    if not issubclass(type(error), BaseExceptionGroup):
        return (error,)
    parts: list[BaseException] = []
    rest = [error]
    while rest:
        each = rest.pop()
        if issubclass(type(each), BaseExceptionGroup):
            rest += reversed(_EXCEPTIONS.__get__(each))
        else:
            parts.append(each)
    return parts


def fits_kind(error: BaseException, kinds: Kinds) -> bool:
    """Tell whether its type is one of the classes; `__class__` is not asked, as by `except`."""
    return issubclass(type(error), kinds)


def check_kinds(name: str, kinds: object) -> None:
    """Raises TypeError: neither an exception class nor a tuple of them."""
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError(f"{name} must be an exception class, or a tuple of them, not {kinds!r}")


class _Calls(NamedTuple):
    """What `retry` says of the calls of a function."""

    backoff: Backoff
    tries: int
    on: Errors
    give_up_on: Errors
    within_s: float
    retry_in: WaitOf

    def wait_s(self, error: Exception, number: int, spent_s: float) -> float | None:
        """Return how long to wait after call `number`, which raised; None: it was the last."""
        parts = parts_of(error)
        worth = fits_kind(error, self.on) or all(fits_kind(part, self.on) for part in parts)
        if number >= self.tries or not worth:
            return None
        if any(fits_kind(each, self.give_up_on) for each in (error, *parts)):
            return None
        named = wait_of(error, self.retry_in)
        wait = self.backoff.wait(number, random.random()) if named is None else named
        wait_s = wait.total_seconds()
        return wait_s if spent_s + wait_s < self.within_s else None


def retry(
    waits: Backoff | str = "1s 5s 30s",
    *,
    tries: int = 4,
    on: Errors = Exception,
    give_up_on: Errors = (),
    within: timedelta | str | None = None,
    retry_in: WaitOf = RETRY_IN,
) -> Callable[[Function], Function]:
    """Decorate a function that is called again when it raises: any call of yours, or of a service.

        @retry("200ms 1s jitter 20%", tries=3, on=ConnectionError)
        async def charge(card: str) -> None: ...

    It waits where it is called, in a thread or, of an `async def`, in its loop. A listener needs no
    such thing: its message comes again, also when its worker is gone.

    Args:
        tries: calls in all; what the last one raises is raised.
        on: only these exceptions are worth another call; of a group, all of its exceptions.
        give_up_on: of them, these are not; of a group, one is enough.
        within: no call begins so long after the first one began; what was raised is raised then
            at once. A call that runs is not cut off.
        retry_in: where an exception says how long to wait, whatever the waits are, as of
            `App.listener`: the name of its attribute, or a function of it.
    Raises:
        ValueError, TypeError: no waits, no number of tries, or no time.
    """
    backoff = Backoff(waits) if isinstance(waits, str) else waits
    if not isinstance(backoff, Backoff):
        raise TypeError(f"a backoff is text: {_HINT}; not {waits!r}")
    if not isinstance(tries, int) or isinstance(tries, bool):
        raise TypeError(f"tries must be an int, not {tries!r}")
    if tries < 1:
        raise ValueError(f"tries must be at least 1, not {tries}")
    limit = _span(within) if isinstance(within, str) else within
    if not isinstance(limit, timedelta | None):
        raise TypeError(f'within must be a timedelta, or text such as "1m", not {within!r}')
    check_kinds("on", on)
    check_kinds("give_up_on", give_up_on)
    if limit is not None and limit <= timedelta(0):
        raise ValueError(f"within must be positive, not {within}")
    within_s = math.inf if limit is None else limit.total_seconds()
    calls = _Calls(backoff, tries, on, give_up_on, within_s, retry_in)

    def decorate(function: Function) -> Function:
        return cast(Function, _repeated(function, calls))

    return decorate


def _repeated(function: Callable[..., Any], calls: _Calls) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        began_s, number = time.monotonic(), 1
        while True:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                wait_s = calls.wait_s(error, number, time.monotonic() - began_s)
                if wait_s is None:
                    raise
            time.sleep(wait_s)
            number += 1

    @functools.wraps(function)
    async def call_async(*args: Any, **kwargs: Any) -> Any:
        now_s = asyncio.get_running_loop().time
        began_s, number = now_s(), 1
        while True:
            try:
                return await function(*args, **kwargs)
            except Exception as error:
                wait_s = calls.wait_s(error, number, now_s() - began_s)
                if wait_s is None:
                    raise
            await asyncio.sleep(wait_s)
            number += 1

    return call_async if inspect.iscoroutinefunction(function) else call
