"""How long to wait before the next try. Pure: chance comes in as a number, time as a count.

`Backoff` spaces out what this client tries again by itself. `RetryPolicy` is the broker's: how
long a failed message waits before its next delivery, counted by its attempt.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

# 2 ** 32 of anything is past every maximum, and a larger power could leave the floats.
EXPONENT_MAX: Final = 32


def _grown(initial: timedelta, multiplier: float, exponent: int, limit: timedelta) -> timedelta:
    try:
        seconds = initial.total_seconds() * multiplier ** min(exponent, EXPONENT_MAX)
    except OverflowError:
        return limit
    return timedelta(seconds=min(seconds, limit.total_seconds()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
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
class RetryPolicy:
    """The broker's word on redelivery: deliveries in all (the first included), and the waits."""

    max_attempts: int
    waits: Ladder | Exponential

    def wait(self, attempt: int) -> timedelta:
        """Return how long a message waits that failed on delivery `attempt`, from 1."""
        return self.waits.wait(attempt)


# Sends that were refused with TOO_MANY_REQUESTS.
SEND_BACKOFF: Final = Backoff(
    initial=timedelta(seconds=1), multiplier=1.6, limit=timedelta(seconds=120), jitter=0.2
)
# Streams and calls that found no broker: quick at first, because a restart takes about a second.
RECONNECT_BACKOFF: Final = Backoff(
    initial=timedelta(milliseconds=200), multiplier=1.6, limit=timedelta(seconds=10), jitter=0.2
)
# Acknowledgements and returned leases that the broker could not take.
SETTLE_BACKOFF: Final = Backoff(
    initial=timedelta(seconds=1), multiplier=1.6, limit=timedelta(seconds=30), jitter=0.2
)
# What a consumer does until the broker has told its group's policy.
DEFAULT_RETRY_POLICY: Final = RetryPolicy(
    17, Exponential(initial=timedelta(seconds=1), limit=timedelta(hours=2), multiplier=2.0)
)
