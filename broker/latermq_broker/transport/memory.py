"""How malloc keeps memory: large blocks while they are used, nothing much after a storm.

glibc would return and fetch the pages of every large message anew, so it is told to keep them. What
a storm of large messages leaves behind would then stay for ever, in holes: so it is told to give
back what is free when much was counted and has gone.
"""

import ctypes
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

log = logging.getLogger("latermq.transport")

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
MMAP_BYTES: Final = 32 << 20  # glibc's own maximum
TRIM_BYTES: Final = 128 << 20
FREED_BYTES_MIN: Final = 16 << 20  # so much was counted and has gone: worth a walk through the heap
INTERVAL_MS_MIN: Final = 10_000  # between two walks: each takes milliseconds


def keep_large_blocks() -> bool:
    """Raise malloc's thresholds for this process; False where there is no glibc."""
    mallopt = _of_libc("mallopt")
    if mallopt is None:
        return False
    kept = mallopt(M_MMAP_THRESHOLD, MMAP_BYTES) and mallopt(M_TRIM_THRESHOLD, TRIM_BYTES)
    return bool(kept)


def give_back() -> bool:
    """Have malloc return all free pages; False where there is no glibc."""
    trim = _of_libc("malloc_trim")
    return trim is not None and bool(trim(ctypes.c_size_t(0)))


class Counted(Protocol):
    """Bytes that are held now, and the most that were since somebody looked."""

    held_bytes: int
    peak_bytes: int


class Freed:
    """Gives memory back after a storm: when much that was counted has gone.

    Args:
        counted: who counts.
        now_ms: the monotonic clock.
    """

    def __init__(
        self,
        counted: Sequence[Counted],
        now_ms: Callable[[], int],
        give: Callable[[], object] = give_back,
    ) -> None:
        self._counted = counted
        self._now_ms = now_ms
        self._give = give
        self._next_ms = 0
        self.count = 0

    def look(self) -> None:
        """Call now and then."""
        held = sum(each.held_bytes for each in self._counted)
        peak = sum(each.peak_bytes for each in self._counted)
        if peak - held < FREED_BYTES_MIN or 2 * held > peak:
            return
        now_ms = self._now_ms()
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + INTERVAL_MS_MIN
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
