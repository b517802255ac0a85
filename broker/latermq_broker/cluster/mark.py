"""The mark that makes a data directory a shard's: which one, of how many, and what is pinned to it.

    SHARD   {"shard": 0, "shards": 4, "pins": {"orders": 0}}

It is written when a shard first opens its directory, and read before each start. Where it is, no
broker that is alone opens the directory, nor a shard of another number or of other shards: what is
in the log would be looked for elsewhere. A copy of a replicated log, whose shard REPLICA says, gets
it when its broker first owns that log.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from latermq_broker.errors import StoreUnusableError
from latermq_broker.store.directory import LOG_NAME, REPLICA_NAME, SHARD_NAME, has_file
from latermq_broker.store.files import RealFiles
from latermq_text.regular_files import read_regular

MARK_BYTES_MAX: Final = 16 << 20  # bytes of a mark, most of them names of pinned topics
_NEW: Final = ".new"


@dataclass(frozen=True, slots=True)
class Mark:
    """What a directory says of itself."""

    shard: int
    shards: int
    pins: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"shard {self.shard} of {self.shards}"


def read_mark(directory: Path) -> Mark | None:
    """Read a directory's mark; None: it has none.

    Raises:
        StoreUnusableError: it cannot be read.
    """
    path = directory / SHARD_NAME
    try:
        fields = json.loads(read_regular(path, MARK_BYTES_MAX, follow=True))
        return Mark(int(fields["shard"]), int(fields["shards"]), dict(fields["pins"]))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreUnusableError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise StoreUnusableError(f"{path} does not say which shard this is: {error!r}") from error


def write_mark(directory: Path, mark: Mark) -> None:
    """Write a directory's mark, durably, or leave the old one. Raises OSError."""
    fields = {"shard": mark.shard, "shards": mark.shards, "pins": dict(mark.pins)}
    replace_file(directory / SHARD_NAME, json.dumps(fields, sort_keys=True).encode() + b"\n")


def replace_file(path: Path, content: bytes) -> None:
    """Give a file other content, durably, or leave it as it is. Raises OSError."""
    new = path.with_name(path.name + _NEW)
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    RealFiles().sync_directory(path.parent)


def require_shard(directory: Path, shard: int, shards: int) -> Mark | None:
    """Check that a directory may be opened as this shard; its mark, None if it gets one now.

    Raises:
        StoreUnusableError: it is another one's, or of a broker that was alone.
    """
    mark = read_mark(directory)
    if mark is None:
        if shard and _holds_a_log(directory) and not has_file(directory, REPLICA_NAME):
            raise StoreUnusableError(
                f"{directory} is of a broker that was alone, so it can become shard 0 only, not "
                f"shard {shard}; see docs/cluster.md. Nothing was changed"
            )
        return None
    if (mark.shard, mark.shards) != (shard, shards):
        raise StoreUnusableError(
            f"{directory} is {mark}, not shard {shard} of {shards}: the number of shards is fixed "
            "when a cluster is made. Nothing was changed"
        )
    return mark


def _holds_a_log(directory: Path) -> bool:
    try:
        return any((directory / LOG_NAME).iterdir())
    except OSError:
        return False
