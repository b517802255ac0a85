"""The bounds of waits between attempts: one check for the broker, the SDK and the command line."""

from collections.abc import Sequence
from typing import Final

BACKOFF_MS_MAX: Final = 30 * 86_400_000  # of one wait
LADDER_STEPS_MAX: Final = 64  # waits of a ladder; the last one repeats
FACTOR_MAX: Final = 100.0  # by which an exponential wait grows
ATTEMPTS_MAX: Final = 2**31 - 1  # deliveries in all that a broker can be told: no last one
QUEUES_MAX: Final = 2**31 - 1  # queues of a topic that a broker can be told; it allows far fewer


def refusal_of_jitter(jitter: float) -> str:
    """Return what is wrong with the share by which waits are drawn; "": nothing. NaN is wrong."""
    return "" if 0.0 <= jitter <= 1.0 else f"jitter {jitter} is not within 0 to 1"


def refusal_of_growth(first_ms: int, longest_ms: int, factor: float) -> str:
    """Return what is wrong with an exponential backoff; "": nothing."""
    if not 1 <= first_ms <= longest_ms <= BACKOFF_MS_MAX:
        return (
            f"exponential from {first_ms} to {longest_ms} ms: needs "
            f"1 <= first <= longest <= {BACKOFF_MS_MAX}"
        )
    return "" if 1.0 <= factor <= FACTOR_MAX else f"factor {factor} is not within 1 to 100"


def refusal_of_ladder(waits_ms: Sequence[int]) -> str:
    """Return what is wrong with a ladder of waits; "": nothing."""
    if not 1 <= len(waits_ms) <= LADDER_STEPS_MAX:
        return f"a ladder has 1 to {LADDER_STEPS_MAX} steps, not {len(waits_ms)}"
    for wait_ms in waits_ms:
        if not 0 <= wait_ms <= BACKOFF_MS_MAX:
            return f"{wait_ms} ms is not within 0 to {BACKOFF_MS_MAX}"
    return ""
