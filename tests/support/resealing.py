"""Files of a data directory changed by somebody who knows their checksums, and makes them fit."""

from random import Random
from typing import Final

from xxhash import xxh3_64_intdigest

from latermq_broker.store.derived.checkpoint import (
    decode_checkpoint,
    decode_sections,
    encode_checkpoint,
    encode_sections,
)
from latermq_broker.store.log.segment import COVERED_BYTES, SEGMENT_HEADER_BYTES
from latermq_broker.store.records.record import HEADER_BYTES, Record, decode_record, encode_record

CHECKSUM_BYTES: Final = 8


def records_in(data: bytes | bytearray, base: int) -> list[Record]:
    """The whole records of a segment, in a row from its begin on; payloads are copies."""
    found: list[Record] = []
    page, at = memoryview(bytes(data)), SEGMENT_HEADER_BYTES
    while (record := decode_record(page, at, base + at)) is not None:
        found.append(record._replace(payload=bytes(record.payload)))
        at = record.next_position - base
    return found


def put_record(data: bytearray, base: int, record: Record, payload: bytes) -> None:
    """Write a record's place again with another payload of its length, or another head."""
    assert len(payload) == record.length - HEADER_BYTES
    sealed = encode_record(
        record.position,
        record.type,
        (payload,),
        flags=record.flags,
        store_ms=record.store_ms,
        epoch=record.epoch,
        durable=record.durable,
    )
    at = record.position - base
    data[at : at + len(sealed)] = sealed


def seal_segment(data: bytearray) -> None:
    """Make the checksum of a segment's header fit."""
    checksum = xxh3_64_intdigest(bytes(data[:COVERED_BYTES]))
    data[COVERED_BYTES:SEGMENT_HEADER_BYTES] = checksum.to_bytes(CHECKSUM_BYTES, "little")


def seal_rest(data: bytearray) -> None:
    """Make the last eight bytes the checksum of all before, as in a run."""
    checksum = xxh3_64_intdigest(bytes(data[:-CHECKSUM_BYTES]))
    data[-CHECKSUM_BYTES:] = checksum.to_bytes(CHECKSUM_BYTES, "little")


def change_checkpoint(data: bytes, change: Random) -> bytes:
    """Change one section, and seal the whole again."""
    checkpoint = decode_checkpoint(data, "")
    if checkpoint is None:
        return changed(data, change)
    sections = decode_sections(encode_sections(checkpoint.sections))
    name = change.choice(sorted(sections))
    fate = change.random()
    if fate < 0.1:
        del sections[name]
    elif fate < 0.15:
        sections[name] = change.randbytes(change.randrange(64))
    else:
        sections[name] = changed(sections[name], change)
    fields: dict[str, int] = {}
    if change.random() < 0.1:
        name = change.choice(("position", "epoch", "last_store_ms", "last_position"))
        fields[name] = change.choice((0, 8, 64, (1 << 32) - 8))
    whole = {
        "position": checkpoint.position,
        "last_position": checkpoint.last_position,
        "epoch": checkpoint.epoch,
        "last_store_ms": checkpoint.last_store_ms,
    } | fields
    if not 0 <= whole["position"] - whole["last_position"] < 1 << 35:
        whole["last_position"] = whole["position"]
    return encode_checkpoint(type(checkpoint)(uuid=checkpoint.uuid, sections=sections, **whole))


NUMBERS: Final = (0, 1, 0x7F, 0x80, 0xFF)
WORDS: Final = (
    b"null", b"[]", b"{}", b'""', b"-1", b"1e9", b"true", b"NaN", b"1" * 30, b'"\\ud800"', b"[[[[",
)  # fmt: skip


def changed(data: bytes, change: Random) -> bytes:
    """Change some bytes: bits, numbers at their bounds, values of JSON, pieces that go or come."""
    mutable = bytearray(data)
    for _ in range(change.choice((1, 1, 1, 2, 4))):
        at = change.randrange(len(mutable) + 1)
        fate = change.randrange(8)
        if fate == 0 or not mutable:
            mutable[at:at] = change.randbytes(change.randrange(1, 9))
        elif fate == 1:
            del mutable[at : at + change.randrange(1, 9)]
        elif fate == 2:
            mutable[at : at + 8] = change.choice(NUMBERS).to_bytes(1) * min(8, len(mutable) - at)
        elif fate == 3:
            mutable[at : at + 4] = change.choice(NUMBERS).to_bytes(1) * min(4, len(mutable) - at)
        elif fate == 4:
            _put_word(mutable, change)
        elif at < len(mutable):
            mutable[at] = change.choice(
                (change.randrange(256), mutable[at] ^ 1 << change.randrange(8))
            )
    return bytes(mutable)


def _put_word(data: bytearray, change: Random) -> None:
    """Put another value in the place of one of JSON, if there seems to be any."""
    starts = [index + 1 for index, byte in enumerate(data) if byte in b":,["]
    if starts:
        begin = change.choice(starts)
        ends = [index for index in range(begin, len(data)) if data[index] in b",]}"]
        data[begin : ends[0] if ends else len(data)] = change.choice(WORDS)


def fitted(data: bytes, length: int) -> bytes:
    """Cut or fill to a length."""
    return data[:length].ljust(length, b"\0")
