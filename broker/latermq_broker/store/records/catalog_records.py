"""Records that configure: CONFIG OFFSET RESET WANTED.

Little-endian. Positions are log positions; times milliseconds since the epoch; ids are the
catalogue's. A payload is what follows the 40-byte record header of `record.py`; the header's own
store time is the instant of the fact. Decoders take the payload of a record whose checksum held, so
they do not defend against damage.
"""

import json
import struct
from typing import Final, NamedTuple

from latermq_broker.catalog.catalog import OnDead, TopicType
from latermq_broker.store.records.kind import Bytes, Fields, Kind, Names
from latermq_broker.store.records.lease_records import decode_ids, encode_ids
from latermq_broker.store.records.record import Record, RecordType

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


def _config_text(record: Record, names: Names) -> Fields:
    config = decode_config(record.payload)
    is_topic, is_put = config.kind == CONFIG_TOPIC, config.operation == CONFIG_PUT
    known = names.topics if is_topic else names.groups
    fields: Fields = {"what": "topic" if is_topic else "group"}
    if not is_put:
        return fields | {"deleted": known.get(config.id, f"#{config.id}")}
    body = json.loads(config.body)
    known[config.id] = body["name"]
    fields["name"] = body["name"]
    if is_topic:
        return fields | {
            "topic_type": TopicType(body["type"]).name.lower(),
            "queues": body["queue_count"],
            "topic_epoch": body["epoch"],
        }
    return fields | {
        "fifo": body["fifo"],
        "on_dead": OnDead(body.get("on_dead", OnDead.SKIP)).name.lower(),
        "max_attempts": body["max_attempts"],
        "backoff": body["backoff"],
        **({"weight": body["weight"]} if "weight" in body else {}),
    }


#  OFFSET   0     4      8      10   11    16
#           | group| topic| queue| act| pad | offset
#  A group's next offset on a queue, moved without a lease. MOVED: by a filter; by UpdateOffset of
#  earlier versions too: what was held on the queue is forgotten, deliveries stay. SKIP: what was
#  not given yet below offset never is; the next offset does not fall. REWIND: all from offset on is
#  given again: what was held on the queue is forgotten, and deliveries from offset on are void.
_OFFSET: Final = struct.Struct("<IIHB5xQ")
assert _OFFSET.size == 24
OFFSET_MOVED: Final = 0
OFFSET_SKIP: Final = 1
OFFSET_REWIND: Final = 2
_OFFSET_ACTS: Final = {OFFSET_SKIP: "skip", OFFSET_REWIND: "rewind"}


class OffsetPayload(NamedTuple):
    group_id: int
    topic_id: int
    queue_id: int
    offset: int
    act: int = OFFSET_MOVED


def encode_offset(offset: OffsetPayload) -> list[Bytes]:
    group_id, topic_id, queue_id, next_offset, act = offset
    return [_OFFSET.pack(group_id, topic_id, queue_id, act, next_offset)]


def decode_offset(payload: Bytes) -> OffsetPayload:
    group_id, topic_id, queue_id, act, offset = _OFFSET.unpack_from(payload)
    return OffsetPayload(group_id, topic_id, queue_id, offset, act)


def _offset_text(record: Record, names: Names) -> Fields:
    offset = decode_offset(record.payload)
    return {
        "group": names.group(offset.group_id),
        "topic": names.topic(offset.topic_id),
        "queue": offset.queue_id,
        "next_offset": offset.offset,
        **({"act": _OFFSET_ACTS.get(offset.act, str(offset.act))} if offset.act else {}),
    }


#  RESET   0      4      8
#          | group| topic| next offset of queue 0, 1, … 8 x queues
#  All progress, leases and retries of the group on the topic are void; it reads from there. Without
#  offsets it begins to read the topic, and reads from the oldest message on.
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


def _reset_text(record: Record, names: Names) -> Fields:
    reset = decode_reset(record.payload)
    return {
        "group": names.group(reset.group_id),
        "topic": names.topic(reset.topic_id),
        "next_offsets": list(reset.offsets),
    }


#  WANTED   0      4      8
#           | group| topic| JSON: a list of filters, as `filter_text` writes them
#  What the live consumers of a group filter a topic by, all of them; an empty list: one of them
#  wants everything. After a start nothing that these filters want is passed over until the clients
#  had time to come back.
_WANTED: Final = struct.Struct("<II")
assert _WANTED.size == 8


class WantedPayload(NamedTuple):
    group_id: int
    topic_id: int
    filters: tuple[str, ...]


def encode_wanted(wanted: WantedPayload) -> list[Bytes]:
    body = json.dumps(wanted.filters, separators=(",", ":"))
    return [_WANTED.pack(wanted.group_id, wanted.topic_id), body.encode()]


def decode_wanted(payload: Bytes) -> WantedPayload:
    group_id, topic_id = _WANTED.unpack_from(payload)
    return WantedPayload(group_id, topic_id, tuple(json.loads(bytes(payload[_WANTED.size :]))))


def _wanted_text(record: Record, names: Names) -> Fields:
    wanted = decode_wanted(record.payload)
    return {
        "group": names.group(wanted.group_id),
        "topic": names.topic(wanted.topic_id),
        "filters": list(wanted.filters) or ["*"],
    }


KINDS: Final[tuple[Kind, ...]] = (
    Kind(RecordType.CONFIG, encode_config, decode_config, _config_text),
    Kind(RecordType.OFFSET, encode_offset, decode_offset, _offset_text),
    Kind(RecordType.RESET, encode_reset, decode_reset, _reset_text),
    Kind(RecordType.WANTED, encode_wanted, decode_wanted, _wanted_text),
)
