"""Attempt → backoff: how long a failed message waits before its next attempt."""

from typing import Final

from latermq_broker.catalog.catalog import Backoff, BackoffKind
from latermq_broker.delivery.filters.filter import hash64
from latermq_text.backoffs import BACKOFF_MS_MAX as BACKOFF_MS_MAX
from latermq_text.backoffs import LADDER_STEPS_MAX as LADDER_STEPS_MAX

_EXPONENT_MAX: Final = 64
_RENEWALS_MS: Final = (60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000)


def backoff_ms(policy: Backoff, attempt: int, message: int) -> int:
    """Compute the wait after attempt number `attempt` (from 1).

    Jitter is a function of (`message`, `attempt`), so that it spreads a burst and still replays.
    """
    assert attempt > 0
    if policy.kind is BackoffKind.EXPONENTIAL:
        exponent = min(attempt - 1, _EXPONENT_MAX)
        grown = policy.initial_ms * policy.multiplier**exponent
        delay_ms = int(min(grown, policy.max_ms))
    else:
        delay_ms = policy.delays_ms[min(attempt, len(policy.delays_ms)) - 1]
    if policy.jitter:
        draw = hash64(f"{message}/{attempt}") / 2**63 - 1.0  # [-1, 1)
        delay_ms = int(delay_ms * (1.0 + policy.jitter * draw))
    return max(0, min(delay_ms, BACKOFF_MS_MAX))


def auto_renew_ms(renewals: int) -> int:
    """Return how far the broker's n-th renewal (from 0) of a push consumer's lease reaches."""
    assert renewals >= 0
    return _RENEWALS_MS[min(renewals, len(_RENEWALS_MS) - 1)]
