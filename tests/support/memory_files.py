"""A file system in memory behind the store's `Files` protocol: fast, and fillable to the brim.

What was written stays until the object goes: `kill` is the death of a process, which loses open
descriptors and locks and nothing else. Power loss is `torn_files`.
"""

import copy
import errno
import os
from itertools import count
from pathlib import Path

from latermq_broker.store.files import FileMap, OpenMode


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

    def close(self) -> None:
        self._inode = None


class MemoryFiles:
    """See the module. `capacity_bytes` bounds what all files hold together."""

    def __init__(self, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.inodes: dict[Path, Inode] = {}
        self.directories: set[Path] = {Path("/")}
        self._open: dict[int, tuple[Inode, OpenMode]] = {}
        self._fds = count(3)
        self._unique = count(1)

    # --- what tests do to it ---------------------------------------------------------------------

    def kill(self) -> None:
        """The process dies: descriptors and locks are gone, everything written stays."""
        self._open.clear()
        for inode in self.inodes.values():
            inode.locked_by = None

    def clone(self) -> "MemoryFiles":
        """An independent copy, as after `kill`."""
        other = MemoryFiles(self.capacity_bytes)
        other.directories = set(self.directories)
        other._unique = copy.copy(self._unique)
        for path, inode in self.inodes.items():
            other.inodes[path] = twin = Inode()
            twin.data = bytearray(inode.data)
        return other

    def bytes_of(self, path: Path) -> bytearray:
        """A file's bytes, to be damaged in place."""
        return self.inodes[path].data

    def replace(self, path: Path, data: bytes) -> None:
        """Put a file there, past all checks."""
        inode = self.inodes.setdefault(path, Inode())
        inode.data = bytearray(data)

    def snapshot(self) -> dict[Path, bytes]:
        """Every file's bytes, to show that nothing changed."""
        return {path: bytes(inode.data) for path, inode in self.inodes.items()}

    @property
    def used_bytes(self) -> int:
        return sum(len(inode.data) for inode in self.inodes.values())

    @property
    def open_count(self) -> int:
        return len(self._open)

    # --- Files -----------------------------------------------------------------------------------

    def open(self, path: Path, mode: OpenMode) -> int:
        self._called("open")
        inode = self.inodes.get(path)
        if path in self.directories:
            raise _error(errno.EISDIR, path)
        if inode is not None and mode is OpenMode.CREATE:
            raise _error(errno.EEXIST, path)
        if inode is None:
            if mode in (OpenMode.READ, OpenMode.WRITE):
                raise _error(errno.ENOENT, path)
            self._require_directory(path.parent)
            inode = self._create(path)
        fd = next(self._fds)
        self._open[fd] = (inode, mode)
        return fd

    def close(self, fd: int) -> None:
        inode = self._inode(fd)
        del self._open[fd]
        if inode.locked_by == fd:
            inode.locked_by = None

    def size(self, fd: int) -> int:
        self._called("size")
        return len(self._inode(fd).data)

    def allocate(self, fd: int, size: int) -> None:
        self._called("allocate")
        inode = self._inode(fd, writing=True)
        self._resize(inode, self._grow(inode, size))
        if len(inode.data) < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        self._called("pwrite")
        return self._write(self._inode(fd, writing=True), bytes(data), offset)

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        self._called("pread")
        return bytes(self._inode(fd).data[offset : offset + count])

    def map(self, fd: int, size: int) -> FileMap:
        self._called("map")
        inode = self._inode(fd)
        if size > len(inode.data) or size == 0:
            raise ValueError("mmap length is greater than file size")
        return MemoryMap(inode, size)

    def datasync(self, fd: int) -> None:
        self._called("datasync")
        self._inode(fd, writing=True)

    def drop_cache(self, fd: int) -> None:
        self._called("drop_cache")
        self._inode(fd)

    def lock(self, fd: int) -> bool:
        self._called("lock")
        inode = self._inode(fd)
        if inode.locked_by not in (None, fd):
            return False
        inode.locked_by = fd
        return True

    def rename(self, old: Path, new: Path) -> None:
        self._called("rename")
        if old not in self.inodes:
            raise _error(errno.ENOENT, old)
        self.inodes[new] = self.inodes.pop(old)

    def unlink(self, path: Path) -> None:
        self._called("unlink")
        if path not in self.inodes:
            raise _error(errno.ENOENT, path)
        del self.inodes[path]

    def make_directory(self, path: Path) -> None:
        self._called("make_directory")
        for directory in (*reversed(path.parents), path):
            if directory in self.inodes:
                raise _error(errno.EEXIST if directory == path else errno.ENOTDIR, directory)
            if directory not in self.directories:
                self._make_directory(directory)

    def remove_directory(self, path: Path) -> None:
        self._called("remove_directory")
        self._require_directory(path)
        if self._names(path):
            raise _error(errno.ENOTEMPTY, path)
        self.directories.remove(path)

    def sync_directory(self, path: Path) -> None:
        self._called("sync_directory")
        self._require_directory(path)

    def list_directory(self, path: Path) -> list[str]:
        self._called("list_directory")
        self._require_directory(path)
        return self._names(path)

    def unique(self) -> bytes:
        return next(self._unique).to_bytes(16, "big")

    # --- for torn_files --------------------------------------------------------------------------

    def _called(self, name: str) -> None:
        """Hook at the begin of every call that a disk can fail."""

    def _create(self, path: Path) -> Inode:
        inode = self.inodes[path] = Inode()
        return inode

    def _make_directory(self, path: Path) -> None:
        self.directories.add(path)

    def _resize(self, inode: Inode, size: int) -> None:
        if size > len(inode.data):
            inode.data.extend(bytes(size - len(inode.data)))

    def _write(self, inode: Inode, data: bytes, offset: int) -> int:
        end = self._grow(inode, offset + len(data))
        count = min(len(data), end - offset)
        if count <= 0 < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._resize(inode, offset + count)
        inode.data[offset : offset + count] = data[:count]
        return count

    def _grow(self, inode: Inode, size: int) -> int:
        """How far towards `size` the disk lets the file grow."""
        growth = size - len(inode.data)
        if growth > 0 and self.capacity_bytes is not None:
            return len(inode.data) + max(0, min(growth, self.capacity_bytes - self.used_bytes))
        return max(size, len(inode.data))

    def _inode(self, fd: int, *, writing: bool = False) -> Inode:
        if fd not in self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        inode, mode = self._open[fd]
        assert not (writing and mode is OpenMode.READ), "written through a read-only descriptor"
        return inode

    def _names(self, path: Path) -> list[str]:
        children = [p.name for p in (*self.inodes, *self.directories) if p.parent == path != p]
        return sorted(children)

    def _require_directory(self, path: Path) -> None:
        if path in self.inodes:
            raise _error(errno.ENOTDIR, path)
        if path not in self.directories:
            raise _error(errno.ENOENT, path)


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))
