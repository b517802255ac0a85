"""Records about the log itself: LOST, MARK and BLANK, which change no state; CLOCK and LIFE.

LOST stands where a damaged range was, once an operator has given it up. MARK and BLANK have no
payload: see `record.py`.

    LOST  0            8
          | given_up_ms | zeros …      the record's own length says how much is lost

    CLOCK 0         8
          | ahead_ms |    signed: how far the wall clock is ahead of the broker's own time, which
                          `store_ms` is on, from this record on; before the first one: 0

    LIFE  0          8        12
          | first_id | stride |    a life's delivery ids begin there or later; what each change adds
                                   to a delivery's generation from this record on, modulo 2**32:
                                   odd; before the first LIFE: 1. Both are random in each life

A range of 40 bytes has room for the header alone. Long ranges are covered by several records.
"""

import struct
from typing import Final, NamedTuple

from latermq_broker.store.records.kind import Bytes, Fields, Kind, Names
from latermq_broker.store.records.record import HEADER_BYTES, Record, RecordType

_LOST: Final = struct.Struct("<Q")
_CLOCK: Final = struct.Struct("<q")
_LIFE: Final = struct.Struct("<QI")
LOST_BYTES_MIN: Final = HEADER_BYTES + _LOST.size  # of a record that says when
LOST_BYTES_MAX: Final = 1 << 20  # of one record


class LostPayload(NamedTuple):
    length: int  # of what is lost: as long as the record, its header included
    given_up_ms: int  # 0: there was no room to say


def encode_lost(lost: LostPayload) -> list[Bytes]:
    when = _LOST.pack(lost.given_up_ms) if lost.length >= LOST_BYTES_MIN else b""
    return [when.ljust(lost.length - HEADER_BYTES, b"\0")]


def decode_lost(payload: Bytes) -> LostPayload:
    when = _LOST.unpack_from(payload)[0] if len(payload) >= _LOST.size else 0
    return LostPayload(HEADER_BYTES + len(payload), when)


def _lost_text(record: Record, names: Names) -> Fields:
    del names
    lost = decode_lost(record.payload)
    return {"lost_bytes": lost.length, "given_up_at_ms": lost.given_up_ms}


def encode_clock(ahead_ms: int) -> list[Bytes]:
    return [_CLOCK.pack(ahead_ms)]


def decode_clock(payload: Bytes) -> int:
    ahead_ms: int = _CLOCK.unpack_from(payload)[0]
    return ahead_ms


def _clock_text(record: Record, names: Names) -> Fields:
    del names
    return {"wall_ahead_ms": decode_clock(record.payload)}


class LifePayload(NamedTuple):
    first_id: int
    stride: int


def encode_life(life: LifePayload) -> list[Bytes]:
    return [_LIFE.pack(life.first_id, life.stride)]


def decode_life(payload: Bytes) -> LifePayload:
    first_id, stride = _LIFE.unpack_from(payload)
    return LifePayload(first_id, stride)


def _life_text(record: Record, names: Names) -> Fields:
    del names
    life = decode_life(record.payload)
    return {"first_delivery": life.first_id, "stride": life.stride}


def _encode_nothing(payload: None) -> list[Bytes]:
    del payload
    return []


def _decode_nothing(payload: Bytes) -> None:
    del payload


def _mark_text(record: Record, names: Names) -> Fields:
    del names
    return {"clean": record.is_clean_mark}


def _blank_text(record: Record, names: Names) -> Fields:
    del record, names
    return {}


KINDS: Final[tuple[Kind, ...]] = (
    Kind(RecordType.CLOCK, encode_clock, decode_clock, _clock_text),
    Kind(RecordType.LIFE, encode_life, decode_life, _life_text),
    Kind(RecordType.LOST, encode_lost, decode_lost, _lost_text),
    Kind(RecordType.MARK, _encode_nothing, _decode_nothing, _mark_text),
    Kind(RecordType.BLANK, _encode_nothing, _decode_nothing, _blank_text),
)
