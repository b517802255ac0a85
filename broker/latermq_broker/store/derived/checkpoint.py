"""Checkpoints: the whole derived state at one log position, in an immutable checksummed file.

Written to a temporary name, synced, renamed, directory synced; the newest two are kept. A
checkpoint that does not verify is as good as none: the one before it, or a full replay, takes over.

      0       8        10     11      12              16         24      28     32     48
      | magic | format | algo | flags | section count | position | epoch | back | uuid |
      48              56       64         72
      | last_store_ms | length | checksum | sections …

    position       the state contains every record below it, and all of them are durable
    back           (position - position of the newest of those records) / 8; 0: there is none
    length         of the sections in bytes
    checksum       xxh3_64(sections, seed = xxh3_64(bytes 0..63))

A section is a name and bytes: name length u16 | name (UTF-8) | data length u64 | data. Sections of
the store itself begin with "store."; all others are the engine's.
"""

import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from xxhash import xxh3_64, xxh3_64_intdigest

from latermq_broker.errors import UnsupportedFormatError
from latermq_broker.store.derived.consume_queue import QueueState
from latermq_broker.store.files import Files, OpenMode, write_all
from latermq_broker.store.records.record import RECORD_ALIGN

CHECKPOINT_MAGIC: Final = b"\xa9LMQCKP\n"
CHECKPOINT_FORMAT: Final = 1
CHECKSUM_XXH3: Final = 1
CHECKPOINT_HEADER: Final = struct.Struct("<8sHBBIQII16sQQ")
CHECKPOINT_HEADER_BYTES: Final = 64
CHECKSUM_BYTES: Final = 8
assert CHECKPOINT_HEADER.size == CHECKPOINT_HEADER_BYTES
NAME_LENGTH: Final = struct.Struct("<H")
DATA_LENGTH: Final = struct.Struct("<Q")

CHECKPOINT_SUFFIX: Final = ".ckpt"
TEMPORARY_SUFFIX: Final = ".tmp"
KEPT_COUNT: Final = 2
PIECE_BYTES: Final = 4 << 20  # of a file that is held against its checksum, at a time

QUEUES_SECTION: Final = "store.queues"
START_SECTION: Final = "store.start"  # u64: the log is needed from there on
MOVED_SECTION: Final = "store.moved"
QUEUE: Final = struct.Struct("<IHHQQQI")  # topic, queue, reserved, first, next, tail, digest count
#  moved  0      4      6         8      16            24
#         | topic| queue| reserved| begin| moved length| moved entries
#  One for each queue that has any, or begins later than with its first entry.
MOVED: Final = struct.Struct("<IHHQQ")
assert MOVED.size == 24
DIGEST: Final = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    position: int
    last_position: int  # of the newest record below `position`; 0: none
    epoch: int
    last_store_ms: int
    uuid: bytes
    sections: Mapping[str, bytes]


def encode_sections(sections: Mapping[str, bytes]) -> bytes:
    parts: list[bytes] = []
    for name, data in sections.items():
        encoded = name.encode()
        parts += (NAME_LENGTH.pack(len(encoded)), encoded, DATA_LENGTH.pack(len(data)), data)
    return b"".join(parts)


def decode_sections(body: bytes | memoryview) -> dict[str, bytes]:
    """Decode the sections of bytes whose checksum held. Raises ValueError: they are none."""
    sections: dict[str, bytes] = {}
    at = 0
    try:
        while at < len(body):
            (name_length,) = NAME_LENGTH.unpack_from(body, at)
            at += NAME_LENGTH.size
            section = str(body[at : at + name_length], "utf-8")
            at += name_length
            (data_length,) = DATA_LENGTH.unpack_from(body, at)
            at += DATA_LENGTH.size
            if data_length > len(body) - at:
                raise ValueError(f"section {section!r} has fewer than its {data_length} bytes")
            sections[section] = bytes(body[at : at + data_length])
            at += data_length
    except struct.error:
        raise ValueError("the last section is cut short") from None
    return sections


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    body = encode_sections(checkpoint.sections)
    back = checkpoint.position - checkpoint.last_position if checkpoint.last_position else 0
    header = CHECKPOINT_HEADER.pack(
        CHECKPOINT_MAGIC, CHECKPOINT_FORMAT, CHECKSUM_XXH3, 0, len(checkpoint.sections),
        checkpoint.position, checkpoint.epoch, back // RECORD_ALIGN, checkpoint.uuid,
        checkpoint.last_store_ms, len(body),
    )  # fmt: skip
    checksum = xxh3_64_intdigest(body, xxh3_64_intdigest(header))
    return b"".join((header, checksum.to_bytes(CHECKSUM_BYTES, "little"), body))


def decode_checkpoint(data: bytes, name: str) -> Checkpoint | None:
    """Decode a checkpoint; None when it does not verify.

    Raises UnsupportedFormatError: of a newer format.
    """
    begin = CHECKPOINT_HEADER_BYTES + CHECKSUM_BYTES
    if len(data) < begin:
        return None
    header = data[:CHECKPOINT_HEADER_BYTES]
    magic, format_, algo, _, _, position, epoch, back, uuid, store_ms, length = (
        CHECKPOINT_HEADER.unpack(header)
    )
    if magic != CHECKPOINT_MAGIC:
        return None
    body = memoryview(data)[begin:]
    checksum = int.from_bytes(data[CHECKPOINT_HEADER_BYTES:begin], "little")
    if algo != CHECKSUM_XXH3 or len(body) != length:
        return None
    if checksum != xxh3_64_intdigest(body, xxh3_64_intdigest(header)):
        return None
    if format_ > CHECKPOINT_FORMAT:
        raise UnsupportedFormatError(
            f"checkpoint {name} has format {format_}, this version reads up to "
            f"{CHECKPOINT_FORMAT}: start the newer version of latermq; nothing was changed"
        )
    try:
        sections = decode_sections(body)
    except ValueError:  # sealed by nobody of ours
        return None
    last_position = position - back * RECORD_ALIGN if back else 0
    return Checkpoint(position, last_position, epoch, store_ms, uuid, sections)


