"""Blocks of the message index: many (hash, position) pairs, grouped by hash, sixteen bytes each.

A block is filled in memory in the order of the log and written once, whole. Pairs stand in buckets
by the low bits of their hash, within a bucket in the order of the log: finding one reads a single
bucket, some 4 KiB, and nothing is ever sorted. Derived: a block that does not verify is filled
again from the log.

      0       8        10     12             16            24    32     40
      | magic | format | algo | bucket count | entry count | low | high | rows …
      | checksum | entries …
    low, high  positions of the first and the last record that it has entries of
    row        0     4         8
               | end | checksum |   entries up to the bucket's end, of all buckets so far; the low
               half of xxh3_64(the bucket's entries, seed = low + its number)
    checksum   xxh3_64 of the header and the rows
    entry      0      8          16
               | hash | position |
"""

import struct
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from xxhash import xxh3_64_intdigest

from latermq_broker.store.derived.checkpoint import TEMPORARY_SUFFIX
from latermq_broker.store.files import Files, OpenMode, write_all
from latermq_broker.store.records.message_records import MessageRow

INDEX_SUFFIX: Final = ".idx"
INDEX_MAGIC: Final = b"\xa9LMQIDX\n"
INDEX_FORMAT: Final = 1
CHECKSUM_XXH3: Final = 1
BUCKETS: Final = 512
BUCKET_MASK: Final = BUCKETS - 1
TOPIC_FACTOR: Final = 0x9E37_79B9_7F4A_7C15
HASH_MASK: Final = (1 << 64) - 1

_HEADER: Final = struct.Struct("<8sHHIQQQ")
_ROW: Final = struct.Struct("<II")
_ENTRY: Final = struct.Struct("<QQ")
assert _HEADER.size == 40
ENTRY_BYTES: Final = _ENTRY.size
_HASH_BYTES: Final = 8
_ROWS_AT: Final = _HEADER.size
_CHECKSUM_AT: Final = _ROWS_AT + BUCKETS * _ROW.size
_ENTRIES_AT: Final = _CHECKSUM_AT + 8

pack_entry: Final = _ENTRY.pack


def key_hash(topic_id: int, hash: int) -> int:
    """Compute what a key of a topic is found by; `hash` is the key's."""
    return hash ^ (topic_id * TOPIC_FACTOR & HASH_MASK)


class DamagedBlockError(Exception):
    """A block's file is missing, cut or changed."""


def block_name(low: int) -> str:
    return f"{low:020d}{INDEX_SUFFIX}"


class Buckets:
    """A block that is being filled, or waits to be written."""

    __slots__ = ("buckets", "count", "high", "low")

    def __init__(self) -> None:
        self.buckets = [bytearray() for _ in range(BUCKETS)]
        self.count = 0
        self.low = self.high = 0

    def add(self, position: int, id_hash: int, topic_id: int, key_hashes: Sequence[int]) -> None:
        """Add a message; positions rise. Called for every one that is sent, hence its look."""
        if not self.count:
            self.low = position
        self.high = position
        self.count += 1
        self.buckets[id_hash & BUCKET_MASK] += pack_entry(id_hash, position)
        if key_hashes:
            self.count += len(key_hashes)
            factor = topic_id * TOPIC_FACTOR & HASH_MASK
            for hash in key_hashes:
                hash ^= factor
                self.buckets[hash & BUCKET_MASK] += pack_entry(hash, position)

    def add_ids(self, positions: Sequence[int], id_hashes: Sequence[int]) -> None:
        """Add messages without keys, at least one; positions rise."""
        if not self.count:
            self.low = positions[0]
        self.high = positions[-1]
        self.count += len(positions)
        buckets = self.buckets
        for index, hash in enumerate(id_hashes):
            buckets[hash & BUCKET_MASK] += pack_entry(hash, positions[index])

    def add_rows(self, rows: Sequence[MessageRow], at: int, entries_max: int) -> int:
        """Add messages from `rows[at]` on, until the block is full; how far it came."""
        buckets, pack = self.buckets, pack_entry
        if not self.count:
            self.low = rows[at].position
        end = min(len(rows), at + entries_max - self.count)
        for index in range(at, end):
            position, _, _, topic_id, _, _, _, _, _, id_hash, key_hashes, _ = rows[index]
            buckets[id_hash & BUCKET_MASK] += pack(id_hash, position)
            if key_hashes:
                for hash in key_hashes:
                    hash ^= topic_id * TOPIC_FACTOR & HASH_MASK
                    buckets[hash & BUCKET_MASK] += pack(hash, position)
                self.count += len(key_hashes)
                if self.count + index + 1 - at >= entries_max:
                    end = index + 1
                    break
        self.count += end - at
        self.high = rows[end - 1].position
        return end

    def find(self, hash: int, below: int, count_max: int) -> list[int]:
        return positions_in(self.buckets[hash & BUCKET_MASK], hash, below, count_max)

    def pieces(self) -> list[bytes | bytearray]:
        """Encode the block's file, in pieces."""
        rows = bytearray()
        end = 0
        for number, bucket in enumerate(self.buckets):
            end += len(bucket) // ENTRY_BYTES
            rows += _ROW.pack(end, _bucket_checksum(bucket, self.low, number))
        header = _HEADER.pack(
            INDEX_MAGIC, INDEX_FORMAT, CHECKSUM_XXH3, BUCKETS, self.count, self.low, self.high
        )
        checksum = xxh3_64_intdigest(header + rows).to_bytes(8, "little")
        return [header, rows, checksum, *self.buckets]

    def snapshot(self) -> bytes:
        """Encode the buckets' sizes, then what is in them."""
        sizes = struct.pack(f"<{BUCKETS}I", *map(len, self.buckets))
        return b"".join((sizes, *self.buckets))

    def restore(self, section: bytes, low: int, high: int) -> None:
        at = BUCKETS * 4
        for number, size in enumerate(struct.unpack_from(f"<{BUCKETS}I", section)):
            self.buckets[number] = bytearray(section[at : at + size])
            at += size
        self.count = (at - BUCKETS * 4) // ENTRY_BYTES
        self.low, self.high = low, high


