"""Consume queues: queue offset → where the message lies in the log. One per (topic, queue).

Derived from the log and never trusted: what is in memory are the entries since the last checkpoint,
what is older lies in files of 65,536 entries, written by checkpoints and guarded by digests that
the checkpoint keeps. A file that is missing or does not match makes the checkpoint unusable, and
the whole log is replayed.

An entry is 32 bytes, little-endian, at (offset % 65536) * 32 in <queue>.<first offset>.cq:

      0          8        12      14        16         24        32
      | position | length | flags | attempt | tag_hash | time_ms |

    flags   0: the entry's own MESSAGE record holds the bytes. Else how it came here: REF_DUE,
            REF_REDRIVE or REF_COMMITTED, in the low byte; LETTER: into a dead-letter topic;
            MOVED: rolled forward

Retention moves `first` up. Entries whose message was rolled forward are replaced in memory, see
`moved_entries`. A queue that was rebuilt from a log whose oldest segments are gone begins at
`begin`: what it has below are such entries.
"""

import errno
import struct
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from xxhash import xxh3_64

from latermq_broker.errors import DamagedQueueError, StoreBusyError
from latermq_broker.store.derived.moved_entries import MovedEntries
from latermq_broker.store.files import Files, OpenMode, write_all

ENTRY: Final = struct.Struct("<QIHHQQ")
ENTRY_BYTES: Final = 32
TIME_AT: Final = 24  # in an entry
_COLUMNS: Final = struct.Struct("<QI4xQ8x")  # position, length, tag_hash
assert _COLUMNS.size == ENTRY_BYTES
tuple_new: Final = tuple.__new__  # as Entry._make, without the call
assert ENTRY.size == ENTRY_BYTES
FILE_ENTRIES: Final = 65_536
FILE_BYTES: Final = FILE_ENTRIES * ENTRY_BYTES
OPEN_FILES_MAX: Final = 128
TIMES_MAX: Final = 32  # of entries that are in files only, kept for a queue
QUEUE_SUFFIX: Final = ".cq"
ENTRY_LETTER: Final = 0x100
ENTRY_MOVED: Final = 0x200


class Entry(NamedTuple):
    position: int
    length: int
    flags: int
    attempt: int
    tag_hash: int
    time_ms: int  # store time of the entry, never decreasing in a queue


@dataclass(frozen=True, slots=True)
class QueueState:
    """What a checkpoint keeps of one queue."""

    topic_id: int
    queue_id: int
    first: int
    next: int
    digests: tuple[int, ...]  # xxh3-64 of each full file, from the one that holds `first`
    tail_digest: int  # of the last file's entries below `next`
    begin: int = 0  # the files hold no entry below
    moved: bytes = b""  # `MovedEntries.snapshot`


class QueueFiles:
    """The queue files below one directory, the most recently used ones open."""

    def __init__(self, files: Files, directory: Path) -> None:
        self.files = files
        self.directory = directory
        self.damaged: str | None = None  # the first damage found: checkpoints must not go on
        self.on_damage: Callable[[], None] | None = None
        self._open: OrderedDict[tuple[int, int, int], int] = OrderedDict()

    def path(self, topic_id: int, queue_id: int, number: int) -> Path:
        name = f"{queue_id}.{number * FILE_ENTRIES:020d}{QUEUE_SUFFIX}"
        return self.directory / str(topic_id) / name

    def read(self, topic_id: int, queue_id: int, number: int, count: int, offset: int) -> bytes:
        """Read exactly `count` bytes of a queue's file; DamagedQueueError if it has fewer."""
        key = (topic_id, queue_id, number)
        try:
            fd = self._open.get(key)
            if fd is None:
                fd = self.files.open(self.path(*key), OpenMode.READ)
                self._open[key] = fd
                if len(self._open) > OPEN_FILES_MAX:
                    self.files.close(self._open.popitem(last=False)[1])
            else:
                self._open.move_to_end(key)
            data = self.files.pread(fd, count, offset)
        except OSError as error:
            what = f"{self.path(*key)} cannot be read ({error.strerror})"
            if error.errno in (errno.ENOENT, errno.EIO):
                raise self.damage(what) from error
            raise StoreBusyError(what) from error
        if len(data) != count:
            raise self.damage(f"{self.path(*key)} is shorter than it was")
        return data

    def damage(self, what: str) -> DamagedQueueError:
        """Note the damage: no further checkpoint vouches for the files; the error to raise."""
        if self.damaged is None:
            self.damaged = what
            if self.on_damage is not None:
                self.on_damage()
        return DamagedQueueError(what)

    def forget(self, topic_id: int | None = None) -> None:
        """Close the open files of a topic, or all."""
        for key in [key for key in self._open if topic_id is None or key[0] == topic_id]:
            self.files.close(self._open.pop(key))


