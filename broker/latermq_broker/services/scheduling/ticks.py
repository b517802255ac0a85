"""A schedule's next tick, and the message of each: what the engine asks while the broker lives."""

from datetime import UTC, datetime
from hashlib import blake2b
from typing import Final

from latermq_broker.catalog.schedules import Schedule
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import Outgoing
from latermq_broker.services.call.handler import Committer
from latermq_broker.services.messaging import validate
from latermq_broker.services.scheduling import calendars
from latermq_broker.services.wire.wire_messages import StoreSide, message_type
from latermq_proto.apache.rocketmq.v2 import definition_pb2

SCHEDULE_PROPERTY: Final = "latermq-schedule"
TICK_PROPERTY: Final = "latermq-tick"
OWN_PROPERTIES: Final = (SCHEDULE_PROPERTY, TICK_PROPERTY)
_ID_HEAD: Final = "01"  # of the message ids of RocketMQ 5


class OwnHost:
    """Stands for the connection of a message that no client sent: `Ends` without addresses."""

    local = ""
    peer = ""


class TickMaker:
    """`engine.send.scheduled_sends.Ticks`."""

    def __init__(self, engine: Engine, committer: Committer) -> None:
        self._engine = engine
        self._committer = committer

    def first_after(self, schedule: Schedule, after_ms: int) -> int:
        """Find its first tick after that. Raises BadRequestError."""
        every_ms = schedule.every_ms
        if every_ms:
            return (after_ms // every_ms + 1) * every_ms
        return calendars.first_after(schedule.cron, schedule.zone, after_ms)

    def last_until(self, schedule: Schedule, first_ms: int, until_ms: int) -> int:
        """Find its last tick up to `until_ms`. Raises BadRequestError."""
        every_ms = schedule.every_ms
        if every_ms:
            return max(first_ms, until_ms // every_ms * every_ms)
        return calendars.last_until(schedule.cron, schedule.zone, first_ms, until_ms)

    def message(self, schedule: Schedule, tick_ms: int) -> Outgoing:
        """Make the message of a tick; its id is the tick's, whoever makes it.

        Raises TypeConflictError: its topic takes no such message any more.
        """
        message = definition_pb2.Message.FromString(schedule.message)
        at = instant_text(tick_ms)
        message.user_properties[SCHEDULE_PROPERTY] = schedule.name
        message.user_properties[TICK_PROPERTY] = at
        message.system_properties.message_id = tick_id(schedule, tick_ms)
        message.body = message.body or at.encode()
        kind = message_type(message, 0)
        validate.check_type(self._engine.catalog.topic(schedule.topic), kind)
        now_ms = self._engine.wall.at(self._committer.now_ms())
        side = StoreSide(now_ms=now_ms, call=OwnHost())
        return side.outgoing(schedule.topic, message, kind, deliver_at_ms=0, delay_level=0)


def tick_id(schedule: Schedule, tick_ms: int) -> str:
    """Name the message of a tick; another schedule of that name has others."""
    text = f"{schedule.name}\0{schedule.created_ms}\0{tick_ms}"
    return _ID_HEAD + blake2b(text.encode(), digest_size=16).hexdigest().upper()


def instant_text(at_ms: int) -> str:
    """Write an instant as in 2026-01-31T06:00:00.000Z."""
    at = datetime.fromtimestamp(at_ms / 1_000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
