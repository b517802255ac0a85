"""Schedules: what is sent again and again, when next, and what becomes of ticks that were missed.

Owns the table in memory. It is changed only by SCHEDULE records, live and in replay alike. Times
are times of day, in milliseconds since the epoch. When a schedule ticks is told by whoever knows
calendars (`services/scheduling/`); what they said last stands in `next_ms`.
"""

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final

NEVER: Final = 0  # as the time of a tick
DECLARED: Final = ("topic", "every_ms", "cron", "zone", "missed", "message")


class Missed(IntEnum):
    """What is done about ticks that nobody was there for. Numbers are Schedule.Missed's."""

    SKIP = 1
    ONE = 2
    ALL = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Either `every_ms` or `cron` says when.

    Fields:
        every_ms: ticks at its multiples since the epoch; 0: by `cron`, five fields, in `zone`.
        message: a serialised v2.Message, without a topic and all that each tick has of its own.
        fault: why the broker paused it; "" if it did not.
        next_ms: NEVER while it is paused.
        last_ms: its last tick that was sent; NEVER before the first.
        ticks: how many were sent.
        made_by: in whose share it counts, a user's access key; "": in nobody's.
    """

    name: str
    topic: str
    every_ms: int = 0
    cron: str = ""
    zone: str = ""
    missed: Missed = Missed.ONE
    message: bytes = b""
    paused: bool = False
    fault: str = ""
    created_ms: int = 0
    changed_ms: int = 0
    next_ms: int = NEVER
    last_ms: int = NEVER
    ticks: int = 0
    made_by: str = ""

    def differences(self, other: "Schedule") -> list[str]:
        """Name the fields that are declared otherwise."""
        return [name for name in DECLARED if getattr(self, name) != getattr(other, name)]

    def ticked(self, tick_ms: int, next_ms: int) -> "Schedule":
        """Return it as it is after a tick; NEVER: after some that are not sent."""
        if tick_ms == NEVER:
            return replace(self, next_ms=next_ms)
        return replace(self, last_ms=tick_ms, next_ms=next_ms, ticks=self.ticks + 1)


def encode_schedule(schedule: Schedule) -> bytes:
    """Encode the JSON body of a SCHEDULE record that puts a schedule."""
    fields: dict[str, Any] = {name: getattr(schedule, name) for name in _FIELDS}
    fields["missed"] = int(schedule.missed)
    fields["message"] = b64encode(schedule.message).decode()
    if not schedule.made_by:
        del fields["made_by"]
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()


def decode_schedule(body: bytes) -> Schedule:
    fields = json.loads(body)
    fields["missed"] = Missed(fields["missed"])
    fields["message"] = b64decode(fields["message"])
    return Schedule(**fields)


class Schedules:
    """All that there are, by name."""

    def __init__(self) -> None:
        self._schedules: dict[str, Schedule] = {}
        self._next_ms: int | None = None  # of all; None: not known, or none ticks
        self._is_known = True
        self.version = 0  # another one after every change

    def __len__(self) -> int:
        return len(self._schedules)

    def get(self, name: str) -> Schedule | None:
        return self._schedules.get(name)

    def all(self) -> list[Schedule]:
        """Return the schedules by name."""
        return [self._schedules[name] for name in sorted(self._schedules)]

    def count_of(self, user: str) -> int:
        """Count those in a user's share."""
        return sum(each.made_by == user for each in self._schedules.values())

    def next_ms(self) -> int | None:
        """Find the time of the next tick of all; None: none ticks."""
        if not self._is_known:
            waiting = [each.next_ms for each in self._schedules.values() if each.next_ms != NEVER]
            self._next_ms = min(waiting, default=None)
            self._is_known = True
        return self._next_ms

    def due(self, wall_ms: int) -> list[Schedule]:
        """List the schedules whose time has come, the earliest first."""
        ripe = [each for each in self._schedules.values() if NEVER < each.next_ms <= wall_ms]
        return sorted(ripe, key=lambda each: (each.next_ms, each.name))

    def put(self, schedule: Schedule) -> None:
        self._schedules[schedule.name] = schedule
        self.version += 1
        self._is_known = False

    def remove(self, name: str) -> None:
        self._schedules.pop(name, None)
        self.version += 1
        self._is_known = False

    def snapshot(self) -> bytes:
        """Encode a checkpoint's section; empty without schedules."""
        return b"\n".join(map(encode_schedule, self.all()))

    def restore(self, section: bytes) -> None:
        for line in section.splitlines():
            self.put(decode_schedule(line))


_FIELDS: Final = tuple(Schedule.__dataclass_fields__)
