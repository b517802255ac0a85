"""HALF, HALF_SENDER and TXN records: half messages, whose they are, and what became of them.

A commit is a REF record.

A HALF record has the payload of a MESSAGE that waits (`message_records.py`); its due_ms is that of
the first check. Little-endian; a payload is what follows the 40-byte record header of `record.py`.
"""

import struct
from typing import Final, NamedTuple

from latermq_broker.store.records.kind import Bytes, Fields, Kind, Names
from latermq_broker.store.records.message_records import (
    decode_message_head,
    encode_message,
    message_text,
)
from latermq_broker.store.records.record import Record, RecordType

#  TXN   0         8       16      20      22    23     24
#        | position| due_ms| length| checks| kind| cause|
#  position, length: of the record that holds the half message now.
#  CHECKED: a producer was asked, for the `checks`th time; the next one is asked at due_ms. After
#  the last check due_ms is when it is rolled back at the latest.
#  ROLLED_BACK: it will never be delivered; `cause` says at whose wish. due_ms is 0.
_TXN: Final = struct.Struct("<QQIHBB")
assert _TXN.size == 24
#  HALF_SENDER   0      4    8
#                | count| pad| positions 8 x count| access key, UTF-8
#  Comes after the half messages at `positions`, in one atomic group with them. Where users have no
#  names there is none.
_SENDER: Final = struct.Struct("<I4x")
assert _SENDER.size == 8
TXN_CHECKED: Final = 1
TXN_ROLLED_BACK: Final = 2

CAUSE_PRODUCER: Final = 1
CAUSE_OPERATOR: Final = 2
CAUSE_EXPIRED: Final = 3
CAUSE_TOPIC_GONE: Final = 4
CAUSE_NO_ROOM: Final = 5
CAUSE_DAMAGED: Final = 6
CAUSES: Final = {
    CAUSE_PRODUCER: "producer",
    CAUSE_OPERATOR: "operator",
    CAUSE_EXPIRED: "too old",
    CAUSE_TOPIC_GONE: "topic deleted",
    CAUSE_NO_ROOM: "no room",
    CAUSE_DAMAGED: "damaged",
}


class TxnPayload(NamedTuple):
    position: int
    due_ms: int
    length: int
    checks: int
    kind: int
    cause: int


class HalfSenderPayload(NamedTuple):
    positions: tuple[int, ...]
    sender: str  # a user's access key


def encode_half_sender(payload: HalfSenderPayload) -> list[Bytes]:
    positions, sender = payload
    count = len(positions)
    return [_SENDER.pack(count), struct.pack(f"<{count}Q", *positions), sender.encode()]


def decode_half_sender(payload: Bytes) -> HalfSenderPayload:
    (count,) = _SENDER.unpack_from(payload)
    positions: tuple[int, ...] = struct.unpack_from(f"<{count}Q", payload, _SENDER.size)
    return HalfSenderPayload(positions, str(payload[_SENDER.size + 8 * count :], "utf-8"))


def _half_sender_text(record: Record, names: Names) -> Fields:
    del names
    positions, sender = decode_half_sender(record.payload)
    return {"messages_at": list(positions), "user": sender}


def encode_txn(txn: TxnPayload) -> list[Bytes]:
    return [_TXN.pack(*txn)]


def decode_txn(payload: Bytes) -> TxnPayload:
    return TxnPayload._make(_TXN.unpack_from(payload))


def _txn_text(record: Record, names: Names) -> Fields:
    del names
    txn = decode_txn(record.payload)
    if txn.kind == TXN_CHECKED:
        checked: Fields = {"message_at": txn.position, "what": "a producer was asked"}
        return checked | {"checks": txn.checks, "check_at_ms": txn.due_ms}
    cause = CAUSES.get(txn.cause, str(txn.cause))
    return {"message_at": txn.position, "what": "rolled back", "cause": cause}


KINDS: Final[tuple[Kind, ...]] = (
    Kind(RecordType.HALF, encode_message, decode_message_head, message_text),
    Kind(RecordType.HALF_SENDER, encode_half_sender, decode_half_sender, _half_sender_text),
    Kind(RecordType.TXN, encode_txn, decode_txn, _txn_text),
)
