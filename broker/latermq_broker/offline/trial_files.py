"""A file system that reads what is there and keeps to itself what is written: for a trial start.

A start writes: a lock, the end of a torn tail, a MARK, names. Behind this it does all of that, and
the directory stays as it is; a broker that runs on it is not disturbed. What it writes stays in
memory, in blocks of 64 KiB.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from latermq_broker.store.files import OpenMode, RealFiles, Space

BLOCK_BYTES: Final = 64 << 10


class _Node:
    """A file: what is on the disk, if anything is, beneath what was written."""

    def __init__(self, real: Path | None) -> None:
        self.blocks: dict[int, bytearray] = {}
        self._fd = -1 if real is None else os.open(real, os.O_RDONLY | os.O_CLOEXEC)
        self.size = 0 if real is None else os.fstat(self._fd).st_size

    def read(self, count: int, offset: int) -> bytes:
        end = min(offset + count, self.size)
        if not self.blocks:
            return self._beneath(max(0, end - offset), offset)
        parts: list[bytes] = []
        while offset < end:
            number, at = divmod(offset, BLOCK_BYTES)
            size = min(BLOCK_BYTES - at, end - offset)
            block = self.blocks.get(number)
            parts.append(
                self._beneath(size, offset) if block is None else bytes(block[at : at + size])
            )
            offset += size
        return b"".join(parts)

    def write(self, data: bytes | memoryview, offset: int) -> int:
        rest = memoryview(data)
        while rest:
            number, at = divmod(offset, BLOCK_BYTES)
            size = min(BLOCK_BYTES - at, len(rest))
            if number not in self.blocks:
                self.blocks[number] = bytearray(self._beneath(BLOCK_BYTES, number * BLOCK_BYTES))
            self.blocks[number][at : at + size] = rest[:size]
            rest = rest[size:]
            offset += size
        self.size = max(self.size, offset)
        return len(data)

    def _beneath(self, count: int, offset: int) -> bytes:
        data = b"" if self._fd < 0 else os.pread(self._fd, count, offset)
        return data + bytes(count - len(data))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


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
    """`store.files.Files`; `close_all` at the end."""

    def __init__(self) -> None:
        self._nodes: dict[Path, _Node | None] = {}  # None: it was deleted
        self._directories: set[Path] = set()  # made here
        self._opened: dict[int, _Node] = {}
        self._every: list[_Node] = []

    def close_all(self) -> None:
        for node in self._every:
            node.close()

    def open(self, path: Path, mode: OpenMode) -> int:
        node = self._nodes.get(path)
        if node is None:
            deleted = path in self._nodes
            there = not deleted and path.exists()
            if not there and mode in (OpenMode.READ, OpenMode.WRITE):
                raise FileNotFoundError(2, os.strerror(2), str(path))
            node = self._nodes[path] = _Node(path if there else None)
            self._every.append(node)
        elif mode is OpenMode.CREATE:
            raise FileExistsError(17, os.strerror(17), str(path))
        fd = len(self._opened)
        self._opened[fd] = node
        return fd

    def size(self, fd: int) -> int:
        return self._opened[fd].size

    def allocate(self, fd: int, size: int) -> None:
        self._opened[fd].size = max(self._opened[fd].size, size)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        return self._opened[fd].write(data, offset)

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        return self._opened[fd].read(count, offset)

    def next_data(self, fd: int, offset: int) -> int:
        return offset

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
            names = set(os.listdir(path))
        except FileNotFoundError:
            if path not in self._directories:
                raise
            names = set()
        for each, node in self._nodes.items():
            if each.parent == path:
                (names.discard if node is None else names.add)(each.name)
        return sorted(names)

    def free_bytes(self, path: Path) -> Space:
        return RealFiles().free_bytes(path)

    def random_bytes(self, count: int) -> bytes:
        return RealFiles().random_bytes(count)
