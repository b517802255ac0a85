"""A data directory that is filled from a replicated log, byte for byte, while none serves it.

    open: locked ──► require_source ──► cut: behind what is known to be in the log ──► write, keep …

Until the replicated log is known to be this one, nothing is changed: what lies behind may be the
only copy of what this directory's broker acknowledged.

Its `store` is whoever's who opens an engine on it. The same directory comes from the replicated log
alone, from its first entry on, so an empty one is as good as any other, but for the time it takes.
"""

import asyncio
import logging
from pathlib import Path

from latermq_broker.config.config import StoreConfig
from latermq_broker.errors import CorruptRecordError, StoreUnusableError
from latermq_broker.replication.batch import cluster_hash, decode_batch, is_batch
from latermq_broker.replication.note import TEMPORARY_NAME, Note, read_note, write_note
from latermq_broker.replication.reader import Piece, Reader
from latermq_broker.replication.replicated_log import ReplicatedLog, read_range
from latermq_broker.replication.validity import EMPTY
from latermq_broker.store.directory import (
    CATALOGUE_NAME,
    LOG_NAME,
    OUR_DIRECTORIES,
    find_log,
    first_segment,
    remove_leftovers,
    require_local,
    require_ours,
    take_lock,
    unusable,
)
from latermq_broker.store.files import Files, write_all
from latermq_broker.store.log.commit_log import CommitLog
from latermq_broker.store.log.segment import (
    PREPARED_SUFFIX,
    SEGMENT_HEADER_BYTES,
    ZERO_CHUNK,
    Segment,
    decode_segment_header,
    encode_segment_header,
    segment_name,
)
from latermq_broker.store.store import Store

log = logging.getLogger("latermq.replication")


