"""`latermq backup verify` and `latermq restore`: what reads the records of a backup.

A backup is read as a data directory is: `BackupFiles` shows its pieces as the files of a log, and
what `latermq log verify` does to those says whether it is whole.
"""

import os
from bisect import bisect_right
from collections import deque
from pathlib import Path
from typing import Any, Final, cast

import click

from latermq_broker.offline.log_commands import store_errors
from latermq_broker.store.directory import LOG_NAME, SHARD_NAME
from latermq_broker.store.files import Files, OpenMode, RealFiles
from latermq_broker.store.log.segment import segment_name
from latermq_broker.store.offline.inspect import VerifyReport, verify_directory
from latermq_broker.store.records.kinds import check_content
from latermq_cli.backup.manifest import Manifest, Piece
from latermq_cli.backup.repository import SHARD, Repository, repositories
from latermq_cli.backup.shelf import shelf_of
from latermq_cli.connection.options import example, json_option
from latermq_cli.terminal.console import counted, print_json
from latermq_cli.terminal.failures import CommandError, NotThereError, RefusedError
from latermq_cli.terminal.table import plain
from latermq_cli.terminal.times import format_instant

RESTORING: Final = "RESTORING"  # of no name of ours: no broker opens a directory that has it
PART: Final = ".part"
_ROOT: Final = Path("backup")
_at: Final = click.option(
    "--at", "name", metavar="NAME", help="This backup, or the one whose name begins so. [newest]"
)


class BackupFiles:
    """What reading a log asks of `store.files.Files`, answered from a backup's pieces."""

    def __init__(self, repository: Repository, manifest: Manifest) -> None:
        self._repository = repository
        self._segments = {segment_name(base): (base, size) for base, size in manifest.segments}
        self._position = manifest.position
        self._pieces = {piece.begin: piece for piece in manifest.pieces}
        self._begins = [piece.begin for piece in manifest.pieces]
        self._opened: dict[int, tuple[int, int]] = {}
        self._held: tuple[Piece | None, bytes] = (None, b"")
        self.unread = set(manifest.pieces)

    def list_directory(self, path: Path) -> list[str]:
        if path == _ROOT:
            return [LOG_NAME]
        if path == _ROOT / LOG_NAME:
            return sorted(self._segments)
        raise FileNotFoundError(path)

    def open(self, path: Path, mode: OpenMode) -> int:
        fd = len(self._opened)
        self._opened[fd] = self._segments[path.name]
        return fd

    def close(self, fd: int) -> None:
        """Keep it: numbers are given once."""

    def size(self, fd: int) -> int:
        base, size = self._opened[fd]
        return min(size, self._position - base)

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        base = self._opened[fd][0]
        at, end = base + offset, base + min(offset + count, self.size(fd))
        parts: list[bytes] = []
        while at < end:
            piece = self._piece_at(at)
            data = self._data(piece)[at - piece.begin : end - piece.begin]
            parts.append(data)
            at += len(data)
        return b"".join(parts)

    def next_data(self, fd: int, offset: int) -> int:
        return offset

    def check_rest(self) -> None:
        """Read what nobody asked for, as behind the end of a segment. Raises CommandError."""
        for piece in sorted(self.unread):
            self._data(piece)

    def _piece_at(self, position: int) -> Piece:
        return self._pieces[self._begins[bisect_right(self._begins, position) - 1]]

    def _data(self, piece: Piece) -> bytes:
        if self._held[0] != piece:
            self._held = (piece, self._repository.read(piece))
            self.unread.discard(piece)
        return self._held[1]


def examined(repository: Repository, manifest: Manifest) -> VerifyReport:
    """Read a backup's log, every record of it.

    Raises:
        CommandError: it is not whole.
    """
    _require_all_pieces(manifest)
    files = BackupFiles(repository, manifest)
    report = verify_directory(_ROOT, cast(Files, files), check_content)
    files.check_rest()
    _require_whole(report, manifest, f"backup {manifest.name}")
    return report


def _require_all_pieces(manifest: Manifest) -> None:
    if not manifest.is_whole:
        raise CommandError(f"the manifest of backup {manifest.name} does not name the whole log")


def _require_whole(report: VerifyReport, manifest: Manifest, what: str) -> None:
    if report.damages:
        damage = report.damages[0]
        raise CommandError(f"{what} is damaged at position {damage.position}: {damage.reason}")
    if report.end != manifest.position:
        raise CommandError(f"{what} ends at {report.end}, and should at {manifest.position}")


