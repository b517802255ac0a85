"""Where backups are kept: a directory, or a bucket of an object store by way of fsspec.

A shelf has flat folders of files that are written once, whole or not at all, and never changed.
"""

import errno
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

from latermq_cli.backup.considerate import SLICE_BYTES, SYNCED_SLICES, Rest
from latermq_cli.backup.mark import RUNNING, Mark
from latermq_cli.terminal.failures import CommandError, RefusedError
from latermq_text.regular_files import open_regular, read_bounded

_NEW: Final = ".latermq-new"  # nobody else's files are called so
_LOCK: Final = "LOCK"
_PASSWORD: Final = re.compile(r"(://[^/@]*?):[^/]*@")


class Shelf(Protocol):
    """Every method raises CommandError where the medium fails, and says why."""

    place: str  # as people say it

    def folders(self) -> list[str]:
        """Name the folders in it; none where it does not exist."""

    def names(self, folder: str) -> dict[str, int]:
        """Tell the files of a folder and how long they are; none where there is no folder.

        What is no regular file is told, too, for `read` to refuse: a manifest may be meant by it.
        """

    def read(self, folder: str, name: str, bytes_max: int, rest: Rest | None = None) -> bytes:
        """Read a file of at most `bytes_max`, on a disk of this machine with rests.

        Raises FileNotFoundError. A link, a pipe, a device and a longer file are no files of ours.
        """

    def write(self, folder: str, name: str, data: bytes, rest: Rest | None = None) -> None:
        """Write a file, so that it is there afterwards whole, or not at all."""

    def delete(self, folder: str, name: str) -> None:
        """Delete a file, if it is there."""

    def locked(self) -> Any:
        """Keep others from writing; a context manager. Raises RefusedError: another does."""

    def below(self, folder: str) -> "Shelf":
        """Give the shelf in a folder of this one."""


