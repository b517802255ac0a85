"""The entries of a replicated log, byte by byte."""

import pytest

from latermq_broker.errors import DamagedBatchError, UnsupportedFormatError
from latermq_broker.replication.batch import (
    BATCH_HEADER_BYTES,
    Batch,
    cluster_hash,
    decode_batch,
    encode_batch,
    fence_of,
    hand_over_of,
    is_batch,
)

SHOP = cluster_hash("shop")
BATCH = Batch(SHOP, 7, 3, 0x0123456789ABCDEF, 42, 4096, b"bytes of a segment", segment=1 << 20)
PART = BATCH._replace(sequence=43, data=b"", last=False, segment=0)
FENCE = fence_of(SHOP, 7, 4, 0xFEDCBA9876543210)

# They never change: what is in a replicated log stays readable.
GOLDEN = {
    "a batch that begins a segment": (
        BATCH,
        "a94c4d514241540a0100010250000000d98c514d38bcfbf30700000003000000"
        "efcdab89674523012a0000000000000000100000000000000000100000000000"
        "120000000000000049dfbc0fdc8225046279746573206f662061207365676d65"
        "6e74",
    ),
    "a part of a group": (
        PART,
        "a94c4d514241540a0100010050000000d98c514d38bcfbf30700000003000000"
        "efcdab89674523012b0000000000000000100000000000000000000000000000"
        "0000000000000000acaa68e663b2b7ec",
    ),
    "a fence": (
        FENCE,
        "a94c4d514241540a0100010350000000d98c514d38bcfbf30700000004000000"
        "1032547698badcfe000000000000000000000000000000000000000000000000"
        "0000000000000000ae5c4620199eac42",
    ),
    "a hand-over": (
        hand_over_of(FENCE),
        "a94c4d514241540a0100010350000000d98c514d38bcfbf30700000005000000"
        "0000000000000000000000000000000000000000000000000000000000000000"
        "00000000000000007fa612d07238fe34",
    ),
}


@pytest.mark.parametrize("what", GOLDEN)
def test_golden_bytes(what: str) -> None:
    batch, golden = GOLDEN[what]
    assert encode_batch(batch).hex() == golden
    assert decode_batch(bytes.fromhex(golden), 5) == batch


def test_a_cluster_is_known_by_the_hash_of_its_name() -> None:
    assert SHOP == 0xF3FBBC384D518CD9


def test_every_byte_counts() -> None:
    entry = encode_batch(BATCH)
    for at in range(len(entry)):
        flipped = bytearray(entry)
        flipped[at] ^= 0x10
        with pytest.raises((DamagedBatchError, UnsupportedFormatError)):
            decode_batch(bytes(flipped), 5)


def test_a_cut_entry_is_damaged() -> None:
    entry = encode_batch(BATCH)
    for size in range(len(entry)):
        with pytest.raises(DamagedBatchError, match="at offset 5"):
            decode_batch(entry[:size], 5)


def test_a_newer_format_says_what_to_do() -> None:
    entry = bytearray(encode_batch(BATCH))
    entry[8] = 2
    with pytest.raises(UnsupportedFormatError, match="start the newer version"):
        decode_batch(bytes(entry), 5)


def test_what_others_wrote_is_no_batch() -> None:
    assert is_batch(encode_batch(FENCE))
    assert not is_batch(b"")
    assert not is_batch(b"hello")
    assert len(encode_batch(FENCE)) == BATCH_HEADER_BYTES
