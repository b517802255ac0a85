"""Payloads of records that configure: CONFIG OFFSET RESET.

Little-endian. Positions are log positions; times milliseconds since the epoch; ids are the
catalogue's. A payload is what follows the 40-byte record header of `record.py`; the header's own
store time is the instant of the fact. Decoders take the payload of a record whose checksum held, so
they do not defend against damage.
"""

import struct
from typing import Final, NamedTuple

from latermq_broker.store.payload_lease import Bytes, decode_ids, encode_ids

#  CONFIG   0     1   2    4   8
#           | kind| op| pad| id| JSON body of `catalog.py` (put only)
_CONFIG: Final = struct.Struct("<BBxxI")
assert _CONFIG.size == 8
CONFIG_TOPIC: Final = 1
CONFIG_GROUP: Final = 2
CONFIG_PUT: Final = 1
CONFIG_DELETE: Final = 2


class ConfigPayload(NamedTuple):
    kind: int
    operation: int
    id: int
    body: bytes


def encode_config(config: ConfigPayload) -> list[Bytes]:
    return [_CONFIG.pack(config.kind, config.operation, config.id), config.body]


def decode_config(payload: Bytes) -> ConfigPayload:
    kind, operation, item_id = _CONFIG.unpack_from(payload)
    return ConfigPayload(kind, operation, item_id, bytes(payload[_CONFIG.size :]))


#  OFFSET   0     4      8      10   16
#           | group| topic| queue| pad | offset
#  A group's next offset on a queue, moved without a lease: by UpdateOffset, or by a filter.
_OFFSET: Final = struct.Struct("<IIH6xQ")
assert _OFFSET.size == 24


class OffsetPayload(NamedTuple):
    group_id: int
    topic_id: int
    queue_id: int
    offset: int


def encode_offset(offset: OffsetPayload) -> list[Bytes]:
    return [_OFFSET.pack(*offset)]


def decode_offset(payload: Bytes) -> OffsetPayload:
    return OffsetPayload._make(_OFFSET.unpack_from(payload))


#  RESET   0      4      8
#          | group| topic| next offset of queue 0, 1, … 8 x queues
#  All progress, leases and retries of the group on the topic are void; it reads from there.
_RESET: Final = struct.Struct("<II")
assert _RESET.size == 8


class ResetPayload(NamedTuple):
    group_id: int
    topic_id: int
    offsets: tuple[int, ...]


def encode_reset(reset: ResetPayload) -> list[Bytes]:
    return [_RESET.pack(reset.group_id, reset.topic_id), encode_ids(reset.offsets)]


def decode_reset(payload: Bytes) -> ResetPayload:
    group_id, topic_id = _RESET.unpack_from(payload)
    return ResetPayload(group_id, topic_id, decode_ids(payload, _RESET.size))
