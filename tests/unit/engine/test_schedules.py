"""Schedules in the engine: missed ticks, commands, faults, bounds; see the model for the rest."""

import logging

import pytest

from latermq_broker.catalog.schedules import Missed
from latermq_broker.config.config import SchedulesConfig
from latermq_broker.engine.state.model import TopicType
from latermq_broker.errors import (
    BadRequestError,
    NotFoundError,
    StoreFullError,
    TooManyRequestsError,
)
from latermq_broker.services.scheduling.ticks import tick_id
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from support.engine_facts import facts
from support.engine_rig import START_MS
from support.schedule_rig import TOPIC, ScheduleRig

MINUTE = 60_000
HOUR = 60 * MINUTE
FIRST = START_MS // (15 * MINUTE) * 15 * MINUTE + 15 * MINUTE


@pytest.fixture
def rig() -> ScheduleRig:
    return ScheduleRig()


def times(rig: ScheduleRig, name: str = "report") -> list[int]:
    """Ticks that came, in quarters of an hour from the first."""
    every = {rig.tick_of(name, FIRST + n * 15 * MINUTE): n for n in range(-9, 300)}
    return [every[one] for one in rig.came()]


def test_a_message_for_each_tick(rig: ScheduleRig) -> None:
    rig.put("report", 15 * MINUTE)
    for _ in range(120):
        rig.advance(MINUTE)
    assert times(rig) == list(range(8))
    assert rig.engine.figures.schedule_ticks == 8
    schedule = rig.engine.schedules.get("report")
    assert (schedule.ticks, schedule.last_ms) == (8, FIRST + 105 * MINUTE)


def test_the_engine_is_called_at_the_tick_and_not_before(rig: ScheduleRig) -> None:
    rig.put("report", 15 * MINUTE)
    assert rig.engine.tick(rig.now_ms) is not None
    assert rig.engine.schedules.next_deadline_ms() == FIRST
    rig.advance(FIRST - rig.now_ms - 1)
    assert times(rig) == []
    rig.advance(1)
    assert times(rig) == [0]


@pytest.mark.parametrize(
    ("missed", "expected"), [(Missed.SKIP, []), (Missed.ONE, [11]), (Missed.ALL, list(range(12)))]
)
def test_missed_ticks(rig: ScheduleRig, missed: Missed, expected: list[int]) -> None:
    rig.put("report", 15 * MINUTE, missed=missed)
    rig.crash()
    rig.advance(FIRST - rig.now_ms + 3 * HOUR - 13 * MINUTE)  # 2 minutes after the twelfth
    assert times(rig) == expected
    rig.advance(13 * MINUTE)
    assert times(rig) == [12]


def test_a_tick_that_is_a_moment_late_is_not_missed(rig: ScheduleRig) -> None:
    rig.put("report", 15 * MINUTE, missed=Missed.SKIP)
    rig.crash()
    rig.advance(FIRST - rig.now_ms + MINUTE)
    assert times(rig) == [0]


def test_all_missed_ticks_are_those_of_the_last_day() -> None:
    rig = ScheduleRig(schedules=SchedulesConfig(catch_up_ms_max=HOUR))
    rig.put("report", 15 * MINUTE, missed=Missed.ALL)
    rig.advance(FIRST - rig.now_ms + 10 * HOUR)
    assert times(rig) == [36, 37, 38, 39, 40]


def test_what_is_due_at_once_comes_in_pieces(rig: ScheduleRig) -> None:
    rig.put("report", 1_000, missed=Missed.ALL)
    rig.now_ms += 250_000
    counts = []
    while (deadline_ms := rig.engine.tick(rig.now_ms)) is not None and deadline_ms <= rig.now_ms:
        counts.append(rig.engine.figures.schedule_ticks)
    assert counts == [100, 200]
    assert rig.engine.figures.schedule_ticks == 250


def test_the_same_again_changes_nothing(rig: ScheduleRig) -> None:
    made = rig.put("report", 15 * MINUTE)
    assert made.before is None
    end = rig.engine.store.log.end
    again = rig.put("report", 15 * MINUTE)
    assert again.before == again.after == made.after
    assert rig.engine.store.log.end == end


def test_an_altered_one_goes_on(rig: ScheduleRig) -> None:
    rig.put("report", 15 * MINUTE)
    rig.advance(FIRST - rig.now_ms)
    put = rig.put("report", cron="*/30 * * * *", zone="Europe/Berlin")
    assert put.before is not None
    assert put.before.differences(put.after) == ["every_ms", "cron", "zone"]
    rig.advance(HOUR)
    assert times(rig) == [0, 3]  # of those that were due together the last
    put = rig.put("report", 15 * MINUTE, alter=False)
    assert put.before is put.after
    assert put.after.cron


