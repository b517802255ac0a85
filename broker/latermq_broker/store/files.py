"""The seam between the store and the file system; the only user of os, mmap and fcntl.

Every call of `Files` can fail with OSError, and `pwrite` can write less than it was given: tests
put simulated disks behind the same protocol (tests/support). Nothing here buffers or decides.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import sys
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from latermq_text.regular_files import open_regular

SYNCFS_TELLS: Final = (5, 8)
STATFS_BYTES: Final = 256  # more than any statfs(2) fills
# linux/magic.h: file systems whose promises end at somebody else's machine or process.
REMOTE_TYPES: Final = {
    0x6969: "NFS", 0x517B: "SMB", 0xFF534D42: "CIFS", 0xFE534D42: "SMB2", 0x65735546: "FUSE",
    0x01021997: "9P", 0x00C36400: "Ceph", 0x5346414F: "AFS", 0x73757245: "Coda", 0x564C: "NCP",
    0x6B414653: "AFS", 0x47504653: "GPFS", 0x0BD00BD0: "Lustre", 0x01161970: "GFS2",
    0x7461636F: "OCFS2",
}  # fmt: skip
# What a file system answers a call with, by what follows from it (docs/store-format.md).
NO_ROOM_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
NO_DESCRIPTOR_ERRNOS: Final = frozenset({errno.EMFILE, errno.ENFILE})
NO_HANDLE_ERRNOS: Final = NO_DESCRIPTOR_ERRNOS | {errno.ENOMEM}
PASSING_ERRNOS: Final = NO_ROOM_ERRNOS | NO_HANDLE_ERRNOS
# Trying again cannot help this process: the files are not where they were, or are read-only.
FINAL_ERRNOS: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.EROFS})


class OpenMode(Enum):
    READ = os.O_RDONLY
    WRITE = os.O_RDWR  # must exist
    CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL  # must not exist
    ENSURE = os.O_RDWR | os.O_CREAT


class Space(NamedTuple):
    """Tells what a file system has, in bytes: what we may still take, and all; and what it is.

    files: how many more files it takes; None: it has no bound of its own, or does not tell.
    identity: which file or directory it was asked of; another one has another.
    """

    free: int
    total: int
    remote: str = ""  # its name, if it is over a network or of a user's process
    files: int | None = None
    identity: tuple[int, int] = (0, 0)


class FileMap(Protocol):
    """A file mapped for reading: slices are copies, and see what is written to the file later."""

    def __getitem__(self, key: slice, /) -> bytes: ...

    def will_need(self, offset: int, size: int) -> None:
        """Start reading these bytes into the page cache, and do not wait. Raises OSError."""

    def close(self) -> None: ...


class Files(Protocol):
    """What the store asks of a file system. Offsets and sizes are bytes; all raise OSError."""

    def open(self, path: Path, mode: OpenMode) -> int:
        """Open a file and return its descriptor; a new file is empty.

        What is no regular file is refused; a link to one is followed for reading only.
        """

    def close(self, fd: int) -> None: ...

    def size(self, fd: int) -> int: ...

    def allocate(self, fd: int, size: int) -> None:
        """Give the file at least `size` bytes that later writes cannot run out of.

        On ENOSPC the file may be left partly allocated: unlink it.
        """

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        """Write a first part of `data`; the count written, possibly less than asked."""

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        """Read at most `count` bytes; fewer only at the end of the file."""

    def next_data(self, fd: int, offset: int) -> int:
        """Find the first offset from here on where bytes not zero may lie; the size if none."""

    def map(self, fd: int, size: int) -> FileMap:
        """Map the first `size` bytes, which must exist; outlives the descriptor."""

    def datasync(self, fd: int) -> None:
        """Return once everything written to the file, and its size, is on the medium."""

    def drop_cache(self, fd: int) -> None:
        """Forget clean cached pages, so that the next read comes from the medium."""

    def lock(self, fd: int) -> bool:
        """Take the file's exclusive lock until close; False when another process holds it."""

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file. Atomic; durable after `sync_directory`."""

    def unlink(self, path: Path) -> None: ...

    def make_directory(self, path: Path) -> None:
        """Create a directory with its parents unless it exists."""

    def remove_directory(self, path: Path) -> None: ...

    def sync_directory(self, path: Path, *, everything: bool = False) -> None:
        """Make creations, renames and removals in this directory durable.

        `everything`: and all that was written and renamed on its file system. Raises OSError ENOSYS
        where the system cannot do that, or would not tell of a failure.
        """

    def list_directory(self, path: Path) -> list[str]:
        """List the names in a directory, sorted."""

    def free_bytes(self, path: Path) -> Space:
        """Measure the file system that holds this directory or file."""

    def random_bytes(self, count: int) -> bytes:
        """Draw bytes that no other life of a log, or copy of it, has drawn."""


class _Map(mmap.mmap):
    def will_need(self, offset: int, size: int) -> None:
        begin = offset & -mmap.PAGESIZE
        self.madvise(mmap.MADV_WILLNEED, begin, offset + size - begin)


class RealFiles:
    """The operating system's files."""

    def open(self, path: Path, mode: OpenMode) -> int:
        return open_regular(path, mode.value, follow=mode is OpenMode.READ)

    def close(self, fd: int) -> None:
        os.close(fd)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def allocate(self, fd: int, size: int) -> None:
        os.posix_fallocate(fd, 0, size)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        return os.pwrite(fd, data, offset)

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        data = os.pread(fd, count, offset)
        while data and len(data) < count:  # a signal or a huge count may cut a read short
            more = os.pread(fd, count - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def next_data(self, fd: int, offset: int) -> int:
        try:
            return os.lseek(fd, offset, os.SEEK_DATA)  # allocated and never written is no data
        except OSError as error:
            if error.errno == errno.ENXIO:
                return max(offset, os.fstat(fd).st_size)
            if error.errno == errno.EINVAL:  # a file system that cannot tell
                return offset
            raise

    def map(self, fd: int, size: int) -> FileMap:
        return _Map(fd, size, prot=mmap.PROT_READ)

    def datasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def drop_cache(self, fd: int) -> None:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def lock(self, fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def make_directory(self, path: Path) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)

    def remove_directory(self, path: Path) -> None:
        os.rmdir(path)

    def sync_directory(self, path: Path, *, everything: bool = False) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            (_sync_file_system if everything else os.fsync)(fd)
        finally:
            os.close(fd)

    def list_directory(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))

    def free_bytes(self, path: Path) -> Space:
        status, node = os.statvfs(path), os.stat(path)
        remote = REMOTE_TYPES.get(_file_system_type(path), "")
        files = status.f_favail if status.f_files else None
        free, total = status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize
        return Space(free, total, remote, files, (node.st_dev, node.st_ino))

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)


