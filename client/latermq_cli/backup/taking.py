"""One backup of one broker: cut its log, copy what is new, read that again, write the manifest.

The bytes come from the broker's files where these can be read, else through the broker. Both at a
pace. Every few seconds the broker hears what is still to be copied, and what was copied is noted,
so that a backup that is cut off goes on where it was.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from latermq_cli import clock
from latermq_cli.backup.considerate import SLICE_BYTES, Pace, Rest, in_idle_time
from latermq_cli.backup.manifest import Manifest, Piece, digest_of, grid
from latermq_cli.backup.repository import PART, PIECES, WHOLE, Repository
from latermq_cli.connection.connection import Connection, check_status
from latermq_cli.terminal.failures import CommandError, NotThereError
from latermq_proto.latermq.v1 import backup_pb2
from latermq_text.regular_files import open_regular

KNOWN_MAX: Final = 64
KEEP_S: Final = 10.0  # between two words to the broker; a hold lasts a minute
MOVES: Final = 3  # of each byte, where the broker's files are copied: read, written, read again
UUID_AT: Final = slice(32, 48)  # in a segment's header
CHECKSUM_BYTES: Final = 8  # a record begins with its checksum


class Done(NamedTuple):
    manifest: Manifest
    copied_bytes: int
    swept: int  # pieces that nobody needed any more
    through: str  # "files" or "broker"


class Source(Protocol):
    through: str

    def read(self, begin: int, end: int) -> Iterator[bytes]:
        """Yield the log's bytes of one segment in slices. Raises CommandError, NotThereError."""


class FileSource:
    """The broker's own files, of the same machine."""

    through = "files"

    def __init__(self, cut: Any) -> None:
        self._log = Path(cut.directory) / "log"
        self._segments = [(each.base, each.base + each.size) for each in cut.segments]

    @classmethod
    def of(cls, cut: Any) -> "FileSource | None":
        """Give the source, if the directory here is the broker's and may be read.

        A restored copy has the log's uuid, too, and may lie at the same path of another machine: it
        has not the newest record.
        """
        source = cls(cut)
        newest = cut.newest.position
        try:
            for base, upto in source._segments:
                with source._opened(base) as descriptor:
                    if os.pread(descriptor, UUID_AT.stop, 0)[UUID_AT] != cut.log_uuid:
                        return None
                    if base <= newest < upto:
                        checksum = os.pread(descriptor, CHECKSUM_BYTES, newest - base)
                        if int.from_bytes(checksum, "little") != cut.newest.checksum:
                            return None
        except OSError:
            return None
        return source

    def read(self, begin: int, end: int) -> Iterator[bytes]:
        base = next(base for base, upto in self._segments if base <= begin < upto)
        try:
            with self._opened(base) as descriptor:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # a slice, no more
                at = begin
                while at < end:
                    data = os.pread(descriptor, min(SLICE_BYTES, end - at), at - base)
                    if not data:
                        raise CommandError(f"{self._path(base)} is shorter than it was")
                    at += len(data)
                    yield data
        except FileNotFoundError:
            raise NotThereError(f"{self._path(base)} is gone: retention has deleted it") from None
        except OSError as error:
            raise CommandError(f"cannot read {self._path(base)}: {error.strerror}") from error

    @contextmanager
    def _opened(self, base: int) -> Iterator[int]:
        """Open a segment's file: the broker says where it is, and may say anything."""
        descriptor = open_regular(self._path(base), follow=True)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _path(self, base: int) -> Path:
        return self._log / f"{base:020d}.seg"


class BrokerSource:
    """The log's bytes through the broker, which keeps the pace."""

    through = "broker"

    def __init__(self, connection: Connection, pace: int) -> None:
        self._connection = connection
        self._pace = pace

    def read(self, begin: int, end: int) -> Iterator[bytes]:
        request = backup_pb2.ReadLogRequest(begin=begin, end=end, bytes_per_second=self._pace)
        for element in self._connection.stream(self._connection.backups.ReadLog, request):
            check_status(element)
            begin += len(element.data)
            if begin > end:
                raise CommandError(f"the broker sent more than its log up to {end}")
            yield element.data
        if begin != end:
            raise CommandError(f"the broker's log ended at {begin}, before {end}")


