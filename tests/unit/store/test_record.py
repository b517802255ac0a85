"""The record codec: golden bytes, and everything that is not exactly them is refused."""

import struct
from pathlib import Path
from typing import Final

import pytest
from xxhash import xxh3_64_intdigest

from latermq_broker.errors import UnsupportedFormatError
from latermq_broker.store.records.record import (
    FLAG_CLEAN,
    FLAG_MORE,
    LAG_UNKNOWN,
    RUN_RECORDS,
    Record,
    RecordType,
    decode_record,
    decode_run,
    encode_record,
    fault,
    needed_bytes,
    padded_bytes,
    record_bytes,
)

MESSAGE: Final = bytes.fromhex(
    "16be2271ce21fa8e 2d0000000101a901 4000000000000000 0504030201000000"
    "0700000001000000 68656c6c6f000000"
)
BLANK: Final = bytes.fromhex(
    "95d43aca4fdfb2a9 280000001500a901 0010000000000000 0068e5cf8b010000 0200000000020000"
)


def test_golden_message() -> None:
    encoded = encode_record(
        0x40, RecordType.MESSAGE, [b"hel", b"lo"], flags=1, store_ms=0x0102030405, epoch=7,
        durable=0x38,
    )  # fmt: skip
    assert encoded == MESSAGE
    record = decode_record(memoryview(MESSAGE), 0, 0x40)
    assert record == Record(
        0x40, RecordType.MESSAGE, FLAG_MORE, 0x0102030405, 7, memoryview(b"hello"), 45, 0x38
    )
    assert record.more
    assert record.next_position == 0x40 + 48


def test_golden_blank() -> None:
    encoded = encode_record(
        0x1000, RecordType.BLANK, [], store_ms=1_700_000_000_000, epoch=2, durable=0
    )
    assert encoded == BLANK
    record = decode_record(memoryview(BLANK), 0, 0x1000)
    assert record is not None
    assert (record.type, record.length, record.more, record.durable) == (21, 40, False, 0)


def test_the_numbers_of_the_types_never_change() -> None:
    assert [f"{kind.value} {kind.name}" for kind in RecordType] == [
        "1 MESSAGE", "2 REF", "3 LEASE_FRESH", "4 LEASE_RETRY", "5 ACK", "6 EXTEND", "7 ATTEMPT",
        "8 DEAD", "9 DEAD_CHANGE", "10 REDRIVE", "11 TIMER", "12 CONFIG", "13 OFFSET", "14 RESET",
        "15 CLIENT", "16 TXN", "17 MOVE", "18 DROP", "19 LOST", "20 MARK", "21 BLANK",
        "22 HALF", "23 LEASE_ORDERED", "24 LITE", "26 ACCESS", "28 LIMIT", "29 DEDUP",
        "30 SCHEDULE", "31 HALF_SENDER", "32 LEASE_AHEAD", "33 WANTED", "34 CLOCK",
        "35 LIFE",
    ]  # fmt: skip


