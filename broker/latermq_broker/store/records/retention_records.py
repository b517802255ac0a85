"""Records by which old segments become free to go: MOVE and DROP.

Little-endian. Positions are log positions; times milliseconds since the epoch; ids are the
catalogue's. A payload is what follows the 40-byte record header of `record.py`. Decoders take the
payload of a record whose checksum held, so they do not defend against damage.
"""

import json
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from latermq_broker.store.records.kind import Bytes, Fields, Kind, Names
from latermq_broker.store.records.lease_records import decode_ids, encode_ids
from latermq_broker.store.records.record import Record, RecordType

#  MOVE   0     1     2    4         8              12          16   24     32      40         48
#         | kind| type| pad| id count| entry count  | old length| old| first| due_ms| stored_ms|
#         48          + 8 ids         + 32 entries
#         | ids 8 x n | entries       | inner payload
#  entry  0      4      6      8             16        24       32
#         | topic| queue| flags| queue_offset| tag_hash| time_ms|
#  MESSAGE: the record at `old` (of type `type`, stored at stored_ms) now stands here, its payload
#  whole. first: where it stood when it was sent. due_ms: when the timer releases it; 0: the timer
#  does not have it. ids: deliveries, entries: queue entries that read it here from now on.
#  HISTORY: the attempts of the delivery ids[0] so far (JSON, `delivery/history.py`); `old` is the
#  oldest ATTEMPT record they stood in.
_MOVE: Final = struct.Struct("<BBxxIIIQQQQ")
assert _MOVE.size == 48
_MOVED_ENTRY: Final = struct.Struct("<IHHQQQ")
assert _MOVED_ENTRY.size == 32
MOVE_MESSAGE: Final = 1
MOVE_HISTORY: Final = 2


class MovedEntry(NamedTuple):
    topic_id: int
    queue_id: int
    flags: int
    queue_offset: int
    tag_hash: int
    time_ms: int


class MovePayload(NamedTuple):
    kind: int
    type: int
    old_length: int  # of the record at `old`
    old: int
    first: int
    due_ms: int
    stored_ms: int
    ids: tuple[int, ...]
    entries: tuple[MovedEntry, ...]
    inner: Bytes


def encode_move(move: MovePayload) -> list[Bytes]:
    head = _MOVE.pack(
        move.kind, move.type, len(move.ids), len(move.entries),
        move.old_length, move.old, move.first, move.due_ms, move.stored_ms,
    )  # fmt: skip
    entries = b"".join(_MOVED_ENTRY.pack(*entry) for entry in move.entries)
    return [head, encode_ids(move.ids), entries, move.inner]


def decode_move(payload: Bytes) -> MovePayload:
    kind, type_, id_count, entry_count, *rest = _MOVE.unpack_from(payload)
    old_length, old, first, due_ms, stored_ms = rest
    ids_end = _MOVE.size + 8 * id_count
    end = ids_end + _MOVED_ENTRY.size * entry_count
    entries = _MOVED_ENTRY.iter_unpack(payload[ids_end:end])
    return MovePayload(
        kind, type_, old_length, old, first, due_ms, stored_ms,
        decode_ids(payload[:ids_end], _MOVE.size),
        tuple(map(MovedEntry._make, entries)),
        payload[end:],
    )  # fmt: skip


def first_position(record: Record) -> int:
    """Return where a record's message stood when it was sent: it names the message for ever."""
    if record.type is RecordType.MOVE:
        return decode_move(record.payload).first
    return record.position


def moved_overhead(id_count: int, entry_count: int) -> int:
    """Compute what a MOVE is longer than the MESSAGE it carries, at most."""
    return _MOVE.size + id_count * 8 + entry_count * _MOVED_ENTRY.size


def original(record: Record) -> Record:
    """Return what a MOVE of a message carries, as it was stored first; others as they are.

    `position` and `length` stay those of the record that holds the bytes.
    """
    if record.type is not RecordType.MOVE:
        return record
    move = decode_move(record.payload)
    if move.kind != MOVE_MESSAGE:
        return record
    return record._replace(type=RecordType(move.type), store_ms=move.stored_ms, payload=move.inner)


