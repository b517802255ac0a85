"""Run files: a great many timers on disk, grouped by minute, eight bytes each.

Written once, never changed, verified as a whole when opened; in memory stays the table of minutes.
Derived from the log like everything else: a run that does not verify is rebuilt by a full replay.
So is one that has another run's name: a run says which name it was written under.

      0       8        10     12           16            24         32
      | magic | format | algo | row count  | entry count | name     | rows … | entries … | checksum
    row      0        4       8                16
             | minute | count | index of first |     minutes rise; since the Unix epoch
    entry    ms within the minute << 48 | position / 8     in no order within a minute
    name     xxh3_64 of the file's name; 0 in format 1, which does not say it
    checksum xxh3_64 of everything before it
"""

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Final

from xxhash import xxh3_64, xxh3_64_intdigest

from latermq_broker.errors import UnsupportedFormatError, UnusableCheckpointError
from latermq_broker.store.checkpoint_job import RUN_SUFFIX
from latermq_broker.store.files import Files, OpenMode

RUN_MAGIC: Final = b"\xa9LMQRUN\n"
RUN_FORMAT: Final = 2
NAMELESS_FORMAT: Final = 1  # read, and not written any more
CHECKSUM_XXH3: Final = 1
_HEADER: Final = struct.Struct("<8sHHIQQ")
_ROW: Final = struct.Struct("<IIQ")
_CHECKSUM_BYTES: Final = 8
assert _HEADER.size == 32
assert _ROW.size == 16

ENTRY_BYTES: Final = 8
MINUTE_MS: Final = 60_000
POSITION_BITS: Final = 48
_POSITION_MASK: Final = (1 << POSITION_BITS) - 1
_PIECE_BYTES: Final = 1 << 20

Entry = tuple[int, int]  # (due_ms, position)


class DamagedRunError(UnusableCheckpointError):
    """A run file is missing, cut or changed."""


def pack_entry(due_ms: int, position: int) -> int:
    """Pack an entry into eight bytes; the minute is known from where they stand."""
    return (due_ms % MINUTE_MS) << POSITION_BITS | position >> 3


def unpack_entry(minute: int, packed: int) -> Entry:
    due_ms = minute * MINUTE_MS + (packed >> POSITION_BITS)
    return due_ms, (packed & _POSITION_MASK) << 3


def run_name(position: int) -> str:
    """Name the run that is written with the checkpoint at `position`."""
    return f"{position:020d}{RUN_SUFFIX}"


