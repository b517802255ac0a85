"""The segments of a directory as far as there are any: what `directory.find_log` refuses, noted.

For those who look at damage and mend it, never for a broker. A segment whose header is bad, or
whose file is missing, has a `fault`; one whose file was cut short is read as far as it goes.
"""

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from latermq_broker.errors import CorruptRecordError, UnsupportedFormatError
from latermq_broker.store.directory import LOG_NAME, segment_base
from latermq_broker.store.files import Files
from latermq_broker.store.log.segment import (
    SEGMENT_BYTES_MAX,
    SEGMENT_MAGIC,
    SEGMENT_SUFFIX,
    Segment,
    decode_segment_header,
    read_segment_header,
    segment_name,
)

SECTOR_BYTES: Final = 4096
MISSING: Final = "the file is missing"


class MissingSegment(Segment):
    """Where a file should be: nothing can be read there."""

    __slots__ = ()

    def __init__(self, files: Files, log: Path, base: int, end: int) -> None:
        super().__init__(files, log / segment_name(base), base, end - base, None)
        self.fault = MISSING

    def pread(self, count: int, position: int) -> bytes:
        del count, position
        return b""

    def next_data(self, position: int) -> int:
        del position
        return self.end


class FoundSegment(Segment):
    """A file, and what is wrong with it as a file."""

    __slots__ = ("file_bytes", "foreign", "uuid")

    def __init__(
        self, files: Files, path: Path, base: int, size: int, file_bytes: int, uuid: bytes
    ) -> None:
        super().__init__(files, path, base, size, None)
        self.file_bytes = file_bytes
        self.uuid = uuid  # empty: its header is bad
        self.foreign = False  # nothing in its header is ours

    def pread(self, count: int, position: int) -> bytes:
        """Read bytes; what the medium refuses to read is zero."""
        return self.pread_all(count, position)[0]

    def pread_all(self, count: int, position: int) -> tuple[bytes, int]:
        """Read (bytes, how many of them the medium refused); short at the file's end."""
        try:
            return super().pread(count, position), 0
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        pieces: list[bytes] = []
        refused = 0
        for at in range(position, position + count, SECTOR_BYTES):
            size = min(SECTOR_BYTES, position + count - at)
            try:
                pieces.append(super().pread(size, at))
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                pieces.append(bytes(size))
                refused += size
        return b"".join(pieces), refused

    @property
    def short(self) -> bool:
        """Tell whether the file ends before the segment does."""
        return self.file_bytes < self.size


def found_segments(files: Files, directory: Path) -> list[Segment]:
    """List the segments in a row, oldest first, holes filled with `MissingSegment`.

    Raises:
        CorruptRecordError: files of two logs, or that overlap: nothing here can tell which counts.
        UnsupportedFormatError: not ours, or newer than this version.
        OSError.
    """
    log = directory / LOG_NAME
    try:
        names = [name for name in files.list_directory(log) if name.endswith(SEGMENT_SUFFIX)]
    except FileNotFoundError:
        names = []
    bases = [segment_base(log, name) for name in names]
    row: list[Segment] = []
    for segment in _opened(files, log, names, bases):
        end = row[-1].end if row else segment.base
        if segment.base < end:
            raise CorruptRecordError(
                segment.base, f"segment {segment.path.name} begins before the one ahead of it ends"
            )
        if segment.base - end > SEGMENT_BYTES_MAX:
            raise CorruptRecordError(
                end,
                f"{segment.base - end} bytes are missing before segment {segment.path.name}: more "
                f"than {SEGMENT_BYTES_MAX}, which can be given up at once",
            )
        if segment.base > end:
            row.append(MissingSegment(files, log, end, segment.base))
        row.append(segment)
    return row


def _opened(files: Files, log: Path, names: list[str], bases: list[int]) -> Iterator[FoundSegment]:
    uuid = b""
    for name, base, following in zip(names, bases, [*bases[1:], None], strict=False):
        segment = open_segment(files, log / name, base, following)
        if uuid and segment.uuid and segment.uuid != uuid:
            raise CorruptRecordError(base, f"segment {name} belongs to another log than {names[0]}")
        uuid = uuid or segment.uuid
        yield segment


def open_segment(files: Files, path: Path, base: int, following: int | None) -> FoundSegment:
    """Open the file of a segment; `following` is the base of the next file, if there is one."""
    data, file_bytes = read_segment_header(files, path)
    foreign = False
    try:
        header = decode_segment_header(data, base, path.name)
        return FoundSegment(files, path, base, header.size, file_bytes, header.uuid)
    except CorruptRecordError as error:
        fault = error.reason
    except UnsupportedFormatError as refusal:
        if data.startswith(SEGMENT_MAGIC):
            raise  # a newer version's
        fault, foreign = str(refusal), True
    size = max(file_bytes + SECTOR_BYTES - 1, SECTOR_BYTES) // SECTOR_BYTES * SECTOR_BYTES
    if following is not None:  # what is between its end and the next one is missing
        size = min(size, following - base)
    segment = FoundSegment(files, path, base, size, file_bytes, b"")
    segment.fault, segment.foreign = fault, foreign
    return segment