class Backup:
    """
    Args:
        pace: bytes a second.
        on_progress: gets the bytes that are there, and those of the whole backup.
    """

    def __init__(
        self,
        connection: Connection,
        repository: Repository,
        pace: int,
        *,
        through_broker: bool,
        on_progress: Callable[[int, int], None],
    ) -> None:
        self._connection = connection
        self._repository = repository
        self._pace = pace
        self._through_broker = through_broker
        self._on_progress = on_progress
        self._told_s = clock.monotonic_s()

    def take(self, keep: int | None) -> Done:
        """Make the backup; afterwards keep the newest `keep`, if that is said.

        Raises:
            CommandError: it was not made; earlier ones are as they were.
        """
        repository = self._repository
        repository.sweep(parts=True)  # before more room is taken
        earlier = self._earlier()
        cut = self._cut(earlier)
        manifest, reused = self._planned(cut, earlier)
        source: Source | None = None if self._through_broker else FileSource.of(cut)
        if source is None:
            source = BrokerSource(self._connection, self._pace)
        pieces: list[Piece] = []
        copied = 0
        try:
            for begin, end in grid(manifest.segments, manifest.position):
                known = reused.get((begin, end))
                if known is None:
                    known = self._copy(source, begin, end)
                    copied += end - begin
                pieces.append(known)
                self._tell(cut.hold, manifest, pieces)
                self._on_progress(end - manifest.segments[0][0], manifest.log_bytes)
            manifest = replace(manifest, pieces=tuple(pieces))
            repository.save(manifest, WHOLE)
        except CommandError as error:
            with suppress(CommandError):  # so that the next goes on from here
                repository.save(replace(manifest, pieces=tuple(pieces)), PART)
            raise CommandError(f"no backup was made: {error.message}") from error
        finally:
            self._keep(cut.hold, 0)
        if keep is not None:
            # Names are times by the broker's clock, which may have been put back.
            others = [name for name in repository.names() if name != manifest.name]
            repository.forget(others[: max(0, len(others) - keep + 1)])
        return Done(manifest, copied, repository.sweep(), source.through)

    def _earlier(self) -> list[Manifest]:
        """List the latest backups, those that were cut off too."""
        manifests: list[Manifest] = []
        for suffix in (PART, WHOLE):
            for name in self._repository.names(suffix)[-KNOWN_MAX // 2 :]:
                with suppress(CommandError):  # `latermq backup verify` tells of a damaged one
                    manifests.append(self._repository.manifest(name, suffix))
        return manifests

    def _cut(self, earlier: list[Manifest]) -> Any:
        request = backup_pb2.BeginBackupRequest(
            known=[
                backup_pb2.LogRecord(position=each.newest[0], checksum=each.newest[1])
                for each in earlier
            ]
        )
        return self._connection.call(self._connection.backups.BeginBackup, request)

    def _planned(
        self, cut: Any, earlier: list[Manifest]
    ) -> tuple[Manifest, dict[tuple[int, int], Piece]]:
        """Return the manifest, without pieces, and those pieces of earlier backups that are in it.

        They are if the log goes on from that backup's last record and was not mended since.
        """
        try:
            manifest = Manifest(
                name=self._new_name(cut.now_ms),
                taken_at_ms=cut.now_ms,
                version=cut.version,
                broker=cut.broker,
                log_uuid=cut.log_uuid.hex(),
                position=cut.position,
                newest=(cut.newest.position, cut.newest.checksum),
                repairs=cut.repairs,
                shard_mark=cut.shard_mark.decode(),
                segments=tuple((each.base, each.size) for each in cut.segments),
                pieces=(),
            )
        except (ValueError, OverflowError) as error:
            raise CommandError(f"the broker's answer makes no backup: {error}") from None
        continued = {(each.position, each.checksum) for each in cut.continued}
        lengths = self._repository.shelf.names(PIECES)
        reused: dict[tuple[int, int], Piece] = {}
        for each in earlier:
            same = (each.log_uuid, each.repairs) == (manifest.log_uuid, manifest.repairs)
            if same and each.newest in continued:
                for piece in each.pieces:
                    if lengths.get(piece.name) == piece.length:
                        reused[piece.begin, piece.end] = piece
        return manifest, reused

    def _new_name(self, now_ms: int) -> str:
        taken = {*self._repository.names(), *self._repository.names(PART)}
        stamp = f"{datetime.fromtimestamp(now_ms / 1_000, UTC):%Y%m%dT%H%M%SZ}"
        numbered = (f"{stamp}-{number}" for number in count(2))
        return next(name for name in chain((stamp,), numbered) if name not in taken)

    def _copy(self, source: Source, begin: int, end: int) -> Piece:
        """Copy a piece of the log; of files beside a broker that is at work."""
        if not isinstance(source, FileSource):
            return self._copied(source, begin, end, None)
        with in_idle_time() as thread:
            rest = Pace(MOVES * self._pace).rest
            return thread.submit(self._copied, source, begin, end, rest).result()

    def _copied(self, source: Source, begin: int, end: int, rest: Rest | None) -> Piece:
        """Copy a piece of the log and read it again."""
        data = bytearray()
        for part in source.read(begin, end):
            data += part
            if rest is not None:
                rest(len(part))
        piece = Piece(begin, end - begin, digest_of(data))
        self._repository.shelf.write(PIECES, piece.name, bytes(data), rest)
        self._repository.read(piece, rest)
        return piece

    def _tell(self, hold: str, manifest: Manifest, pieces: list[Piece]) -> None:
        """Have the broker keep the rest, every few seconds, and note what is there."""
        if clock.monotonic_s() - self._told_s < KEEP_S:
            return
        self._told_s = clock.monotonic_s()
        self._repository.save(replace(manifest, pieces=tuple(pieces)), PART)
        self._keep(hold, pieces[-1].end)

    def _keep(self, hold: str, position: int) -> None:
        """Have the broker keep the log from a position on; 0: not any more."""
        request = backup_pb2.KeepBackupRequest(hold=hold, from_position=position)
        with suppress(CommandError):  # a broker that died: what is gone is noticed when it is read
            self._connection.call(self._connection.backups.KeepBackup, request)