def encode_queues(states: list[QueueState]) -> bytes:
    parts: list[bytes] = []
    for state in states:
        parts.append(
            QUEUE.pack(
                state.topic_id, state.queue_id, 0, state.first, state.next,
                state.tail_digest, len(state.digests),
            )
        )  # fmt: skip
        parts += map(DIGEST.pack, state.digests)
    return b"".join(parts)


def encode_moved(states: list[QueueState]) -> bytes:
    parts: list[bytes] = []
    for state in states:
        if state.begin or state.moved:
            head = (state.topic_id, state.queue_id, 0, state.begin, len(state.moved))
            parts += (MOVED.pack(*head), state.moved)
    return b"".join(parts)


def queue_sections(states: list[QueueState]) -> dict[str, bytes]:
    return {QUEUES_SECTION: encode_queues(states), MOVED_SECTION: encode_moved(states)}


def queue_states(sections: Mapping[str, bytes]) -> list[QueueState]:
    """Decode what `queue_sections` was given."""
    moved = decode_moved(sections.get(MOVED_SECTION, b""))
    return [
        replace(state, begin=begin, moved=entries)
        for state in decode_queues(sections[QUEUES_SECTION])
        for begin, entries in [moved.get((state.topic_id, state.queue_id), (0, b""))]
    ]


def decode_moved(data: bytes) -> dict[tuple[int, int], tuple[int, bytes]]:
    """Decode (topic, queue) → (begin, moved entries)."""
    moved: dict[tuple[int, int], tuple[int, bytes]] = {}
    at = 0
    while at < len(data):
        topic_id, queue_id, _, begin, length = MOVED.unpack_from(data, at)
        at += MOVED.size
        moved[topic_id, queue_id] = (begin, data[at : at + length])
        at += length
    return moved


def decode_queues(data: bytes) -> list[QueueState]:
    states: list[QueueState] = []
    at = 0
    while at < len(data):
        topic_id, queue_id, _, first, next_, tail, count = QUEUE.unpack_from(data, at)
        at += QUEUE.size
        digests = struct.unpack_from(f"<{count}Q", data, at)
        at += count * DIGEST.size
        states.append(QueueState(topic_id, queue_id, first, next_, digests, tail))
    return states


def checkpoint_name(position: int) -> str:
    return f"{position:020d}{CHECKPOINT_SUFFIX}"


def write_checkpoint(files: Files, directory: Path, checkpoint: Checkpoint) -> None:
    """Write it, make it durable under its name, delete all but the newest two. Raises OSError."""
    path = directory / checkpoint_name(checkpoint.position)
    temporary = path.with_suffix(TEMPORARY_SUFFIX)
    if temporary.name in files.list_directory(directory):
        files.unlink(temporary)  # left by an attempt that failed
    fd = files.open(temporary, OpenMode.CREATE)
    try:
        write_all(files, fd, encode_checkpoint(checkpoint), 0)
        files.datasync(fd)
    finally:
        files.close(fd)
    files.rename(temporary, path)
    files.sync_directory(directory)
    for name in checkpoint_names(files, directory)[KEPT_COUNT:]:
        files.unlink(directory / name)


def checkpoint_names(files: Files, directory: Path) -> list[str]:
    """List the names of the checkpoint files, newest first; none without the directory."""
    try:
        names = files.list_directory(directory)
    except FileNotFoundError:
        return []
    return sorted((name for name in names if name.endswith(CHECKPOINT_SUFFIX)), reverse=True)


def delete_checkpoints(files: Files, directory: Path) -> None:
    """Delete all of them, as far as the file system lets us."""
    with suppress(OSError):  # then the next start finds the damage as this one did
        for name in checkpoint_names(files, directory):
            files.unlink(directory / name)


def read_checkpoint(files: Files, path: Path) -> Checkpoint | None:
    """Read the checkpoint in a file; None when it does not verify. Raises OSError."""
    fd = files.open(path, OpenMode.READ)
    try:
        size = files.size(fd)
        if not _matches(files, fd, size):  # before memory is taken for all of it
            return None
        return decode_checkpoint(files.pread(fd, size, 0), path.name)
    finally:
        files.close(fd)


def _matches(files: Files, fd: int, size: int) -> bool:
    """Tell whether a file has our magic and matches its checksum, reading it piece by piece."""
    begin = CHECKPOINT_HEADER_BYTES + CHECKSUM_BYTES
    head = files.pread(fd, begin, 0)
    if len(head) < begin or not head.startswith(CHECKPOINT_MAGIC):
        return False
    header, checksum = head[:CHECKPOINT_HEADER_BYTES], head[CHECKPOINT_HEADER_BYTES:]
    if CHECKPOINT_HEADER.unpack(header)[-1] != size - begin:
        return False
    digest = xxh3_64(seed=xxh3_64_intdigest(header))
    for at in range(begin, size, PIECE_BYTES):
        digest.update(files.pread(fd, min(PIECE_BYTES, size - at), at))
    return digest.intdigest() == int.from_bytes(checksum, "little")