@click.command(
    epilog=example("latermq backup verify /mnt/backups", "latermq backup verify /mnt/b --all")
)
@click.argument("place", metavar="DIR")
@_at
@click.option("--all", "every", is_flag=True, help="Every backup, not only one.")
@json_option
def verify(place: str, name: str | None, every: bool, as_json: bool) -> None:
    """Read the newest backup in DIR: every piece against its checksum, and every record.

    Exits 1 when it is not whole.
    """
    damaged: list[str] = []
    for shard, repository in repositories(shelf_of(place)):
        names: list[str | None] = [*repository.names()] if every else [name]
        for each in names or [None]:
            try:
                manifest = repository.chosen(each)
                with store_errors():
                    report = examined(repository, manifest)
            except CommandError as error:
                if not every or isinstance(error, NotThereError):
                    raise
                damaged.append(error.message)  # which of the others are whole is asked, too
                continue
            records = sum(report.records.values())
            if as_json:
                print_json(
                    ({"shard": shard} if shard else {})
                    | {"name": manifest.name, "ok": True, "position": report.end}
                    | {"records": records}
                )
            else:
                click.echo(
                    f"shard {shard}: "
                    * bool(shard)
                    + f"backup {manifest.name}: {counted(records, 'record')} up to position "
                    f"{report.end}, whole"
                )
    if damaged:
        raise CommandError("; ".join(damaged))


@click.command(
    epilog=example(
        "latermq restore /mnt/backups /var/lib/latermq-restored",
        "latermq restore s3://bucket/latermq ./restored --at 20261123T04",
    )
)
@click.argument("place", metavar="DIR")
@click.argument("data", metavar="NEWDATA", type=click.Path(path_type=Path))
@_at
@json_option
def restore(place: str, data: Path, name: str | None, as_json: bool) -> None:
    """Make the data directory NEWDATA of the newest backup in DIR.

    NEWDATA must be empty, or not there. What was restored is read again, every record; then a
    broker starts from it, and replays the whole log once. Of a cluster restore each shard's folder.
    """
    shelf = shelf_of(place)
    repository = Repository(shelf)
    if not repository.names() and any(each.startswith(SHARD) for each in shelf.folders()):
        raise RefusedError(
            f"{shelf.place} has a folder for each shard of a cluster: restore them one by one, "
            f"e.g. `latermq restore {shelf.place}/shard-0 {data}/0`"
        )
    manifest = repository.chosen(name)
    with store_errors():
        report = restored(repository, manifest, data)
    records = {kind.name.lower(): count for kind, count in report.records.items()}
    if as_json:
        print_json(
            {
                "name": manifest.name,
                "taken_at_ms": manifest.taken_at_ms,
                "directory": str(data),
                "start": manifest.segments[0][0],
                "position": manifest.position,
                "segments": len(manifest.segments),
                "records": records,
                "shard_mark": manifest.shard_mark,
            }
        )
        return
    where = plain(str(data))
    click.echo(
        f"restored backup {manifest.name} to {where}: the log of {plain(manifest.broker)} as of "
        f"{format_instant(manifest.taken_at_ms)}"
    )
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in records.items())
    click.echo(f"  {counted(len(manifest.segments), 'segment')}, every record read: {kinds}")
    click.echo(f"  start a broker on it: latermq serve --data-dir {where}")


def restored(repository: Repository, manifest: Manifest, data: Path) -> VerifyReport:
    """Make a data directory of a backup.

    Until it is whole no broker opens it: first because of RESTORING, then because the front of its
    log is missing.

    Raises:
        RefusedError: the directory holds something.
        CommandError: the backup is not whole, or the disk refuses.
    """
    _require_all_pieces(manifest)
    try:
        return _restored(repository, manifest, data)
    except FileExistsError:
        raise RefusedError(f"{data} is a file") from None
    except OSError as error:
        raise CommandError(f"cannot write {data}: {error.strerror or error}") from error


def _restored(repository: Repository, manifest: Manifest, data: Path) -> VerifyReport:
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    names = {each.name for each in data.iterdir()} - {"lost+found"}
    if RESTORING in names:
        raise RefusedError(f"{data} holds a restore that did not come to its end: delete it first")
    if names:
        raise RefusedError(f"{data} is not empty; nothing was changed")
    (data / RESTORING).write_text(manifest.name + "\n")
    log = data / LOG_NAME
    log.mkdir(mode=0o700)
    files = RealFiles()
    files.sync_directory(data)
    rest = deque(manifest.pieces)
    for base, size in manifest.segments:
        pieces: list[Piece] = []
        while rest and rest[0].begin < base + size:
            pieces.append(rest.popleft())
        _write(log / (segment_name(base) + PART), (repository.read(piece) for piece in pieces))
    if manifest.shard_mark:
        _write(data / SHARD_NAME, [manifest.shard_mark.encode()])
    for base, _ in reversed(manifest.segments):
        path = log / segment_name(base)
        path.with_name(path.name + PART).replace(path)
        files.sync_directory(log)
    report = verify_directory(data, files, check_content)
    _require_whole(report, manifest, str(data))
    (data / RESTORING).unlink()
    files.sync_directory(data)
    files.sync_directory(data.absolute().parent)
    return report


def _write(path: Path, parts: Any) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(descriptor)
