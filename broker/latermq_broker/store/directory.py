"""The data directory: what belongs where, and whether it is ours to open.

    LOCK                          held by the one broker that writes
    log/<20-digit base>.seg       the commit log; `.prep`: a segment not yet in use
    cq/<topic id>/<queue>.<20-digit first entry>.cq
    ckpt/<20-digit position>.ckpt the newest two
    timer/<20-digit position>.run far timers, written with the checkpoint of that position
    index/<20-digit position>.idx messages by id and key, from that position on
    lost/                         what `latermq log repair` took out of the log, and why
    SHARD, CATALOGUE              of a cluster: which shard this is; what it copied from shard 0
    REPLICA                       of a replicated log: how much of it the directory has

Every refusal is one clear error raised before anything is created, changed or deleted.
"""

import errno
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from latermq_broker.config.config import StoreConfig
from latermq_broker.errors import (
    CorruptRecordError,
    StoreError,
    StoreGoneError,
    StoreLockedError,
    StoreUnusableError,
    UnsupportedFormatError,
)
from latermq_broker.store.derived.checkpoint import CHECKPOINT_SUFFIX, TEMPORARY_SUFFIX
from latermq_broker.store.derived.consume_queue import QUEUE_SUFFIX
from latermq_broker.store.files import FINAL_ERRNOS, Files, OpenMode, whose
from latermq_broker.store.log.segment import (
    POSITION_MAX,
    PREPARED_SUFFIX,
    SEGMENT_HEADER_BYTES,
    SEGMENT_MAGIC,
    SEGMENT_SUFFIX,
    Segment,
    SegmentHeader,
    decode_segment_header,
    read_segment_header,
    segment_name,
)
from latermq_broker.store.records.record import RECORD_ALIGN
from latermq_broker.store.recovery import WAY_BACK, holds_a_record

LOCK_NAME: Final = "LOCK"
LOG_NAME: Final = "log"
QUEUES_NAME: Final = "cq"
CHECKPOINTS_NAME: Final = "ckpt"
RUNS_NAME: Final = "timer"
INDEX_NAME: Final = "index"
LOST_NAME: Final = "lost"
SHARD_NAME: Final = "SHARD"
CATALOGUE_NAME: Final = "CATALOGUE"
REPLICA_NAME: Final = "REPLICA"
RIGHTS_ERRNOS: Final = frozenset({errno.EACCES, errno.EPERM})
# Directories above ours that refuse a sync like this were there before us.
NOT_OURS_ERRNOS: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOTSUP, errno.EROFS, errno.ENOSYS}
)
OUR_DIRECTORIES: Final = (LOG_NAME, QUEUES_NAME, CHECKPOINTS_NAME, RUNS_NAME, INDEX_NAME)
# A fresh mount has a lost+found.
OUR_NAMES: Final = frozenset(
    {*OUR_DIRECTORIES, LOCK_NAME, LOST_NAME, SHARD_NAME, CATALOGUE_NAME, REPLICA_NAME, "lost+found"}
)


@dataclass(frozen=True, slots=True)
class FoundLog:
    """The segment files of a directory: contiguous, of one log. Empty for a new directory.

    What is missing below the first was dropped or lost: `dropped.py` can tell.
    """

    segments: list[Segment]
    uuid: bytes


def require_ours(files: Files, directory: Path) -> bool:
    """Refuse a directory that holds something else; whether it exists at all. Empty is fine.

    Raises UnsupportedFormatError, OSError.
    """
    try:
        names = files.list_directory(directory)
    except FileNotFoundError:
        return False
    foreign = [name for name in names if name not in OUR_NAMES]
    segments = _names(files, directory / LOG_NAME) if LOG_NAME in names else []
    if foreign and not any(name.endswith(SEGMENT_SUFFIX) for name in segments):
        raise UnsupportedFormatError(
            f"{directory} is not a LaterMQ data directory: it holds {foreign[0]!r} and no log. "
            "A broker takes an empty or a new directory; nothing was changed"
        )
    return True


def has_file(directory: Path, name: str) -> bool:
    """Tell whether there is a file or directory of this name.

    Raises StoreUnusableError: that cannot be known, such as in a directory of another user.
    """
    try:
        return (directory / name).exists()
    except OSError as error:
        raise unusable(directory, error) from error


def refuse_shard(directory: Path) -> None:
    """Refuse a shard of a cluster to a broker that is alone.

    Raises:
        StoreUnusableError: it is one.
    """
    if has_file(directory, SHARD_NAME):
        raise StoreUnusableError(
            f"{directory} is a shard of a cluster: serve it with --shards, or with [cluster]; "
            "docs/cluster.md says how it becomes a broker's own. Nothing was changed"
        )


