"""A file system that reads what is there and keeps to itself what is written: for a trial start.

A start writes: a lock, the end of a torn tail, a MARK, names, entries of queues. Behind this it
does all of that, and the directory stays as it is; a broker that runs on it is not disturbed. What
it writes goes, in blocks of 64 KiB, into one file without a name where temporary files are.
"""

import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final

from latermq_broker.store.files import Files, OpenMode, RealFiles, Space

BLOCK_BYTES: Final = 64 << 10
OPENED_MAX: Final = 64  # files beneath that are open at once


class _Beneath:
    """The files that are there: opened when they are read, the last few kept open."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._opened: OrderedDict[Path, int] = OrderedDict()

    def size(self, path: Path) -> int:
        return self._files.size(self._open(path))

    def read(self, path: Path, count: int, offset: int) -> bytes:
        return self._files.pread(self._open(path), count, offset)

    def next_data(self, path: Path, offset: int) -> int:
        return self._files.next_data(self._open(path), offset)

    def _open(self, path: Path) -> int:
        """Raises OSError."""
        fd = self._opened.get(path)
        if fd is None:
            fd = self._opened[path] = self._files.open(path, OpenMode.READ)
            if len(self._opened) > OPENED_MAX:
                _, oldest = self._opened.popitem(last=False)
                self._files.close(oldest)
        else:
            self._opened.move_to_end(path)
        return fd

    def close(self) -> None:
        while self._opened:
            self._files.close(self._opened.popitem()[1])


class _Aside:
    """Blocks by number, in a file without a name; it is made with the first block."""

    def __init__(self) -> None:
        self._fd = -1
        self._count = 0

    def add(self, data: bytes) -> int:
        """Keep a block; its number."""
        if self._fd < 0:
            with tempfile.TemporaryFile(prefix="latermq-trial-") as file:
                self._fd = os.dup(file.fileno())
        number, self._count = self._count, self._count + 1
        self.write(number, data, 0)
        return number

    def write(self, number: int, data: bytes | memoryview, at: int) -> None:
        os.pwrite(self._fd, data, number * BLOCK_BYTES + at)

    def read(self, number: int, count: int, at: int) -> bytes:
        return os.pread(self._fd, count, number * BLOCK_BYTES + at)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _Node:
    """A file: what is on the disk, if anything is, beneath what was written."""

    def __init__(self, real: Path | None, beneath: _Beneath, aside: _Aside) -> None:
        self._real, self._beneath, self._aside = real, beneath, aside
        self._blocks: dict[int, int] = {}  # number in the file → number of the block aside
        self.size = 0 if real is None else beneath.size(real)

    def read(self, count: int, offset: int) -> bytes:
        end = min(offset + count, self.size)
        if not self._blocks:
            return self._whole(max(0, end - offset), offset)
        parts: list[bytes] = []
        while offset < end:
            number, at = divmod(offset, BLOCK_BYTES)
            size = min(BLOCK_BYTES - at, end - offset)
            block = self._blocks.get(number)
            parts.append(
                self._whole(size, offset) if block is None else self._aside.read(block, size, at)
            )
            offset += size
        return b"".join(parts)

    def write(self, data: bytes | memoryview, offset: int) -> int:
        rest = memoryview(data)
        while rest:
            number, at = divmod(offset, BLOCK_BYTES)
            size = min(BLOCK_BYTES - at, len(rest))
            if number not in self._blocks:
                begin = number * BLOCK_BYTES
                self._blocks[number] = self._aside.add(self._whole(BLOCK_BYTES, begin))
            self._aside.write(self._blocks[number], rest[:size], at)
            rest = rest[size:]
            offset += size
        self.size = max(self.size, offset)
        return len(data)

    def next_data(self, offset: int) -> int:
        if self._real is None or self._blocks:
            return offset
        return self._beneath.next_data(self._real, offset)

    def _whole(self, count: int, offset: int) -> bytes:
        """Read what lies beneath; zeros where nothing does."""
        data = b"" if self._real is None else self._beneath.read(self._real, count, offset)
        return data + bytes(count - len(data))


class _Map:
    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read = read
        self._size = size

    def __getitem__(self, key: slice, /) -> bytes:
        start, stop, _ = key.indices(self._size)
        return self._read(max(0, stop - start), start)

    def will_need(self, offset: int, size: int) -> None:
        """Do nothing: nothing comes earlier for being asked for."""

    def close(self) -> None:
        """Do nothing: it has no file of its own."""


class _WithoutMedium:
    """Calls of `store.files.Files` that have nothing to do where nothing is written."""

    def close(self, fd: int) -> None:
        """Keep it: numbers are given once."""

    def datasync(self, fd: int) -> None:
        """Do nothing: nothing is on a medium."""

    def drop_cache(self, fd: int) -> None:
        """Do nothing: what a broker that runs has just written may stay in the cache."""

    def sync_directory(self, path: Path, *, everything: bool = False) -> None:
        """Do nothing: nothing is on a medium."""


class TrialFiles(_WithoutMedium):
    """`store.files.Files` over another one; `close_all` at the end."""

    def __init__(self, files: Files | None = None) -> None:
        self._files = files or RealFiles()
        self._beneath, self._aside = _Beneath(self._files), _Aside()
        self._nodes: dict[Path, _Node | None] = {}  # None: it was deleted
        self._directories: set[Path] = set()  # made here
        self._opened: dict[int, _Node] = {}

    def close_all(self) -> None:
        self._beneath.close()
        self._aside.close()

    def open(self, path: Path, mode: OpenMode) -> int:
        node = self._node(path)
        if node is None and mode in (OpenMode.READ, OpenMode.WRITE):
            raise FileNotFoundError(2, os.strerror(2), str(path))
        if node is not None and mode is OpenMode.CREATE:
            raise FileExistsError(17, os.strerror(17), str(path))
        if node is None:
            node = self._nodes[path] = _Node(None, self._beneath, self._aside)
        fd = len(self._opened)
        self._opened[fd] = node
        return fd

    def _node(self, path: Path) -> _Node | None:
        """Find the file of a path; None: there is none, or none any more."""
        if path not in self._nodes:
            try:
                self._nodes[path] = _Node(path, self._beneath, self._aside)
            except FileNotFoundError:
                return None
        return self._nodes[path]

    def size(self, fd: int) -> int:
        return self._opened[fd].size

    def allocate(self, fd: int, size: int) -> None:
        self._opened[fd].size = max(self._opened[fd].size, size)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        return self._opened[fd].write(data, offset)

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        return self._opened[fd].read(count, offset)

    def next_data(self, fd: int, offset: int) -> int:
        return self._opened[fd].next_data(offset)

    def map(self, fd: int, size: int) -> _Map:
        return _Map(self._opened[fd].read, size)

    def lock(self, fd: int) -> bool:
        return True

    def rename(self, old: Path, new: Path) -> None:
        fd = self.open(old, OpenMode.READ)
        self._nodes[new], self._nodes[old] = self._opened[fd], None

    def unlink(self, path: Path) -> None:
        self.open(path, OpenMode.READ)
        self._nodes[path] = None

    def make_directory(self, path: Path) -> None:
        self._directories.add(path)

    def remove_directory(self, path: Path) -> None:
        self._directories.discard(path)

    def list_directory(self, path: Path) -> list[str]:
        try:
            names = set(self._files.list_directory(path))
        except FileNotFoundError:
            if path not in self._directories:
                raise
            names = set()
        for each, node in self._nodes.items():
            if each.parent == path:
                (names.discard if node is None else names.add)(each.name)
        return sorted(names)

    def free_bytes(self, path: Path) -> Space:
        return self._files.free_bytes(path)

    def random_bytes(self, count: int) -> bytes:
        return self._files.random_bytes(count)
