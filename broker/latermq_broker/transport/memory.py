"""How malloc keeps memory: large blocks while they are used, nothing much after a storm.

glibc would return and fetch the pages of every large message anew, so it is told to keep them. What
a storm of large messages leaves behind would then stay for ever, in holes: so it is told to give
back what is free when much was counted and has gone, and when many calls are over: 14 of 85 MiB
after a million messages. It does not for arenas of other threads, which sync and checkpoint: 8 MiB
that nobody used. So all threads share one.
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
CALLS_MIN: Final = 10_000  # so many were begun,
QUIET_CALLS: Final = 100  # and no more than this since the last look: likewise
INTERVAL_MS_MIN: Final = 10_000  # between two walks: each takes milliseconds


def keep_large_blocks() -> bool:
    """Set up malloc for this process, before there are threads; False where there is no glibc."""
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
        self._now_ms = now_ms
        self._give = give
        self._next_ms = 0
        self.count = 0

    def look(self) -> None:
        """Call about once a second."""
        held = sum(each.held_bytes for each in self._counted)
        peak = sum(each.peak_bytes for each in self._counted)
        calls = self._calls()
        recent, self._calls_seen = calls - self._calls_seen, calls
        is_gone = peak - held >= FREED_BYTES_MIN and 2 * held <= peak
        if not is_gone and (recent > QUIET_CALLS or calls - self._calls_given < CALLS_MIN):
            return
        now_ms = self._now_ms()
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + INTERVAL_MS_MIN
        self._calls_given = calls
        for each in self._counted:
            each.peak_bytes = each.held_bytes
        self._give()
        self.count += 1
        log.debug("memory given back", extra={"peak_bytes": peak, "ms": self._now_ms() - now_ms})


def _of_libc(name: str) -> Any:
    try:
        return getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return None
