"""Reading a data directory offline: every record, every damage; nothing written, no lock taken.

Works beside a running broker too: what it is just appending may or may not be seen.
"""

import struct
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from latermq_broker.errors import (
    DamagedQueueError,
    StoreUnusableError,
    UnreplayableError,
    UnsupportedFormatError,
)
from latermq_broker.store.derived.checkpoint import (
    START_SECTION,
    checkpoint_names,
    queue_states,
    read_checkpoint,
)
from latermq_broker.store.derived.consume_queue import ConsumeQueue, QueueFiles
from latermq_broker.store.directory import (
    CHECKPOINTS_NAME,
    QUEUES_NAME,
    find_log,
    hole,
    require_ours,
    require_unused,
    unusable,
)
from latermq_broker.store.files import Files
from latermq_broker.store.log.segment import SEGMENT_HEADER_BYTES, Segment
from latermq_broker.store.offline.salvage import FoundSegment, found_segments
from latermq_broker.store.records.record import Record, RecordType
from latermq_broker.store.records.retention_records import DropPayload, decode_drop
from latermq_broker.store.recovery import LogScan, Tail, damage, inspect_tail


@dataclass(frozen=True, slots=True)
class Damage:
    position: int
    reason: str
    resumes_at: int  # the next whole record; 0: none


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    name: str
    base: int
    size: int
    records: int


