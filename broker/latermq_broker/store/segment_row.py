"""All segments of a log in a row, oldest first, and the one prepared ahead behind the last.

Preparing may happen in a thread while the loop rolls on: whoever finds a prepared segment that no
longer fits throws it away, so neither waits for the other.
"""

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from latermq_broker.config import Flush, StoreConfig
from latermq_broker.errors import CorruptRecordError, StoreUnusableError
from latermq_broker.store.files import Files
from latermq_broker.store.segment import (
    PREPARED_SUFFIX,
    Segment,
    SegmentHeader,
    segment_name,
)


class SegmentRow:
    """See the module."""

    def __init__(self, files: Files, directory: Path, config: StoreConfig, uuid: bytes) -> None:
        self.row: list[Segment] = []  # contiguous
        self._files = files
        self._directory = directory
        self._config = config
        self._uuid = uuid
        self._bases: list[int] = []
        self._prepared: Segment | None = None
        self._prepared_numbers = count()
        self._renames = 0
        self._renames_synced = 0

    def adopt(self, segments: Sequence[Segment]) -> None:
        """Take over the segments found on disk, their names durable."""
        self.row = list(segments)
        self._bases = [segment.base for segment in segments]

    def at(self, position: int) -> Segment:
        """The segment that holds a position; CorruptRecordError if none does."""
        index = bisect_right(self._bases, position) - 1
        if index < 0 or position >= self.row[index].end:
            raise CorruptRecordError(position, "no segment of the log holds this position")
        return self.row[index]

    @property
    def next_wanted(self) -> bool:
        """No successor of the last segment is prepared yet."""
        prepared = self._prepared
        return prepared is None or prepared.base != self.row[-1].end

    def prepare_next(self, created_ms: int) -> None:
        """Prepare the next segment ahead; may run in a thread.

        Raises StoreFullError, StoreUnusableError.
        """
        if not self.next_wanted:
            return
        stale, self._prepared = self._prepared, None
        if stale is not None:  # the log rolled on without it
            self._discard(stale)
        zero_fill = self._config.flush is Flush.SYNC
        self._prepared = self._prepare(self.row[-1].end, created_ms, zero_fill=zero_fill)

    def open_next(self, created_ms: int) -> Segment:
        """Put the prepared segment, or one prepared now, behind the last; its name is durable
        after `sync_names`.

        Raises StoreFullError, StoreUnusableError; the row is unchanged.
        """
        base = self.row[-1].end
        prepared = self._prepared
        if prepared is None or prepared.base != base:
            prepared = self._prepare(base, created_ms, zero_fill=False)
        try:
            prepared.publish(self._directory / segment_name(base))
        except OSError as error:
            if prepared is not self._prepared:
                self._discard(prepared)
            raise StoreUnusableError(f"cannot open the next segment: {error}") from error
        if self._prepared is prepared:
            self._prepared = None
        self._renames += 1
        self.row.append(prepared)
        self._bases.append(base)
        return prepared

    def sync_names(self) -> None:
        """Make the names of all segments in the row durable; may run in a thread. OSError."""
        renames = self._renames
        if renames != self._renames_synced:
            self._files.sync_directory(self._directory)
            self._renames_synced = renames

    def close(self) -> None:
        """Close all files and remove the prepared one."""
        for segment in self.row:
            segment.close()
        if self._prepared is not None:
            self._discard(self._prepared)
            self._prepared = None

    def _prepare(self, base: int, created_ms: int, *, zero_fill: bool) -> Segment:
        header = SegmentHeader(base, self._config.segment_bytes, self._uuid, created_ms)
        # The number keeps a thread that prepares and a loop that cannot wait for it apart.
        name = f"{base:020d}-{next(self._prepared_numbers)}{PREPARED_SUFFIX}"
        try:
            return Segment.prepare(self._files, self._directory / name, header, zero_fill=zero_fill)
        except OSError as error:
            raise StoreUnusableError(f"cannot prepare a segment: {error}") from error

    def _discard(self, prepared: Segment) -> None:
        prepared.close()
        with suppress(OSError):  # the next start removes it
            self._files.unlink(prepared.path)
