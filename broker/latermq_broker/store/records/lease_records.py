"""Records about who holds what.

LEASE_FRESH LEASE_RETRY LEASE_ORDERED LEASE_AHEAD ACK EXTEND ATTEMPT CLIENT.

Little-endian. Positions are log positions; times milliseconds since the epoch; ids are the
catalogue's. A payload is what follows the 40-byte record header of `record.py`; the header's own
store time is the instant of the fact. Decoders take the payload of a record whose checksum held, so
they do not defend against damage.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from latermq_broker.store.records.kind import Bytes, Fields, Kind, Names
from latermq_broker.store.records.record import Record, RecordType

_U32_MAX: Final = (1 << 32) - 1

#  LEASE_FRESH   0         8             16      24     28     32            36     38     40   44
#                | first_id| first_offset| client| group| topic| invisible_ms| queue| count| span|
#                44     45   48
#                | flags| pad| when count < span: count u32 offsets relative to first_offset
#  Messages read from a queue for the first time by this group. They get the delivery ids first_id,
#  first_id + 1, …; the group's next offset becomes first_offset + span (what the filter passed over
#  lies between). `client` is the position of a CLIENT record.
_LEASE_FRESH: Final = struct.Struct("<QQQIIIHHIB3x")
assert _LEASE_FRESH.size == 48
LEASE_AUTO_RENEW: Final = 1


class LeaseFreshPayload(NamedTuple):
    first_id: int
    first_offset: int
    client: int
    group_id: int
    topic_id: int
    invisible_ms: int
    queue_id: int
    span: int
    flags: int
    deltas: Sequence[int]  # offset - first_offset of each message; len() = count


def encode_lease_fresh(lease: LeaseFreshPayload) -> list[Bytes]:
    count = len(lease.deltas)
    head = _LEASE_FRESH.pack(
        lease.first_id,
        lease.first_offset,
        lease.client,
        lease.group_id,
        lease.topic_id,
        lease.invisible_ms,
        lease.queue_id,
        count,
        lease.span,
        lease.flags,
    )
    if count == lease.span:
        return [head]
    return [head, struct.pack(f"<{count}I", *lease.deltas)]


def decode_lease_fresh(payload: Bytes) -> LeaseFreshPayload:
    *before, count, span, flags = _LEASE_FRESH.unpack_from(payload)
    deltas = (
        range(count)
        if count == span
        else struct.unpack_from(f"<{count}I", payload, _LEASE_FRESH.size)
    )
    return LeaseFreshPayload._make((*before, span, flags, deltas))


def _lease_fresh_text(record: Record, names: Names) -> Fields:
    lease = decode_lease_fresh(record.payload)
    return {
        "group": names.group(lease.group_id),
        "topic": names.topic(lease.topic_id),
        "queue": lease.queue_id,
        "offsets": [lease.first_offset + delta for delta in lease.deltas],
        "deliveries": [lease.first_id + index for index in range(len(lease.deltas))],
        "invisible_ms": lease.invisible_ms,
        "auto_renew": bool(lease.flags & LEASE_AUTO_RENEW),
        "client": names.client(lease.client),
    }


#  LEASE_RETRY   0       8             12     13  16
#                | client| invisible_ms| flags| pad| delivery ids 8 x n
#  Messages of a group's retry lane leased again: attempt + 1 each.
_LEASE_RETRY: Final = struct.Struct("<QIB3x")
assert _LEASE_RETRY.size == 16


class LeaseRetryPayload(NamedTuple):
    client: int
    invisible_ms: int
    flags: int
    ids: tuple[int, ...]


def encode_lease_retry(lease: LeaseRetryPayload) -> list[Bytes]:
    head = _LEASE_RETRY.pack(lease.client, lease.invisible_ms, lease.flags)
    return [head, encode_ids(lease.ids)]


def decode_lease_retry(payload: Bytes) -> LeaseRetryPayload:
    client, invisible_ms, flags = _LEASE_RETRY.unpack_from(payload)
    ids = decode_ids(payload, _LEASE_RETRY.size)
    return LeaseRetryPayload(client, invisible_ms, flags, ids)


def _lease_retry_text(record: Record, names: Names) -> Fields:
    lease = decode_lease_retry(record.payload)
    return {
        "deliveries": list(lease.ids),
        "invisible_ms": lease.invisible_ms,
        "auto_renew": bool(lease.flags & LEASE_AUTO_RENEW),
        "client": names.client(lease.client),
    }


#  LEASE_ORDERED   0         8       16     20     24            28     30     31   32           40
#                  | first_id| client| group| topic| invisible_ms| queue| flags| pad| next_offset|
#                  40     rows 24 x n
#  row             0          8       16     18   19   24
#                  | order key| offset| queue| act| pad|
#  What a group that keeps the order did with messages it had not received yet, in this order.
#  TAKE: leased, under the next id from first_id on. HOLD: seen, and held back because its message
#  group is blocked; the group's next offset passes it. PASS: one that was held is filtered out.
#  KEEP: one that was held waits on, under the next id from first_id on, when its queue expires.
#  Then the group's next offset on `queue` becomes next_offset; queue 0xffff: none moves.
_LEASE_ORDERED: Final = struct.Struct("<QQIIIHBxQ")
assert _LEASE_ORDERED.size == 40
_ORDERED_ROW: Final = struct.Struct("<QQHB5x")
assert _ORDERED_ROW.size == 24
ORDERED_TAKE: Final = 1
ORDERED_HOLD: Final = 2
ORDERED_PASS: Final = 3
ORDERED_KEEP: Final = 4  # in a record of its own
NO_QUEUE: Final = 0xFFFF
_ORDERED_ACTS: Final = {
    ORDERED_TAKE: "leased",
    ORDERED_HOLD: "held_back",
    ORDERED_PASS: "filtered_out",
    ORDERED_KEEP: "kept",
}  # as queue:offset


class OrderedRow(NamedTuple):
    order_key: int  # 0: of no message group, never held
    offset: int
    queue_id: int
    act: int


class LeaseOrderedPayload(NamedTuple):
    first_id: int
    client: int
    group_id: int
    topic_id: int
    invisible_ms: int
    queue_id: int
    flags: int
    next_offset: int
    rows: tuple[OrderedRow, ...]


def encode_lease_ordered(lease: LeaseOrderedPayload) -> list[Bytes]:
    rows = b"".join(_ORDERED_ROW.pack(*row) for row in lease.rows)
    return [_LEASE_ORDERED.pack(*lease[:-1]), rows]


def decode_lease_ordered(payload: Bytes) -> LeaseOrderedPayload:
    rows = _ORDERED_ROW.iter_unpack(payload[_LEASE_ORDERED.size :])
    head = _LEASE_ORDERED.unpack_from(payload)
    return LeaseOrderedPayload._make((*head, tuple(map(OrderedRow._make, rows))))


def _lease_ordered_text(record: Record, names: Names) -> Fields:
    lease = decode_lease_ordered(record.payload)
    fields: Fields = {"group": names.group(lease.group_id), "topic": names.topic(lease.topic_id)}
    if lease.queue_id != NO_QUEUE:
        fields |= {"queue": lease.queue_id, "next_offset": lease.next_offset}
    return fields | _acts_text(lease, names)


def _acts_text(lease: LeaseOrderedPayload, names: Names) -> Fields:
    fields: Fields = {}
    for act, name in _ORDERED_ACTS.items():
        places = [f"{row.queue_id}:{row.offset}" for row in lease.rows if row.act == act]
        if places:
            fields[name] = places
    taken = sum(row.act == ORDERED_TAKE for row in lease.rows)
    if taken:
        fields |= {
            "deliveries": [lease.first_id + index for index in range(taken)],
            "invisible_ms": lease.invisible_ms,
            "auto_renew": bool(lease.flags & LEASE_AUTO_RENEW),
            "client": names.client(lease.client),
        }
    return fields


#  LEASE_AHEAD   laid out as LEASE_ORDERED; all rows are of `queue`, of a group of any kind
#  What is in no row stays in the queue: another consumer of the group wants it, or it is undecided.
#  The group's next offset moves on behind the rows that begin at it; next_offset is where it was.
#  PASS: nobody wants the messages from `offset` on, as many as `order key` says.
AHEAD_PASS: Final = ORDERED_PASS


def _lease_ahead_text(record: Record, names: Names) -> Fields:
    lease = decode_lease_ordered(record.payload)
    rows = tuple(row for row in lease.rows if row.act != AHEAD_PASS)
    text = {
        "group": names.group(lease.group_id),
        "topic": names.topic(lease.topic_id),
        "queue": lease.queue_id,
        **_acts_text(lease._replace(rows=rows), names),
    }
    pass_rows = [row for row in lease.rows if row.act == AHEAD_PASS]
    if pass_rows:
        text["passed_over"] = [
            f"{row.offset}-{row.offset + row.order_key - 1}" for row in pass_rows
        ]
    return text


#  ACK   delivery ids, 8 x n
def encode_ids(ids: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(ids)}Q", *ids)


def decode_ids(payload: Bytes, start: int = 0) -> tuple[int, ...]:
    return struct.unpack_from(f"<{(len(payload) - start) // 8}Q", payload, start)


def _ack_text(record: Record, names: Names) -> Fields:
    del names
    return {"deliveries": list(decode_ids(record.payload))}


#  EXTEND   0   8             12     13   16
#           | id| invisible_ms| flags| pad |
#  The deadline becomes store time + invisible_ms. KEEP_HANDLE: the receipt handle
#  stays valid. RENEWAL: the broker's own, for a client that is alive. BOUNDS: the broker does not
#  renew the lease beyond it, as its holder asked. AGAIN: the same reply went out once more;
#  renewals are counted from none. GONE: as BOUNDS, because the connection of the holder broke, or
#  the holder left or fell silent.
_EXTEND: Final = struct.Struct("<QIB3x")
assert _EXTEND.size == 16
EXTEND_KEEP_HANDLE: Final = 1
EXTEND_RENEWAL: Final = 2
EXTEND_BOUNDS: Final = 4
EXTEND_AGAIN: Final = 8
EXTEND_GONE: Final = 16


class ExtendPayload(NamedTuple):
    id: int
    invisible_ms: int
    flags: int


def encode_extend(extend: ExtendPayload) -> list[Bytes]:
    return [_EXTEND.pack(*extend)]


def decode_extend(payload: Bytes) -> ExtendPayload:
    return ExtendPayload._make(_EXTEND.unpack_from(payload))


def _extend_text(record: Record, names: Names) -> Fields:
    del names
    extend = decode_extend(record.payload)
    return {
        "delivery": extend.id,
        "invisible_ms": extend.invisible_ms,
        "handle_stays": bool(extend.flags & EXTEND_KEEP_HANDLE),
        "renewal": bool(extend.flags & EXTEND_RENEWAL),
        "renewed_no_more": bool(extend.flags & (EXTEND_BOUNDS | EXTEND_GONE)),
        **({"again": True} if extend.flags & EXTEND_AGAIN else {}),
        **({"client_gone": True} if extend.flags & EXTEND_GONE else {}),
    }


#  ATTEMPT   0     8   16      24           28       30       31     32
#            | prev| id| client| duration_ms| attempt| outcome| flags| [backoff_ms u32] [failure]
#            | [generation u32]
#  failure   0          2         4          6           8
#            | class_len| text_len| hash_len | stack_len | class | text | hash | stack
#  A lease ended without an ack and the message stays with its group. `prev` is the position of the
#  message's previous ATTEMPT record, 0 for none: the attempts form a list in the log. The attempt
#  began at store time - duration_ms. The message is receivable at store time + backoff_ms.
#  `generation` is that of the lease or wait that its holder ended by it: handles name it.
_ATTEMPT: Final = struct.Struct("<QQQIHBB")
assert _ATTEMPT.size == 32
_FAILURE: Final = struct.Struct("<HHHH")
_ATTEMPT_HAS_BACKOFF: Final = 1
_ATTEMPT_HAS_FAILURE: Final = 2
_ATTEMPT_HAS_GENERATION: Final = 4


class Outcome(IntEnum):
    """How an attempt ended; the number is on disk."""

    NACK = 1
    EXPIRED = 2
    FORWARDED = 3
    REJECTED = 4
    SUSPENDED = 5  # given back; not counted
    ACKNOWLEDGED = 6  # behind one that was not, with which it is given again
    CLIENT_GONE = 7  # the lease ended after the connection of its holder, or the holder, had


_OUTCOMES: Final = frozenset(Outcome)
LEASE_ENDED: Final = frozenset({Outcome.EXPIRED, Outcome.CLIENT_GONE})  # by time, with no answer


GIVEN_BACK: Final = (Outcome.NACK, Outcome.SUSPENDED)  # by the holder


class AttemptPayload(NamedTuple):
    previous: int
    id: int
    client: int
    duration_ms: int
    attempt: int
    outcome: int
    backoff_ms: int
    failure: tuple[str, str, str, str] | None  # class, text, stack hash, stack
    generation: int = 0  # that the holder ended; 0: it ran out, or an older version wrote it


def encode_attempt(attempt: AttemptPayload) -> list[Bytes]:
    flags = (
        (_ATTEMPT_HAS_BACKOFF if attempt.backoff_ms else 0)
        | (_ATTEMPT_HAS_FAILURE if attempt.failure is not None else 0)
        | (_ATTEMPT_HAS_GENERATION if attempt.generation else 0)
    )
    parts: list[Bytes] = [
        _ATTEMPT.pack(
            attempt.previous,
            attempt.id,
            attempt.client,
            min(attempt.duration_ms, _U32_MAX),
            attempt.attempt,
            attempt.outcome,
            flags,
        )
    ]
    if attempt.backoff_ms:
        parts.append(attempt.backoff_ms.to_bytes(4, "little"))
    if attempt.failure is not None:
        texts = [text.encode("utf-8", "replace") for text in attempt.failure]
        parts.append(_FAILURE.pack(*map(len, texts)))
        parts.extend(texts)
    if attempt.generation:
        parts.append(attempt.generation.to_bytes(4, "little"))
    return parts


def decode_attempt(payload: Bytes) -> AttemptPayload:
    previous, delivery_id, client, duration_ms, attempt, outcome, flags = _ATTEMPT.unpack_from(
        payload
    )
    if outcome not in _OUTCOMES:
        raise ValueError(f"outcome {outcome} of an attempt")
    start = _ATTEMPT.size
    backoff_ms = 0
    if flags & _ATTEMPT_HAS_BACKOFF:
        backoff_ms = int.from_bytes(payload[start : start + 4], "little")
        start += 4
    failure = None
    if flags & _ATTEMPT_HAS_FAILURE:
        lengths = _FAILURE.unpack_from(payload, start)
        start += _FAILURE.size
        texts = []
        for length in lengths:
            texts.append(str(payload[start : start + length], "utf-8", "replace"))
            start += length
        failure = (texts[0], texts[1], texts[2], texts[3])
    generation = 0
    if flags & _ATTEMPT_HAS_GENERATION:
        generation = int.from_bytes(payload[start : start + 4], "little")
    return AttemptPayload(
        previous,
        delivery_id,
        client,
        duration_ms,
        attempt,
        outcome,
        backoff_ms,
        failure,
        generation,
    )


def _attempt_text(record: Record, names: Names) -> Fields:
    attempt = decode_attempt(record.payload)
    fields: Fields = {
        "delivery": attempt.id,
        "attempt": attempt.attempt,
        "outcome": Outcome(attempt.outcome).name.lower(),
        "ran_ms": attempt.duration_ms,
        "backoff_ms": attempt.backoff_ms,
        "client": names.client(attempt.client),
        "previous_at": attempt.previous,
    }
    if attempt.failure is not None:
        fields["failure_class"], fields["failure_text"] = attempt.failure[:2]
    return fields


#  CLIENT   a client id, UTF-8; leases and attempts name it by this record's position
def encode_client(client_id: str) -> list[Bytes]:
    return [client_id.encode("utf-8", "replace")]


def decode_client(payload: Bytes) -> str:
    return str(payload, "utf-8", "replace")


def _client_text(record: Record, names: Names) -> Fields:
    name = names.clients[record.position] = decode_client(record.payload)
    return {"client": name}


KINDS: Final[tuple[Kind, ...]] = (
    Kind(RecordType.LEASE_FRESH, encode_lease_fresh, decode_lease_fresh, _lease_fresh_text),
    Kind(RecordType.LEASE_RETRY, encode_lease_retry, decode_lease_retry, _lease_retry_text),
    Kind(RecordType.LEASE_ORDERED, encode_lease_ordered, decode_lease_ordered, _lease_ordered_text),
    Kind(RecordType.LEASE_AHEAD, encode_lease_ordered, decode_lease_ordered, _lease_ahead_text),
    Kind(RecordType.ACK, lambda ids: [encode_ids(ids)], decode_ids, _ack_text),
    Kind(RecordType.EXTEND, encode_extend, decode_extend, _extend_text),
    Kind(RecordType.ATTEMPT, encode_attempt, decode_attempt, _attempt_text),
    Kind(RecordType.CLIENT, encode_client, decode_client, _client_text),
)
