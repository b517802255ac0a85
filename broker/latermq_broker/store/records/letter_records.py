"""Records of dead letters: DEAD DEAD_CHANGE REDRIVE.

Little-endian. Positions are log positions; times milliseconds since the epoch; ids are the
catalogue's. A payload is what follows the 40-byte record header of `record.py`; the header's own
store time is the instant of the fact. Decoders take the payload of a record whose checksum held, so
they do not defend against damage.
"""

import json
import struct
from enum import IntEnum
from typing import Final, NamedTuple

from latermq_broker.store.records.kind import Bytes, Fields, Kind, Names
from latermq_broker.store.records.lease_records import decode_ids, encode_ids
from latermq_broker.store.records.message_fields import body_bytes, message_id, well_formed
from latermq_broker.store.records.message_records import NO_PRIORITY, ORDER_KEY, PRIORITY
from latermq_broker.store.records.record import Record, RecordType

#  DEAD   0   8       16            24            32        40     48     52         56
#         | id| origin| queue_offset| origin_offs.| tag_hash| id_h.| group| dlq_topic| origin_topic|
#         60            62       64            66             68      69       72
#         | origin_queue| attempt| max_attempts| redrive_count| reason| flags, pad | redriven_ms|
#         80          84        88       92
#         | hist_len  | rest_len| sys_len| history | rest | sys | order key u64, if ORDERED,
#         or priority u64, if PRIORITY
#  One atomic fact: the delivery `id` is over for its group, and a full copy of the message stands
#  in %DLQ%group, with its whole life (JSON, `delivery/history.py`). PARKS: its message group stands
#  still for the consumer group until the letter is redriven or dropped.
_DEAD: Final = struct.Struct("<QQQqQQIIIHHHHBB2xQIII")
assert _DEAD.size == 92
DEAD_EXHAUSTED: Final = 1
DEAD_FORWARDED: Final = 2
DEAD_REJECTED: Final = 3
DEAD_FILTERED: Final = 4  # nobody of the group wants it any more
DEAD_WAITING: Final = (DEAD_EXHAUSTED, DEAD_FILTERED)  # reasons of what nobody holds, too
DEAD_ORDERED: Final = 1  # flags
DEAD_PARKS: Final = 2
DEAD_PRIORITY: Final = 4
DEAD_REASONS: Final = {
    DEAD_EXHAUSTED: "attempts_exhausted",
    DEAD_FORWARDED: "forwarded",
    DEAD_REJECTED: "rejected",
    DEAD_FILTERED: "filtered",
}


class DeadHead(NamedTuple):
    id: int
    origin: int
    queue_offset: int  # in the dead-letter topic
    origin_offset: int
    tag_hash: int
    id_hash: int
    group_id: int
    dlq_topic_id: int
    origin_topic_id: int
    origin_queue_id: int
    attempt_count: int
    max_attempts: int
    redrive_count: int
    reason: int
    flags: int
    redriven_ms: int
    history_length: int
    rest_length: int
    sys_length: int


class DeadPayload(NamedTuple):
    head: DeadHead
    history: bytes = b""
    rest: bytes = b""
    sys: bytes = b""
    order_key: int = 0  # set if, and only if, the head's flags say ORDERED
    priority: int = NO_PRIORITY  # set if, and only if, they say PRIORITY


def encode_dead(dead: DeadPayload) -> list[Bytes]:
    """Encode a DEAD; the three lengths in the head are taken from the parts."""
    head = dead.head._replace(
        history_length=len(dead.history), rest_length=len(dead.rest), sys_length=len(dead.sys)
    )
    parts: list[Bytes] = [_DEAD.pack(*head), dead.history, dead.rest, dead.sys]
    if head.flags & DEAD_ORDERED:
        parts.append(ORDER_KEY.pack(dead.order_key))
    elif head.flags & DEAD_PRIORITY:
        parts.append(PRIORITY.pack(dead.priority))
    return parts


def decode_dead(payload: Bytes) -> DeadPayload:
    """Decode a DEAD; of its parts `sys` only: `dead_slices` copies them all out."""
    head = decode_dead_head(payload)
    start = _DEAD.size + head.history_length + head.rest_length
    sys = bytes(payload[start : start + head.sys_length])
    return DeadPayload(
        head, sys=sys, order_key=dead_order_key(payload), priority=dead_priority(payload)
    )


def decode_dead_head(payload: Bytes) -> DeadHead:
    return DeadHead._make(_DEAD.unpack_from(payload))


def dead_order_key(payload: Bytes) -> int:
    """Read the order key of a DEAD; 0: of no message group."""
    if not payload[69] & DEAD_ORDERED:
        return 0
    key: int = ORDER_KEY.unpack_from(payload, len(payload) - ORDER_KEY.size)[0]
    return key


def dead_priority(payload: Bytes) -> int:
    """Read the priority of a DEAD; NO_PRIORITY: it has none."""
    if not payload[69] & DEAD_PRIORITY:
        return NO_PRIORITY
    priority: int = PRIORITY.unpack_from(payload, len(payload) - PRIORITY.size)[0]
    return priority


def dead_slices(payload: Bytes) -> tuple[bytes, bytes, bytes]:
    """Return (history, rest, sys) of a DEAD."""
    head = decode_dead_head(payload)
    first = _DEAD.size
    second = first + head.history_length
    third = second + head.rest_length
    return (
        bytes(payload[first:second]),
        bytes(payload[second:third]),
        bytes(payload[third : third + head.sys_length]),
    )


