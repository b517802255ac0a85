"""Reading a data directory offline: every record, every damage; nothing written, no lock taken.

Works beside a running broker too: what it is just appending may or may not be seen.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from latermq_broker.errors import DamagedQueueError, StoreUnusableError
from latermq_broker.store.checkpoint import (
    START_SECTION,
    checkpoint_names,
    queue_states,
    read_checkpoint,
)
from latermq_broker.store.consume_queue import ConsumeQueue, QueueFiles
from latermq_broker.store.directory import (
    CHECKPOINTS_NAME,
    QUEUES_NAME,
    find_log,
    hole,
    require_ours,
    unusable,
)
from latermq_broker.store.files import Files
from latermq_broker.store.payload_retention import decode_drop
from latermq_broker.store.record import Record, RecordType
from latermq_broker.store.recovery import LogScan, Tail, damage, inspect_tail
from latermq_broker.store.segment import SEGMENT_HEADER_BYTES, Segment


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
    torn_bytes: int  # behind `end`: a write that a crash interrupted; the next start removes it
    clean: bool  # the last broker stopped in order
    damages: tuple[Damage, ...]
    checkpoints: tuple[CheckpointSummary, ...]  # newest first; a problem here costs a replay only

    @property
    def ok(self) -> bool:
        return not self.damages


def scan_directory(path: Path, files: Files, start: int = 0) -> Iterator[Record]:
    """Every whole record from the first one at or after `start` to the end of the log.

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


def verify_directory(path: Path, files: Files) -> VerifyReport:
    """Read everything there is and check it; damage is reported, not raised.

    Raises UnsupportedFormatError, StoreUnusableError, CorruptRecordError when the segments do not
    even line up.
    """
    try:
        return _Verification(path, files, _segments(path, files)).run()
    except OSError as error:
        raise unusable(path, error) from error


class _Verification:
    """One pass over the log, going on behind each damage, then a look at the checkpoints."""

    def __init__(self, path: Path, files: Files, segments: list[Segment]) -> None:
        self._path = path
        self._files = files
        self._segments = segments
        self._counts: Counter[RecordType] = Counter()
        self._per_segment = [0] * len(segments)
        self._index = 0  # of the segment that holds the last record
        self._damages: list[Damage] = []
        self._group_start = 0  # of the group that is not finished; 0: none
        self._needed_from = 0  # as DROP records and checkpoints say

    def run(self) -> VerifyReport:
        start = position = self._segments[0].base + SEGMENT_HEADER_BYTES
        epoch = 0
        while True:
            scan = LogScan(self._segments, position, epoch)
            for record in scan:
                self._count(record)
            tail = inspect_tail(self._segments, scan.position, scan.epoch)
            if tail.proof is None or tail.first is None:
                return self._report(start, scan, tail)
            self._damages.append(Damage(scan.position, scan.reason, tail.first.position))
            position, epoch = tail.first.position, scan.epoch
            self._group_start = 0

    def _count(self, record: Record) -> None:
        self._counts[record.type] += 1
        if record.type is RecordType.DROP:
            self._needed_from = max(self._needed_from, decode_drop(record.payload).start)
        while record.position >= self._segments[self._index].end:
            self._index += 1
        self._per_segment[self._index] += 1
        if not record.more:
            self._group_start = 0
        elif not self._group_start:
            self._group_start = record.position

    def _report(self, start: int, scan: LogScan, tail: Tail) -> VerifyReport:
        end = self._group_start or scan.position
        last = scan.last
        checkpoints = tuple(self._checkpoints(end))  # may add to the damages
        first = self._segments[0]
        if first.base > self._needed_from:
            self._damages.append(
                Damage(
                    self._needed_from, hole(self._needed_from, first.path.name).reason, first.base
                )
            )
        segments = zip(self._segments, self._per_segment, strict=True)
        return VerifyReport(
            start=start,
            end=end,
            segments=tuple(SegmentSummary(s.path.name, s.base, s.size, n) for s, n in segments),
            records=dict(sorted(self._counts.items())),
            torn_bytes=max(tail.end, scan.position) - end,
            clean=last is not None and last.is_clean_mark and tail.end == end,
            checkpoints=checkpoints,
            damages=tuple(self._damages),
        )

    def _checkpoints(self, end: int) -> Iterator[CheckpointSummary]:
        directory = self._path / CHECKPOINTS_NAME
        for name in checkpoint_names(self._files, directory):
            checkpoint = read_checkpoint(self._files, directory / name)
            if checkpoint is None:
                yield CheckpointSummary(name, 0, "does not match its checksum")
                continue
            start = int.from_bytes(checkpoint.sections.get(START_SECTION, b""), "little")
            self._needed_from = max(self._needed_from, start)
            problem = ""
            if checkpoint.position > end:
                problem = "taken after the end of the log"
                self._damages.append(Damage(end, f"checkpoint {name} lies beyond the log's end", 0))
            queues = QueueFiles(self._files, self._path / QUEUES_NAME)
            try:
                for state in queue_states(checkpoint.sections):
                    ConsumeQueue.restore(queues, state).verify()
            except DamagedQueueError as error:
                problem = problem or str(error)
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
