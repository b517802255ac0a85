"""One entry of a replicated log: part of a group commit, as its bytes stand in the segment.

      0       8        10     11      12              16        24      28      32
      | magic | format | algo | flags | header length | cluster | shard | epoch |   little-endian
      32      40         48         56        64       68      72         80
      | token | sequence | position | segment | length | zero  | checksum | bytes … |

    magic     A9 "LMQBAT" LF       format  1; a reader refuses a higher one
    algo      1 = xxh3-64          cluster xxh3-64 of the cluster's name
    flags     1 FENCE, 2 LAST      header length  80: where the bytes begin
    epoch, token   of the owner's fence: the token is random, for two that fence with one epoch;
              0 in a fence by which an owner hands the log over: nobody owns it from there on
    sequence  of the owner's batches behind its fence, from 1; a fence has 0
    position  in the shard's log, of the first byte; a fence has 0 and no bytes
    segment   0, or the size of the segment whose header the bytes begin with
    length    of the bytes; 0 is a beat: the owner lives, and nothing stands before it
    checksum  xxh3(bytes, seed = xxh3(bytes 0..71))

A group commit is what one loop turn appended. It is one batch unless it touches a second segment or
is larger than BATCH_BYTES_MAX; then it is several, and only the LAST ends it. Whoever reads takes
all of a group or none of it.
"""

import struct
from typing import Final, NamedTuple

from xxhash import xxh3_64_intdigest

from latermq_broker.errors import DamagedBatchError, UnsupportedFormatError

BATCH_MAGIC: Final = b"\xa9LMQBAT\n"
BATCH_FORMAT: Final = 1
CHECKSUM_XXH3: Final = 1
NOBODY: Final = 0  # the token of a fence that hands the log over
FENCE: Final = 1
LAST: Final = 2
BATCH_HEADER: Final = struct.Struct("<8sHBBIQIIQQQQII")
BATCH_CHECKSUM: Final = struct.Struct("<Q")
COVERED_BYTES: Final = BATCH_HEADER.size
BATCH_HEADER_BYTES: Final = COVERED_BYTES + BATCH_CHECKSUM.size
assert BATCH_HEADER_BYTES == 80
BATCH_BYTES_MAX: Final = 900 << 10  # header included: Kafka takes entries of 1 MiB


class Batch(NamedTuple):
    """What an entry says."""

    cluster: int
    shard: int
    epoch: int
    token: int
    sequence: int
    position: int
    data: bytes
    last: bool = True
    segment: int = 0
    fence: bool = False


def cluster_hash(name: str) -> int:
    """Return what stands for a cluster's name in its batches."""
    return xxh3_64_intdigest(name.encode())


def fence_of(cluster: int, shard: int, epoch: int, token: int) -> Batch:
    """Make the batch that begins an owner's time."""
    return Batch(cluster, shard, epoch, token, 0, 0, b"", fence=True)


def hand_over_of(fence: Batch) -> Batch:
    """Make the batch that ends the time of the owner that began it with `fence`."""
    return fence._replace(epoch=fence.epoch + 1, token=NOBODY)


def encode_batch(batch: Batch) -> bytes:
    """Encode it; `decode_batch` gives it back."""
    flags = (FENCE if batch.fence else 0) | (LAST if batch.last else 0)
    covered = BATCH_HEADER.pack(
        BATCH_MAGIC,
        BATCH_FORMAT,
        CHECKSUM_XXH3,
        flags,
        BATCH_HEADER_BYTES,
        batch.cluster,
        batch.shard,
        batch.epoch,
        batch.token,
        batch.sequence,
        batch.position,
        batch.segment,
        len(batch.data),
        0,
    )
    checksum = xxh3_64_intdigest(batch.data, xxh3_64_intdigest(covered))
    return b"".join((covered, BATCH_CHECKSUM.pack(checksum), batch.data))


def is_batch(entry: bytes) -> bool:
    """Tell an entry that somebody else wrote, whatever it is, from one of ours."""
    return entry.startswith(BATCH_MAGIC)


def decode_batch(entry: bytes, offset: int) -> Batch:
    """Decode an entry that `is_batch`.

    Args:
        offset: of the entry, for the errors.
    Raises:
        DamagedBatchError: not as it was written.
        UnsupportedFormatError: a newer version wrote it.
    """
    if len(entry) < BATCH_HEADER_BYTES:
        raise DamagedBatchError(offset, f"{len(entry)} bytes are no batch")
    covered = entry[:COVERED_BYTES]
    (magic, format_, algo, flags, header_bytes, cluster, shard, epoch, token, sequence, position,
     segment, length, zero) = BATCH_HEADER.unpack(covered)  # fmt: skip
    if magic != BATCH_MAGIC:
        raise DamagedBatchError(offset, "it does not begin as a batch does")
    if format_ > BATCH_FORMAT:
        raise UnsupportedFormatError(
            f"the batch at offset {offset} has format {format_}, this version reads up to "
            f"{BATCH_FORMAT}: start the newer version of latermq"
        )
    if algo != CHECKSUM_XXH3:
        raise UnsupportedFormatError(f"the batch at offset {offset} uses checksum {algo}")
    data = entry[BATCH_HEADER_BYTES:]
    (checksum,) = BATCH_CHECKSUM.unpack_from(entry, COVERED_BYTES)
    if checksum != xxh3_64_intdigest(data, xxh3_64_intdigest(covered)):
        raise DamagedBatchError(offset, "it does not match its checksum")
    if flags & ~(FENCE | LAST) or header_bytes != BATCH_HEADER_BYTES or zero:
        raise UnsupportedFormatError(
            f"the batch at offset {offset} has what this version does not know: "
            "start the newer version of latermq"
        )
    if length != len(data):
        raise DamagedBatchError(offset, f"it has {len(data)} bytes and says {length}")
    fence, last = bool(flags & FENCE), bool(flags & LAST)
    return Batch(
        cluster, shard, epoch, token, sequence, position, data, last, segment, fence
    )  # fmt: skip