@dataclass(frozen=True, slots=True)
class CheckpointSummary:
    name: str
    position: int  # 0 when it does not verify
    problem: str  # "" when it and its queue files verify


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What `verify_directory` found. `ok` means: a broker starts on it and has lost nothing."""

    start: int
    end: int  # behind the last whole group
    segments: tuple[SegmentSummary, ...]
    records: Mapping[RecordType, int]
    torn_bytes: int  # behind `end`, of an unfinished write; a start removes it, unless it stops
    clean: bool  # the last broker stopped in order
    damages: tuple[Damage, ...]
    checkpoints: tuple[CheckpointSummary, ...]  # newest first; a problem here costs a replay only

    @property
    def ok(self) -> bool:
        return not self.damages


def scan_directory(path: Path, files: Files, start: int = 0) -> Iterator[Record]:
    """Yield every whole record from the first one at or after `start` to the end of the log.

    The store's own records are included; an unfinished group at the end too. A torn tail just ends
    the iteration.
    Raises:
        CorruptRecordError: at the damaged position, after all records before it.
        UnsupportedFormatError, StoreUnusableError.
    """
    try:
        segments = _segments(path, files)
        while len(segments) > 1 and segments[0].end <= start:
            segments.pop(0)
        scan = LogScan(segments, segments[0].base + SEGMENT_HEADER_BYTES)
        while True:
            for record in scan:
                if record.position >= start:
                    yield record
            tail = inspect_tail(segments, scan.position, scan.epoch)
            if tail.proof is None:
                return
            stopped, reason = scan.position, scan.reason
            # A running broker may have appended between the two looks: look again before crying.
            scan = LogScan(segments, stopped, scan.epoch)
            if next(iter(LogScan(segments, stopped, scan.epoch)), None) is None:
                raise damage(segments, stopped, reason, tail.proof)
    except OSError as error:
        raise unusable(path, error) from error


Look = Callable[[Record], None]
NOTHING: Final[Mapping[int, str]] = {}  # no record is refused, as far as is known


def ignore(record: Record) -> None:
    """Ignore a record: a `Look` at nothing."""


def verify_directory(path: Path, files: Files, look: Look = ignore) -> VerifyReport:
    """Read everything there is and check it; damage is reported, not raised.

    Raises UnsupportedFormatError, StoreUnusableError, CorruptRecordError when the files are of two
    logs.
    """
    return examine_directory(path, files, look).report


class Break(NamedTuple):
    """A damage, with what a record in its place must fit to."""

    damage: Damage
    epoch: int  # of the record behind it
    store_ms: int  # of the record before; 0 without one, as the next
    durable: int
    covered: bool = True  # False: what is missing held nothing that counts


class Examination(NamedTuple):
    report: VerifyReport
    segments: list[Segment]
    uuid: bytes  # empty: no header can be read
    breaks: tuple[Break, ...]
    kept: frozenset[int]  # positions where checkpoints expect a record, or the log's end


def examine_directory(
    path: Path, files: Files, look: Look = ignore, refused: Mapping[int, str] = NOTHING
) -> Examination:
    """Examine a directory as `verify_directory`, for who mends. Raises as it.

    Args:
        look: gets every record that can be read; raises UnreplayableError where one counts as
            damaged, though its checksum matches.
        refused: positions of records that a start refuses, and why; they count as damaged.
    """
    try:
        if not require_ours(files, path):
            raise StoreUnusableError(f"{path} does not exist")
        segments = found_segments(files, path)
        if not segments:
            require_unused(files, path)
            raise StoreUnusableError(f"{path} holds no log yet")
        return _Examination(path, files, segments, look, refused).run()
    except OSError as error:
        raise unusable(path, error) from error


class _Examination:
    """One pass over the log, going on behind each damage, then a look at the checkpoints."""

    def __init__(
        self,
        path: Path,
        files: Files,
        segments: list[Segment],
        look: Look,
        refused: Mapping[int, str],
    ) -> None:
        self._look, self._refused = look, refused
        self._bases = [segment.base for segment in segments]
        self._path = path
        self._files = files
        self._segments = segments
        readable = [segment for segment in segments if isinstance(segment, FoundSegment)]
        self._uuid = next((segment.uuid for segment in readable if segment.uuid), b"")
        self._short = [segment for segment in readable[:-1] if segment.short]
        self._counts: Counter[RecordType] = Counter()
        self._per_segment = [0] * len(segments)
        self._index = 0  # of the segment that holds the last record
        self._breaks: list[Break] = []
        self._group_start = 0  # of the group that is not finished; 0: none
        self._needed_from = 0  # as DROP records and checkpoints say
        self._base_parts = 0  # of the DROP that is not whole yet: found so far, none missing
        self._kept: set[int] = set()
        self._first_epoch = 0
        self._before = (0, 0, 0)  # epoch, store time and durable claim of the last record

    def run(self) -> Examination:
        position = self._segments[0].base
        start = position + SEGMENT_HEADER_BYTES
        before = (0, 0, 0)
        while True:
            scan = LogScan(self._segments, position, before[0], within=True)
            for record in scan:
                self._count(record)
            last = scan.last
            if last is not None:
                before = (last.epoch, last.store_ms, last.durable)
            tail = inspect_tail(self._segments, scan.position, before[0])
            resumes = self._resumes(scan.position, tail)
            if not resumes:
                return self._finish(start, scan, tail, before)
            if tail.first is not None:  # epochs may have begun where the damage is
                before = (tail.first.epoch, *before[1:])
            self._breaks.append(Break(Damage(scan.position, scan.reason, resumes), *before))
            position = resumes
            self._group_start = self._base_parts = 0

    def _resumes(self, bad: int, tail: Tail) -> int:
        """Find where the log goes on behind damage at `bad`; 0: it ends there."""
        if tail.first is not None and tail.proof is not None:
            return tail.first.position
        row = self._segments
        begin = max(0, bisect_right(self._bases, bad) - 1)
        for index in range(begin, max(1, len(row) - 1)):  # in the last one alone may be a crash
            segment = row[index]
            cut = isinstance(segment, FoundSegment) and segment.short and len(row) > 1
            if segment.fault is not None:
                behind = bad <= segment.base
            else:
                behind = cut and segment.base <= bad < segment.end
            if behind:
                if tail.first is not None:
                    return tail.first.position
                return (
                    segment.end if segment is not row[-1] else segment.base
                ) + SEGMENT_HEADER_BYTES
        return 0

    def _count(self, record: Record) -> None:
        self._first_epoch = self._first_epoch or record.epoch
        self._counts[record.type] += 1
        if not self._is_sound(record):
            pass
        elif record.type is RecordType.DROP:
            self._count_drop(decode_drop(record.payload))
        elif record.type is RecordType.LOST:
            self._base_parts = 0
        self._place(record)

    def _is_sound(self, record: Record) -> bool:
        """Look at what a record says; what cannot be is damage, though its checksum matches."""
        reason = "" if record.type is RecordType.LOST else self._refused.get(record.position, "")
        try:
            if not reason:
                self._look(record)
        except UnreplayableError as error:
            reason = error.reason
        if reason:
            damage = Damage(record.position, reason, record.next_position)
            self._breaks.append(Break(damage, *self._before))
        self._before = (record.epoch, record.store_ms, record.durable)
        return not reason

    def _place(self, record: Record) -> None:
        """Count a record in its segment and in its group."""
        while record.position >= self._segments[self._index].end:
            self._index += 1
        self._per_segment[self._index] += 1
        if not record.more:
            self._group_start = 0
        elif not self._group_start:
            self._group_start = record.position

    def _count_drop(self, drop: DropPayload) -> None:
        """Take a DROP at its word about what went before it only where it is whole, as replay does.

        One that lost a part to damage gives no state to begin with: what it dropped is missing.
        """
        if drop.part == 0:
            self._base_parts = 1
        elif self._base_parts == drop.part:
            self._base_parts += 1
        else:
            self._base_parts = 0
        if self._base_parts >= max(drop.parts, 1):
            self._needed_from = max(self._needed_from, drop.start)

    def _require_readable(self) -> None:
        """Refuse files that only have our names: they may be anything."""
        first = self._segments[0]
        foreign = isinstance(first, FoundSegment) and first.foreign
        if foreign and not self._counts and not self._uuid:
            raise UnsupportedFormatError(f"{first.fault}: there is no record in it")

    def _finish(
        self, start: int, scan: LogScan, tail: Tail, before: tuple[int, int, int]
    ) -> Examination:
        end = self._group_start or scan.position
        checkpoints = tuple(self._checkpoints(end, scan.position, before))
        self._require_readable()
        self._report_short(before)
        self._report_front()
        damages = sorted([broken.damage for broken in self._breaks], key=lambda d: d.position)
        segments = zip(self._segments, self._per_segment, strict=True)
        last = scan.last
        report = VerifyReport(
            start=start,
            end=end,
            segments=tuple(SegmentSummary(s.path.name, s.base, s.size, n) for s, n in segments),
            records=dict(sorted(self._counts.items())),
            torn_bytes=max(tail.end, scan.position) - end,
            clean=last is not None and last.is_clean_mark and tail.end == end,
            checkpoints=checkpoints,
            damages=tuple(damages),
        )
        breaks, kept = tuple(self._breaks), frozenset(self._kept)
        return Examination(report, self._segments, self._uuid, breaks, kept)

    def _report_short(self, before: tuple[int, int, int]) -> None:
        """Report files in the middle cut short, though what they lack may have held nothing."""
        known = sorted(broken.damage.position for broken in self._breaks)
        for segment in self._short:
            if bisect_left(known, segment.base) < bisect_left(known, segment.end):
                continue
            reason = f"segment {segment.path.name} has {segment.file_bytes} of its {segment.size} "
            at = segment.base + segment.file_bytes
            damage = Damage(at, reason + "bytes", segment.end)
            self._breaks.append(Break(damage, *before, covered=False))

    def _report_front(self) -> None:
        first = self._segments[0]
        if first.base > self._needed_from:
            reason = hole(self._needed_from, first.path.name).reason
            damage = Damage(self._needed_from, reason, first.base)
            self._breaks.append(Break(damage, self._first_epoch, 0, 0))

    def _checkpoints(
        self, end: int, scanned: int, before: tuple[int, int, int]
    ) -> Iterator[CheckpointSummary]:
        directory = self._path / CHECKPOINTS_NAME
        beyond = False
        for name in checkpoint_names(self._files, directory):
            checkpoint = read_checkpoint(self._files, directory / name)
            if checkpoint is None:
                yield CheckpointSummary(name, 0, "does not match its checksum")
                continue
            self._uuid = self._uuid or checkpoint.uuid
            if checkpoint.uuid != self._uuid:
                yield CheckpointSummary(name, checkpoint.position, "of another log")
                continue
            start = int.from_bytes(checkpoint.sections.get(START_SECTION, b""), "little")
            self._needed_from = max(self._needed_from, start)
            self._kept |= {checkpoint.position, checkpoint.last_position}
            problem = ""
            if checkpoint.position > end:
                problem = "taken after the end of the log"
                if not beyond:
                    beyond = True
                    reason = f"checkpoint {name} lies beyond the log's end"
                    damage = Damage(scanned, reason, checkpoint.position)
                    epoch = max(before[0], checkpoint.epoch)
                    self._breaks.append(Break(damage, epoch, *before[1:]))
            queues = QueueFiles(self._files, self._path / QUEUES_NAME)
            try:
                for state in queue_states(checkpoint.sections):
                    ConsumeQueue.restore(queues, state).verify()
            except DamagedQueueError as error:
                problem = problem or str(error)
            except (ValueError, struct.error, KeyError) as wrong:  # sealed by nobody of ours
                problem = problem or f"what it says of queues cannot be ({wrong})"
            finally:
                queues.forget()
            yield CheckpointSummary(name, checkpoint.position, problem)


def _segments(path: Path, files: Files) -> list[Segment]:
    if not require_ours(files, path):
        raise StoreUnusableError(f"{path} does not exist")
    segments = find_log(files, path).segments
    if not segments:
        raise StoreUnusableError(f"{path} holds no log yet")
    return segments
