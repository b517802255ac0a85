"""A file system in memory behind the store's `Files` protocol: fast, and fillable to the brim.

`MemoryDisk` holds what survives the death of a process, and is what tests look into and damage;
`MemoryFiles` is the operating system in front of it. Power loss is `torn_files`.
"""

import errno
import os
from itertools import count
from pathlib import Path
from random import Random, getrandbits
from typing import Final

from latermq_broker.store.files import FileMap, OpenMode, Space

BLOCK_BYTES: Final = 4096
HUGE: Final = Space(1 << 40, 1 << 40)  # of a disk without bound


class Inode:
    """A file's bytes, whatever its names."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.locked_by: int | None = None


class MemoryMap:
    """A mapping: sees later writes, ends where the file ended when it was made."""

    def __init__(self, inode: Inode, size: int) -> None:
        self._inode: Inode | None = inode
        self._size = size

    def __getitem__(self, key: slice, /) -> bytes:
        assert self._inode is not None, "read through a closed map"
        start, stop, _ = key.indices(self._size)
        assert stop <= len(self._inode.data), "SIGBUS: the file was shortened under its map"
        return bytes(self._inode.data[start:stop])

    def will_need(self, offset: int, size: int) -> None:
        assert 0 <= offset < offset + size <= self._size

    def close(self) -> None:
        self._inode = None


class MemoryDisk:
    """Files and directories; `capacity_bytes` bounds what all files hold together.

    `entropy`: what a broker on it draws at random, also on its copies; without one, Hypothesis
    repeats it where it seeds `random`.
    """

    def __init__(self, capacity_bytes: int | None = None, *, entropy: Random | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.entropy = entropy or Random(getrandbits(64))
        self.remote_kind = ""
        self.inodes: dict[Path, Inode] = {}
        self.directories: set[Path] = {Path("/")}
        self.open: dict[int, tuple[Inode, OpenMode]] = {}

    def kill(self) -> None:
        """The process dies: descriptors and locks are gone, everything written stays."""
        self.open.clear()
        for inode in self.inodes.values():
            inode.locked_by = None

    def clone(self) -> "MemoryDisk":
        """An independent copy, as after `kill`."""
        other = MemoryDisk(self.capacity_bytes, entropy=self.entropy)
        other.directories = set(self.directories)
        for path, inode in self.inodes.items():
            other.replace(path, inode.data)
        return other

    def bytes_of(self, path: Path) -> bytearray:
        """A file's bytes, to be damaged in place."""
        return self.inodes[path].data

    def replace(self, path: Path, data: bytes | bytearray) -> None:
        """Put a file there, past all checks."""
        inode = self.inodes.setdefault(path, Inode())
        inode.data = bytearray(data)

    def snapshot(self) -> dict[Path, bytes]:
        """Every file's bytes, to show that nothing changed."""
        return {path: bytes(inode.data) for path, inode in self.inodes.items()}

    @property
    def used_bytes(self) -> int:
        return sum(len(inode.data) for inode in self.inodes.values())

    def create(self, path: Path) -> Inode:
        inode = self.inodes[path] = Inode()
        return inode

    def make_directory(self, path: Path) -> None:
        self.directories.add(path)

    def write(self, inode: Inode, data: bytes, offset: int) -> int:
        end = self.grow(inode, offset + len(data))
        count = min(len(data), end - offset)
        if count <= 0 < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        inode.data[offset : offset + count] = data[:count]
        return count

    def grow(self, inode: Inode, size: int) -> int:
        """Lengthen a file towards `size`, as far as there is room; its size."""
        growth = size - len(inode.data)
        if growth > 0 and self.capacity_bytes is not None:
            growth = max(0, min(growth, self.capacity_bytes - self.used_bytes))
        if growth > 0:
            inode.data.extend(bytes(growth))
        return len(inode.data)

    def opened(self, fd: int, *, writing: bool = False) -> Inode:
        if fd not in self.open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        inode, mode = self.open[fd]
        assert not (writing and mode is OpenMode.READ), "written through a read-only descriptor"
        return inode

    def file(self, path: Path) -> Inode:
        if path not in self.inodes:
            raise _error(errno.ENOENT, path)
        return self.inodes[path]

    def names(self, directory: Path) -> list[str]:
        self.require_directory(directory)
        paths = (*self.inodes, *self.directories)
        return sorted(path.name for path in paths if path.parent == directory != path)

    def require_directory(self, path: Path) -> None:
        if path in self.inodes:
            raise _error(errno.ENOTDIR, path)
        if path not in self.directories:
            raise _error(errno.ENOENT, path)