class DirectoryShelf:
    """Files are synced before they get their names."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.place = str(path)

    def folders(self) -> list[str]:
        with _failures(self.place):
            try:
                return sorted(each.name for each in self._path.iterdir() if each.is_dir())
            except FileNotFoundError:
                return []

    def names(self, folder: str) -> dict[str, int]:
        with _failures(self.place):
            try:
                with os.scandir(self._path / folder) as entries:
                    return {
                        entry.name: entry.stat(follow_symlinks=False).st_size
                        for entry in entries
                        if not entry.is_dir(follow_symlinks=False) and not entry.name.endswith(_NEW)
                    }
            except FileNotFoundError:
                return {}

    def read(self, folder: str, name: str, bytes_max: int, rest: Rest | None = None) -> bytes:
        path = self._path / folder / name
        with _failures(self.place):
            descriptor = open_regular(path)
            try:
                # What was just written is in memory: it is to be seen as the disk has it.
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                if rest is None:
                    return read_bounded(descriptor, path, bytes_max)
                data = bytearray()
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # a slice, no megabytes
                while part := os.read(descriptor, SLICE_BYTES):
                    data += part
                    if len(data) > bytes_max:
                        break  # it does not match its checksum
                    rest(len(part))
                # Nobody reads the copy soon: gigabytes of it would drive what the broker reads out.
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                return bytes(data)
            finally:
                os.close(descriptor)

    def write(self, folder: str, name: str, data: bytes, rest: Rest | None = None) -> None:
        with _failures(self.place):
            parent = self._path / folder
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = parent / (name + _NEW)
            try:
                new.unlink(missing_ok=True)  # a pipe or a link of that name is not written to
                descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with open(descriptor, "wb") as file:
                    step = SLICE_BYTES if rest is not None else max(1, len(data))
                    for number, at in enumerate(range(0, len(data), step), 1):
                        file.write(data[at : at + step])
                        file.flush()
                        if rest is not None:
                            if not number % SYNCED_SLICES:
                                os.fdatasync(descriptor)
                            rest(min(step, len(data) - at))
                    os.fsync(descriptor)
            except OSError:
                with suppress(OSError):
                    new.unlink()
                raise
            new.replace(parent / name)
            _sync_directory(parent)

    def delete(self, folder: str, name: str) -> None:
        with _failures(self.place):
            (self._path / folder / name).unlink(missing_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        with _failures(self.place):
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = open_regular(self._path / _LOCK, os.O_RDWR | os.O_CREAT)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RefusedError(f"another backup to {self.place} is running") from None
            for folder in self.folders():  # what a write that was cut off left
                for left in (self._path / folder).glob(f"*{_NEW}"):
                    left.unlink()
            yield
        finally:
            os.close(descriptor)

    def below(self, folder: str) -> "DirectoryShelf":
        return DirectoryShelf(self._path / folder)


class BucketShelf:
    """What fsspec reaches: an object is there when its write has ended.

    While it is locked, every write and every deletion first sees that the lock still counts.
    """

    def __init__(self, url: str, system: Any = None, root: str = "") -> None:
        self.place = _shown(url)
        if system is None:
            system, root = _opened(url)
        self._system = system
        self._root = root.rstrip("/")
        self._mark: Mark | None = None

    def folders(self) -> list[str]:
        with _failures(self.place):
            try:
                entries = self._system.ls(self._root, detail=True)
            except FileNotFoundError:
                return []
            return sorted(_last(each["name"]) for each in entries if each["type"] == "directory")

    def names(self, folder: str) -> dict[str, int]:
        with _failures(self.place):
            self._system.invalidate_cache()
            try:
                entries = self._system.ls(f"{self._root}/{folder}", detail=True)
            except FileNotFoundError:
                return {}
            return {_last(each["name"]): each["size"] for each in entries if each["type"] == "file"}

    def read(self, folder: str, name: str, bytes_max: int, rest: Rest | None = None) -> bytes:
        path = f"{self._root}/{folder}/{name}"
        with _failures(self.place):
            size = self._system.size(path)
            if size is None or size > bytes_max:
                raise CommandError(
                    f"{self.place}: {folder}/{name} has {size} bytes, at most {bytes_max} are read"
                )
            return bytes(self._system.cat_file(path, end=bytes_max) if size else b"")

    def written_at(self, folder: str, name: str) -> datetime:
        """Tell by the store's clock when a file was written. Raises FileNotFoundError."""
        with _failures(self.place):
            try:
                at: datetime = self._system.modified(f"{self._root}/{folder}/{name}")
            except NotImplementedError:
                raise RefusedError(
                    f"{self.place} cannot be used: it does not say when a file was written"
                ) from None
            return at

    def write(self, folder: str, name: str, data: bytes, rest: Rest | None = None) -> None:
        self._renew(folder)
        with _failures(self.place):
            self._system.makedirs(f"{self._root}/{folder}", exist_ok=True)
            self._system.pipe_file(f"{self._root}/{folder}/{name}", data)

    def delete(self, folder: str, name: str) -> None:
        self._renew(folder)
        with _failures(self.place), suppress(FileNotFoundError):
            self._system.rm_file(f"{self._root}/{folder}/{name}")

    @contextmanager
    def locked(self) -> Iterator[None]:
        mark = Mark(self)
        try:
            mark.wait()
            self._mark = mark
            yield
        finally:
            self._mark = None
            mark.remove()

    def below(self, folder: str) -> "BucketShelf":
        return BucketShelf(
            f"{self.place.rstrip('/')}/{folder}", self._system, f"{self._root}/{folder}"
        )

    def _renew(self, folder: str) -> None:
        if self._mark is not None and folder != RUNNING:
            self._mark.renew()


def shelf_of(place: str) -> Shelf:
    """Give the shelf at a path or a URL.

    Raises:
        RefusedError: no such kind of place, or what reaches it is not installed.
    """
    scheme, separator, rest = place.partition("://")
    if not separator:
        if not place:
            raise RefusedError("the name of the directory is empty")
        return DirectoryShelf(Path(place))
    if scheme == "file":
        return DirectoryShelf(Path(rest))
    return BucketShelf(place)


def _opened(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise RefusedError(
            f"{_shown(url)} needs fsspec: pip install 'latermq[backup]', and what it needs for "
            "such a place, e.g. s3fs"
        ) from None
    try:
        system, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise RefusedError(f"{_shown(url)} cannot be used: {error}") from None
    return system, str(root)


def _shown(url: str) -> str:
    """Return a URL as it may be printed: without the password that may be in it."""
    return _PASSWORD.sub(r"\1:…@", url)


@contextmanager
def _failures(place: str) -> Iterator[None]:
    """Say a failure of the medium as a command does."""
    try:
        yield
    except (FileNotFoundError, CommandError):
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CommandError(f"{place} is full: {error.strerror}") from error
        raise CommandError(f"{place} cannot be used: {error.strerror or error}") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] in {"builtins", "latermq_cli"}:
            raise
        raise CommandError(f"{place} cannot be used: {error}") from error  # of a store's own kind


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