@pytest.mark.parametrize("missed", Missed)
def test_what_is_due_is_sent_although_the_message_is_altered(
    rig: ScheduleRig, missed: Missed
) -> None:
    """As by a worker that declares it while the disk is full, or the broker catches up."""
    rig.put("report", 15 * MINUTE, missed=missed)
    rig.now_ms = FIRST
    message = definition_pb2.Message(body=b"another").SerializeToString()
    rig.put("report", 15 * MINUTE, missed=missed, message=message)
    rig.advance(0)
    assert times(rig) == [0]


def test_one_that_is_paused_stays_so_when_it_is_declared(rig: ScheduleRig) -> None:
    rig.put("report", 15 * MINUTE)
    rig.engine.schedules.pause("report", rig.now_ms)
    rig.put("report", 30 * MINUTE)
    rig.crash()
    rig.advance(HOUR)
    assert times(rig) == []
    assert rig.engine.schedules.next_deadline_ms() is None
    resumed = rig.engine.schedules.resume("report", rig.now_ms)
    assert resumed.next_ms > rig.now_ms  # what was due meanwhile is not missed: nobody wanted it
    assert rig.engine.schedules.resume("report", rig.now_ms) == resumed


def test_a_tick_is_never_sent_again_after_an_alteration_by_a_clock_set_back(
    rig: ScheduleRig,
) -> None:
    rig.put("report", 15 * MINUTE)
    rig.advance(FIRST - rig.now_ms)
    rig.engine.wall.ahead_ms = -10 * MINUTE
    rig.put("report", 15 * MINUTE, missed=Missed.ALL)
    rig.advance(15 * MINUTE)
    assert times(rig) == [0]
    rig.advance(10 * MINUTE)
    assert times(rig) == [1]


@pytest.mark.parametrize("ahead_ms", [HOUR, 24 * HOUR, 10 * 365 * 24 * HOUR])
@pytest.mark.parametrize("died", [False, True])
def test_a_clock_that_was_ahead_for_a_moment_silences_nothing(
    rig: ScheduleRig, caplog: pytest.LogCaptureFixture, ahead_ms: int, died: bool
) -> None:
    for name in ("report", "paused", "later"):
        rig.put(name, 15 * MINUTE)
    rig.engine.schedules.pause("paused", rig.now_ms)
    rig.step_wall(ahead_ms)
    rig.put("later", 20 * MINUTE)  # by the clock as it is
    assert len(rig.came()) == 2
    if died:
        rig.ahead_ms = 0
        rig.crash()
        rig.advance(0)
    else:
        rig.step_wall(-ahead_ms)
    [warning] = [each for each in caplog.records if "clock was ahead" in each.message]
    assert (warning.levelname, warning.schedules) == ("WARNING", "later, report")  # type: ignore[attr-defined]
    rig.engine.schedules.resume("paused", rig.now_ms)
    for name in ("report", "paused"):
        assert rig.engine.schedules.get(name).next_ms == FIRST
    assert rig.engine.schedules.get("later").next_ms - rig.now_ms <= 20 * MINUTE
    rig.advance(FIRST - rig.now_ms)
    assert ("report", rig.tick_of("report", FIRST)[1]) in rig.came()
    facts_then = facts(rig.engine)
    rig.crash()
    assert facts(rig.engine) == facts_then


@pytest.mark.parametrize("resumed", [False, True])
def test_one_that_was_the_first_to_tick_while_the_clock_was_ahead_is_not_put_off(
    rig: ScheduleRig, *, resumed: bool
) -> None:
    """Nothing ticks before it, so nobody looked at the clock."""
    rig.put("before", 15 * MINUTE)
    rig.advance(1)
    rig.engine.schedules.pause("before", rig.now_ms)
    rig.step_wall(24 * HOUR)
    if resumed:
        rig.engine.schedules.resume("before", rig.now_ms)
    rig.put("report", 15 * MINUTE)
    rig.step_wall(-24 * HOUR)
    assert rig.engine.schedules.behind_count(rig.now_ms) == 0
    assert rig.engine.schedules.get("report").next_ms == FIRST


def test_a_tick_that_was_sent_ahead_of_its_time_is_said_to_be_missing(rig: ScheduleRig) -> None:
    rig.put("report", cron="0 6 * * *")
    rig.step_wall(24 * HOUR)
    sent = rig.engine.schedules.get("report").last_ms
    rig.step_wall(-24 * HOUR)
    report = rig.engine.schedules.get("report")
    assert (report.last_ms, report.next_ms) == (sent, sent + 24 * HOUR)
    assert rig.engine.schedules.behind_ms(report, rig.now_ms) == 24 * HOUR
    assert rig.engine.schedules.behind_count(rig.now_ms) == 1
    rig.advance(sent - rig.now_ms)
    assert rig.engine.schedules.behind_count(rig.now_ms) == 0


