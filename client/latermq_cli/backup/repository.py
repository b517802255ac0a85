"""Backups on a shelf: pieces of logs, and for each backup a manifest that names what it needs.

    log/<20-digit begin>-<length>-<32 hex digits of SHA-256>   bytes of the log, at most 16 MiB
    backups/<name>.json                                        a backup, whole
    backups/<name>.part                                        one that did not come to its end
    backups/<any other name>.json                              one that somebody renamed, to keep it

Pieces lie on a grid in each segment, so that the next backup needs those anew only that were not
full. A manifest is written after all its pieces were read again; what none names, a renamed one
neither, is swept. What else is called otherwise is somebody else's, and is never deleted.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from latermq_cli.backup.considerate import Rest
from latermq_cli.backup.manifest import (
    BACKUP_NAME,
    MANIFEST_BYTES_MAX,
    Manifest,
    Piece,
    decode_manifest,
    digest_of,
)
from latermq_cli.backup.shelf import Shelf
from latermq_cli.terminal.failures import CommandError, NotThereError, RefusedError

PIECES: Final = "log"
BACKUPS: Final = "backups"
WHOLE: Final = ".json"
PART: Final = ".part"
SHARD: Final = "shard-"  # folders, where the shelf is of a cluster
_SHARD_FOLDER: Final = re.compile(rf"{SHARD}[0-9]{{1,9}}")
_PIECE: Final = re.compile(r"[0-9]{20}-[0-9]+-[0-9a-f]{32}")
_SEGMENT: Final = ".seg"  # of a log that a broker writes


class Repository:
    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf

    def check_place(self) -> None:
        """Check that backups may lie here. Raises RefusedError: a broker's log does."""
        if any(name.endswith(_SEGMENT) for name in self.shelf.names(PIECES)):
            raise RefusedError(
                f"{self.shelf.place} is the data directory of a broker: backups need another place"
            )

    def names(self, suffix: str = WHOLE) -> list[str]:
        """List the backups, the oldest first."""
        files = self.shelf.names(BACKUPS)
        names = (name.removesuffix(suffix) for name in files if name.endswith(suffix))
        return sorted(name for name in names if BACKUP_NAME.fullmatch(name))

    def manifest(self, name: str, suffix: str = WHOLE) -> Manifest:
        """Read one's manifest. Raises CommandError, NotThereError."""
        try:
            data = self.shelf.read(BACKUPS, name + suffix, MANIFEST_BYTES_MAX)
        except FileNotFoundError:
            raise NotThereError(f"there is no backup {name} in {self.shelf.place}") from None
        return decode_manifest(data, name)

    def chosen(self, name: str | None) -> Manifest:
        """Read the manifest of the backup whose name begins like this; None: of the newest.

        Raises:
            NotThereError: there is none.
            RefusedError: there are several.
        """
        names = self.names()
        if not names:
            raise NotThereError(f"there is no backup in {self.shelf.place}")
        if name is None:
            return self.manifest(names[-1])
        alike = [each for each in names if each.startswith(name)]
        if name not in alike and len(alike) > 1:
            raise RefusedError(f"several backups begin with {name}: {', '.join(alike)}")
        return self.manifest(name if name in alike or not alike else alike[0])

    def save(self, manifest: Manifest, suffix: str) -> None:
        self.shelf.write(BACKUPS, manifest.name + suffix, manifest.encode())

    def read(self, piece: Piece, rest: Rest | None = None) -> bytes:
        """Read a piece and check it. Raises CommandError."""
        try:
            data = self.shelf.read(PIECES, piece.name, piece.length, rest)
        except FileNotFoundError:
            raise CommandError(f"{self.shelf.place}: {PIECES}/{piece.name} is missing") from None
        if len(data) != piece.length or digest_of(data) != piece.digest:
            raise CommandError(
                f"{self.shelf.place}: {PIECES}/{piece.name} does not match its checksum"
            )
        return data

    def forget(self, names: Iterable[str]) -> None:
        """Delete backups; `sweep` deletes what only they needed."""
        for name in names:
            self.shelf.delete(BACKUPS, name + WHOLE)

    def sweep(self, *, parts: bool = False) -> int:
        """Delete the pieces that no backup needs; how many.

        While a manifest cannot be read none is: it may need them. One that was renamed counts.
        Args:
            parts: those of backups that did not come to their end are needed; else these are
                deleted.
        """
        needed: set[str] = set()
        for suffix in (WHOLE, PART):
            for name in self.names(suffix):
                if suffix == PART and not parts:
                    self.shelf.delete(BACKUPS, name + PART)
                    continue
                try:
                    needed.update(piece.name for piece in self.manifest(name, suffix).pieces)
                except CommandError:
                    return 0
        try:
            for manifest in self._renamed():
                needed.update(piece.name for piece in manifest.pieces)
        except (CommandError, FileNotFoundError):  # the latter: it is being renamed
            return 0
        pieces = filter(_PIECE.fullmatch, self.shelf.names(PIECES))
        unneeded = [name for name in pieces if name not in needed]
        for name in unneeded:
            self.shelf.delete(PIECES, name)
        return len(unneeded)

    def _renamed(self) -> Iterator[Manifest]:
        """Yield the backups that somebody has called otherwise; `names` does not list them.

        Raises CommandError, FileNotFoundError: one cannot be read, or is of a newer version.
        """
        for file in self.shelf.names(BACKUPS):
            name = file.removesuffix(WHOLE)
            if name == file or BACKUP_NAME.fullmatch(name):
                continue
            data = self.shelf.read(BACKUPS, file, MANIFEST_BYTES_MAX)
            try:
                manifest = decode_manifest(data, name)
            except RefusedError:
                raise
            except CommandError:  # somebody else's
                continue
            yield manifest


def repositories(shelf: Shelf) -> list[tuple[str, Repository]]:
    """List what backups are in a place: of a broker, named "", or of each shard of a cluster."""
    shards = [name for name in shelf.folders() if _SHARD_FOLDER.fullmatch(name)]
    if not shards:
        return [("", Repository(shelf))]
    numbers = sorted((name.removeprefix(SHARD) for name in shards), key=lambda n: (len(n), n))
    return [(number, Repository(shelf.below(SHARD + number))) for number in numbers]
