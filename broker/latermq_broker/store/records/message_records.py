"""Records that hold or place a message: MESSAGE REF TIMER.

Little-endian. Positions are log positions; times milliseconds since the epoch; ids are the
catalogue's. A payload is what follows the 40-byte record header of `record.py`; the header's own
store time is the instant of the fact. Decoders take the payload of a record whose checksum held, so
they do not defend against damage.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from latermq_broker.store.records.kind import Bytes, Fields, Kind, Names
from latermq_broker.store.records.message_fields import (
    body_bytes,
    message_id,
    message_keys,
    message_tag,
    well_formed,
)
from latermq_broker.store.records.record import Record, RecordType

tuple_new: Final = tuple.__new__  # as MessageHead._make, without the call

#  MESSAGE   0      4      6     7      8             16      24        32       40        44
#            | topic| queue| kind| nkeys| queue_offset| due_ms| tag_hash| id_hash| rest_len| sys_len
#            48     49        52
#            | level| pad     | key hashes 8 x nkeys | rest | sys | order key u64, if ORDERED, or
#            priority u64, if PRIORITY; before the order key, if LITE: | name | name size u8 |
#  queue and queue_offset are -1 (0xffff, -1) while the message waits for due_ms.
_MESSAGE: Final = struct.Struct("<IHBBqQQQIIB3x")
MESSAGE_BYTES: Final = 52  # before the key hashes
assert _MESSAGE.size == MESSAGE_BYTES
_KEYS_AT, _SIZES_AT = 7, 40  # nkeys; rest_len and sys_len
_SIZES: Final = struct.Struct("<II")
_MESSAGE_ROW: Final = struct.Struct("<IHBBqQQQ")  # its beginning: all but lengths and level
#  kind, bits. LETTER: sent to a dead-letter topic, kept as long as the letters there. ORDERED: the
#  message is of a message group, the order key is the hash of its name, never 0. PRIORITY: it has a
#  priority, and no message group. LITE: it is of a lite topic, whose name is told; the order key is
#  the hash of that.
QUEUE_UNSET: Final = 0xFFFF
MESSAGE_LETTER: Final = 1
MESSAGE_ORDERED: Final = 2
MESSAGE_PRIORITY: Final = 4
MESSAGE_LITE: Final = 8
NO_PRIORITY: Final = -1
ORDER_KEY: Final = struct.Struct("<Q")
PRIORITY: Final = struct.Struct("<Q")


_NO_TAIL: Final[tuple[tuple[int, ...], str]] = ((), "")  # no keys, no lite topic


class MessagePayload(NamedTuple):
    topic_id: int
    queue_id: int
    kind: int
    queue_offset: int
    due_ms: int
    tag_hash: int
    id_hash: int
    delay_level: int
    key_hashes: tuple[int, ...]
    rest: bytes
    sys: bytes
    order_key: int = 0  # set if, and only if, `kind` says ORDERED
    priority: int = NO_PRIORITY  # set if, and only if, `kind` says PRIORITY
    lite_topic: str = ""  # set if, and only if, `kind` says LITE


class MessageHead(NamedTuple):
    """The fixed part, without copying the message."""

    topic_id: int
    queue_id: int
    kind: int
    key_count: int
    queue_offset: int
    due_ms: int
    tag_hash: int
    id_hash: int
    rest_length: int
    sys_length: int
    delay_level: int
    key_hashes: tuple[int, ...]
    lite_topic: str = ""


def encode_message(message: MessagePayload) -> list[Bytes]:
    head = _MESSAGE.pack(
        message.topic_id,
        message.queue_id,
        message.kind,
        len(message.key_hashes),
        message.queue_offset,
        message.due_ms,
        message.tag_hash,
        message.id_hash,
        len(message.rest),
        len(message.sys),
        message.delay_level,
    )
    if message.key_hashes:
        head += struct.pack(f"<{len(message.key_hashes)}Q", *message.key_hashes)
    if message.kind & MESSAGE_LITE:
        name = message.lite_topic.encode()
        tail = b"%b%c%b" % (name, len(name), ORDER_KEY.pack(message.order_key))
        return [head, message.rest, message.sys, tail]
    if message.kind & MESSAGE_ORDERED:
        return [head, message.rest, message.sys, ORDER_KEY.pack(message.order_key)]
    if message.kind & MESSAGE_PRIORITY:
        return [head, message.rest, message.sys, PRIORITY.pack(message.priority)]
    return [head, message.rest, message.sys]


class MessageRun(NamedTuple):
    """MESSAGEs that enter one queue one after another, in columns; of no special kind."""

    topic_id: int
    queue_id: int
    kind: int  # LETTER or nothing
    queue_offset: int  # of the first
    tag_hashes: Sequence[int]
    id_hashes: Sequence[int]
    key_hashes: Sequence[tuple[int, ...]]
    rest_bytes: Sequence[int]
    sys_bytes: Sequence[int]
    stored: Sequence[bytes]  # rest and sys


def encode_message_run(run: MessageRun) -> list[bytes]:
    """Encode the payload of each message, as `encode_message` makes it."""
    topic_id, queue_id, kind, queue_offset, tags, ids, keys, rest_bytes, sys_bytes, stored = run
    payloads: list[bytes] = []
    for index in range(len(stored)):
        hashes = keys[index]
        head = _MESSAGE.pack(
            topic_id, queue_id, kind, len(hashes), queue_offset + index, 0, tags[index],
            ids[index], rest_bytes[index], sys_bytes[index], 0,
        )  # fmt: skip
        if hashes:
            head += struct.pack(f"<{len(hashes)}Q", *hashes)
        payloads.append(head + stored[index])
    return payloads


def decode_message_head(payload: Bytes) -> MessageHead:
    fields = _MESSAGE.unpack_from(payload)
    if not fields[3] and not fields[2] & MESSAGE_LITE:
        return tuple_new(MessageHead, fields + _NO_TAIL)
    keys = struct.unpack_from(f"<{fields[3]}Q", payload, _MESSAGE.size)
    name = _lite_topic(payload) if fields[2] & MESSAGE_LITE else ""
    return tuple_new(MessageHead, (*fields, keys, name))


class MessageRow(NamedTuple):
    """A message and where it is: what is needed of it while many are looked at."""

    position: int  # of its record
    length: int  # of that: header and payload
    store_ms: int
    topic_id: int
    queue_id: int
    kind: int
    queue_offset: int
    due_ms: int
    tag_hash: int
    id_hash: int
    key_hashes: tuple[int, ...]
    lite_topic: str


def message_rows(
    messages: Sequence[MessagePayload | MessageHead],
    positions: Sequence[int],
    lengths: Sequence[int],
    store_ms: int,
) -> list[MessageRow]:
    rows: list[MessageRow] = []
    for index, message in enumerate(messages):
        row = (
            positions[index], lengths[index], store_ms, message.topic_id, message.queue_id,
            message.kind, message.queue_offset, message.due_ms, message.tag_hash, message.id_hash,
            message.key_hashes, message.lite_topic,
        )  # fmt: skip
        rows.append(tuple_new(MessageRow, row))
    return rows


def decode_message_rows(records: Sequence[Record]) -> list[MessageRow]:
    """Decode MESSAGE records into rows."""
    unpack, new = _MESSAGE_ROW.unpack_from, tuple_new
    rows: list[MessageRow] = []
    for position, _, _, store_ms, _, payload, length, _ in records:
        topic_id, queue_id, kind, key_count, offset, due_ms, tag_hash, id_hash = unpack(payload)
        keys, name = _NO_TAIL
        if key_count:
            keys = struct.unpack_from(f"<{key_count}Q", payload, _MESSAGE.size)
        if kind & MESSAGE_LITE:
            name = _lite_topic(payload)
        row = (
            position, length, store_ms, topic_id, queue_id, kind, offset, due_ms, tag_hash,
            id_hash, keys, name,
        )  # fmt: skip
        rows.append(new(MessageRow, row))
    return rows


def _lite_topic(payload: Bytes) -> str:
    size_at = len(payload) - ORDER_KEY.size - 1
    return str(payload[size_at - payload[size_at] : size_at], "utf-8")


def message_order_key(payload: Bytes) -> int:
    """Read the order key of a MESSAGE; 0: of no message group."""
    if not payload[6] & MESSAGE_ORDERED:
        return 0
    key: int = ORDER_KEY.unpack_from(payload, len(payload) - ORDER_KEY.size)[0]
    return key


def message_priority(payload: Bytes) -> int:
    """Read the priority of a MESSAGE; NO_PRIORITY: it has none."""
    if not payload[6] & MESSAGE_PRIORITY:
        return NO_PRIORITY
    priority: int = PRIORITY.unpack_from(payload, len(payload) - PRIORITY.size)[0]
    return priority


def message_slices(payload: Bytes) -> tuple[bytes, bytes]:
    """Return (rest, sys) of a MESSAGE."""
    sizes: tuple[int, int] = _SIZES.unpack_from(payload, _SIZES_AT)
    start = MESSAGE_BYTES + 8 * payload[_KEYS_AT]
    middle = start + sizes[0]
    end = middle + sizes[1]
    if isinstance(payload, bytes):
        return payload[start:middle], payload[middle:end]
    return bytes(payload[start:middle]), bytes(payload[middle:end])


def message_text(record: Record, names: Names) -> Fields:
    """Tell what a MESSAGE or HALF says; of one that is damaged, what still makes sense."""
    head = decode_message_head(record.payload)
    rest, sys = message_slices(record.payload)
    readable = well_formed(rest) and well_formed(sys)
    fields: Fields = {"topic": names.topic(head.topic_id)}
    if head.queue_id != QUEUE_UNSET:
        fields |= {"queue": head.queue_id, "offset": head.queue_offset}
    if readable:
        fields["message_id"] = message_id(sys)
    if head.due_ms:
        fields["check_at_ms" if record.type is RecordType.HALF else "due_at_ms"] = head.due_ms
    if head.delay_level:
        fields["delay_level"] = head.delay_level
    if head.lite_topic:
        fields["lite_topic"] = head.lite_topic
    if not readable:
        return fields
    if tag := message_tag(sys):
        fields["tag"] = tag
    if keys := message_keys(sys):
        fields["keys"] = list(keys)
    return fields | {"body_bytes": body_bytes(rest)}


#  REF   0       8         16            24      32      36     40     42      43   44
#        | origin| tag_hash| queue_offset| due_ms| length| topic| queue| reason| pad|
#  A message enters a queue: when its time came, redriven to a topic, or its transaction committed.
#  `origin` is the position of the MESSAGE, HALF or DEAD record that holds the bytes, `length` that
#  record's.
_REF: Final = struct.Struct("<QQQQIIHBx")
assert _REF.size == 44
REF_DUE: Final = 1
REF_REDRIVE: Final = 2
REF_COMMITTED: Final = 3
_REF_REASONS: Final = {REF_DUE: "due", REF_REDRIVE: "redrive", REF_COMMITTED: "committed"}


class RefPayload(NamedTuple):
    origin: int
    tag_hash: int
    queue_offset: int
    due_ms: int
    length: int
    topic_id: int
    queue_id: int
    reason: int


def encode_ref(ref: RefPayload) -> bytes:
    return _REF.pack(*ref)


def decode_ref(payload: Bytes) -> RefPayload:
    return tuple_new(RefPayload, _REF.unpack_from(payload))


def _ref_text(record: Record, names: Names) -> Fields:
    ref = decode_ref(record.payload)
    return {
        "topic": names.topic(ref.topic_id),
        "queue": ref.queue_id,
        "offset": ref.queue_offset,
        "reason": _REF_REASONS.get(ref.reason, str(ref.reason)),
        "message_at": ref.origin,
    }


#  TIMER   0         8       16          24     28      32
#          | position| due_ms| new_due_ms| topic| length|
#  What waited until due_ms waits until new_due_ms; new_due_ms 0: it is cancelled. `topic` is the
#  message's, `length` that of the record at `position`.
_TIMER: Final = struct.Struct("<QQQII")
assert _TIMER.size == 32


class TimerPayload(NamedTuple):
    position: int
    due_ms: int
    new_due_ms: int
    topic_id: int
    length: int


def encode_timer(timer: TimerPayload) -> list[Bytes]:
    return [_TIMER.pack(*timer)]


def decode_timer(payload: Bytes) -> TimerPayload:
    return TimerPayload._make(_TIMER.unpack_from(payload))


def _timer_text(record: Record, names: Names) -> Fields:
    del names
    timer = decode_timer(record.payload)
    fields: Fields = {"message_at": timer.position, "was_due_at_ms": timer.due_ms}
    if timer.new_due_ms:
        return fields | {"due_at_ms": timer.new_due_ms}
    return fields | {"cancelled": True}


KINDS: Final[tuple[Kind, ...]] = (
    Kind(RecordType.MESSAGE, encode_message, decode_message_head, message_text),
    Kind(RecordType.REF, lambda ref: [encode_ref(ref)], decode_ref, _ref_text),
    Kind(RecordType.TIMER, encode_timer, decode_timer, _timer_text),
)
