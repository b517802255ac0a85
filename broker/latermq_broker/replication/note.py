"""The file REPLICA: how much of a replicated log a data directory has, and durably.

    {"format": 1, "cluster": "shop", "shard": 0, "offset": 812, "standing": [4, 9…, 17, …],
     "segments": {"0": 1, "268435456": 640}, "mine": [4, 9…], "whole": true}

What lies in the log's files below `standing.whole_end` is what the valid entries before `offset`
say. What lies behind it may be anything, and is cut off. `mine` is the last fence of this
directory, written down before it was appended: while it counts, no other broker is the owner.
Without `whole` an older build wrote it, and `offset` may be behind what an owner that was replaced
passed over.
"""

import json
from pathlib import Path
from typing import Final, NamedTuple

from latermq_broker.errors import StoreUnusableError, UnsupportedFormatError
from latermq_broker.replication.entry import Offset
from latermq_broker.replication.reader import Reader
from latermq_broker.replication.validity import Standing
from latermq_broker.store.directory import REPLICA_NAME
from latermq_broker.store.files import Files, OpenMode, write_all

NOTE_FORMAT: Final = 1
TEMPORARY_NAME: Final = REPLICA_NAME + ".tmp"
NOTE_BYTES_MAX: Final = 1 << 24


class Note(NamedTuple):
    """What the file says."""

    cluster: str
    shard: int
    offset: Offset = 0
    standing: Standing | None = None
    segments: tuple[tuple[int, Offset], ...] = ()
    mine: tuple[int, int] = (0, 0)  # epoch and token
    whole: bool = False  # nothing before `offset` was passed over

    def of(self, reader: Reader) -> "Note":
        """Return one that says what `reader`, between two groups, knows."""
        assert reader.between_groups
        segments = tuple(sorted(reader.segments.items()))
        return self._replace(
            offset=reader.offset, standing=reader.standing, segments=segments, whole=True
        )


def read_note(files: Files, directory: Path) -> Note | None:
    """Read it; None: there is none. Raises StoreUnusableError, UnsupportedFormatError, OSError."""
    try:
        fd = files.open(directory / REPLICA_NAME, OpenMode.READ)
    except FileNotFoundError:
        return None
    try:
        text = files.pread(fd, NOTE_BYTES_MAX, 0)
    finally:
        files.close(fd)
    try:
        facts = json.loads(text)
        if facts["format"] > NOTE_FORMAT:
            raise UnsupportedFormatError(
                f"{directory / REPLICA_NAME} has format {facts['format']}, this version reads up "
                f"to {NOTE_FORMAT}: start the newer version of latermq; nothing was changed"
            )
        standing = facts["standing"]
        epoch, token = facts["mine"]
        return Note(
            facts["cluster"],
            facts["shard"],
            facts["offset"],
            None if standing is None else Standing(*standing),
            tuple((int(base), offset) for base, offset in facts["segments"].items()),
            (epoch, token),
            facts.get("whole", False),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StoreUnusableError(
            f"{directory / REPLICA_NAME} is damaged: empty the directory, and the broker fills it "
            f"again from the replicated log ({error!r})"
        ) from error


def write_note(files: Files, directory: Path, note: Note) -> None:
    """Put it in the place of the one before, durably. Raises OSError."""
    text = json.dumps({"format": NOTE_FORMAT} | note._asdict() | {"segments": dict(note.segments)})
    path = directory / TEMPORARY_NAME
    fd = files.open(path, OpenMode.ENSURE)
    try:
        # What a longer one left behind the end of this one, if that was never renamed, is white.
        data = text.encode().ljust(files.size(fd))
        write_all(files, fd, data, 0)
        files.datasync(fd)
    finally:
        files.close(fd)
    files.rename(path, directory / REPLICA_NAME)
    files.sync_directory(directory)
