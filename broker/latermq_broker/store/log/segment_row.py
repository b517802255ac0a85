"""All segments of a log in a row, oldest first, and the one prepared ahead behind the last.

Beside them a spare is kept, smaller than a segment: when the disk is full it takes the place of the
next segment for everything but sends, so that consumers can go on. It gets its position only then.

Preparing may happen in a thread while the loop rolls on: whoever finds a prepared segment that no
longer fits throws it away, so neither waits for the other.
"""

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

from latermq_broker.config.config import StoreConfig
from latermq_broker.errors import (
    CorruptRecordError,
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreUnusableError,
)
from latermq_broker.store.files import FINAL_ERRNOS, FileMap, Files
from latermq_broker.store.log.segment import (
    PREPARED_SUFFIX,
    SEGMENT_HEADER_BYTES,
    Segment,
    SegmentHeader,
    segment_name,
)
from latermq_broker.store.records.record import HEADER_BYTES

SPARE_BYTES_MAX: Final = 64 << 20


class SegmentRow:
    """See the module."""

    def __init__(self, files: Files, directory: Path, config: StoreConfig, uuid: bytes) -> None:
        self.row: list[Segment] = []  # contiguous
        self._files = files
        self._directory = directory
        self._config = config
        self.uuid = uuid
        self._bases: list[int] = []
        self._prepared: Segment | None = None
        self._spare: Segment | None = None
        self._prepared_numbers = count()
        self._renames = 0
        self._renames_synced = 0

    def adopt(self, segments: Sequence[Segment]) -> None:
        """Take over the segments found on disk, their names durable."""
        self.row = list(segments)
        self._bases = [segment.base for segment in segments]

    def add(self, segment: Segment, uuid: bytes) -> None:
        """Take over the next segment of a log that another writes; its name is durable."""
        self.uuid = uuid
        self.row.append(segment)
        self._bases.append(segment.base)

    def at(self, position: int) -> Segment:
        """Find the segment that holds a position; CorruptRecordError if none does."""
        index = bisect_right(self._bases, position) - 1
        if index < 0 or position >= self.row[index].end:
            raise CorruptRecordError(position, "no segment of the log holds this position")
        return self.row[index]

    def mapped(self, position: int) -> tuple[Segment, FileMap]:
        """Find the segment that holds a position, and what it holds.

        Raises StoreUnusableError, StoreBusyError: it cannot be mapped.
        """
        segment = self.row[-1]
        if position < segment.base:
            segment = self.at(position)
        try:
            return segment, segment.view()
        except OSError as error:
            why = f"{segment.path} cannot be mapped: {error}"
            final = error.errno in FINAL_ERRNOS
            raise (StoreUnusableError if final else StoreBusyError)(why) from error

    def base_of(self, position: int) -> int:
        """Find the base of the segment that holds a position; -1 below the oldest."""
        return self.span_of(position)[0]

    def span_of(self, position: int) -> tuple[int, int]:
        """Find (base, end) of the segment that holds a position; (-1, end) below the oldest."""
        index = bisect_right(self._bases, position) - 1
        if index < 0:
            return -1, self._bases[0]
        return self._bases[index], self.row[index].end

    def drop_before(self, position: int) -> list[Path]:
        """Let go of the segments that end at or below `position`; their paths, oldest first."""
        paths: list[Path] = []
        while self.row[0].end <= position:
            segment = self.row.pop(0)
            del self._bases[0]
            segment.close()
            paths.append(segment.path)
        return paths

    @property
    def next_wanted(self) -> bool:
        """Tell whether no successor of the last segment is prepared yet."""
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
        zero_fill = self._config.flush.acknowledges_synced
        self._prepared = self._prepare(self.row[-1].end, created_ms, zero_fill=zero_fill)

    @property
    def spare_wanted(self) -> bool:
        """Tell whether there is no spare."""
        return self._spare is None

    def prepare_spare(self) -> None:
        """Keep a spare for when the disk is full; may run in a thread where `prepare_next` may.

        Raises StoreFullError, StoreUnusableError.
        """
        if self._spare is None:
            size = min(SPARE_BYTES_MAX, self._config.segment_bytes // 2) & -4096
            self._spare = self._prepare(0, 0, size=size, zero_fill=False)

    def release_spare(self) -> None:
        """Give the spare's room back to the disk."""
        spare, self._spare = self._spare, None
        if spare is not None:
            self._discard(spare)

    def open_next(self, created_ms: int, need_bytes: int = 0, *, spare: bool = False) -> Segment:
        """Put the prepared segment, or one prepared now, behind the last; its name is durable
        after `sync_names`.

        Args:
            spare: on a full disk the spare may be taken, if records of `need_bytes` fit into it.
        Raises StoreFullError, StoreUnusableError; the row is unchanged.
        """
        base = self.row[-1].end
        prepared = self._prepared
        if prepared is None or prepared.base != base or not _has_room(prepared, need_bytes):
            size = max(self._config.segment_bytes, _bytes_for(need_bytes))
            try:
                prepared = self._prepare(base, created_ms, zero_fill=False, size=size)
            except StoreFullError:
                prepared = self._spare if spare else None
                if prepared is None or not _has_room(prepared, need_bytes):
                    raise
        try:
            self.sync_names()  # no two names wait at once: a crash could keep the second alone
            if prepared is self._spare:
                header = SegmentHeader(base, prepared.size, self.uuid, created_ms)
                prepared.move_to(header)
            prepared.publish(self._directory / segment_name(base))
        except OSError as error:
            if prepared not in (self._prepared, self._spare):
                self._discard(prepared)
            raise _no_segment(error) from error
        if self._prepared is prepared:
            self._prepared = None
        if self._spare is prepared:
            self._spare = None
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
        """Close all files and remove the prepared ones."""
        for segment in self.row:
            segment.close()
        self.release_spare()
        if self._prepared is not None:
            self._discard(self._prepared)
            self._prepared = None

    def _prepare(self, base: int, created_ms: int, *, zero_fill: bool, size: int = 0) -> Segment:
        size = size or self._config.segment_bytes
        header = SegmentHeader(base, size, self.uuid, created_ms)
        # The number keeps a thread that prepares and a loop that cannot wait for it apart.
        place = f"{base:020d}" if size == self._config.segment_bytes else "spare"
        name = f"{place}-{next(self._prepared_numbers)}{PREPARED_SUFFIX}"
        try:
            return Segment.prepare(self._files, self._directory / name, header, zero_fill=zero_fill)
        except OSError as error:
            raise _no_segment(error) from error

    def _discard(self, prepared: Segment) -> None:
        prepared.close()
        with suppress(OSError):  # the next start removes it
            self._files.unlink(prepared.path)


def _no_segment(error: OSError) -> StoreError:
    """Make the error of a segment that cannot be: full, but where no further try can help.

    For a call that appends it is the same why the file cannot be made: nothing is stored, and the
    spare serves all but sends.
    """
    if error.errno in FINAL_ERRNOS:
        return StoreUnusableError(f"cannot make a further segment of the log: {error}")
    return StoreFullError(f"the log needs a further segment, and cannot make it: {error}")


def _has_room(segment: Segment, need_bytes: int) -> bool:
    """Tell whether records of so many bytes fit between its header and the BLANK that closes it."""
    return segment.size - SEGMENT_HEADER_BYTES - HEADER_BYTES >= need_bytes


def _bytes_for(need_bytes: int) -> int:
    """Compute the size of a segment that has such room."""
    return (SEGMENT_HEADER_BYTES + need_bytes + HEADER_BYTES + 4095) & -4096
