"""Up to where answers may promise that the log is kept: on the disk, by others, or by both."""

from collections.abc import Callable, Sequence
from typing import Protocol

from latermq_broker.callbacks import do_nothing
from latermq_broker.config.config import Flush
from latermq_broker.store.log.segment import Segment

WrittenPiece = tuple[Segment, int, bytes]  # into which, at which position, what


class Keepers(Protocol):
    """Those who keep the log, too: `replication` has them."""

    def written(self, pieces: Sequence[WrittenPiece]) -> None:
        """Take what was written, piece by piece."""

    def may_commit(self) -> bool:
        """Tell whether anybody may be answered now."""

    def until_kept(self, position: int) -> None:
        """Return when they have the log up to `position`; in a thread of its own.

        Raises StoreReadOnlyError: they never will.
        """


class Commitment:
    """Used in the loop. Where others keep the log, the disk counts only if `flush` is to sync."""

    def __init__(self, flush: Flush) -> None:
        self.position = 0
        self.on_moved: Callable[[], None] = do_nothing
        self.keepers: Keepers | None = None
        self._disk_counts = flush.acknowledges_synced
        self._durable = 0
        self._kept = 0  # up to which others have it

    def keep_with(self, keepers: Keepers, kept: int) -> None:
        """Have others keep the log from now on, who have it up to `kept`."""
        self.keepers = keepers
        self.position = self._kept = kept

    def kept(self, position: int) -> None:
        """Note that others have the log up to `position`, and that anybody may be answered now."""
        self._kept = position
        self._move()

    def synced(self, position: int) -> None:
        """Note that the disk has the log up to `position`."""
        self._durable = position
        # Where the keepers may not commit now, they say again what they keep when they may.
        if self.keepers is None or (self._disk_counts and self.keepers.may_commit()):
            self._move()

    def _move(self) -> None:
        position = self._durable
        if self.keepers is not None:
            position = min(self._kept, position) if self._disk_counts else self._kept
        if position > self.position:
            self.position = position
            self.on_moved()
