"""Reading the log back: scan whole records, tell a torn tail from damage, make the end sound.

A scan accepts a record when it is whole, was written for its position and is not older than its
predecessor. It ends at the first position that holds none. Whether that is the natural end, a write
that a crash tore, or damage to what was durable once, is told by what lies beyond: every record
says up to where the log was known durable when it was appended. If a later valid record claims more
than the bad position, the bad bytes were durable: damage. Otherwise nothing beyond was ever
promised to anyone: a torn tail, which is cut off.
"""

import errno
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from latermq_broker.errors import CorruptRecordError, UnreplayableError
from latermq_broker.store.derived.checkpoint import Checkpoint
from latermq_broker.store.files import Files, OpenMode, write_all
from latermq_broker.store.log.commit_log import CommitLog
from latermq_broker.store.log.segment import SEGMENT_HEADER_BYTES, Segment
from latermq_broker.store.records.record import (
    FLAG_MORE,
    HEADER_BYTES,
    INTERNAL_TYPES,
    RECORD_ALIGN,
    RECORD_MAGIC,
    RECORD_MAGIC_OFFSET,
    Record,
    RecordType,
    decode_record,
    decode_run,
    fault,
    needed_bytes,
)

WAY_BACK: Final = (
    "Restore it from a backup, or see `latermq log repair --help`; nothing was changed"
)
PIECE_BYTES: Final = 4 << 20
EPOCH_MAX: Final = 1 << 22  # lives of a broker on one log: their delivery ids stay below 2^63
STORE_MS_MAX: Final = 253_402_300_799_999  # of a record's time: the year 9999
ZERO_PIECE: Final = bytes(PIECE_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """What a start found."""

    start: int  # position replayed from
    end: int  # of what was found; the log goes on here
    records: int  # replayed, the store's own not counted
    torn_bytes: int  # cut off the end: a write that a crash interrupted
    clean: bool  # the last broker stopped in order
    rebuilt: bool  # no checkpoint could be used: the whole log was replayed
    epoch: int
    passed_over: tuple[str, ...] = ()  # checkpoints that could not be used, newest first, and why

    @property
    def new(self) -> bool:
        """Tell whether nothing was there yet."""
        return self.rebuilt and self.end == self.start and not self.torn_bytes


class LogScan:
    """One pass over the log from a position; iterate it once, then read where it stopped.

    Args:
        within: begin inside the segment even if its header is bad.
        until: read nothing beyond, for the log is known to end there; 0: it is not known.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        position: int,
        epoch: int = 0,
        *,
        within: bool = False,
        until: int = 0,
    ) -> None:
        self.start = position
        self._until = until
        self._within = within
        self.position = position  # of the next record; in the end the first that holds none
        self.whole_end = position  # after `groups`: where the last of them ended
        self.last: Record | None = None
        self.reason = ""  # why the scan stopped
        self.untouched = False  # it stopped where nothing was ever written
        self._segments = segments
        self._epoch = epoch
        self._index = bisect_right(segments, position, key=_base_of) - 1

    @property
    def epoch(self) -> int:
        """Return the last record's epoch."""
        return self.last.epoch if self.last is not None else self._epoch

    @property
    def store_ms(self) -> int:
        """Return the last record's store time; 0 without one."""
        return self.last.store_ms if self.last is not None else 0

    @property
    def durable(self) -> int:
        """Return what the last record claims to be durable; claims never shrink along a log."""
        return max(self.start, self.last.durable) if self.last is not None else self.start

    def groups(self, see: Callable[[Record, Record], None]) -> Iterator[list[Record]]:
        """Yield whole atomic groups, some at a time, without what is the store's own.

        Args:
            see: gets the first and the last of some records in a row.
        """
        group: list[Record] = []  # one that has begun
        for run in self.runs():
            see(run[0], run[-1])
            end = len(run)
            while end and run[end - 1].flags & FLAG_MORE:
                end -= 1
            if run[0].type is RecordType.LOST:  # then what is left of the group that it cut
                whole, group = run + group, []
            elif run[0].type in INTERNAL_TYPES:
                continue
            elif end:
                whole, group = group + run[:end], run[end:]
            else:
                group += run
                continue
            yield whole
        self.whole_end = group[0].position if group else self.position

    def __iter__(self) -> Iterator[Record]:
        for run in self.runs():
            yield from run

    def runs(self) -> Iterator[list[Record]]:
        """Yield the records, some at a time; those of `OWN_TYPES` each alone."""
        while self._index < len(self._segments):
            segment = self._segments[self._index]
            within = self._within and self.position > segment.base
            if segment.fault is not None and not within:
                self.position, self.reason = segment.base, segment.fault
                return
            if self.position == segment.base:
                self.position += SEGMENT_HEADER_BYTES
            yield from self._scan_segment(segment)
            last = self.last
            if last is None or last.type is not RecordType.BLANK or self.position != segment.end:
                return
            self._index += 1
        self.reason = "the log ends with its last segment"

    def _scan_segment(self, segment: Segment) -> Iterator[list[Record]]:
        page = memoryview(b"")
        page_position = position = self.position
        epoch = self.epoch
        flags = 0
        while True:
            run = decode_run(page, position - page_position, position, epoch)
            if not run:
                record = decode_record(page, position - page_position, position)
                if record is None:
                    page, page_position = _page_at(segment, position, self._until), position
                    record = decode_record(page, 0, position)
                if record is None:
                    self.untouched = len(page) >= HEADER_BYTES and not any(page[:HEADER_BYTES])
                    self.reason = fault(page, 0, position)
                    return
                if record.epoch < epoch:
                    self.reason = f"the record here is of epoch {record.epoch}, before {epoch}"
                    return
                if record.type is RecordType.BLANK:
                    if flags & FLAG_MORE:
                        self.reason = "its segment was closed inside an atomic group"
                        return
                    self.last = record
                    self.position = segment.end
                    yield [record]
                    return
                run = [record]
            self.last = last = run[-1]
            epoch, flags = last.epoch, last.flags
            self.position = position = last.position + (last.length + 7 & -8)
            yield run


def _page_at(segment: Segment, position: int, until: int) -> memoryview:
    """Read a piece of the segment from `position` on, with the whole record there, if any."""
    end = min(segment.end, until) if until else segment.end
    page = memoryview(segment.pread(max(0, min(PIECE_BYTES, end - position)), position))
    need = min(needed_bytes(page, 0), segment.end - position)
    if len(page) < need and len(page) >= HEADER_BYTES:
        page = memoryview(segment.pread(need, position))
    return page


def _base_of(segment: Segment) -> int:
    return segment.base


def _end_of(segment: Segment) -> int:
    return segment.end


@dataclass(frozen=True, slots=True)
class Tail:
    """What lies at and beyond the first bad position."""

    end: int  # behind the last byte that is not zero; the bad position itself if there is none
    epoch: int  # newest epoch of any valid record in it
    first: Record | None  # the first valid record in it
    proof: Record | None  # a record which proves that the bad position was durable


def inspect_tail(segments: Sequence[Segment], bad: int, epoch: int) -> Tail:
    """Search all from `bad` on; records older than `epoch` are leftovers and prove nothing."""
    end = bad
    newest = epoch
    first: Record | None = None
    for index in range(bisect_right(segments, bad, key=_end_of), len(segments)):
        segment = segments[index]
        for position in _pieces_with_data(segment, max(bad, segment.base)):
            step = min(PIECE_BYTES, segment.end - position)
            # The overlap lets a header that begins at the end of the piece be read whole.
            data = segment.pread(min(step + HEADER_BYTES, segment.end - position), position)
            piece = data[:step]
            if not piece:
                break
            if piece != ZERO_PIECE[: len(piece)]:
                end = position + len(piece.rstrip(b"\0"))
                for record in _find_records(segment, data, position):
                    if record.epoch < epoch:
                        continue
                    first = first or record
                    newest = max(newest, record.epoch)
                    if record.durable > bad:
                        return Tail(end, newest, first, record)
    return Tail(end, newest, first, None)


def holds_a_record(segment: Segment) -> bool:
    """Tell whether anything in the file is a whole record for its place. Raises OSError."""
    return inspect_tail([segment], segment.base, 0).first is not None


def _pieces_with_data(segment: Segment, position: int) -> list[int]:
    """List where to read. Asked for before anything is read: what reading ahead brings into the
    cache counts as data from then on, and would have the whole segment read."""
    positions: list[int] = []
    while (position := segment.next_data(position)) < segment.end:
        positions.append(position)
        position += PIECE_BYTES
    return positions


def _find_records(segment: Segment, data: bytes, position: int) -> Iterator[Record]:
    """Yield the valid records that begin in `data`, read from the segment at `position`."""
    page = memoryview(data)
    magic_at = data.find(RECORD_MAGIC, RECORD_MAGIC_OFFSET)
    while magic_at >= 0:
        offset = magic_at - RECORD_MAGIC_OFFSET
        at = position + offset
        magic_at = data.find(RECORD_MAGIC, magic_at + 1)
        header = page[offset : offset + HEADER_BYTES]
        if at % RECORD_ALIGN or len(header) < HEADER_BYTES:
            continue
        if int.from_bytes(header[16:24], "little") != at:
            continue
        need = needed_bytes(page, offset)
        if at + need > segment.end:
            continue
        whole = page[offset : offset + need]
        if len(whole) < need:
            whole = memoryview(segment.pread(need, at))
        record = decode_record(whole, 0, at)
        if record is not None:
            yield record


def require_torn(segments: Sequence[Segment], scan: LogScan) -> Tail:
    """Return the tail beyond a finished scan, if that is all it is.

    Raises CorruptRecordError: it was durable once; nothing is changed.
    """
    if scan.position < scan.start:  # the header of the very segment the checkpoint ends in
        why = f"{scan.reason}; a checkpoint covers it. {WAY_BACK}"
        raise CorruptRecordError(scan.position, why)
    tail = inspect_tail(segments, scan.position, scan.epoch)
    if tail.proof is not None:
        raise damage(segments, scan.position, scan.reason, tail.proof)
    return tail


def require_a_future(scan: LogScan, epoch: int) -> None:
    """Check that a broker can go on behind a scan. Raises UnreplayableError: it has no number or
    no time for a life behind the last record's."""
    epoch = max(epoch, scan.epoch)
    if epoch >= EPOCH_MAX or scan.store_ms > STORE_MS_MAX:
        raise UnreplayableError(
            scan.last.position if scan.last is not None else scan.position,
            f"what ends here is of epoch {epoch} and of time {scan.store_ms} ms: no broker can go "
            f"on behind it. {WAY_BACK}",
        )


def whole_tail(scan: LogScan, until: int) -> Tail:
    """Return the tail of a log that ends in order, where the last whole group does.

    Raises CorruptRecordError: it is known to go on, up to `until`.
    """
    end = scan.whole_end
    if end < until:
        raise CorruptRecordError(
            end,
            f"{scan.reason}, and the replicated log goes on up to {until}: empty the directory, "
            "and the broker fills it again from the replicated log",
        )
    return Tail(end, scan.epoch, None, None)


def unreadable(scan: LogScan, error: OSError) -> CorruptRecordError:
    """Make the error of a medium that refuses to read: that is damage."""
    return CorruptRecordError(
        scan.position,
        f"the disk cannot read the log here or a little behind ({error.strerror}). {WAY_BACK}",
    )


def damage(
    segments: Sequence[Segment], position: int, reason: str, proof: Record
) -> CorruptRecordError:
    name = next((s.path.name for s in segments if s.base <= position < s.end), "?")
    return CorruptRecordError(
        position,
        f"{reason}. It was safely on disk before: the record at position {proof.position} says so. "
        f"The file {name} is damaged, not merely cut short by a crash. {WAY_BACK}",
    )


def seal_tail(files: Files, segments: list[Segment], durable: int, end: int, tail_end: int) -> None:
    """Make the log end at `end`: on the medium, with only zeros behind it.

    What follows the last durable claim is written again in place, because pages that a failed sync
    left clean look stored and are not. Segments that begin at or behind `end` held nothing that
    counts and are removed.
    Args:
        segments: shortened in place.
    Raises:
        OSError.
    """
    while len(segments) > 1 and segments[-1].base >= end:
        segment = segments.pop()
        segment.close()
        files.unlink(segment.path)
    for segment in segments:
        if segment.end <= durable:
            continue
        fd = segment.writable()
        missing = segment.size - files.size(fd)
        if missing > 0:
            if files.free_bytes(segment.path.parent).free < missing:  # rather than fill the disk
                raise OSError(errno.ENOSPC, f"{segment.path.name} needs {missing} bytes more")
            files.allocate(fd, segment.size)
            segment.unmap()
        for position, size in _pieces(max(durable, segment.base), min(end, segment.end)):
            write_all(
                files, fd, files.pread(fd, size, position - segment.base), position - segment.base
            )
        for position, size in _pieces(max(end, segment.base), min(tail_end, segment.end)):
            write_all(files, fd, ZERO_PIECE[:size], position - segment.base)
        files.datasync(fd)
        if segment is not segments[-1]:
            segment.release()
    files.sync_directory(segments[-1].path.parent)


def _pieces(begin: int, end: int) -> Iterator[tuple[int, int]]:
    for position in range(begin, end, PIECE_BYTES):
        yield position, min(PIECE_BYTES, end - position)


def drop_caches(files: Files, segments: Sequence[Segment], position: int) -> None:
    """Have everything from `position` on read from the medium: after a failed sync the cache may
    hold pages that look clean and were never stored."""
    for segment in segments:
        if segment.end > position:
            fd = files.open(segment.path, OpenMode.READ)
            try:
                files.drop_cache(fd)
            finally:
                files.close(fd)


def require_log_reaches(log: CommitLog, checkpoint: Checkpoint, name: str) -> None:
    """Check that the newest record a checkpoint covers is there: it vouches for the log below it.

    Raises CorruptRecordError: segments were lost, or an older log was put beside it.
    """
    position = checkpoint.last_position or log.start
    try:
        if checkpoint.position > log.segments[-1].end:
            raise CorruptRecordError(log.segments[-1].end, "the log ends here")
        if checkpoint.last_position >= log.start:
            log.read(checkpoint.last_position)
    except CorruptRecordError as error:
        raise CorruptRecordError(
            position,
            f"{error.reason}, but checkpoint {name} was taken after it: part of the log is "
            "missing or of another time; restore it from a backup, or see `latermq log repair "
            "--help`; nothing was changed",
        ) from error
