"""SCHEDULE records: a schedule was put or removed, has ticked, or is declared by an app or no more.

Little-endian. A tick and the MESSAGE it sends are one atomic group: both are there, or neither.
"""

import json
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from latermq_broker.catalog.schedules import decode_schedule
from latermq_broker.store.records.kind import Bytes, Fields, Kind, Names
from latermq_broker.store.records.record import Record, RecordType

#  0   1    8         16        24
#  | op| pad| tick_ms | next_ms | op 1, put: JSON body of `catalog/schedules.py`; 2, removed, and 3,
#  |   |    |         |         | ticked: the name, UTF-8. tick_ms and next_ms of 3: what was sent
#  for, 0: ticks were passed over; and the next one. 4, declared: JSON {"app", "names"}; tick_ms is
#  since when no running worker of the app declares them; 0: one does, 1: none did. 5, withdrawn:
#  the same JSON
_SCHEDULE: Final = struct.Struct("<B7xQQ")
assert _SCHEDULE.size == 24
SCHEDULE_PUT: Final = 1
SCHEDULE_REMOVE: Final = 2
SCHEDULE_TICK: Final = 3
SCHEDULE_DECLARED: Final = 4
SCHEDULE_WITHDRAWN: Final = 5


class SchedulePayload(NamedTuple):
    operation: int
    body: bytes
    tick_ms: int = 0
    next_ms: int = 0


def encode_schedule_change(change: SchedulePayload) -> list[Bytes]:
    return [_SCHEDULE.pack(change.operation, change.tick_ms, change.next_ms), change.body]


def decode_schedule_change(payload: Bytes) -> SchedulePayload:
    operation, tick_ms, next_ms = _SCHEDULE.unpack_from(payload)
    return SchedulePayload(operation, bytes(payload[_SCHEDULE.size :]), tick_ms, next_ms)


def declared_body(app: str, names: Sequence[str]) -> bytes:
    """Encode the body of SCHEDULE_DECLARED and SCHEDULE_WITHDRAWN; "" as app: by hand."""
    return json.dumps({"app": app, "names": list(names)}, separators=(",", ":")).encode()


def read_declared(body: bytes) -> tuple[str, list[str]]:
    """Return the app and the schedules of such a body."""
    fields = json.loads(body)
    return str(fields["app"]), [str(name) for name in fields["names"]]


def _schedule_text(record: Record, names: Names) -> Fields:
    """Describe all of a schedule but its message."""
    del names
    change = decode_schedule_change(record.payload)
    if change.operation == SCHEDULE_REMOVE:
        return {"removed_schedule": change.body.decode()}
    if change.operation == SCHEDULE_TICK:
        fields: Fields = {"schedule": change.body.decode()}
        if change.tick_ms:
            return fields | {"tick_ms": change.tick_ms, "next_ms": change.next_ms}
        return fields | {"passed_over": True, "next_ms": change.next_ms}
    if change.operation in (SCHEDULE_DECLARED, SCHEDULE_WITHDRAWN):
        app, declared = read_declared(change.body)
        fields = {"app": app, "schedules": ", ".join(declared)}
        if change.operation == SCHEDULE_WITHDRAWN:
            return fields | {"withdrawn": True}
        return fields | {"since_ms": change.tick_ms}
    schedule = decode_schedule(change.body)
    return {
        "schedule": schedule.name,
        "topic": schedule.topic,
        "every_ms": schedule.every_ms,
        "cron": schedule.cron,
        "zone": schedule.zone,
        "missed": schedule.missed.name.lower(),
        "paused": schedule.paused,
        "next_ms": schedule.next_ms,
    }


KINDS: Final[tuple[Kind, ...]] = (
    Kind(RecordType.SCHEDULE, encode_schedule_change, decode_schedule_change, _schedule_text),
)