class Process:
    """A process on a `MemoryDisk`, as tests look at it."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.disk = disk or MemoryDisk()

    @property
    def inodes(self) -> dict[Path, Inode]:
        return self.disk.inodes

    @property
    def open_count(self) -> int:
        return len(self.disk.open)


class MemoryFiles(Process):
    """The `Files` of one process on a `MemoryDisk`; see the module."""

    def _called(self, name: str) -> None:
        """Hook at the begin of every call that a disk can fail."""

    def open(self, path: Path, mode: OpenMode) -> int:
        self._called("open")
        inode = self.disk.inodes.get(path)
        if path in self.disk.directories:
            raise _error(errno.EISDIR, path)
        if inode is not None and mode is OpenMode.CREATE:
            raise _error(errno.EEXIST, path)
        if inode is None:
            if mode in (OpenMode.READ, OpenMode.WRITE):
                raise _error(errno.ENOENT, path)
            self.disk.require_directory(path.parent)
            inode = self.disk.create(path)
        fd = next(fd for fd in count(3) if fd not in self.disk.open)
        self.disk.open[fd] = (inode, mode)
        return fd

    def close(self, fd: int) -> None:
        inode = self.disk.opened(fd)
        del self.disk.open[fd]
        if inode.locked_by == fd:
            inode.locked_by = None

    def size(self, fd: int) -> int:
        self._called("size")
        return len(self.disk.opened(fd).data)

    def allocate(self, fd: int, size: int) -> None:
        self._called("allocate")
        if self.disk.grow(self.disk.opened(fd, writing=True), size) < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        self._called("pwrite")
        return self.disk.write(self.disk.opened(fd, writing=True), bytes(data), offset)

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        self._called("pread")
        return bytes(self.disk.opened(fd).data[offset : offset + count])

    def next_data(self, fd: int, offset: int) -> int:
        self._called("next_data")
        block = offset // BLOCK_BYTES * BLOCK_BYTES
        data = self.disk.opened(fd).data
        while block < len(data) and not any(data[block : block + BLOCK_BYTES]):
            block += BLOCK_BYTES
        return max(offset, min(block, len(data)))

    def map(self, fd: int, size: int) -> FileMap:
        self._called("map")
        inode = self.disk.opened(fd)
        if size > len(inode.data) or size == 0:
            raise ValueError("mmap length is greater than file size")
        return MemoryMap(inode, size)

    def datasync(self, fd: int) -> None:
        self._called("datasync")
        self.disk.opened(fd, writing=True)

    def drop_cache(self, fd: int) -> None:
        self._called("drop_cache")
        self.disk.opened(fd)

    def lock(self, fd: int) -> bool:
        self._called("lock")
        inode = self.disk.opened(fd)
        if inode.locked_by not in (None, fd):
            return False
        inode.locked_by = fd
        return True

    def rename(self, old: Path, new: Path) -> None:
        self._called("rename")
        self.disk.file(old)
        self.disk.inodes[new] = self.disk.inodes.pop(old)

    def unlink(self, path: Path) -> None:
        self._called("unlink")
        self.disk.file(path)
        del self.disk.inodes[path]

    def make_directory(self, path: Path) -> None:
        self._called("make_directory")
        for directory in (*reversed(path.parents), path):
            if directory in self.disk.inodes:
                raise _error(errno.EEXIST if directory == path else errno.ENOTDIR, directory)
            if directory not in self.disk.directories:
                self.disk.make_directory(directory)

    def remove_directory(self, path: Path) -> None:
        self._called("remove_directory")
        if self.disk.names(path):
            raise _error(errno.ENOTEMPTY, path)
        self.disk.directories.remove(path)

    def sync_directory(self, path: Path, *, everything: bool = False) -> None:
        del everything
        self._called("sync_directory")
        self.disk.require_directory(path)

    def list_directory(self, path: Path) -> list[str]:
        self._called("list_directory")
        return self.disk.names(path)

    def free_bytes(self, path: Path) -> Space:
        self._called("free_bytes")
        inode = self.disk.inodes.get(path)
        if inode is None:
            self.disk.require_directory(path)
        total = self.disk.capacity_bytes
        free, total = HUGE[:2] if total is None else (total - self.disk.used_bytes, total)
        return Space(free, total, self.disk.remote_kind, identity=(0, id(inode)))

    def random_bytes(self, count: int) -> bytes:
        return self.disk.entropy.randbytes(count)


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))


def lose_checkpoints(files: MemoryFiles) -> None:
    for path in [path for path in files.inodes if path.suffix == ".ckpt"]:
        del files.inodes[path]
