"""An engine that knows calendars, and what its schedules have sent."""

from typing import Any

from latermq_broker.catalog.schedules import Missed, Schedule
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.send.scheduled_sends import Put
from latermq_broker.services.scheduling.ticks import (
    SCHEDULE_PROPERTY,
    TICK_PROPERTY,
    TickMaker,
    instant_text,
)
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from support.engine_rig import EngineRig
from support.fake_committer import FakeCommitter

TOPIC = "reports"
GROUP = "readers"


class ScheduleRig(EngineRig):
    """Its schedules send to one topic; `came` reads it to the end."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.engine.ensure_topic(TOPIC, self.now_ms)
        self.engine.ensure_group(GROUP, self.now_ms)
        self.engine.write()

    def reopened(self) -> Engine:
        engine = super().reopened()
        engine.schedules.ticks = TickMaker(engine, FakeCommitter(self.now_ms))
        return engine

    def put(
        self,
        name: str,
        every_ms: int = 0,
        cron: str = "",
        zone: str = "",
        *,
        missed: Missed = Missed.ONE,
        message: bytes = b"",
        topic: str = TOPIC,
        alter: bool = True,
    ) -> Put:
        wanted = Schedule(
            name=name, topic=topic, every_ms=every_ms, cron=cron, zone=zone, missed=missed,
            message=message,
        )  # fmt: skip
        put = self.engine.schedules.put(wanted, self.now_ms, alter=alter)
        self.engine.write()
        return put

    def came(self) -> list[tuple[str, str]]:
        """Name and tick of each message that came since the last call, in the order sent."""
        found: list[tuple[str, str]] = []
        while delivered := self.receive(GROUP, topic=TOPIC):
            for each in delivered:
                properties = definition_pb2.Message.FromString(each.rest).user_properties
                found.append((properties[SCHEDULE_PROPERTY], properties[TICK_PROPERTY]))
            assert all(self.ack(*delivered, group=GROUP))
        return found

    def tick_of(self, name: str, tick_ms: int) -> tuple[str, str]:
        return name, instant_text(tick_ms)
