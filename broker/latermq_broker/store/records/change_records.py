"""ACCESS and LIMIT records: a user, or a limit, was put or removed.

A payload is what follows the 40-byte record header of `record.py`. Decoders take the payload of a
record whose checksum held, so they do not defend against damage.
"""

import struct
from typing import Final, NamedTuple

from latermq_broker.catalog.access import decode_user
from latermq_broker.catalog.limits import FIELDS, decode_limit
from latermq_broker.store.records.kind import Bytes, Fields, Kind, Names
from latermq_broker.store.records.record import Record, RecordType

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


def _access_text(record: Record, names: Names) -> Fields:
    """Describe all of a user but its secret."""
    del names
    access = decode_change(record.payload)
    if access.operation != PUT:
        return {"deleted_user": access.body.decode()}
    user = decode_user(access.body)
    grants = [f"{grant.kind}:{grant.pattern}:{'+'.join(grant.rights)}" for grant in user.grants]
    return {
        "user": user.access_key,
        "admin": user.admin,
        "disabled": user.disabled,
        "rotated_at_ms": user.rotated_ms,
        "grants": grants,
    }


def _limit_text(record: Record, names: Names) -> Fields:
    del names
    change = decode_change(record.payload)
    limit = decode_limit(change.body)
    fields: Fields = {"scope": limit.scope.name.lower(), "name": limit.name}
    if change.operation != PUT:
        return fields | {"unset": True}
    return fields | {field: most for field in FIELDS if (most := getattr(limit, field))}


KINDS: Final[tuple[Kind, ...]] = (
    Kind(RecordType.ACCESS, encode_change, decode_change, _access_text),
    Kind(RecordType.LIMIT, encode_change, decode_change, _limit_text),
)
