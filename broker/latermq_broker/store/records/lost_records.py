"""What stands in the log where a damaged range was, once an operator has given it up.

    LOST  0            8
          | given_up_ms | zeros …      the record's own length says how much is lost

A range of 40 bytes has room for the header alone. Long ranges are covered by several records.
"""

import struct
from typing import Final, NamedTuple

from latermq_broker.store.records.record import HEADER_BYTES, Record

_LOST: Final = struct.Struct("<Q")
LOST_BYTES_MIN: Final = HEADER_BYTES + _LOST.size  # of a record that says when
LOST_BYTES_MAX: Final = 1 << 20  # of one record


class Lost(NamedTuple):
    position: int
    length: int
    given_up_ms: int  # 0: there was no room to say


def lost_payload(length: int, given_up_ms: int) -> bytes:
    """For a record that covers `length` bytes, its header included."""
    payload = _LOST.pack(given_up_ms) if length >= LOST_BYTES_MIN else b""
    return payload.ljust(length - HEADER_BYTES, b"\0")


def decode_lost(record: Record) -> Lost:
    payload = record.payload
    when = _LOST.unpack_from(payload)[0] if len(payload) >= _LOST.size else 0
    return Lost(record.position, record.length, when)