def _move_text(record: Record, names: Names) -> Fields:
    move = decode_move(record.payload)
    if move.kind == MOVE_HISTORY:
        attempts = json.loads(bytes(move.inner))["attempts"]
        return {"what": "history", "delivery": move.ids[0], "attempts": len(attempts)}
    inner = original(record)
    fields: Fields = {"what": inner.type.name.lower(), "message_at": move.old}
    if move.due_ms:
        fields["due_at_ms"] = move.due_ms
    if move.ids:
        fields["deliveries"] = list(move.ids)
    for entry in move.entries[:1]:
        fields |= {"topic": names.topic(entry.topic_id), "queue": entry.queue_id}
    if move.entries:
        fields["offsets"] = [entry.queue_offset for entry in move.entries]
    return fields


#  DROP   0     1    4     6      8      16
#         | kind| pad| part| parts| start| queues 16 x n, or a part of the sections
#  queue  0      4      6    8      16
#         | topic| queue| pad| first|
#  TRIM: the first offsets of queues move up; what lies before is expired. `start` is 0.
#  BASE: nothing needs the log below `start` any more, its whole segments there may go. The parts,
#  in one atomic group, join to the sections of the engine's state at this point (`checkpoint.py`)
#  without what the rest of the log tells: a replay that begins at `start` takes them as its base.
_DROP: Final = struct.Struct("<BxxxHHQ")
assert _DROP.size == 16
_TRIM: Final = struct.Struct("<IHxxQ")
assert _TRIM.size == 16
DROP_TRIM: Final = 1
DROP_BASE: Final = 2


class TrimmedQueue(NamedTuple):
    topic_id: int
    queue_id: int
    first: int


class DropPayload(NamedTuple):
    kind: int
    start: int = 0
    queues: tuple[TrimmedQueue, ...] = ()  # of a TRIM
    part: int = 0
    parts: int = 0
    sections: Bytes = b""  # of a BASE: the part


def encode_drop(drop: DropPayload) -> list[Bytes]:
    head = _DROP.pack(drop.kind, drop.part, drop.parts, drop.start)
    return [head, b"".join(_TRIM.pack(*queue) for queue in drop.queues), drop.sections]


def decode_drop(payload: Bytes) -> DropPayload:
    kind, part, parts, start = _DROP.unpack_from(payload)
    rest = payload[_DROP.size :]
    if kind == DROP_BASE:
        return DropPayload(kind, start, (), part, parts, bytes(rest))
    return DropPayload(kind, start, tuple(map(TrimmedQueue._make, _TRIM.iter_unpack(rest))))


def _drop_text(record: Record, names: Names) -> Fields:
    drop = decode_drop(record.payload)
    if drop.kind == DROP_BASE:
        part = f"{drop.part + 1}/{drop.parts}"
        return {"what": "segments", "log_begins_at": drop.start, "part": part}
    fields: Fields = {"what": "expired", "queues": len(drop.queues)}
    for queue in drop.queues[:1]:
        fields["topic"] = names.topic(queue.topic_id)
        fields |= {"queue": queue.queue_id, "first_offset": queue.first}
    return fields


class BaseParts:
    """Puts the parts of a BASE together as its records come; one that lacks a part is none."""

    def __init__(self) -> None:
        self._parts: list[Bytes] = []
        self._of = (0, 0)  # where the log begins by that BASE, and how many parts it has

    def forget(self) -> None:
        """Forget the parts so far: records are missing here."""
        self._parts = []

    def add(self, drop: DropPayload) -> bytes | None:
        """Return the sections of a BASE with its last part; None before."""
        if drop.part == 0:
            self._parts = []
            self._of = (drop.start, drop.parts)
        if drop.part != len(self._parts) or self._of != (drop.start, drop.parts):
            self._parts = []
            return None
        self._parts.append(drop.sections)
        if drop.part + 1 < drop.parts:
            return None
        sections = b"".join(self._parts)
        self._parts = []
        return sections


def base_records(start: int, sections: bytes, part_bytes_max: int) -> Sequence[DropPayload]:
    """Make the DROP records of one atomic group that hold all the sections."""
    count = -(-len(sections) // part_bytes_max) or 1
    return [
        DropPayload(
            DROP_BASE, start, (), part, count,
            sections[part * part_bytes_max : (part + 1) * part_bytes_max],
        )
        for part in range(count)
    ]  # fmt: skip


KINDS: Final[tuple[Kind, ...]] = (
    Kind(RecordType.MOVE, encode_move, decode_move, _move_text),
    Kind(RecordType.DROP, encode_drop, decode_drop, _drop_text),
)
