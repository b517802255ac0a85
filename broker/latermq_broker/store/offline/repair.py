"""Makes a damaged log usable again: what cannot be read is given up, on record and with a copy.

Each damaged range is copied to lost/ as it was found, together with a report of what is known of
it. Then LOST records take its place, so that a broker's replay passes over it; a segment's missing
file or bad header is made anew. Nothing else in the directory is touched and no file gets shorter.
Dying anywhere leaves a log that is damaged still, or again, and can be repaired again.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from latermq_broker.errors import CorruptRecordError
from latermq_broker.store.directory import LOG_NAME, LOST_NAME, take_lock, unusable
from latermq_broker.store.files import Files, OpenMode, write_all
from latermq_broker.store.log.read_unverified import read_unverified_in
from latermq_broker.store.log.segment import (
    PREPARED_SUFFIX,
    SEGMENT_HEADER_BYTES,
    Segment,
    SegmentHeader,
    encode_segment_header,
)
from latermq_broker.store.offline.inspect import (
    NOTHING,
    Break,
    Examination,
    Look,
    examine_directory,
    ignore,
)
from latermq_broker.store.offline.salvage import FoundSegment, MissingSegment
from latermq_broker.store.records.own_records import (
    LOST_BYTES_MAX,
    LOST_BYTES_MIN,
    LostPayload,
    encode_lost,
)
from latermq_broker.store.records.record import (
    HEADER_BYTES,
    RECORD_MAGIC,
    RECORD_MAGIC_OFFSET,
    Record,
    RecordType,
    encode_record,
)

COPY_BYTES: Final = 1 << 20
UNVERIFIED_MAX: Final = 10_000  # of one range, in its report

Describe = Callable[[Record], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Loss:
    """A range of the log that is given up."""

    position: int
    end: int
    reason: str
    segments: tuple[str, ...]
    records: tuple[Record, ...]  # what seems to have been there; nothing of it is verified

    @property
    def length(self) -> int:
        return self.end - self.position


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was done, or would be."""

    losses: tuple[Loss, ...]
    copies: tuple[Path, ...]  # below lost/; empty when nothing was done
    reports: tuple[Path, ...]


def plan_repair(
    path: Path, files: Files, look: Look = ignore, refused: Mapping[int, str] = NOTHING
) -> Repaired:
    """Tell what `repair_directory` would give up; changes nothing. Raises as `verify_directory`.

    Args:
        look, refused: as `examine_directory` takes them.
    """
    try:
        return Repaired(tuple(_losses(examine_directory(path, files, look, refused))), (), ())
    except OSError as error:
        raise unusable(path, error) from error


def repair_directory(
    path: Path,
    files: Files,
    now_ms: int,
    describe: Describe,
    look: Look = ignore,
    refused: Mapping[int, str] = NOTHING,
) -> Repaired:
    """Give up every damaged range; afterwards the log verifies.

    Args:
        describe: a record that was read unverified, in words, for the report.
        look, refused: records to give up, too: as `examine_directory` takes them.
    Raises:
        StoreLockedError: a broker runs on it.
        CorruptRecordError, UnsupportedFormatError: it cannot be repaired; nothing was changed.
        StoreUnusableError: the file system refuses; what was done is no worse than before.
    """
    try:
        plan_repair(path, files, look)  # before a lock file is made in what may not be ours
        with _locked(path, files):
            return _Repair(path, files, now_ms, describe, look, refused).run()
    except OSError as error:
        raise unusable(path, error) from error


@contextmanager
def _locked(path: Path, files: Files) -> Iterator[None]:
    fd = take_lock(files, path)
    try:
        yield
    finally:
        files.close(fd)


def _losses(examination: Examination) -> Iterator[Loss]:
    for broken in sorted(examination.breaks, key=lambda broken: broken.damage.position):
        damage = broken.damage
        row = examination.segments
        parts: list[Segment] = []
        for index in range(max(0, bisect_right(row, damage.position, key=_base_of) - 1), len(row)):
            if row[index].base >= damage.resumes_at:
                break
            if _overlaps(row[index], damage.position, damage.resumes_at):
                parts.append(row[index])
        records: list[Record] = []
        for segment in parts:
            records += _unverified(segment, damage.position, damage.resumes_at, len(records))
        names = tuple(segment.path.name for segment in parts)
        yield Loss(damage.position, damage.resumes_at, damage.reason, names, tuple(records))


def _base_of(segment: Segment) -> int:
    return segment.base


def _overlaps(segment: Segment, begin: int, end: int) -> bool:
    return segment.base < end and begin < segment.end


