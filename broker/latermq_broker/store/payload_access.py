"""The payload of ACCESS records: a user was put or deleted. Its rights are part of it.

A payload is what follows the 40-byte record header of `record.py`. Decoders take the payload of a
record whose checksum held, so they do not defend against damage.
"""

import struct
from typing import Final, NamedTuple

from latermq_broker.store.payload_lease import Bytes

#  ACCESS   0   1    8
#           | op| pad| put: JSON body of `access.py`, the secret in it; delete: access key, UTF-8
_ACCESS: Final = struct.Struct("<B7x")
assert _ACCESS.size == 8
USER_PUT: Final = 1
USER_DELETE: Final = 2


class AccessPayload(NamedTuple):
    operation: int
    body: bytes


def encode_access(access: AccessPayload) -> list[Bytes]:
    return [_ACCESS.pack(access.operation), access.body]


def decode_access(payload: Bytes) -> AccessPayload:
    return AccessPayload(_ACCESS.unpack_from(payload)[0], bytes(payload[_ACCESS.size :]))