@pytest.mark.parametrize("golden", [MESSAGE, BLANK])
def test_every_flipped_bit_is_refused(golden: bytes) -> None:
    position = int.from_bytes(golden[16:24], "little")
    for bit in range(len(golden) * 8):
        flipped = bytearray(golden)
        flipped[bit // 8] ^= 1 << bit % 8
        assert decode_record(memoryview(flipped), 0, position) is None
        assert fault(memoryview(flipped), 0, position)


def test_every_cut_is_refused() -> None:
    for size in range(len(MESSAGE)):
        page = memoryview(MESSAGE[:size])
        assert decode_record(page, 0, 0x40) is None
        assert needed_bytes(page, 0) == (40 if size < 40 else 48)


def test_found_inside_a_page_but_only_at_its_own_position() -> None:
    page = memoryview(b"\xff" * 16 + MESSAGE + b"\xff" * 8)
    assert decode_record(page, 16, 0x40) is not None
    assert decode_record(page, 16, 0x48) is None
    assert "written for position 64" in fault(page, 16, 0x48)


@pytest.mark.parametrize("size", [*range(18), 1000])
def test_any_payload_comes_back(size: int) -> None:
    payload = bytes(range(256)) * 4
    encoded = encode_record(
        80, RecordType.ACK, [payload[:size]], store_ms=5, epoch=1, durable=80, flags=FLAG_CLEAN
    )
    assert len(encoded) == record_bytes(size) == padded_bytes(40 + size)
    assert len(encoded) % 8 == 0
    record = decode_record(memoryview(encoded), 0, 80)
    assert record is not None
    assert record.payload == payload[:size]
    assert record.durable == 80
    assert not record.is_clean_mark


def test_a_lag_too_large_claims_nothing() -> None:
    position = (LAG_UNKNOWN + 5) * 8
    encoded = encode_record(position, RecordType.MARK, [], store_ms=1, epoch=1, durable=8)
    record = decode_record(memoryview(encoded), 0, position)
    assert record is not None
    assert record.durable == 0


@pytest.mark.parametrize(("offset", "value"), [(12, 200), (12, 0), (15, 2)])
def test_a_newer_type_or_version_is_not_taken_for_damage(offset: int, value: int) -> None:
    newer = bytearray(MESSAGE)
    newer[offset] = value
    seed = xxh3_64_intdigest(bytes(newer[8:40]))
    struct.pack_into("<Q", newer, 0, xxh3_64_intdigest(b"hello", seed))
    with pytest.raises(UnsupportedFormatError, match="newer version"):
        decode_record(memoryview(newer), 0, 0x40)


def test_faults_are_put_into_words() -> None:
    zeros = memoryview(bytes(64))
    assert fault(zeros, 0, 64) == "never written: the header is all zero"
    assert "ends after 24 of" in fault(zeros, 40, 104)
    body = bytearray(MESSAGE)
    body[42] ^= 1
    assert fault(memoryview(body), 0, 0x40) == "its checksum does not match"
    pad = bytearray(MESSAGE)
    pad[47] = 1
    assert fault(memoryview(pad), 0, 0x40) == "its padding is not zero"
    assert "do not fit" in fault(memoryview(MESSAGE[:40]), 0, 0x40)


def test_the_documentation_shows_the_golden_bytes() -> None:
    docs = Path(__file__).parents[3] / "docs" / "store-format.md"
    shown = docs.read_text(encoding="utf-8").replace(" ", "")
    assert MESSAGE.hex() in shown


def run_of(*records: bytes) -> memoryview:
    return memoryview(b"".join(records))


def a_record(position: int, type_: RecordType = RecordType.MESSAGE, *, epoch: int = 3) -> bytes:
    return encode_record(
        position, type_, (b"payload",), flags=0, store_ms=5, epoch=epoch, durable=position
    )


SIZE = len(a_record(0))


def test_a_run_holds_what_one_by_one_would_be_decoded() -> None:
    page = run_of(*(a_record(SIZE * number, RecordType(1 + number)) for number in range(8)))
    run = decode_run(page, 0, 0, 0)
    assert run == [decode_record(page, SIZE * number, SIZE * number) for number in range(8)]
    assert decode_run(page, SIZE, SIZE, 3) == run[1:]


@pytest.mark.parametrize("offset", range(SIZE))
def test_a_run_ends_before_any_changed_byte(offset: int) -> None:
    page = bytearray(run_of(a_record(0), a_record(SIZE), a_record(2 * SIZE)))
    page[SIZE + offset] ^= 0x40
    assert len(decode_run(memoryview(page), 0, 0, 0)) == 1


def test_a_run_ends_with_its_page_at_an_older_epoch_and_at_what_is_the_stores_own() -> None:
    two = (a_record(0), a_record(SIZE))
    for cut in range(SIZE):
        assert len(decode_run(run_of(*two)[: SIZE + cut], 0, 0, 0)) == 1
    assert len(decode_run(run_of(two[0], a_record(SIZE, epoch=2)), 0, 0, 0)) == 1
    assert len(decode_run(run_of(*two), 0, 0, 4)) == 0
    for type_ in (RecordType.MARK, RecordType.BLANK, RecordType.LOST):
        assert len(decode_run(run_of(two[0], a_record(SIZE, type_)), 0, 0, 0)) == 1
    many = run_of(*(a_record(SIZE * number) for number in range(RUN_RECORDS + 9)))
    assert len(decode_run(many, 0, 0, 0)) == RUN_RECORDS
