"""One file of the commit log: a 64-byte header, records, a BLANK record, allocated beforehand.

A segment is prepared as `.prep` (allocated, header written, synced) and gets its `.seg` name when
the log needs it: a `.seg` therefore always has a whole header, and bytes no record was written to
are zero. Written with pwrite, read through a map; it knows nothing of records.

      0       8        10     11      12              16     24     32     48           56      64
      | magic | format | algo | flags | header length | base | size | uuid | created_ms | checksum |

    magic     A9 "LMQSEG" LF         format    1; a reader refuses a higher one
    algo      1 = xxh3-64            base      position of the header's first byte in the log
    size      bytes of the file, header included; the next segment's base is base + size
    uuid      of the log; every file of one data directory carries the same
    checksum  xxh3_64(bytes 0..55)

Every later format keeps these 64 bytes as they are, so that an older version can tell what it is
too old for from what is damaged.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from xxhash import xxh3_64_intdigest

from latermq_broker.errors import CorruptRecordError, StoreFullError, UnsupportedFormatError
from latermq_broker.store.files import (
    NO_ROOM_ERRNOS,
    PASSING_ERRNOS,
    FileMap,
    Files,
    OpenMode,
    write_all,
)

SEGMENT_MAGIC: Final = b"\xa9LMQSEG\n"
SEGMENT_FORMAT: Final = 1
CHECKSUM_XXH3: Final = 1
SEGMENT_HEADER: Final = struct.Struct("<8sHBBIQQ16sQQ")
SEGMENT_HEADER_BYTES: Final = 64
assert SEGMENT_HEADER.size == SEGMENT_HEADER_BYTES
COVERED_BYTES: Final = SEGMENT_HEADER_BYTES - 8
SEGMENT_BYTES_MIN: Final = SEGMENT_HEADER_BYTES + 40  # room for the BLANK that closes it
SEGMENT_BYTES_MAX: Final = 1 << 38  # of one that repair makes for several that are missing
POSITION_MAX: Final = 1 << 62  # of the end of a segment

SEGMENT_SUFFIX: Final = ".seg"
PREPARED_SUFFIX: Final = ".prep"
ZERO_CHUNK: Final = bytes(1 << 20)


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    base: int
    size: int
    uuid: bytes
    created_ms: int


def read_segment_header(files: Files, path: Path) -> tuple[bytes, int]:
    """Read the bytes where the header is, as they are, and the file's size. Raises OSError."""
    fd = files.open(path, OpenMode.READ)
    try:
        return files.pread(fd, SEGMENT_HEADER_BYTES, 0), files.size(fd)
    finally:
        files.close(fd)


def encode_segment_header(header: SegmentHeader) -> bytes:
    fields = (SEGMENT_MAGIC, SEGMENT_FORMAT, CHECKSUM_XXH3, 0, SEGMENT_HEADER_BYTES)
    data = SEGMENT_HEADER.pack(
        *fields, header.base, header.size, header.uuid, header.created_ms, 0
    )[:COVERED_BYTES]
    return data + xxh3_64_intdigest(data).to_bytes(8, "little")


def decode_segment_header(data: bytes, base: int, name: str) -> SegmentHeader:
    """Decode the header of the segment file `name`, which must begin at `base`.

    Raises:
        UnsupportedFormatError: of a newer format, or the first of a log that is not ours.
        CorruptRecordError: ours, but damaged.
    """
    if len(data) < SEGMENT_HEADER_BYTES or not any(data[:COVERED_BYTES]):
        raise CorruptRecordError(base, f"the header of segment {name} was never written")
    magic, format_, algo, _, _, found_base, size, uuid, created_ms, checksum = (
        SEGMENT_HEADER.unpack(data[:SEGMENT_HEADER_BYTES])
    )
    if checksum != xxh3_64_intdigest(data[:COVERED_BYTES]):
        if magic != SEGMENT_MAGIC and base == 0:  # elsewhere it stands among segments of ours
            raise UnsupportedFormatError(f"{name} is not a segment of a LaterMQ log")
        raise CorruptRecordError(base, f"the header of segment {name} does not match its checksum")
    if format_ > SEGMENT_FORMAT:
        raise UnsupportedFormatError(
            f"segment {name} has format {format_}, this version reads up to {SEGMENT_FORMAT}: "
            "start the newer version of latermq; nothing was changed"
        )
    if algo != CHECKSUM_XXH3:
        raise UnsupportedFormatError(f"segment {name} uses checksum {algo}, unknown here")
    if found_base != base:
        raise CorruptRecordError(base, f"segment {name} was written for position {found_base}")
    if not SEGMENT_BYTES_MIN <= size <= SEGMENT_BYTES_MAX:
        raise CorruptRecordError(base, f"segment {name} cannot have {size} bytes")
    return SegmentHeader(base, size, uuid, created_ms)