def refuse_replica(directory: Path) -> None:
    """Refuse a copy of a replicated log to a broker that would go on with it alone.

    Raises:
        StoreUnusableError: it is one.
    """
    if has_file(directory, REPLICA_NAME):
        raise StoreUnusableError(
            f"{directory} is a copy of a replicated log: serve it with [replication]; what another "
            "broker writes alone is cut off later. docs/cluster.md says how it becomes a broker's "
            "own. Nothing was changed"
        )


def require_local(files: Files, directory: Path, config: StoreConfig) -> None:
    """Refuse a file system over a network or of a user's process: locks, syncs and room that was
    allocated mean less there than a log needs. Raises StoreUnusableError, OSError."""
    if config.allow_network_files:
        return
    for path in (directory, *directory.parents):
        with suppress(FileNotFoundError, NotADirectoryError):
            kind = files.free_bytes(path).remote
            break
    else:
        kind = ""
    if kind:
        raise StoreUnusableError(
            f"{directory} is on {kind}: locks, syncs and preallocated room cannot be relied on "
            "there. Name a directory on a local disk, or set store.allow_network_files to risk it"
        )


def sync_ancestors(files: Files, directory: Path) -> None:
    """Make the directory itself durable: any of its parents may have been made together with it."""
    for path in directory.absolute().parents:
        try:
            files.sync_directory(path)
        except OSError as error:
            if error.errno not in NOT_OURS_ERRNOS:
                raise


def take_lock(files: Files, directory: Path) -> int:
    """Take the lock; return the descriptor that holds it. Raises StoreLockedError, OSError."""
    fd = files.open(directory / LOCK_NAME, OpenMode.ENSURE)
    try:
        locked = files.lock(fd)
    except OSError:
        files.close(fd)
        raise
    if not locked:
        files.close(fd)
        raise StoreLockedError(
            f"{directory} is in use by another broker: stop it, or name another directory"
        )
    return fd


def require_held(
    files: Files, directory: Path, lock: tuple[int, int], segments: Sequence[Segment]
) -> None:
    """Check that a start would find what is written: the lock, and every file of the log.

    Args:
        lock: the identity of LOCK, when it was taken.
    Raises:
        StoreGoneError: the directory was removed, moved, unmounted or replaced, or is read-only.
        OSError: it cannot be looked at just now.
    """
    try:
        present = files.free_bytes(directory / LOCK_NAME).identity
        names = frozenset(files.list_directory(directory / LOG_NAME))
    except OSError as error:
        if error.errno in FINAL_ERRNOS:
            raise gone_directory(directory, error) from error
        raise
    if present != lock:
        raise StoreGoneError(f"{directory} was replaced: its files are not those in use")
    missing = [segment.path.name for segment in segments if segment.path.name not in names]
    if missing:
        raise StoreGoneError(f"{directory / LOG_NAME} no longer has {missing[0]}")


def gone_directory(directory: Path, error: OSError) -> StoreGoneError:
    """Make the error of a call that cannot succeed in this life of the broker."""
    return StoreGoneError(f"{directory} is gone, or not to be written to: {error}")


def find_log(files: Files, directory: Path) -> FoundLog:
    """Find all segments, oldest first, and check their headers.

    Only the last one may have a bad header or be short: `Segment.fault` is set, recovery decides.
    Raises:
        CorruptRecordError: a damaged header, a missing segment, files of two logs.
        UnsupportedFormatError: not ours, or newer than this version.
        OSError.
    """
    log = directory / LOG_NAME
    names = [name for name in _names(files, log) if name.endswith(SEGMENT_SUFFIX)]
    segments: list[Segment] = []
    uuid = b""
    for index, name in enumerate(names):
        base = segment_base(log, name)
        expected = segments[-1].end if segments else base
        if base != expected:
            raise hole(expected, name)
        is_last = index == len(names) - 1
        segment, found_uuid = _open_segment(
            files, log / name, base, is_first=not index, is_last=is_last
        )
        if segments and segment.fault is None and found_uuid != uuid:
            raise CorruptRecordError(
                base, f"segment {name} belongs to another log than {segments[-1].path.name}"
            )
        uuid = uuid or found_uuid
        segments.append(segment)
    if not segments:
        require_unused(files, directory)
    return FoundLog(segments, uuid)


def require_unused(files: Files, directory: Path) -> None:
    """Check, where no segment is, that there never was one. Raises CorruptRecordError, OSError."""
    if _has_checkpoints(files, directory):
        raise CorruptRecordError(
            0,
            f"{directory / LOG_NAME} holds no segment, yet there are checkpoints: the log itself "
            "is missing. Restore it from a backup; nothing was changed",
        )


