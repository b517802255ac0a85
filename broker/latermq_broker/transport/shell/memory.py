"""Keeps glibc from returning and fetching the pages of every large message anew."""

import ctypes
from typing import Final

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
MMAP_BYTES: Final = 32 << 20  # glibc's own maximum
TRIM_BYTES: Final = 128 << 20


def keep_large_blocks() -> bool:
    """Raise malloc's thresholds for this process; False where there is no glibc."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    kept = mallopt(M_MMAP_THRESHOLD, MMAP_BYTES) and mallopt(M_TRIM_THRESHOLD, TRIM_BYTES)
    return bool(kept)
