"""The payload of LIMIT records: a limit of a client or a consumer group was put or removed.

A payload is what follows the 40-byte record header of `record.py`. Decoders take the payload of a
record whose checksum held, so they do not defend against damage.
"""

import struct
from typing import Final, NamedTuple

from latermq_broker.store.payload_lease import Bytes

#  LIMIT   0   1      8
#          | op| pad  | JSON body of `limits.py`; to remove one, its scope and name count
_LIMIT: Final = struct.Struct("<B7x")
assert _LIMIT.size == 8
LIMIT_PUT: Final = 1
LIMIT_REMOVE: Final = 2


class LimitPayload(NamedTuple):
    operation: int
    body: bytes


def encode_limit(change: LimitPayload) -> list[Bytes]:
    return [_LIMIT.pack(change.operation), change.body]


def decode_limit(payload: Bytes) -> LimitPayload:
    return LimitPayload(_LIMIT.unpack_from(payload)[0], bytes(payload[_LIMIT.size :]))