def segment_name(base: int) -> str:
    return f"{base:020d}{SEGMENT_SUFFIX}"


class Segment:
    """One segment file, opened for writing while `fd` is set and mapped at the first read."""

    __slots__ = ("_files", "_map", "base", "end", "fault", "fd", "path", "size")

    def __init__(self, files: Files, path: Path, base: int, size: int, fd: int | None) -> None:
        self._files = files
        self._map: FileMap | None = None
        self.path = path
        self.base = base
        self.size = size
        self.end = base + size
        self.fault: str | None = None  # why the header of the last file on disk is not believed
        self.fd = fd

    @classmethod
    def prepare(
        cls, files: Files, path: Path, header: SegmentHeader, *, zero_fill: bool
    ) -> "Segment":
        """Create, allocate and sync a segment file under `path`; on failure no file is left.

        Args:
            zero_fill: write zeros instead of only allocating: dearer now, cheaper at every sync.
        Raises:
            StoreFullError: no room for it.
            OSError: any other trouble.
        """
        fd: int | None = None
        try:
            fd = files.open(path, OpenMode.CREATE)
            files.allocate(fd, header.size)
            if zero_fill:
                for offset in range(0, header.size, len(ZERO_CHUNK)):
                    write_all(files, fd, ZERO_CHUNK[: header.size - offset], offset)
            write_all(files, fd, encode_segment_header(header), 0)
            files.datasync(fd)
        except OSError as error:
            if fd is not None:
                files.close(fd)
                with suppress(OSError):  # the next start removes what is left of it
                    files.unlink(path)
            if error.errno in PASSING_ERRNOS:
                full = "disk full: " if error.errno in NO_ROOM_ERRNOS else ""
                raise StoreFullError(
                    f"{full}the log needs a further segment of {header.size} bytes "
                    f"(store.segment_bytes) in {path.parent} ({error.strerror})"
                ) from error
            raise
        return cls(files, path, header.base, header.size, fd)

    def move_to(self, header: SegmentHeader) -> None:
        """Give a prepared segment, never written to, another place in the log. Raises OSError."""
        assert header.size == self.size
        fd = self.writable()
        write_all(self._files, fd, encode_segment_header(header), 0)
        self._files.datasync(fd)
        self.base = header.base
        self.end = header.base + header.size

    def publish(self, path: Path) -> None:
        """Give the prepared file its lasting name; durable after its directory is synced."""
        self._files.rename(self.path, path)
        self.path = path

    def writable(self) -> int:
        """Return a descriptor for writing, opened if need be."""
        if self.fd is None:
            self.fd = self._files.open(self.path, OpenMode.WRITE)
        return self.fd

    def view(self) -> FileMap:
        """Return the map of the whole file. One found shorter than its header says is mapped as far
        as it goes: slices beyond come back short. Raises OSError, CorruptRecordError: empty."""
        if self._map is None:
            with self._readable() as fd:
                size = min(self.size, self._files.size(fd))
                if not size:
                    raise CorruptRecordError(self.base, f"segment {self.path.name} is empty")
                self._map = self._files.map(fd, size)
        return self._map

    def pread(self, count: int, position: int) -> bytes:
        """Read bytes at a log position, without the map; short at the end of the file."""
        with self._readable() as fd:
            return self._files.pread(fd, count, position - self.base)

    def next_data(self, position: int) -> int:
        """Find the first log position from here on where bytes not zero may lie; or `end`."""
        with self._readable() as fd:
            at = self._files.next_data(fd, position - self.base)
            return self.base + at if at < self._files.size(fd) else self.end

    @contextmanager
    def _readable(self) -> Iterator[int]:
        opened = self.fd is None
        fd = self._files.open(self.path, OpenMode.READ) if self.fd is None else self.fd
        try:
            yield fd
        finally:
            if opened:
                self._files.close(fd)

    def unmap(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None

    def release(self) -> None:
        """Close the descriptor of a segment that is synced and will not be written again."""
        if self.fd is not None:
            self._files.close(self.fd)
            self.fd = None

    def close(self) -> None:
        self.unmap()
        self.release()
