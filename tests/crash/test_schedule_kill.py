"""A broker that is killed at the moment of a tick: no tick is lost, none is sent twice."""

import time
from pathlib import Path

from latermq.admin import AsyncAdmin
from latermq.testing import BrokerProcess
from latermq_proto.latermq.v1 import schedule_pb2
from support.machine import patient

BESIDE_MS = (-2, 1, 4)  # when it is killed, beside the time of the tick
SECOND_MS = 1_000


def schedule(broker: BrokerProcess) -> schedule_pb2.Schedule:
    request = schedule_pb2.ScheduleRequest(name="tick")
    found: schedule_pb2.Schedule = broker.call(AsyncAdmin.schedules.GetSchedule, request).schedule
    return found


def test_kills_at_the_moment_of_a_tick(tmp_path: Path) -> None:
    asked = schedule_pb2.Schedule(name="tick", topic="ticks", every_ms=SECOND_MS, missed="ALL")
    with BrokerProcess(tmp_path / "latermq") as broker:
        broker.call(
            AsyncAdmin.schedules.PutSchedule, schedule_pb2.PutScheduleRequest(schedule=asked)
        )
        began_ms = schedule(broker).next_at_ms
        for beside_ms in BESIDE_MS:
            moment_s = (schedule(broker).next_at_ms + beside_ms) / 1_000
            time.sleep(max(0.0, moment_s - time.time()))
            broker.kill()
            broker.start()
        last_ms = int(time.time() * 1_000)
        end_s = time.monotonic() + patient(20)
        while schedule(broker).last_at_ms < last_ms:
            assert time.monotonic() < end_s
            time.sleep(0.02)
        paused = broker.call(
            AsyncAdmin.schedules.PauseSchedule, schedule_pb2.ScheduleRequest(name="tick")
        ).schedule
        sent = broker.sent("ticks")
    ticks = [each.body.decode() for each in sent]
    assert len(ticks) == paused.ticks == (paused.last_at_ms - began_ms) // SECOND_MS + 1
    assert ticks == sorted(set(ticks))
    assert len({each.message_id for each in sent}) == len(ticks)