class ConsumeQueue:
    """Entries `first` … `next` - 1 of one queue; see the module."""

    __slots__ = (
        "_digest", "_digests", "_hashed", "_memory", "_memory_first", "_times", "_unverified",
        "begin", "files", "first", "moved", "next", "queue_id", "topic_id",
    )  # fmt: skip

    def __init__(self, files: QueueFiles, topic_id: int, queue_id: int) -> None:
        self.files = files
        self.topic_id = topic_id
        self.queue_id = queue_id
        self.first = 0
        self.next = 0
        self.begin = 0
        self.moved = MovedEntries()
        self._memory = bytearray()  # packed entries from _memory_first on
        self._memory_first = 0
        self._digests: list[int] = []  # of full files
        self._digest = xxh3_64()  # of the last file's entries below _hashed
        self._hashed = 0
        self._unverified: dict[int, int] = {}  # file number: digest, until it is first read
        self._times: dict[int, int] = {}  # of some entries that only the files hold

    @classmethod
    def restore(cls, files: QueueFiles, state: QueueState) -> "ConsumeQueue":
        """Restore the queue as of a checkpoint.

        The last file is verified now, full files when first read; DamagedQueueError.
        """
        queue = cls(files, state.topic_id, state.queue_id)
        queue.first = state.first
        queue.begin = state.begin
        queue.moved.restore(state.moved)
        queue.next = queue._memory_first = queue._hashed = state.next
        queue._digests = list(state.digests)
        full = state.next // FILE_ENTRIES
        start = full - len(state.digests)
        queue._unverified = {start + index: d for index, d in enumerate(state.digests)}
        for number in queue._unverified:  # there, and whole? The content is verified later
            files.read(state.topic_id, state.queue_id, number, 1, FILE_BYTES - 1)
        skipped = _skipped(queue.begin, full)
        tail_bytes = state.next % FILE_ENTRIES * ENTRY_BYTES - skipped
        if tail_bytes > 0:
            data = files.read(state.topic_id, state.queue_id, full, tail_bytes, skipped)
            queue._digest.update(data)
            if queue._digest.intdigest() != state.tail_digest:
                path = files.path(state.topic_id, state.queue_id, full)
                raise files.damage(f"{path} does not match its checkpoint")
        return queue

    def verify(self, *numbers: int) -> None:
        """Verify these files now, or every one that was not yet; DamagedQueueError."""
        for number in numbers or (*self._unverified,):
            skipped = _skipped(self.begin, number)
            count = FILE_BYTES - skipped
            data = self.files.read(self.topic_id, self.queue_id, number, count, skipped)
            if xxh3_64(data).intdigest() != self._unverified[number]:
                path = self.files.path(self.topic_id, self.queue_id, number)
                raise self.files.damage(f"{path} does not match its checkpoint")
            del self._unverified[number]

    def begin_at(self, offset: int) -> None:
        """Have a queue that has no entry yet begin at this offset."""
        assert self.next == 0
        self.first = self.next = self.begin = self._memory_first = self._hashed = offset

    def trim(self, first: int) -> None:
        """Forget the entries below `first`."""
        assert self.first <= first <= self.next
        self.first = first
        self.moved.trim(first)
        self._forget_digests()

    def move(self, offset: int, entry: Entry) -> None:
        """Note that the message of the entry at `offset` lies elsewhere now."""
        self.moved.put(offset, ENTRY.pack(*entry))
        self._times.clear()

    def moved_entry(self, offset: int) -> Entry | None:
        """Return what replaces the entry at `offset`, if anything does."""
        for _, packed in self.moved.between(offset, offset + 1):
            return Entry._make(ENTRY.unpack(packed))
        return None

    def append(self, entry: tuple[int, int, int, int, int, int]) -> int:
        """Add an entry, its offset; an `Entry` or its fields."""
        self._memory += ENTRY.pack(*entry)
        offset = self.next
        self.next = offset + 1
        return offset

    def extend(
        self,
        positions: Sequence[int],
        lengths: Sequence[int],
        flags: int,
        tag_hashes: Sequence[int],
        time_ms: int,
    ) -> None:
        """Add entries that differ in these only, as `append` does."""
        for index, position in enumerate(positions):
            self._memory += ENTRY.pack(
                position, lengths[index], flags, 0, tag_hashes[index], time_ms
            )
        self.next += len(positions)

    def get(self, offset: int) -> Entry:
        """Read an entry. Raises IndexError outside `first` … `next` - 1, DamagedQueueError."""
        if not self.first <= offset < self.next:
            raise IndexError(f"queue offset {offset} is not in {self.first} … {self.next - 1}")
        if offset < self.begin or len(self.moved):
            return self.scan(offset, 1)[0]
        if offset >= self._memory_first:
            at = (offset - self._memory_first) * ENTRY_BYTES
            return Entry._make(ENTRY.unpack_from(self._memory, at))
        return Entry._make(ENTRY.unpack(self._read(offset, 1)))

    def entered_ms(self, offset: int) -> int:
        """Return when the entry came into the queue; 0: it is not there, or cannot be read."""
        if not self.first <= offset < self.next:
            return 0
        try:
            return self.time_ms(offset)
        except (DamagedQueueError, StoreBusyError):
            return 0

    def time_ms(self, offset: int) -> int:
        """Return an entry's time. What files say is kept for a while.

        Groups are asked for one by one, and many of a topic are equally far. Raises as `get` does.
        """
        if offset >= self._memory_first:
            at = (offset - self._memory_first) * ENTRY_BYTES + TIME_AT
            return int.from_bytes(self._memory[at : at + 8], "little")
        known = self._times.get(offset)
        if known is None:
            if len(self._times) >= TIMES_MAX:
                self._times.clear()
            known = self._times[offset] = self.get(offset).time_ms
        return known

    def scan(self, offset: int, count_max: int) -> list[Entry]:
        """Read at most `count_max` entries from `offset` on; [] at `next`.

        Raises IndexError outside `first` … `next`, DamagedQueueError.
        """
        packed = self._packed(offset, count_max)
        return [tuple_new(Entry, fields) for fields in ENTRY.iter_unpack(packed)]

    def columns(self, offset: int, count_max: int) -> tuple[list[int], list[int], list[int]]:
        """Read positions, lengths and tag hashes of what `scan` gives. Raises as it does."""
        positions: list[int] = []
        lengths: list[int] = []
        tag_hashes: list[int] = []
        packed = self._packed(offset, count_max)
        for at in range(0, len(packed), ENTRY_BYTES):
            fields: tuple[int, int, int] = _COLUMNS.unpack_from(packed, at)
            positions.append(fields[0])
            lengths.append(fields[1])
            tag_hashes.append(fields[2])
        return positions, lengths, tag_hashes

    def _packed(self, offset: int, count_max: int) -> bytes:
        if not self.first <= offset <= self.next:
            raise IndexError(f"queue offset {offset} is not in {self.first} … {self.next}")
        end = min(offset + count_max, self.next)
        memory_first = self._memory_first
        if offset >= memory_first and not len(self.moved):  # nearly always
            at = (offset - memory_first) * ENTRY_BYTES
            return bytes(self._memory[at : at + (end - offset) * ENTRY_BYTES])
        start = offset
        packed = bytearray()
        if offset < self.begin:
            packed += bytes((min(end, self.begin) - offset) * ENTRY_BYTES)
            offset = min(end, self.begin)
        while offset < min(end, memory_first):
            count = min(end, memory_first, (offset // FILE_ENTRIES + 1) * FILE_ENTRIES) - offset
            packed += self._read(offset, count)
            offset += count
        if offset < end:
            at = (offset - memory_first) * ENTRY_BYTES
            packed += self._memory[at : at + (end - offset) * ENTRY_BYTES]
        for moved, entry in self.moved.between(start, end):
            at = (moved - start) * ENTRY_BYTES
            packed[at : at + ENTRY_BYTES] = entry
        return bytes(packed)

    def offset_at(self, time_ms: int) -> int:
        """Find the first offset whose entry has a time at or after `time_ms`; `next` if none."""
        return _first_at(self, time_ms, self.first, self.next)

    def _read(self, offset: int, count: int) -> bytes:
        """Read `count` packed entries of the one file that holds `offset`."""
        number = offset // FILE_ENTRIES
        if number in self._unverified:
            self.verify(number)
        at = offset % FILE_ENTRIES * ENTRY_BYTES
        return self.files.read(self.topic_id, self.queue_id, number, count * ENTRY_BYTES, at)

    @property
    def _files_first(self) -> int:
        """Return the number of the first file that counts."""
        return max(self.first, self.begin) // FILE_ENTRIES

    def _forget_digests(self) -> None:
        """Forget the digests of files that no longer count."""
        start = self._hashed // FILE_ENTRIES - len(self._digests)
        for number in range(start, min(self._files_first, self._hashed // FILE_ENTRIES)):
            del self._digests[0]
            self._unverified.pop(number, None)

    # --- checkpoints ---------------------------------------------------------------------------

    @property
    def dirty_count(self) -> int:
        """Return how many entries only memory holds."""
        return self.next - self._memory_first

    def capture(self) -> tuple[QueueState, bytes]:
        """Capture the state to keep, and the packed entries to be in the files before it counts."""
        data = bytes(self._memory)
        at = (self._hashed - self._memory_first) * ENTRY_BYTES
        while self._hashed < self.next:
            count = min(self.next - self._hashed, FILE_ENTRIES - self._hashed % FILE_ENTRIES)
            self._digest.update(data[at : at + count * ENTRY_BYTES])
            at += count * ENTRY_BYTES
            self._hashed += count
            if self._hashed % FILE_ENTRIES == 0:
                self._digests.append(self._digest.intdigest())
                self._digest = xxh3_64()
        self._forget_digests()
        state = QueueState(
            self.topic_id, self.queue_id, self.first, self.next,
            tuple(self._digests), self._digest.intdigest(), self.begin, self.moved.snapshot(),
        )  # fmt: skip
        return state, data

    def release(self, upto: int) -> None:
        """Let memory forget the entries below `upto`, which are in the files now."""
        del self._memory[: (upto - self._memory_first) * ENTRY_BYTES]
        self._memory_first = upto


def count_since(queue: ConsumeQueue, time_ms: int) -> int:
    """Count the entries whose time is at or after `time_ms`: the fewer, the sooner.

    Raises DamagedQueueError.
    """
    low, high, step = queue.first, queue.next, 1
    while low < high and queue.time_ms(probe := max(low, high - step)) >= time_ms:
        high, step = probe, step * 2
    return queue.next - _first_at(queue, time_ms, max(low, high - step), high)


def _first_at(queue: ConsumeQueue, time_ms: int, low: int, high: int) -> int:
    """Find what `offset_at` does, between two offsets."""
    while low < high:
        middle = (low + high) // 2
        if queue.time_ms(middle) < time_ms:
            low = middle + 1
        else:
            high = middle
    return low


def write_entries(
    files: QueueFiles, topic_id: int, queue_id: int, first: int, data: bytes
) -> list[Path]:
    """Write packed entries from offset `first` on into their files; the paths written.

    Not synced. Runs in the checkpoint's thread: touches no queue and no open-file table.
    """
    paths: list[Path] = []
    at = 0
    while at < len(data):
        offset = first + at // ENTRY_BYTES
        into = offset % FILE_ENTRIES * ENTRY_BYTES
        piece = data[at : at + FILE_BYTES - into]
        path = files.path(topic_id, queue_id, offset // FILE_ENTRIES)
        files.files.make_directory(path.parent)
        fd = files.files.open(path, OpenMode.ENSURE)
        try:
            write_all(files.files, fd, piece, into)
        finally:
            files.files.close(fd)
        paths.append(path)
        at += len(piece)
    return paths


def _skipped(begin: int, number: int) -> int:
    """Count the bytes at the begin of a file that no entry was written to; `begin`: the queue's."""
    return min(max(0, begin - number * FILE_ENTRIES), FILE_ENTRIES) * ENTRY_BYTES
