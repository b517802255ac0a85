"""A disk that loses power and fails calls, on top of `memory_files`.

Until a file is synced, each 512-byte sector written since its last sync may be found old, in any
newer version, or torn between two; its size may be found old or new. Until a directory is synced,
each creation, rename and removal in it may be found done or not. Which, is drawn from a seed.

Any call can fail with any error, once or for good, write half of what it was given, or lie: claim
success and do nothing. What a lying sync was asked to store stays in the cache and looks stored;
it is gone when the cache is dropped or power fails, as after a failed fsync on Linux.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from latermq_broker.store.files import OpenMode
from support.memory_files import Inode, MemoryDisk, MemoryFiles

SECTOR_BYTES: Final = 512
SHORT_WRITE: Final = -1  # as a fault's error: pwrite writes half, nothing is raised
LIE: Final = -2  # pwrite, datasync or sync_directory does nothing and claims success
LYING_CALLS: Final = frozenset({"pwrite", "datasync", "sync_directory"})


@dataclass(frozen=True, slots=True)
class Fault:
    """The `at`-th call (from 1) fails; with `persistent`, every later one of its kind too."""

    at: int
    error: int
    persistent: bool = False


class Death(BaseException):
    """The process is gone: nothing in it may go on."""


class TornInode(Inode):
    """A file's bytes, and what of them the medium is known to hold."""

    def __init__(self) -> None:
        super().__init__()
        self.synced = bytearray()
        self.versions: dict[int, list[bytes]] = {}  # sector: its contents since the last sync
        self.lied = False  # a sync of it claimed what it did not do

    def store(self) -> None:
        """A sync: what was written since the last one is on the medium."""
        self.synced[len(self.data) :] = b""
        self.synced.extend(bytes(len(self.data) - len(self.synced)))
        for sector in self.versions:
            start = sector * SECTOR_BYTES
            self.synced[start : start + SECTOR_BYTES] = self.data[start : start + SECTOR_BYTES]
        self.versions.clear()

    def pretend(self) -> None:
        """A sync that lies: the cache holds clean pages that the medium does not."""
        self.synced.extend(bytes(max(0, len(self.data) - len(self.synced))))
        self.versions.clear()
        self.lied = True

    def drop_clean(self) -> None:
        """Clean pages are read from the medium again."""
        if not self.lied:
            return
        dirty = {
            sector: self.data[sector * SECTOR_BYTES :][:SECTOR_BYTES] for sector in self.versions
        }
        self.data[:] = self.synced[: len(self.data)].ljust(len(self.data), b"\0")
        for sector, content in dirty.items():
            start = sector * SECTOR_BYTES
            self.data[start : start + len(content)] = content
        self.lied = False

    def image(self, random: Random) -> bytes:
        """What the medium may hold if power fails now."""
        size = random.choice((len(self.synced), len(self.data)))
        data = bytearray(self.synced[:size].ljust(size, b"\0"))
        for sector, versions in self.versions.items():
            start = sector * SECTOR_BYTES
            if start >= size:
                continue
            old = bytes(data[start : start + SECTOR_BYTES])
            chosen = random.choice((old, *versions))
            if random.random() < 0.1:  # torn between two
                cut = random.randrange(SECTOR_BYTES)
                chosen = chosen[:cut] + old[cut:]
            data[start : start + SECTOR_BYTES] = chosen[: size - start]
        return bytes(data)


@dataclass(frozen=True, slots=True)
class NameChange:
    """One change of a directory: `removed` disappears, `added` appears as a file or directory."""

    removed: Path | None
    added: Path | None
    inode: TornInode | None = None