class LocalCopy:
    """
    Raises, in all methods, StoreUnusableError: the file system refuses.

    Args:
        note: says which cluster and shard, for a directory that is new.
    Raises:
        StoreLockedError: a broker serves it.
        StoreUnusableError: it is another shard's, or the log of a broker that was alone.
        CorruptRecordError, UnsupportedFormatError: as `Store.open`.
    """

    def __init__(self, directory: Path, config: StoreConfig, files: Files, note: Note) -> None:
        self._directory = directory
        self._files = files
        self._config = config
        self._unsynced: list[Segment] = []
        try:
            require_ours(files, directory)
            require_local(files, directory, config)
            files.make_directory(directory)
            lock_fd = take_lock(files, directory)
        except OSError as error:
            raise unusable(directory, error) from error
        try:
            self.note = self._noted(note)
            found_log = find_log(files, directory)
            known = self._known(found_log.segments)
        except OSError as error:
            files.close(lock_fd)
            raise unusable(directory, error) from error
        except BaseException:
            files.close(lock_fd)
            raise
        self._behind: list[Segment] | None = found_log.segments[len(known) :]  # None: it was cut
        self._found_end = 0  # of the bytes that were cut off
        self._written_end = 0  # of what is read again and not written again
        commit_log = CommitLog(files, directory / LOG_NAME, config, found_log.uuid)
        commit_log.adopt(known)
        self.new = not self.note.offset  # when it was opened nothing was in it
        self.store = Store(directory, config, files, commit_log, lock_fd)
        note = self.note
        self.reader = Reader(cluster_hash(note.cluster), note.shard, note.standing, note.offset)
        self.reader.segments.update(note.segments)

    @property
    def end(self) -> int:
        """Return up to where the directory has the log."""
        return self.reader.standing.whole_end if self.reader.standing is not None else 0

    def write(self, pieces: list[Piece]) -> None:
        """Add what became valid, to a directory that was cut."""
        assert self._behind is None
        try:
            for piece in pieces:
                if piece.position >= self._written_end:
                    self._write(piece)
        except OSError as error:
            raise unusable(self._directory, error) from error

    async def require_source(self, replicated_log: ReplicatedLog) -> None:
        """Have the replicated log be the one that this directory was filled from.

        Compared are its length and the last segment's header, which has a random id.
        Raises:
            StoreUnusableError: it is another one.
            LogUnavailableError, EntriesGoneError: as `ReplicatedLog.tail`.
        """
        reader = self.reader
        if not reader.offset:
            return
        end = await replicated_log.end()
        if end < reader.offset:
            raise self._not_the_source(f"ends at entry {end}, and {reader.offset} were read of it")
        if self.store.log.segments:
            segment = self.store.log.segments[-1]
            offset = reader.segments.get(segment.base, 0)
            header = segment.pread(SEGMENT_HEADER_BYTES, segment.base)
            for entry in await read_range(replicated_log, offset, offset + 1):
                if is_batch(entry.data):
                    batch = decode_batch(entry.data, offset)
                    if batch.position == segment.base and batch.data.startswith(header):
                        return
            raise self._not_the_source(f"has something else at entry {offset}")

    def cut(self) -> None:
        """Remove what is not known to be in the replicated log, which is this directory's."""
        if self._behind is None:
            return
        files, directory = self._files, self._directory / LOG_NAME
        try:
            remove_leftovers(files, directory, PREPARED_SUFFIX)
            remove_leftovers(files, self._directory, TEMPORARY_NAME)
            while self._behind:
                segment = self._behind.pop()
                self._found_end = max(self._found_end, _data_end(segment, segment.base))
                files.unlink(segment.path)
                files.sync_directory(directory)  # from behind: what is left is always in a row
            if self.store.log.segments:
                last = self.store.log.segments[-1]
                end = _data_end(last, self.end)
                _zero(files, last, self.end, end)
                self._found_end = max(self._found_end, end)
        except OSError as error:
            raise unusable(self._directory, error) from error
        self._behind = None

    def go_back(self) -> None:
        """Have the reader judge the last segment's entries again: it may have passed some over.

        What they say that the directory lacks is written. Before they are read it knows nothing of
        the log, and so whoever is about to claim that has to wait.
        """
        self._written_end = max(self._written_end, self.end)
        base = self.store.log.segments[-1].base if self.store.log.segments else 0
        self.reader.go_back(self.reader.segments.get(base, 0))

    async def keep(self) -> None:
        """Make what was read so far durable, in a thread, and say so in the note."""
        if self._behind is not None or not self.reader.between_groups:
            return  # the next time
        if self.store.log.segments:  # else the note is longer with each segment that there was
            self.reader.forget_before(self.store.log.segments[0].base)
        unsynced, self._unsynced = self._unsynced, []
        first = self.store.log.row.row[0].base if unsynced else 0
        segments = [each for each in unsynced if each.base >= first]  # others were dropped
        note = self.note.of(self.reader)
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(None, self._keep, segments, note)
        except OSError as error:
            raise unusable(self._directory, error) from error
        self.note = note
        for segment in segments:
            if segment is not self.store.log.segments[-1]:
                segment.release()  # here, not in the thread: what the loop reads stays open

    def claim(self, epoch: int, token: int) -> None:
        """Note the fence that this directory's broker is about to append: all was read.

        What it remembers beside the log goes if others have owned that since. If nobody has, its
        bytes that were cut off are back, but for those that the replicated log does not have.
        """
        standing = self.reader.standing or EMPTY
        if self.note.mine != (standing.epoch, standing.token):
            try:
                remove_leftovers(self._files, self._directory, CATALOGUE_NAME)
            except OSError as error:
                raise unusable(self._directory, error) from error
        elif self._found_end > self.end:
            log.warning(
                "the replicated log lacks what this broker wrote, which was cut off: it never had "
                "it, so that nobody was told it is kept, or has lost it",
                extra={"position": self.end, "bytes": self._found_end - self.end},
            )
        self._change_note(self.note._replace(mine=(epoch, token)))

    def forget(self) -> None:
        """Note that nothing is in it: whoever opens it next fills it from the beginning."""
        self._change_note(Note(self.note.cluster, self.note.shard))

    def begin_log(self, now_ms: int) -> None:
        """Make the first segment of a log that has none."""
        uuid = self._files.random_bytes(16)
        segment = first_segment(self._files, self._directory, self._config, uuid, now_ms)
        self.store.log.row.add(segment, uuid)

    def close(self) -> None:
        """Let the directory go."""
        self.store.abandon()

    def _not_the_source(self, why: str) -> StoreUnusableError:
        return StoreUnusableError(
            f"{self._directory} is no copy of the replicated log, which {why}: was the topic "
            "deleted and made anew? The directory may then be the only copy: docs/cluster.md, "
            "'The replicated log is another one'. Nothing was changed"
        )

    def _keep(self, segments: list[Segment], note: Note) -> None:
        for segment in segments:
            self._files.datasync(segment.writable())
        self._files.sync_directory(self._directory / LOG_NAME)
        write_note(self._files, self._directory, note)

    def _change_note(self, note: Note) -> None:
        try:
            write_note(self._files, self._directory, note)
        except OSError as error:
            raise unusable(self._directory, error) from error
        self.note = note

    def _noted(self, new: Note) -> Note:
        """Return what is known of the directory; of an empty one, `new`."""
        note = read_note(self._files, self._directory)
        if note is None:
            for name in OUR_DIRECTORIES:
                self._files.make_directory(self._directory / name)
            if find_log(self._files, self._directory).segments:
                raise StoreUnusableError(
                    f"{self._directory} holds the log of a broker that was alone: name an empty "
                    "directory, or see `latermq cluster adopt --help`. Nothing was changed"
                )
            write_note(self._files, self._directory, new)
            return new
        if (note.cluster, note.shard) != (new.cluster, new.shard):
            raise StoreUnusableError(
                f"{self._directory} is a copy of shard {note.shard} of the cluster "
                f"{note.cluster!r}, not of shard {new.shard} of {new.cluster!r}"
            )
        return note

    def _known(self, segments: list[Segment]) -> list[Segment]:
        """Return those of the segments that begin before the end that the note tells of."""
        end = self.note.standing.whole_end if self.note.standing is not None else 0
        known = [segment for segment in segments if segment.base < end]
        reached = known[-1].end if known else 0
        if reached < end:
            raise CorruptRecordError(
                reached,
                f"the log ends here, and REPLICA says that the directory has it up to {end}: empty "
                "the directory, and the broker fills it again from the replicated log",
            )
        return known

    def _write(self, piece: Piece) -> None:
        position, data = piece.position, piece.data
        if piece.segment:
            self._begin_segment(position, data[:SEGMENT_HEADER_BYTES])
            position, data = position + SEGMENT_HEADER_BYTES, data[SEGMENT_HEADER_BYTES:]
        segment = self.store.log.segments[-1]
        write_all(self._files, segment.writable(), data, position - segment.base)
        if segment not in self._unsynced:
            self._unsynced.append(segment)

    def _begin_segment(self, base: int, data: bytes) -> None:
        log = self._directory / LOG_NAME
        name = segment_name(base)
        header = decode_segment_header(data, base, name)
        assert encode_segment_header(header) == data
        path = log / f"{base:020d}{PREPARED_SUFFIX}"
        segment = Segment.prepare(self._files, path, header, zero_fill=False)
        segment.publish(log / name)
        self._files.sync_directory(log)
        self.store.log.row.add(segment, header.uuid)


def _data_end(segment: Segment, position: int) -> int:
    """Return where the last byte of `segment` behind `position` ends that is not zero, or it."""
    end = position
    while (position := segment.next_data(position)) < segment.end:
        data = segment.pread(min(len(ZERO_CHUNK), segment.end - position), position)
        if used := len(data.rstrip(b"\0")):
            end = position + used
        position += len(ZERO_CHUNK)
    return end


def _zero(files: Files, segment: Segment, begin: int, end: int) -> None:
    """Put zeros where bytes of `segment` lie from `begin` to `end`."""
    for position in range(begin, end, len(ZERO_CHUNK)):
        write_all(files, segment.writable(), ZERO_CHUNK[: end - position], position - segment.base)
    if begin < end:
        files.datasync(segment.writable())