def _unverified(segment: Segment, begin: int, end: int, known: int) -> Iterator[Record]:
    """Yield what seem to be records in a damaged range of a segment: their headers make sense."""
    position = max(begin, segment.base + SEGMENT_HEADER_BYTES)
    end = min(end, segment.end)
    while position < end and known < UNVERIFIED_MAX:
        record = read_unverified_in(segment, position)
        if record is not None and record.next_position <= end:
            yield record
            known += 1
            position = record.next_position
            continue
        following = _next_header(segment, position + 8, end)
        if following is None:
            return
        position = following


def _next_header(segment: Segment, position: int, end: int) -> int | None:
    """Find where bytes like a record's header begin, from a position on; None: nowhere."""
    while (position := segment.next_data(position) & -8) < end:
        data = segment.pread(min(COPY_BYTES + HEADER_BYTES, end - position), position)
        at = data.find(RECORD_MAGIC, RECORD_MAGIC_OFFSET)
        while at >= 0:
            offset = at - RECORD_MAGIC_OFFSET
            header_at = position + offset
            if (
                not header_at % 8
                and int.from_bytes(data[offset + 16 : offset + 24], "little") == header_at
            ):
                return header_at
            at = data.find(RECORD_MAGIC, at + 1)
        position += COPY_BYTES
    return None


