"""The part of a checkpoint that waits for the disk, cut loose so that a thread can do it.

The order makes it safe to die anywhere: the log first, then the queue files, the timer run and the
blocks of the message index, then the checkpoint itself under a temporary name, its rename last.
Only then may older files go.
"""

import errno
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from xxhash import xxh3_64

from latermq_broker.store.derived.checkpoint import TEMPORARY_SUFFIX, Checkpoint, write_checkpoint
from latermq_broker.store.derived.consume_queue import ConsumeQueue, QueueFiles, write_entries
from latermq_broker.store.derived.message_index import IndexWrite
from latermq_broker.store.dropped import unlink_in_order
from latermq_broker.store.files import Files, OpenMode, write_all
from latermq_broker.store.log.commit_log import CommitLog

RUN_SUFFIX: Final = ".run"
_READ_BYTES: Final = 1 << 20
SYNC_EACH_MAX: Final = 16  # queue files; more are synced with all their file system


@dataclass(frozen=True, slots=True)
class QueueWrite:
    """Entries of one queue, from `first` up to `end`, that must be in its files."""

    queue: ConsumeQueue
    first: int
    end: int
    data: bytes


@dataclass(frozen=True, slots=True)
class RunWrite:
    """A timer run that must be there before the checkpoint that names it."""

    name: str
    pieces: Iterable[bytes]


class CheckpointJob:
    """Made by `Store.begin_checkpoint`, handed back to `Store.finish_checkpoint`."""

    def __init__(
        self,
        *,
        files: Files,
        log: CommitLog,
        queue_files: QueueFiles,
        directory: Path,
        checkpoint: Checkpoint,
        writes: Sequence[QueueWrite],
        unsynced: frozenset[Path],
        deleted: frozenset[int],
        floors: Mapping[tuple[int, int], int],
        waiting: Sequence[Path],
        runs_directory: Path,
        new_run: RunWrite | None,
        kept_runs: frozenset[str],
        index: IndexWrite,
    ) -> None:
        self.writes = writes
        self.unsynced = unsynced
        self.deleted = deleted
        self.unlinked: Sequence[Path] = ()  # segments that are gone now
        self.durable = 0  # what `CommitLog.sync` returned
        self.done = False
        self.position = checkpoint.position
        self._files = files
        self._log = log
        self._queue_files = queue_files
        self._directory = directory
        self._checkpoint = checkpoint
        self.floors = floors
        self._waiting = waiting
        self._runs_directory = runs_directory
        self._new_run = new_run
        self.run_name = new_run.name if new_run else ""
        self._kept_runs = kept_runs
        self.index = index

    def run(self) -> None:
        """Write the checkpoint; may run in a thread.

        Raises:
            StoreReadOnlyError: the log's sync failed, or others who keep it lack it for ever.
            OSError: a derived file could not be written. The log is unharmed, a later checkpoint
                may succeed.
        """
        self.durable = self._log.sync()
        assert self.durable >= self.position
        if (keepers := self._log.commitment.keepers) is not None:
            keepers.until_kept(self.position)
        paths = set(self.unsynced)
        for write in self.writes:
            queue = write.queue
            paths.update(
                write_entries(
                    self._queue_files, queue.topic_id, queue.queue_id, write.first, write.data
                )
            )
        self._sync_queues(paths)
        if self._new_run is not None:
            self._write_run(self._new_run)
        self.index.run()
        write_checkpoint(self._files, self._directory, self._checkpoint)
        self.done = True
        self.unlinked = unlink_in_order(self._files, self._waiting)
        self._delete_queues()
        self._delete_trimmed()
        self._delete_runs()
        self.index.delete_others()

    def _sync_queues(self, paths: set[Path]) -> None:
        """Sync files and their names. Many at once: one by one, the disk would take seconds."""
        if len(paths) > SYNC_EACH_MAX:
            try:
                self._files.sync_directory(self._queue_files.directory, everything=True)
                return
            except OSError as error:
                if error.errno != errno.ENOSYS:
                    raise
        for path in sorted(paths):
            fd = self._files.open(path, OpenMode.WRITE)
            try:
                self._files.datasync(fd)
            finally:
                self._files.close(fd)
        for directory in sorted({path.parent for path in paths}):
            self._files.sync_directory(directory)
        if paths:
            self._files.sync_directory(self._queue_files.directory)

    def _delete_trimmed(self) -> None:
        """Delete queue files that neither this checkpoint nor the one before needs."""
        for (topic_id, queue_id), number in self.floors.items():
            floor = self._queue_files.path(topic_id, queue_id, number)
            with suppress(OSError):
                for name in self._files.list_directory(floor.parent):
                    if name.startswith(f"{queue_id}.") and name < floor.name:
                        self._files.unlink(floor.parent / name)

    def _delete_queues(self) -> None:
        """Delete queue files of deleted topics. What cannot be is left to the next start."""
        for topic_id in self.deleted:
            directory = self._queue_files.directory / str(topic_id)
            with suppress(OSError):
                for name in self._files.list_directory(directory):
                    self._files.unlink(directory / name)
                self._files.remove_directory(directory)

    def _write_run(self, run: RunWrite) -> None:
        temporary = self._runs_directory / (run.name + TEMPORARY_SUFFIX)
        with suppress(FileNotFoundError):  # left by an attempt that failed, perhaps longer
            self._files.unlink(temporary)
        fd = self._files.open(temporary, OpenMode.CREATE)
        try:
            at = 0
            written = xxh3_64()
            for piece in run.pieces:
                write_all(self._files, fd, piece, at)
                written.update(piece)
                at += len(piece)
            self._files.datasync(fd)
            # Once it is the timer's, nobody looks at its checksum before the next start.
            if self._digest(fd, at) != written.digest():
                raise OSError(errno.EIO, f"{temporary.name} does not hold what was written")
        finally:
            self._files.close(fd)
        self._files.rename(temporary, self._runs_directory / run.name)
        self._files.sync_directory(self._runs_directory)

    def _digest(self, fd: int, size: int) -> bytes:
        digest = xxh3_64()
        for at in range(0, size, _READ_BYTES):
            digest.update(self._files.pread(fd, min(_READ_BYTES, size - at), at))
        return digest.digest()

    def _delete_runs(self) -> None:
        """Delete runs that neither this checkpoint nor the one before it names."""
        with suppress(OSError):
            for name in self._files.list_directory(self._runs_directory):
                if name.endswith(RUN_SUFFIX) and name not in self._kept_runs:
                    self._files.unlink(self._runs_directory / name)