def positions_in(bucket: bytes | bytearray, hash: int, below: int, count_max: int) -> list[int]:
    """Find the positions below `below` that stand with the hash, the highest first."""
    wanted = hash.to_bytes(_HASH_BYTES, "little")
    positions: list[int] = []
    end = ENTRY_BYTES * bisect_left(
        range(len(bucket) // ENTRY_BYTES), below, key=lambda index: _position_at(bucket, index)
    )
    while len(positions) < count_max and (at := bucket.rfind(wanted, 0, end)) >= 0:
        end = at + _HASH_BYTES - 1
        if at % ENTRY_BYTES == 0:
            position = _position_at(bucket, at // ENTRY_BYTES)
            if not positions or positions[-1] != position:  # a key that a message has twice
                positions.append(position)
            end = at
    return positions


def _position_at(bucket: bytes | bytearray, index: int) -> int:
    return int.from_bytes(
        bucket[index * ENTRY_BYTES + _HASH_BYTES : (index + 1) * ENTRY_BYTES], "little"
    )


def _bucket_checksum(bucket: bytes | bytearray, low: int, number: int) -> int:
    return xxh3_64_intdigest(bucket, low + number) & 0xFFFF_FFFF


class BlockFile:
    """A written block. Holds no descriptor: there may be thousands, and they are seldom read."""

    __slots__ = ("count", "high", "low")

    def __init__(self, low: int, high: int, count: int) -> None:
        self.low = low
        self.high = high
        self.count = count

    @property
    def name(self) -> str:
        return block_name(self.low)

    def verify(self, files: Files, directory: Path) -> None:
        """Verify header, rows and size; the entries are verified as they are read.

        Raises DamagedBlockError, OSError.
        """
        fd = self._open(files, directory)
        try:
            head = files.pread(fd, _ENTRIES_AT, 0)
            size = files.size(fd)
        finally:
            files.close(fd)
        expected = _HEADER.pack(
            INDEX_MAGIC, INDEX_FORMAT, CHECKSUM_XXH3, BUCKETS, self.count, self.low, self.high
        )
        checksum = xxh3_64_intdigest(head[:_CHECKSUM_AT]).to_bytes(8, "little")
        if head[:_ROWS_AT] != expected or head[_CHECKSUM_AT:] != checksum:
            raise DamagedBlockError(f"index block {self.name} has a damaged head")
        if size != _ENTRIES_AT + self.count * ENTRY_BYTES:
            raise DamagedBlockError(f"index block {self.name} has {size} bytes")

    def find(
        self, files: Files, directory: Path, hash: int, below: int, count_max: int
    ) -> list[int]:
        """Find positions by hash, as `Buckets.find`. Raises DamagedBlockError, OSError."""
        number = hash & BUCKET_MASK
        fd = self._open(files, directory)
        try:
            first = 0
            if number:
                first = _row(files.pread(fd, _ROW.size, _ROWS_AT + (number - 1) * _ROW.size))[0]
            end, checksum = _row(files.pread(fd, _ROW.size, _ROWS_AT + number * _ROW.size))
            count = min(max(0, end - first), self.count)
            bucket = files.pread(fd, count * ENTRY_BYTES, _ENTRIES_AT + first * ENTRY_BYTES)
        finally:
            files.close(fd)
        if end < first or _bucket_checksum(bucket, self.low, number) != checksum:
            raise DamagedBlockError(f"bucket {number} of index block {self.name} is damaged")
        return positions_in(bucket, hash, below, count_max)

    def _open(self, files: Files, directory: Path) -> int:
        try:
            return files.open(directory / self.name, OpenMode.READ)
        except FileNotFoundError:
            raise DamagedBlockError(f"index block {self.name} is missing") from None


def _row(data: bytes) -> tuple[int, int]:
    if len(data) < _ROW.size:
        raise DamagedBlockError("an index block is cut short")
    end, checksum = _ROW.unpack(data)
    return end, checksum


def write_block(files: Files, directory: Path, buckets: Buckets) -> BlockFile:
    """Write it, synced under its name, which may have stood for a damaged one. Raises OSError.

    The directory is left to be synced.
    """
    block = BlockFile(buckets.low, buckets.high, buckets.count)
    path = directory / block.name
    temporary = path.with_suffix(TEMPORARY_SUFFIX)
    with suppress(FileNotFoundError):  # left by an attempt that failed
        files.unlink(temporary)
    fd = files.open(temporary, OpenMode.CREATE)
    try:
        write_all(files, fd, b"".join(buckets.pieces()), 0)
        files.datasync(fd)
    finally:
        files.close(fd)
    files.rename(temporary, path)
    return block