class TornDisk(MemoryDisk):
    """Knows what of it is durable."""

    def __init__(self, capacity_bytes: int | None = None, *, entropy: Random | None = None) -> None:
        super().__init__(capacity_bytes, entropy=entropy)
        self._durable: dict[Path, TornInode] = {}
        self._durable_directories: set[Path] = {Path("/")}
        self._changes: dict[Path, list[NameChange]] = {}

    def power_loss(self, seed: int) -> "TornDisk":
        """The disk as it may be found when power fails now."""
        random = Random(seed)
        other = TornDisk(self.capacity_bytes, entropy=self.entropy)
        names: dict[Path, TornInode] = dict(self._durable)
        directories = set(self._durable_directories)
        probability = random.choice((0.0, 0.5, 0.5, 1.0))
        for changes in self._changes.values():
            for change in changes:
                if random.random() < probability:
                    _apply(change, names, directories)
        for directory in sorted(directories):
            if all(parent in directories for parent in directory.parents):
                other.directories.add(directory)
                other._durable_directories.add(directory)
        for path, inode in names.items():
            if path.parent in other.directories:
                twin = TornInode()
                twin.data = bytearray(inode.image(random))
                twin.synced = bytearray(twin.data)
                other.inodes[path] = other._durable[path] = twin
        return other

    def clone(self) -> "TornDisk":
        """An independent copy, as after `kill`, all of it durable."""
        other = TornDisk(self.capacity_bytes, entropy=self.entropy)
        other.directories = set(self.directories)
        other._durable_directories = set(self.directories)
        for path, inode in self.inodes.items():
            twin = other.inodes[path] = other._durable[path] = TornInode()
            twin.data, twin.synced = bytearray(inode.data), bytearray(inode.data)
        return other

    def create(self, path: Path) -> Inode:
        inode = self.inodes[path] = TornInode()
        self.note(path.parent, NameChange(None, path, inode))
        return inode

    def make_directory(self, path: Path) -> None:
        super().make_directory(path)
        self.note(path.parent, NameChange(None, path))

    def write(self, inode: Inode, data: bytes, offset: int) -> int:
        count = super().write(inode, data, offset)
        versions = torn(inode).versions
        for sector in range(offset // SECTOR_BYTES, -(-(offset + count) // SECTOR_BYTES)):
            start = sector * SECTOR_BYTES
            content = bytes(inode.data[start : start + SECTOR_BYTES]).ljust(SECTOR_BYTES, b"\0")
            versions.setdefault(sector, []).append(content)
        return count

    def note(self, directory: Path, change: NameChange) -> None:
        self._changes.setdefault(directory, []).append(change)

    def sync_file(self, fd: int) -> None:
        torn(self.opened(fd)).store()

    def sync_all(self) -> None:
        for inode in self.inodes.values():
            torn(inode).store()
        for directory in list(self._changes):
            self.sync_names(directory)

    def sync_names(self, directory: Path) -> None:
        for change in self._changes.pop(directory, ()):
            _apply(change, self._durable, self._durable_directories)


class TornFiles(MemoryFiles):
    """The `Files` of one process on a `TornDisk`; `after_call` runs after every change."""

    def __init__(self, disk: TornDisk | None = None) -> None:
        self.disk: TornDisk = disk or TornDisk()
        self.calls = 0
        self.fault: Fault | None = None
        self.fired = 0  # faults so far
        self.dead = False  # the process is gone: every call raises Death
        self.after_call: Callable[[], None] | None = None
        self.before_write: Callable[[int], int] | None = None  # of so many bytes: how many to write
        self.lies: list[tuple[str, Path | None]] = []  # calls that lied, and of which file
        self._fault_kind = ""

    def power_loss(self, seed: int) -> "TornFiles":
        """The files of a process that starts after power failed now."""
        return TornFiles(self.disk.power_loss(seed))

    def open(self, path: Path, mode: OpenMode) -> int:
        fd = super().open(path, mode)
        self._changed()
        return fd

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        if self.before_write is not None:
            data = bytes(data[: self.before_write(len(data))])
        try:
            count = super().pwrite(fd, data, offset)
        except _LieError:
            return self._lied("pwrite", fd, len(data))
        except _ShortWriteError:
            half = bytes(data[: len(data) // 2])
            count = self.disk.write(self.disk.opened(fd), half, offset)
        self._changed()
        return count

    def allocate(self, fd: int, size: int) -> None:
        super().allocate(fd, size)
        self._changed()

    def datasync(self, fd: int) -> None:
        try:
            super().datasync(fd)
        except _LieError:
            torn(self.disk.opened(fd)).pretend()
            self._lied("datasync", fd, 0)
            return
        self.disk.sync_file(fd)
        self._changed()

    def drop_cache(self, fd: int) -> None:
        super().drop_cache(fd)
        torn(self.disk.opened(fd)).drop_clean()

    def rename(self, old: Path, new: Path) -> None:
        super().rename(old, new)
        self.disk.note(new.parent, NameChange(old, new, torn(self.disk.inodes[new])))
        self._changed()

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self.disk.note(path.parent, NameChange(path, None))
        self._changed()

    def make_directory(self, path: Path) -> None:
        super().make_directory(path)
        self._changed()

    def remove_directory(self, path: Path) -> None:
        super().remove_directory(path)
        self.disk.note(path.parent, NameChange(path, None))
        self._changed()

    def sync_directory(self, path: Path, *, everything: bool = False) -> None:
        try:
            super().sync_directory(path, everything=everything)
        except _LieError:
            self.lies.append(("sync_directory", path))
            return
        if everything:
            self.disk.sync_all()
        self.disk.sync_names(path)
        self._changed()

    def _called(self, name: str) -> None:
        if self.dead:
            raise Death
        self.calls += 1
        fault = self.fault
        if fault is None or self.calls < fault.at:
            return
        if self.calls == fault.at:
            self._fault_kind = name
        elif not (fault.persistent and name == self._fault_kind):
            return
        if fault.error == SHORT_WRITE:
            if name == "pwrite":
                self.fired += 1
                raise _ShortWriteError
            return
        if fault.error == LIE:
            if name in LYING_CALLS:
                self.fired += 1
                raise _LieError
            return
        self.fired += 1
        raise OSError(fault.error, os.strerror(fault.error))

    def _lied(self, name: str, fd: int, claimed: int) -> int:
        inode = self.disk.opened(fd)
        path = next((path for path, one in self.disk.inodes.items() if one is inode), None)
        self.lies.append((name, path))
        return claimed

    def _changed(self) -> None:
        if self.after_call is not None:
            self.after_call()


class _ShortWriteError(Exception):
    pass


class _LieError(Exception):
    pass


def torn(inode: Inode) -> TornInode:
    assert isinstance(inode, TornInode)
    return inode


def _apply(change: NameChange, names: dict[Path, TornInode], directories: set[Path]) -> None:
    if change.removed is not None:
        names.pop(change.removed, None)
        directories.discard(change.removed)
    if change.added is not None:
        if change.inode is None:
            directories.add(change.added)
        else:
            names[change.added] = change.inode