def test_ticks_follow_the_time_of_day(rig: ScheduleRig) -> None:
    rig.put("report", 15 * MINUTE)
    rig.engine.wall.ahead_ms = FIRST - rig.now_ms
    rig.advance(0)
    assert times(rig) == [0]


def test_another_topic_is_another_schedule(rig: ScheduleRig) -> None:
    rig.put("report", 15 * MINUTE)
    rig.engine.ensure_topic("other", rig.now_ms)
    with pytest.raises(BadRequestError, match="sends to topic reports, not to other"):
        rig.put("report", 15 * MINUTE, topic="other")
    removed = rig.engine.schedules.get("report")
    rig.engine.schedules.remove("report", rig.now_ms)
    rig.advance(1)
    made = rig.put("report", 15 * MINUTE, topic="other").after
    assert tick_id(made, FIRST) != tick_id(removed, FIRST)
    assert tick_id(made, FIRST) == tick_id(made, FIRST)


def test_there_are_only_so_many() -> None:
    rig = ScheduleRig(schedules=SchedulesConfig(count_max=2))
    rig.put("a", 1_000)
    rig.put("b", 1_000)
    with pytest.raises(TooManyRequestsError, match=r"schedules\.count_max"):
        rig.put("c", 1_000)
    rig.put("b", 2_000)
    rig.engine.schedules.remove("a", rig.now_ms)
    rig.put("c", 1_000)
    for verb in (rig.engine.schedules.pause, rig.engine.schedules.resume):
        with pytest.raises(NotFoundError, match="schedule not found: a"):
            verb("a", rig.now_ms)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ("deleted", "topic not found: reports"),
        ("fifo", "message type NORMAL does not fit topic reports of type FIFO"),
    ],
)
def test_what_cannot_be_sent_pauses_the_schedule(
    rig: ScheduleRig, caplog: pytest.LogCaptureFixture, spoil: str, said: str
) -> None:
    rig.put("report", 15 * MINUTE)
    if spoil == "deleted":
        rig.engine.topics.delete(TOPIC, rig.now_ms)
    else:
        rig.engine.topics.alter(TOPIC, TopicType.FIFO, 0, rig.now_ms)
    with caplog.at_level(logging.ERROR, "latermq.engine"):
        rig.advance(HOUR)
    (complaint,) = caplog.records
    assert vars(complaint)["reason"] == said
    before = facts(rig.engine)
    rig.crash()
    assert facts(rig.engine) == before
    schedule = rig.engine.schedules.get("report")
    assert (schedule.paused, schedule.fault, schedule.next_ms) == (True, said, 0)
    assert rig.engine.schedules.resume("report", rig.now_ms).fault == ""


def test_a_full_disk_delays_a_tick(rig: ScheduleRig) -> None:
    rig.put("report", 15 * MINUTE)
    rig.engine.store.disk.no_room(StoreFullError("disk full"))
    rig.now_ms = FIRST
    with pytest.raises(Exception, match="disk full"):
        rig.engine.tick(rig.now_ms)
    rig.engine.store.disk.room()
    rig.advance(5_000)
    assert times(rig) == [0]


def test_nothing_ticks_before_somebody_knows_calendars(rig: ScheduleRig) -> None:
    rig.put("report", 15 * MINUTE)
    rig.engine.schedules.ticks = None
    rig.advance(HOUR)
    assert times(rig) == []
    assert rig.engine.schedules.next_deadline_ms() is None


def test_ticks_that_are_missed_all_day_are_a_line_an_hour(
    rig: ScheduleRig, caplog: pytest.LogCaptureFixture
) -> None:
    """A loop that is always late for a schedule of every second misses 43,000 ticks a day."""

    def lines() -> list[tuple[str, int]]:
        told = [vars(each) for each in caplog.records if "ticks were missed" in each.message]
        caplog.clear()
        return [(each["schedule"], each["not_logged_before"]) for each in told]

    rig.put("second", 1_000)
    rig.put("other", 1_000)
    for _ in range(100):
        rig.advance(2_000)
    assert sorted(lines()) == [("other", 0), ("second", 0)]
    rig.advance(HOUR)
    assert sorted(lines()) == [("other", 99), ("second", 99)]
    rig.engine.schedules.remove("second", rig.now_ms)
    rig.put("third", 1_000)
    rig.advance(2_000)
    assert lines() == [("third", 0)]  # and what the one that is gone had is forgotten
    assert set(rig.engine.schedules._missed._lines) == {"other", "third"}
