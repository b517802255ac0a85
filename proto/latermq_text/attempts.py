"""How many attempts a group allows, in words. Pure."""

from typing import Final

UNLIMITED: Final = 2**31 - 1  # of a group whose messages have no last attempt, as in RocketMQ
UNLIMITED_WORD: Final = "unlimited"


def allowed(max_attempts: int) -> str:
    """Return `17`, or `unlimited`."""
    return UNLIMITED_WORD if max_attempts == UNLIMITED else f"{max_attempts:,}"


def counted_of(attempt: int, max_attempts: int, *, joined: str = " of ") -> str:
    """Return `3 of 17`; `3` where there is no last one."""
    return f"{attempt}" if max_attempts == UNLIMITED else f"{attempt}{joined}{max_attempts}"