class _Repair:
    """One repair, under the lock."""

    def __init__(
        self,
        path: Path,
        files: Files,
        now_ms: int,
        describe: Describe,
        look: Look,
        refused: Mapping[int, str],
    ) -> None:
        self._look, self._refused = look, refused
        self._path = path
        self._files = files
        self._now_ms = now_ms
        self._describe = describe
        self._log = path / LOG_NAME
        self._lost = path / LOST_NAME
        self._copies: list[Path] = []
        self._reports: list[Path] = []

    def run(self) -> Repaired:
        losses: list[Loss] = []
        # What is damaged behind a damage may show only when that is mended.
        for _ in range(3):
            examination = examine_directory(self._path, self._files, self._look, self._refused)
            if examination.report.ok:
                return Repaired(tuple(losses), tuple(self._copies), tuple(self._reports))
            now = list(_losses(examination))
            self._keep(now, examination.segments)
            self._mend(examination)
            losses += now
        left = examine_directory(self._path, self._files, self._look).report
        if not left.ok:
            raise CorruptRecordError(left.damages[0].position, left.damages[0].reason)
        return Repaired(tuple(losses), tuple(self._copies), tuple(self._reports))

    # --- what was there ------------------------------------------------------------------------

    def _keep(self, losses: Sequence[Loss], segments: Sequence[Segment]) -> None:
        """Write copies and reports of all ranges, durable before the log is touched."""
        self._files.make_directory(self._lost)
        self._files.sync_directory(self._path)
        for loss in losses:
            copies = [
                self._copy(segment, max(loss.position, segment.base), min(loss.end, segment.end))
                for segment in segments
                if isinstance(segment, FoundSegment) and _overlaps(segment, loss.position, loss.end)
            ]
            self._report(loss, copies)
        self._files.sync_directory(self._lost)

    def _copy(self, segment: FoundSegment, begin: int, end: int) -> dict[str, Any]:
        fd, path = self._create(f"{begin:020d}", ".bytes")
        refused = written = 0
        try:
            for at in range(begin, end, COPY_BYTES):
                data, bad = segment.pread_all(min(COPY_BYTES, end - at), at)
                write_all(self._files, fd, data, at - begin)
                written += len(data)
                refused += bad
            self._files.datasync(fd)
        finally:
            self._files.close(fd)
        self._copies.append(path)
        return {
            "file": path.name,
            "position": begin,
            "bytes": written,
            "unreadable_bytes": refused,
            "from": segment.path.name,
        }

    def _report(self, loss: Loss, copies: list[dict[str, Any]]) -> None:
        fd, path = self._create(f"{loss.position:020d}", ".json")
        facts = {
            "position": loss.position,
            "end": loss.end,
            "bytes": loss.length,
            "reason": loss.reason,
            "segments": loss.segments,
            "given_up_ms": self._now_ms,
            "copies": copies,
            "records": [dict(self._describe(record)) for record in loss.records],
        }
        try:
            write_all(self._files, fd, json.dumps(facts, indent=1).encode() + b"\n", 0)
            self._files.datasync(fd)
        finally:
            self._files.close(fd)
        self._reports.append(path)

    def _create(self, stem: str, suffix: str) -> tuple[int, Path]:
        """Create a new file, numbered if an earlier repair left one of the name."""
        number = 0
        while True:
            path = self._lost / f"{stem}{f'-{number}' if number else ''}{suffix}"
            try:
                return self._files.open(path, OpenMode.CREATE), path
            except FileExistsError:
                number += 1

    # --- what takes its place ------------------------------------------------------------------

    def _mend(self, examination: Examination) -> None:
        uuid = examination.uuid or self._files.random_bytes(16)
        row = list(examination.segments)
        for broken in examination.breaks:
            if broken.damage.position < row[0].base:
                begin = broken.damage.position
                row.insert(0, MissingSegment(self._files, self._log, begin, row[0].base))
            while broken.damage.resumes_at > row[-1].end:
                base = row[-1].end
                row.append(MissingSegment(self._files, self._log, base, base + row[-1].size))
        for segment in row:
            ranges = [
                (
                    broken,
                    max(broken.damage.position, segment.base),
                    min(broken.damage.resumes_at, segment.end),
                )
                for broken in examination.breaks
                if broken.covered
                and _overlaps(segment, broken.damage.position, broken.damage.resumes_at)
            ]
            if isinstance(segment, MissingSegment):
                self._make(segment, uuid, ranges, examination.kept)
            elif isinstance(segment, FoundSegment) and (ranges or segment.short):
                self._mend_file(segment, uuid, ranges, examination.kept)
        self._files.sync_directory(self._log)

    def _mend_file(
        self,
        segment: FoundSegment,
        uuid: bytes,
        ranges: list[tuple[Break, int, int]],
        kept: frozenset[int],
    ) -> None:
        fd = self._files.open(segment.path, OpenMode.WRITE)
        try:
            if segment.short:
                self._files.allocate(fd, segment.size)
            for broken, begin, end in ranges:
                self._cover(fd, segment, broken, begin, end, kept, sparse=False)
            if segment.fault is not None:
                self._write_header(fd, segment, uuid)
            self._files.datasync(fd)
        finally:
            self._files.close(fd)
            segment.close()

    def _make(
        self,
        segment: MissingSegment,
        uuid: bytes,
        ranges: list[tuple[Break, int, int]],
        kept: frozenset[int],
    ) -> None:
        """Make the file of a missing segment; it takes hardly any room."""
        temporary = segment.path.with_suffix(PREPARED_SUFFIX)
        if temporary.name in self._files.list_directory(self._log):
            self._files.unlink(temporary)
        fd = self._files.open(temporary, OpenMode.CREATE)
        try:
            self._write_header(fd, segment, uuid)
            for broken, begin, end in ranges:
                self._cover(fd, segment, broken, begin, end, kept, sparse=True)
            if self._files.size(fd) < segment.size:
                write_all(self._files, fd, b"\0", segment.size - 1)
            self._files.datasync(fd)
        finally:
            self._files.close(fd)
        self._files.rename(temporary, segment.path)

    def _write_header(self, fd: int, segment: Segment, uuid: bytes) -> None:
        header = SegmentHeader(segment.base, segment.size, uuid, self._now_ms)
        write_all(self._files, fd, encode_segment_header(header), 0)

    def _cover(
        self,
        fd: int,
        segment: Segment,
        broken: Break,
        begin: int,
        end: int,
        kept: frozenset[int],
        *,
        sparse: bool,
    ) -> None:
        """Write LOST records from `begin` up to `end`; a BLANK where its segment ends with it."""
        begin = max(begin, segment.base + SEGMENT_HEADER_BYTES)
        closes = end == segment.end
        if closes:
            end -= HEADER_BYTES
            last = max((cut for cut in (begin, *kept) if begin <= cut <= end), default=end)
            if end - last < HEADER_BYTES:  # no record fits between: what was there was the BLANK
                end = last
        for position, length in _pieces(begin, end, kept):
            payload = b"".join(encode_lost(LostPayload(length, self._now_ms)))
            data = self._record(position, RecordType.LOST, payload, broken)
            write_all(
                self._files,
                fd,
                data[:LOST_BYTES_MIN] if sparse else data,
                position - segment.base,
            )
        if closes:
            data = self._record(end, RecordType.BLANK, b"", broken)
            write_all(self._files, fd, data, end - segment.base)

    def _record(self, position: int, type_: RecordType, payload: bytes, broken: Break) -> bytes:
        return encode_record(
            position,
            type_,
            (payload,),
            store_ms=broken.store_ms,
            epoch=broken.epoch,
            durable=min(broken.durable, position),
        )


def _pieces(begin: int, end: int, kept: frozenset[int]) -> Iterator[tuple[int, int]]:
    """Yield (position, length) of the records that cover a range.

    One begins wherever a checkpoint expects a record.
    """
    cuts = sorted({end, *(cut for cut in kept if begin < cut < end)})
    for cut in cuts:
        while begin < cut:
            length = min(cut - begin, LOST_BYTES_MAX)
            if 0 < cut - begin - length < LOST_BYTES_MIN:
                length -= LOST_BYTES_MIN
            yield begin, length
            begin += length
