"""What is out of order with a broker that serves, and since when."""

from latermq_broker.engine.state.conditions import CLOCK_BEHIND_MS_MAX, Conditions, Part, Trouble
from support.schedule_rig import ScheduleRig

MINUTE = 60_000


def test_a_trouble_keeps_the_time_it_began_and_has_the_newest_reason() -> None:
    conditions = Conditions()
    assert conditions.set(Part.CHECKPOINTS, "no room", 1_000)
    assert not conditions.set(Part.CHECKPOINTS, "broken", 2_000)
    assert conditions.troubles == {Part.CHECKPOINTS: Trouble(1_000, "broken")}
    assert conditions.lines() == ["checkpoints: broken"]
    assert conditions.set(Part.CHECKPOINTS, None, 3_000)
    assert not conditions.set(Part.CHECKPOINTS, None, 4_000)
    assert conditions.lines() == []


def test_a_wall_clock_that_is_behind_the_log_is_told_and_one_that_is_ahead_is_not() -> None:
    conditions = Conditions()
    conditions.look_at_clock(3_600_000, 0)
    conditions.look_at_clock(-CLOCK_BEHIND_MS_MAX, 0)
    assert conditions.lines() == []
    conditions.look_at_clock(-3_600_000, 0)
    assert conditions.lines() == ["clock: the wall clock is 3,600 s behind the times in the log"]
    conditions.look_at_clock(0, 0)
    assert conditions.lines() == []


def test_a_schedule_that_is_late_or_was_paused_by_the_broker_is_told() -> None:
    rig = ScheduleRig()
    rig.put("report", 15 * MINUTE)
    conditions, table = rig.engine.conditions, rig.engine.schedules.table
    due_ms = table.next_ms()
    assert due_ms is not None
    conditions.look_at_schedules(table, due_ms + MINUTE - 1, rig.now_ms)
    assert conditions.lines() == []
    conditions.look_at_schedules(table, due_ms + MINUTE, rig.now_ms)
    assert conditions.lines() == ["schedules: 1 late by more than a minute: report"]
    rig.engine.schedules.pause("report", rig.now_ms)
    conditions.look_at_schedules(table, due_ms + MINUTE, rig.now_ms)
    assert conditions.lines() == []
    rig.engine.schedules.resume("report", rig.now_ms)
    rig.engine.schedules.pause("report", rig.now_ms, "its topic is gone")
    conditions.look_at_schedules(table, due_ms, rig.now_ms)
    assert conditions.lines() == ["schedules: 1 paused, as they cannot send: report"]
