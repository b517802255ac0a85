"""Whether a disk answers: what it was asked to sync it has synced, or not for long.

The sync of a disk that hangs hangs with it, in its thread, and says nothing. The loop goes on: the
owner of a replicated log would keep it, and answer nobody.
"""

from collections.abc import Sequence
from typing import Final

DISK_MS: Final = 3_000  # without an answer: the owner falls silent


class DiskWatch:
    """
    Args:
        syncs: the numbers of those that the disk is at, oldest first, as they change.
    """

    def __init__(self, syncs: Sequence[int]) -> None:
        self._syncs = syncs
        self._sync: int | None = None
        self._since_ms = 0

    def hangs(self, now_ms: int) -> bool:
        """Tell whether the disk has not answered for DISK_MS; to be called now and then."""
        sync = next(iter(self._syncs), None)  # another thread changes them
        if sync is None or sync != self._sync:
            self._sync, self._since_ms = sync, now_ms
        return now_ms - self._since_ms >= DISK_MS

    def begin_anew(self) -> None:
        """Count no time in which the process itself stood still."""
        self._sync = None
