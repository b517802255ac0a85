"""DEDUP records: ids that senders gave their messages, so that each is stored once.

Little-endian. A row is what memory and checkpoints keep, too (`engine/state/dedup_ids.py`): a key,
then a value, each of which tells its own length.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from latermq_broker.store.records.kind import Bytes, Fields, Kind, Names
from latermq_broker.store.records.record import Record, RecordType

#  DEDUP   rows, each a key and a value
#  key     0      4        5
#          | topic| id size| id
#  value   0         8             16      24        32               34
#          | position| queue_offset| due_ms| until_ms| message id size| message id| size| made by
#  The message at `position`, sent to the topic with that id, is the only one until `until_ms`. It
#  entered its queue at `queue_offset`; -1: it waits for `due_ms`. Comes after the messages it tells
#  of, in one atomic group with them. The highest bit of `message id size` says that it counts in a
#  user's share: then, and only then, a byte of size and the access key follow.
_KEY: Final = struct.Struct("<IB")
assert _KEY.size == 5
_VALUE: Final = struct.Struct("<QqQQH")
DEDUP_VALUE_BYTES: Final = 34  # before the message id
assert _VALUE.size == DEDUP_VALUE_BYTES
_UNTIL: Final = struct.Struct("<Q")
_SIZE: Final = struct.Struct("<H")
_UNTIL_AT: Final = 24
_MADE: Final = 1 << 15
DEDUP_RECORD_BYTES: Final = 32 << 10  # of rows; one row alone may have more: it fits any segment

DedupRow = tuple[bytes, bytes]  # key, value


class DedupValue(NamedTuple):
    position: int
    queue_offset: int
    due_ms: int
    until_ms: int
    message_id: bytes
    made_by: str = ""  # in whose share it counts, a user's access key; "": in nobody's


class DedupId(NamedTuple):
    """An id of a message that is about to be stored."""

    at: int  # of the message among those of its group
    key: bytes
    message_id: bytes
    made_by: str


def dedup_key(topic_id: int, dedup_id: str) -> bytes:
    name = dedup_id.encode()
    return _KEY.pack(topic_id, len(name)) + name


def dedup_bytes(key: bytes, message_id: bytes, made_by: str) -> int:
    """Count what a row takes."""
    return len(key) + DEDUP_VALUE_BYTES + len(message_id) + (1 + len(made_by) if made_by else 0)


def dedup_chunks(ids: Sequence[DedupId]) -> list[list[DedupId]]:
    """Put ids together that share a record."""
    chunks: list[list[DedupId]] = []
    room = 0
    for each in ids:
        size = dedup_bytes(each.key, each.message_id, each.made_by)
        if size > room:
            chunks.append([])
            room = DEDUP_RECORD_BYTES
        chunks[-1].append(each)
        room -= size
    return chunks


def encode_dedup_value(value: DedupValue) -> bytes:
    position, queue_offset, due_ms, until_ms, message_id, made_by = value
    size = len(message_id)
    assert size < _MADE
    if not made_by:
        return _VALUE.pack(position, queue_offset, due_ms, until_ms, size) + message_id
    head = _VALUE.pack(position, queue_offset, due_ms, until_ms, size | _MADE)
    return head + message_id + bytes([len(made_by)]) + made_by.encode("ascii")


def decode_dedup_value(data: Bytes | bytearray, at: int = 0) -> DedupValue:
    """Decode the value that begins at `at`."""
    position, queue_offset, due_ms, until_ms, size = _VALUE.unpack_from(data, at)
    made_by = dedup_made_by(data, at)
    at += DEDUP_VALUE_BYTES
    message_id = bytes(data[at : at + size % _MADE])
    return DedupValue(position, queue_offset, due_ms, until_ms, message_id, made_by)


def dedup_until_ms(data: Bytes | bytearray, at: int) -> int:
    """Read until when the value that begins at `at` counts."""
    until_ms: int = _UNTIL.unpack_from(data, at + _UNTIL_AT)[0]
    return until_ms


def dedup_value_end(data: Bytes | bytearray, at: int) -> int:
    """Find where the value ends that begins at `at`."""
    size: int = _SIZE.unpack_from(data, at + DEDUP_VALUE_BYTES - _SIZE.size)[0]
    end = at + DEDUP_VALUE_BYTES + size % _MADE
    return end + 1 + data[end] if size & _MADE else end


def dedup_made_by(data: Bytes | bytearray, at: int) -> str:
    """Read in whose share the id counts whose value begins at `at`; "": in nobody's."""
    size: int = _SIZE.unpack_from(data, at + DEDUP_VALUE_BYTES - _SIZE.size)[0]
    if not size & _MADE:
        return ""
    at += DEDUP_VALUE_BYTES + size % _MADE
    return str(data[at + 1 : at + 1 + data[at]], "ascii")


def dedup_key_at(data: Bytes | bytearray, at: int) -> bytes:
    """Read the key that begins at `at`."""
    size = data[at + _KEY.size - 1]
    return bytes(data[at : at + _KEY.size + size])


def encode_dedup(rows: Sequence[DedupRow]) -> list[Bytes]:
    return [part for row in rows for part in row]


def dedup_rows(data: Bytes) -> Iterator[DedupRow]:
    """Read row after row."""
    at = 0
    while at < len(data):
        key = dedup_key_at(data, at)
        end = dedup_value_end(data, at + len(key))
        yield key, bytes(data[at + len(key) : end])
        at = end


def decode_dedup(payload: Bytes) -> list[DedupRow]:
    return list(dedup_rows(payload))


def _dedup_text(record: Record, names: Names) -> Fields:
    rows = decode_dedup(record.payload)
    (topic_id, _), first = _KEY.unpack_from(rows[0][0]), decode_dedup_value(rows[0][1])
    return {
        "topic": names.topic(topic_id),
        "dedup_ids": [str(key[_KEY.size :], "utf-8") for key, _ in rows],
        "messages_at": [decode_dedup_value(value).position for _, value in rows],
        "until_ms": first.until_ms,
    }


KINDS: Final[tuple[Kind, ...]] = (Kind(RecordType.DEDUP, encode_dedup, decode_dedup, _dedup_text),)