def encode_run(name: str, minutes: Sequence[tuple[int, Sequence[bytes]]]) -> Iterator[bytes]:
    """Encode a run in pieces, from (minute, its packed entries in chunks), minutes rising.

    Args:
        name: of its file.
    """
    counted = {
        minute: (sum(map(len, chunks)) // ENTRY_BYTES, iter(chunks)) for minute, chunks in minutes
    }
    return encode_run_by_minute(name, counted)


def encode_run_by_minute(
    name: str, minutes: Mapping[int, tuple[int, Iterator[bytes]]]
) -> Iterator[bytes]:
    """Encode a run from minute → (count, chunks that are read when their turn comes)."""
    digest = xxh3_64()
    total = sum(count for count, _ in minutes.values())
    table = bytearray()
    first = 0
    for minute, (count, _) in minutes.items():
        table += _ROW.pack(minute, count, first)
        first += count
    header = _HEADER.pack(RUN_MAGIC, RUN_FORMAT, CHECKSUM_XXH3, len(minutes), total, _hash_of(name))
    entries = (chunk for _, chunks in minutes.values() for chunk in chunks)
    for piece in chain((header, bytes(table)), entries):
        digest.update(piece)
        yield piece
    yield digest.intdigest().to_bytes(_CHECKSUM_BYTES, "little")


def _hash_of(name: str) -> int:
    return xxh3_64_intdigest(name.encode())


class RunFile:
    """One run, open for reading: entries of a minute on demand."""

    def __init__(
        self, name: str, fd: int, files: Files, minutes: "array[int]", starts: "array[int]"
    ) -> None:
        self.name = name
        self.minutes = minutes
        self._starts = starts  # of each minute, and the end
        self._fd = fd
        self._files = files
        self._entries_at = _HEADER.size + _ROW.size * len(minutes)

    @classmethod
    def open(cls, files: Files, directory: Path, name: str, *, verify: bool = True) -> "RunFile":
        """Open the run of this name; `verify` reads all of it once.

        Raises DamagedRunError, OSError; UnsupportedFormatError: a newer version wrote it.
        """
        if Path(name).name != name:  # of another folder
            raise DamagedRunError(f"no timer run is called {name!r}")
        try:
            fd = files.open(directory / name, OpenMode.READ)
        except FileNotFoundError:
            raise DamagedRunError(f"timer run {name} is missing") from None
        try:
            return cls._open(files, fd, name, verify)
        except BaseException:
            files.close(fd)
            raise

    @classmethod
    def _open(cls, files: Files, fd: int, name: str, verify: bool) -> "RunFile":
        size = files.size(fd)
        header = files.pread(fd, _HEADER.size, 0)
        if len(header) < _HEADER.size:
            raise DamagedRunError(f"timer run {name} is cut short")
        magic, format_, algo, row_count, entry_count, written_as = _HEADER.unpack(header)
        expected = (
            _HEADER.size + row_count * _ROW.size + entry_count * ENTRY_BYTES + _CHECKSUM_BYTES
        )
        newer = (magic, algo) == (RUN_MAGIC, CHECKSUM_XXH3) and format_ > RUN_FORMAT
        if newer and _matches(files, fd, size - _CHECKSUM_BYTES):
            raise UnsupportedFormatError(
                f"timer run {name} has format {format_}, this version reads up to "
                f"{RUN_FORMAT}: start the newer version of latermq; nothing was changed"
            )
        known = format_ in (NAMELESS_FORMAT, RUN_FORMAT)
        if (magic, known, algo) != (RUN_MAGIC, True, CHECKSUM_XXH3):
            raise DamagedRunError(f"timer run {name} has an unknown header")
        if written_as != (0 if format_ == NAMELESS_FORMAT else _hash_of(name)):
            raise DamagedRunError(f"timer run {name} was written under another name")
        if size != expected:
            raise DamagedRunError(f"timer run {name} has {size} bytes, not {expected}")
        if verify and not _matches(files, fd, size - _CHECKSUM_BYTES):
            raise DamagedRunError(f"timer run {name} does not match its checksum")
        minutes, starts = array("I"), array("Q")
        table = files.pread(fd, row_count * _ROW.size, _HEADER.size)
        for minute, _, first in _ROW.iter_unpack(table):
            minutes.append(minute)
            starts.append(first)
        starts.append(entry_count)
        return cls(name, fd, files, minutes, starts)

    def __len__(self) -> int:
        return self._starts[-1]

    def packed(self, minute: int) -> bytes:
        """Read the packed entries of a minute; empty when it has none. Raises OSError."""
        index = bisect_left(self.minutes, minute)
        if index == len(self.minutes) or self.minutes[index] != minute:
            return b""
        first, end = self._starts[index], self._starts[index + 1]
        return self._files.pread(
            self._fd, (end - first) * ENTRY_BYTES, self._entries_at + first * ENTRY_BYTES
        )

    def counts(self) -> Iterator[tuple[int, int]]:
        """Yield (minute, how many entries), by minute."""
        for minute, (first, end) in zip(self.minutes, pairwise(self._starts), strict=True):
            yield minute, end - first

    def count_from(self, minute: int) -> int:
        """Count the entries that stand in `minute` and later."""
        return self._starts[-1] - self._starts[bisect_left(self.minutes, minute)]

    def close(self) -> None:
        self._files.close(self._fd)


def _matches(files: Files, fd: int, size: int) -> bool:
    digest = xxh3_64()
    for at in range(0, size, _PIECE_BYTES):
        digest.update(files.pread(fd, min(_PIECE_BYTES, size - at), at))
    checksum = files.pread(fd, _CHECKSUM_BYTES, size)
    return checksum == digest.intdigest().to_bytes(_CHECKSUM_BYTES, "little")