def _sync_file_system(fd: int) -> None:
    """Call syncfs(2). Before Linux 5.8 it kept failures to itself."""
    release = os.uname().release.split(".")
    if sys.platform != "linux" or (int(release[0]), int(release[1])) < SYNCFS_TELLS:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syncfs(fd):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _file_system_type(path: Path) -> int:
    """Return `f_type` of statfs(2), which os.statvfs leaves out; 0 where there is none."""
    if sys.platform != "linux":
        return 0
    buffer = ctypes.create_string_buffer(STATFS_BYTES)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.statfs(os.fsencode(path), buffer):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
    return ctypes.c_long.from_buffer(buffer).value & 0xFFFF_FFFF


def whose(directory: Path) -> str:
    """Tell who may use a directory, for an operator whose process may not; "" if unknown."""
    for path in (directory, *directory.parents):
        try:
            owner = path.stat().st_uid
        except OSError:
            continue
        me = os.geteuid()
        if owner == me:
            return f". {path} is of this user, uid {me}: give it the rights back (chmod u+rwx)"
        return f". {path} is of uid {owner}, and this process of uid {me}: chown it, or run as that"
    return ""


def random_bits(files: Files, count: int) -> int:
    """Draw a number of so many bits."""
    return int.from_bytes(files.random_bytes(-(-count // 8)), "little") >> -count % 8


def write_all(files: Files, fd: int, data: bytes | memoryview, offset: int) -> None:
    """Write all of `data`, going on after short counts. Raises OSError."""
    written = files.pwrite(fd, data, offset)
    if written == len(data):
        return
    rest = memoryview(data)
    while written < len(data):
        count = files.pwrite(fd, rest[written:], offset + written)
        if count == 0:
            raise OSError(errno.EIO, "the disk accepts no more bytes and names no reason")
        written += count