def _dead_text(record: Record, names: Names) -> Fields:
    """Describe a dead letter. Raises ValueError, KeyError: it is damaged."""
    head = decode_dead_head(record.payload)
    history, rest, sys = dead_slices(record.payload)
    if not (well_formed(rest) and well_formed(sys)):
        raise ValueError("the message of a dead letter cannot be read")
    return {
        "group": names.group(head.group_id),
        "offset": head.queue_offset,
        "reason": DEAD_REASONS.get(head.reason, str(head.reason)),
        "delivery": head.id,
        "attempts": head.attempt_count,
        "origin_topic": names.topic(head.origin_topic_id),
        "origin_queue": head.origin_queue_id,
        "origin_offset": head.origin_offset,
        "message_id": message_id(sys),
        "signature": json.loads(history)["signature"],
        "redrives": head.redrive_count,
        "body_bytes": body_bytes(rest),
        "parks": bool(head.flags & DEAD_PARKS),
    }


#  DEAD_CHANGE   0          4      5    8
#                | dlq_topic| state| pad| offsets 8 x n
#  Letters left the state DEAD: redriven to a topic (with their REFs in the same group) or dropped.
_DEAD_CHANGE: Final = struct.Struct("<IB3x")
assert _DEAD_CHANGE.size == 8


class DeadState(IntEnum):
    """Numbers are latermq.v1.DeadLetterState's."""

    DEAD = 1
    REDRIVEN = 2
    DROPPED = 3


class DeadChangePayload(NamedTuple):
    dlq_topic_id: int
    state: int
    offsets: tuple[int, ...]


def encode_dead_change(change: DeadChangePayload) -> list[Bytes]:
    head = _DEAD_CHANGE.pack(change.dlq_topic_id, change.state)
    return [head, encode_ids(change.offsets)]


def decode_dead_change(payload: Bytes) -> DeadChangePayload:
    dlq_topic_id, state = _DEAD_CHANGE.unpack_from(payload)
    return DeadChangePayload(dlq_topic_id, state, decode_ids(payload, _DEAD_CHANGE.size))


def _dead_change_text(record: Record, names: Names) -> Fields:
    change = decode_dead_change(record.payload)
    return {
        "topic": names.topic(change.dlq_topic_id),
        "state": DeadState(change.state).name.lower(),
        "offsets": list(change.offsets),
    }


#  REDRIVE   0   8       16           24       32        36     40         44     48
#            | id| letter| letter_offs| tag_h. | origin_o| group| dlq_topic| topic| len. | queue
#            60         68            72            74       76
#            | order key| origin_topic| origin_queue| redrive|
#  A letter goes back to the one group it died in: receivable at once under a new delivery id,
#  attempts from 1. `letter` is the DEAD record's position. The order key is 0 unless the group
#  keeps the order of the message's group; the origin is the letter's, `redrive` counts from 1, to
#  REDRIVES_MAX. Older versions wrote an order key or nothing behind byte 60: the origin is then
#  read from the letter, and `redrive` is 0.
_REDRIVE: Final = struct.Struct("<QQQQqIIIIH2x")
assert _REDRIVE.size == 60
_REDRIVE_ORIGIN: Final = struct.Struct("<QIHH")
assert _REDRIVE_ORIGIN.size == 16
REDRIVES_MAX: Final = 65_535  # counted in 16 bits; further ones are not


class RedrivePayload(NamedTuple):
    id: int
    letter: int
    letter_offset: int
    tag_hash: int
    origin_offset: int
    group_id: int
    dlq_topic_id: int
    topic_id: int
    length: int
    queue_id: int
    order_key: int = 0
    origin_topic_id: int = 0
    origin_queue_id: int = 0
    redrive: int = 0


def encode_redrive(redrive: RedrivePayload) -> list[Bytes]:
    head = _REDRIVE.pack(*redrive[:10])
    if redrive.redrive:
        return [head, _REDRIVE_ORIGIN.pack(*redrive[10:])]
    return [head, ORDER_KEY.pack(redrive.order_key)] if redrive.order_key else [head]


def decode_redrive(payload: Bytes) -> RedrivePayload:
    head = _REDRIVE.unpack_from(payload)
    behind = len(payload) - _REDRIVE.size
    if behind == _REDRIVE_ORIGIN.size:
        return RedrivePayload._make((*head, *_REDRIVE_ORIGIN.unpack_from(payload, _REDRIVE.size)))
    key: int = ORDER_KEY.unpack_from(payload, _REDRIVE.size)[0] if behind else 0
    return RedrivePayload._make((*head, key, 0, 0, 0))


def _redrive_text(record: Record, names: Names) -> Fields:
    redrive = decode_redrive(record.payload)
    return {
        "group": names.group(redrive.group_id),
        "letter": redrive.letter_offset,
        "topic": names.topic(redrive.topic_id),
        "delivery": redrive.id,
        "letter_at": redrive.letter,
        **({"redrive": redrive.redrive} if redrive.redrive else {}),
    }


KINDS: Final[tuple[Kind, ...]] = (
    Kind(RecordType.DEAD, encode_dead, decode_dead, _dead_text),
    Kind(RecordType.DEAD_CHANGE, encode_dead_change, decode_dead_change, _dead_change_text),
    Kind(RecordType.REDRIVE, encode_redrive, decode_redrive, _redrive_text),
)
