"""Compares a directory's log with the replicated log, and puts back what differs.

Only what the directory is known to have durably is compared (`note.py`). Nobody writes there again:
so this may be done, and mended, beside a broker that serves the directory.
"""

from collections.abc import Iterator
from contextlib import aclosing, suppress
from itertools import zip_longest
from pathlib import Path
from typing import Final, NamedTuple

from latermq_broker.errors import StoreUnusableError
from latermq_broker.replication.batch import cluster_hash
from latermq_broker.replication.note import Note
from latermq_broker.replication.reader import Piece, Reader
from latermq_broker.replication.replicated_log import ReplicatedLog, entries_of
from latermq_broker.replication.validity import EMPTY
from latermq_broker.store.directory import LOG_NAME, segment_base
from latermq_broker.store.files import Files, OpenMode, write_all
from latermq_broker.store.log.segment import SEGMENT_SUFFIX, segment_name

REFILL: Final = "empty the directory, and the broker fills it again from the replicated log"


class Difference(NamedTuple):
    """Bytes of the directory that are not those of the replicated log."""

    position: int
    end: int


class Verified(NamedTuple):
    """What was compared, and what of it differed."""

    start: int  # of the log's bytes, which both have
    end: int
    entries: int  # of the replicated log that were read
    differences: list[Difference]


class Verifying:
    """One comparison.

    Args:
        note: of the directory.
        repair: put the replicated log's bytes where others are.
    """

    def __init__(self, directory: Path, files: Files, note: Note, *, repair: bool) -> None:
        self._log = directory / LOG_NAME
        self._files = files
        self._note = note
        self._repair = repair
        self._base = 0  # of the segment that is read

    async def run(self, replicated_log: ReplicatedLog) -> Verified:
        """Compare all that both have.

        Raises:
            StoreUnusableError: the replicated log has less than the directory, or a segment is
                missing.
            StoreError: as `Reader.read`, and as `ReplicatedLog.tail`.
            OSError: the directory cannot be read, or not be mended.
        """
        note = self._note
        standing = note.standing or EMPTY
        start = end = standing.whole_end
        bases = self._bases()
        if end and not bases:
            raise StoreUnusableError(f"{self._log} holds no segment: {REFILL}")
        reader = Reader(cluster_hash(note.cluster), note.shard)
        entries, differences = 0, list[Difference]()
        async with aclosing(
            entries_of(replicated_log, 0, await replicated_log.end() if end else 0)
        ) as tail:
            async for entry in tail:
                entries += 1
                for piece in reader.read(entry)[1]:
                    if bases[0] <= piece.position < end:
                        start = min(start, piece.position)
                        differences += self._compare(piece, bases)
                if (reader.standing or EMPTY).whole_end >= end:
                    break
        known = (reader.standing or EMPTY).whole_end
        if known < end:
            raise StoreUnusableError(
                f"the directory has the log up to {end}, the replicated log up to {known}: what it "
                "acknowledged is gone there"
            )
        return Verified(start, end, entries, differences)

    def _bases(self) -> list[int]:
        names = self._files.list_directory(self._log)
        return [segment_base(self._log, name) for name in names if name.endswith(SEGMENT_SUFFIX)]

    def _compare(self, piece: Piece, bases: list[int]) -> Iterator[Difference]:
        """Say what of `piece` differs, and mend it if that is wanted."""
        if piece.segment:
            self._base = piece.position
        path = self._log / segment_name(self._base)
        if self._base not in bases:
            raise StoreUnusableError(f"{path} is missing: {REFILL}")
        try:
            fd = self._files.open(path, OpenMode.WRITE if self._repair else OpenMode.READ)
        except FileNotFoundError:
            if self._base < min(self._bases(), default=0):  # let go of meanwhile
                return
            raise
        try:
            there, offset = b"", piece.position - self._base
            with suppress(OSError):  # the medium does not give it
                there = self._files.pread(fd, len(piece.data), offset)
            if there == piece.data:
                return
            pairs = enumerate(zip_longest(there, piece.data))
            differing = [index for index, (local, kept) in pairs if local != kept]
            yield Difference(piece.position + differing[0], piece.position + differing[-1] + 1)
            if self._repair:
                write_all(self._files, fd, piece.data, offset)
                self._files.datasync(fd)
        finally:
            self._files.close(fd)