def _has_checkpoints(files: Files, directory: Path) -> bool:
    names = _names(files, directory / CHECKPOINTS_NAME)
    return any(name.endswith(CHECKPOINT_SUFFIX) for name in names)


def segment_base(log: Path, name: str) -> int:
    """Read the position in a segment's file name. Raises UnsupportedFormatError: it has none."""
    digits = name.removesuffix(SEGMENT_SUFFIX)
    if len(digits) != 20 or not digits.isdecimal():
        raise UnsupportedFormatError(f"{log / name} is not a segment of a LaterMQ log")
    base = int(digits)
    if base % RECORD_ALIGN or base > POSITION_MAX:
        raise UnsupportedFormatError(f"{log / name} is not where a segment of a log can begin")
    return base


def _open_segment(
    files: Files, path: Path, base: int, *, is_first: bool, is_last: bool
) -> tuple[Segment, bytes]:
    data, size = read_segment_header(files, path)
    segment = Segment(files, path, base, max(size, SEGMENT_HEADER_BYTES), None)
    try:
        header = decode_segment_header(data, base, path.name)
    except UnsupportedFormatError as error:
        if data.startswith(SEGMENT_MAGIC) or (is_last and not _was_ours(files, segment)):
            raise
        raise CorruptRecordError(
            base, f"{error}, but it was: records are there. {WAY_BACK}"
        ) from error
    except CorruptRecordError as damage:
        if not is_last or is_first:
            raise CorruptRecordError(damage.position, f"{damage.reason}. {WAY_BACK}") from damage
        segment.fault = damage.reason
        return segment, b""
    if size < header.size and not is_last:
        raise CorruptRecordError(
            base + size,
            f"segment {path.name} has {size} of its {header.size} bytes. {WAY_BACK}",
        )
    return Segment(files, path, base, header.size, None), header.uuid


def _was_ours(files: Files, segment: Segment) -> bool:
    """Tell whether a first and only segment with a header of none of ours is of a log of ours."""
    directory = segment.path.parent.parent
    return _has_checkpoints(files, directory) or holds_a_record(segment)


def hole(expected: int, name: str) -> CorruptRecordError:
    """Make the error of finding segment `name` where the one for position `expected` should be."""
    return CorruptRecordError(
        expected,
        f"the log has a hole: {segment_name(expected)} is missing before {name}. {WAY_BACK}",
    )


def first_segment(
    files: Files, directory: Path, config: StoreConfig, uuid: bytes, now_ms: int
) -> Segment:
    """Make the log's first segment, durable under its name."""
    log = directory / LOG_NAME
    remove_leftovers(files, log, PREPARED_SUFFIX)
    header = SegmentHeader(0, config.segment_bytes, uuid, now_ms)
    segment = Segment.prepare(files, log / f"{0:020d}{PREPARED_SUFFIX}", header, zero_fill=False)
    segment.publish(log / segment_name(0))
    for path in (log, directory):
        files.sync_directory(path)
    sync_ancestors(files, directory)
    return segment


def remove_unfinished(files: Files, directory: Path, topics: Collection[int]) -> None:
    """Delete what unfinished work of the last run left, and files of queues of other topics."""
    remove_leftovers(files, directory / LOG_NAME, PREPARED_SUFFIX)
    remove_leftovers(files, directory / CHECKPOINTS_NAME, TEMPORARY_SUFFIX)
    queues = directory / QUEUES_NAME
    for name in files.list_directory(queues):
        if name.isdecimal() and int(name) not in topics:
            remove_leftovers(files, queues / name, QUEUE_SUFFIX)
            files.remove_directory(queues / name)


def remove_leftovers(files: Files, directory: Path, suffix: str) -> None:
    """Delete unfinished files of an earlier run."""
    for name in files.list_directory(directory):
        if name.endswith(suffix):
            with suppress(FileNotFoundError):
                files.unlink(directory / name)


def _names(files: Files, directory: Path) -> list[str]:
    """List the names in a directory that may not exist yet."""
    try:
        return files.list_directory(directory)
    except FileNotFoundError:
        return []


def unusable(directory: Path, error: OSError) -> StoreError:
    """Make the error an operator sees when the file system refuses."""
    if isinstance(error, NotADirectoryError | FileExistsError):
        return StoreUnusableError(f"{directory} is a file, not a directory")
    text = f"{directory} cannot be used: {error.strerror or error}"
    if error.errno in RIGHTS_ERRNOS:
        text += whose(directory)
    return StoreUnusableError(text)
