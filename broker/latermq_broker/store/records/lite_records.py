"""LITE records: what becomes of lite topics beside what is sent and received.

Little-endian. Lite topics are known by the hash of their name.
"""

import struct
from typing import Final, NamedTuple

from latermq_broker.store.records.kind import Bytes, Fields, Kind, Names
from latermq_broker.store.records.record import Record, RecordType

#  LITE   0     1    4      8      12   16
#         | kind| pad| group| topic| pad| rows 16 x n
#  row    0          8       16
#         | lite key| offset|
#  CURSOR: the group goes on at `offset` of the parent's queue; what it was given of the lite topic
#  and had not acknowledged is void. EXPIRED (group 0): what is below `offset` is given to nobody.
_LITE: Final = struct.Struct("<B3xII4x")
assert _LITE.size == 16
_ROW: Final = struct.Struct("<QQ")
assert _ROW.size == 16
LITE_CURSOR: Final = 1
LITE_EXPIRED: Final = 2


class LitePayload(NamedTuple):
    kind: int
    group_id: int
    topic_id: int
    rows: tuple[tuple[int, int], ...]  # key, offset


def encode_lite(lite: LitePayload) -> list[Bytes]:
    head = _LITE.pack(lite.kind, lite.group_id, lite.topic_id)
    return [head, b"".join(_ROW.pack(*row) for row in lite.rows)]


def decode_lite(payload: Bytes) -> LitePayload:
    kind, group_id, topic_id = _LITE.unpack_from(payload)
    rows = _ROW.iter_unpack(payload[_LITE.size :])
    return LitePayload(kind, group_id, topic_id, tuple((key, offset) for key, offset in rows))


def _lite_text(record: Record, names: Names) -> Fields:
    lite = decode_lite(record.payload)
    fields: Fields = {"topic": names.topic(lite.topic_id)}
    if lite.kind == LITE_EXPIRED:
        what, word = "lite topics have expired", "upto"
    else:
        fields["group"] = names.group(lite.group_id)
        what, word = "goes on elsewhere", "from"
    rows = [f"{key:016x}:{offset}" for key, offset in lite.rows]
    return fields | {"what": what, word: rows}


KINDS: Final[tuple[Kind, ...]] = (Kind(RecordType.LITE, encode_lite, decode_lite, _lite_text),)
