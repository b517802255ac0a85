"""How malloc keeps memory: large blocks while they are used, nothing much after a storm.

glibc would return and fetch the pages of every large message anew, so it is told to keep them. What
a storm of large messages leaves behind would then stay for ever, in holes: so it is told to give
back what is free when much was counted and has gone, and when many calls are over: 14 of 85 MiB
after a million messages. It does not for arenas of other threads, which sync and checkpoint: 8 MiB
that nobody used. So it makes no more arenas: all threads of a broker that is alone share one. Those
that Kafka's client began before keep theirs, and a standby, which has no server, is not set up.
"""

import ctypes
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

log = logging.getLogger("latermq.transport")

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
M_ARENA_MAX: Final = -8
MMAP_BYTES: Final = 32 << 20  # glibc's own maximum
TRIM_BYTES: Final = 128 << 20
FREED_BYTES_MIN: Final = 16 << 20  # so much was counted and has gone: worth a walk through the heap
CALLS_MIN: Final = 10_000  # so many were begun, and it has been quiet since: likewise
QUIET_LOOKS: Final = 30  # in a row: load that comes in bursts wants the same memory again
QUIET_CALLS: Final = 100  # since the last look, at most,
QUIET_BYTES: Final = 64 << 10  # and no more than this held at once: few calls may carry much
INTERVAL_MS_MIN: Final = 10_000  # between two walks: each takes milliseconds, more in a large heap


def keep_large_blocks() -> bool:
    """Set up malloc for this process; False where there is no glibc.

    Threads that have an arena by now keep it: call this before there are any that matter.
    """
    mallopt = _of_libc("mallopt")
    if mallopt is None:
        return False
    options = ((M_MMAP_THRESHOLD, MMAP_BYTES), (M_TRIM_THRESHOLD, TRIM_BYTES), (M_ARENA_MAX, 1))
    kept = [mallopt(option, value) for option, value in options]
    return all(kept)


def give_back() -> bool:
    """Have malloc return all free pages; False where there is no glibc."""
    trim = _of_libc("malloc_trim")
    return trim is not None and bool(trim(ctypes.c_size_t(0)))


class Counted(Protocol):
    """Bytes that are held now, and the most that were since somebody looked."""

    held_bytes: int
    peak_bytes: int


class Freed:
    """Gives memory back after a storm: when much that was counted has gone, or calls are few again.

    Args:
        counted: who counts.
        calls: tells how many were begun.
        now_ms: the monotonic clock.
    """

    def __init__(
        self,
        counted: Sequence[Counted],
        calls: Callable[[], int],
        now_ms: Callable[[], int],
        give: Callable[[], object] = give_back,
    ) -> None:
        self._counted = counted
        self._calls = calls
        self._calls_seen = self._calls_given = calls()  # at the last look, when memory was given
        self._peak_bytes = 0  # since then
        self._quiet_looks = 0
        self._now_ms = now_ms
        self._give = give
        self._next_ms = 0
        self.count = 0

    def look(self) -> None:
        """Give memory back if it is time; call about once a second."""
        held, recent_peak = 0, 0
        for each in self._counted:
            held += each.held_bytes
            recent_peak += each.peak_bytes
            each.peak_bytes = each.held_bytes
        peak = self._peak_bytes = max(self._peak_bytes, recent_peak)
        calls = self._calls()
        recent, self._calls_seen = calls - self._calls_seen, calls
        is_quiet = recent <= QUIET_CALLS and recent_peak <= QUIET_BYTES
        self._quiet_looks = self._quiet_looks + 1 if is_quiet else 0
        is_gone = peak - held >= FREED_BYTES_MIN and 2 * held <= peak
        is_over = self._quiet_looks >= QUIET_LOOKS and calls - self._calls_given >= CALLS_MIN
        if not is_gone and not is_over:
            return
        now_ms = self._now_ms()
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + INTERVAL_MS_MIN
        self._calls_given = calls
        self._peak_bytes = held
        self._give()
        self.count += 1
        log.debug("memory given back", extra={"peak_bytes": peak, "ms": self._now_ms() - now_ms})


def _of_libc(name: str) -> Any:
    try:
        return getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return None
