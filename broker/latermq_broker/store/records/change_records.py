"""The payload of ACCESS and LIMIT records: a user, or a limit, was put or removed.

A payload is what follows the 40-byte record header of `record.py`. Decoders take the payload of a
record whose checksum held, so they do not defend against damage.
"""

import struct
from typing import Final, NamedTuple

from latermq_broker.store.records.kind import Bytes, Kind
from latermq_broker.store.records.record import RecordType

#  0   1    8
#  | op| pad| ACCESS: to put, JSON body of `access.py` with rights and secret; to remove, the access
#  |   |    | key, UTF-8. LIMIT: JSON body of `limits.py`; to remove one, its scope and name count
_CHANGE: Final = struct.Struct("<B7x")
assert _CHANGE.size == 8
PUT: Final = 1
REMOVE: Final = 2


class ChangePayload(NamedTuple):
    operation: int
    body: bytes


def encode_change(change: ChangePayload) -> list[Bytes]:
    return [_CHANGE.pack(change.operation), change.body]


def decode_change(payload: Bytes) -> ChangePayload:
    return ChangePayload(_CHANGE.unpack_from(payload)[0], bytes(payload[_CHANGE.size :]))


KINDS: Final = (
    Kind(RecordType.ACCESS, encode_change, decode_change),
    Kind(RecordType.LIMIT, encode_change, decode_change),
)
