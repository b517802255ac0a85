"""The shipped alerts over what befalls machines: their disks, clocks, shards and standbys."""

import shutil
from pathlib import Path
from typing import Final

import pytest

from latermq_broker.store.files import Space
from support.alert_life import AlertLife, Replica
from support.engine_rig import EngineRig
from support.memory_files import MemoryFiles
from support.schedule_rig import ScheduleRig

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool (Debian: prometheus)"
)
GIB: Final = 1 << 30
NOBODY = "LaterMQNobodyReceives"
BEHIND = "LaterMQGroupBehind"


class SharedDisk(MemoryFiles):
    """Files on a disk of 100 GiB, of which others take as much as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.free_gib = 60.0
        self.inodes_free: int | None = None

    def free_bytes(self, path: Path) -> Space:
        space = super().free_bytes(path)
        return space._replace(
            free=int(self.free_gib * GIB), total=100 * GIB, files=self.inodes_free
        )


def consume(rig: EngineRig) -> None:
    rig.ack(*rig.receive(count=100))


def work(rig: EngineRig) -> None:
    rig.send("a", "b")
    consume(rig)


# --- the disk ---------------------------------------------------------------------------------


def test_a_disk_that_fills_alerts_hours_before_when_it_is_low_and_when_it_is_full(
    tmp_path: Path,
) -> None:
    disk = SharedDisk()
    rig = EngineRig(files=disk)
    life = AlertLife(rig)

    def fill() -> None:
        disk.free_gib -= 10 / 240  # in an hour, 10 GiB
        consume(rig)

    life.live(60)
    life.expect()
    life.live(60, fill)  # 50 GiB free: 4.5 hours
    life.expect("LaterMQDiskFills")
    while disk.free_gib > 10.1:
        life.live(5, fill)
    life.expect("LaterMQDiskFills")
    life.live(5, fill)
    life.expect("LaterMQDiskLow")  # the nearer one alone
    while disk.free_gib > 5.1:
        life.live(5, fill)
    life.live(5, fill)
    life.expect("LaterMQDiskLow", "LaterMQDiskFull")
    disk.free_gib = 70
    life.live(1)
    life.expect()
    life.live(120)
    life.expect()
    life.check(tmp_path, {"LaterMQDiskFills", "LaterMQDiskLow", "LaterMQDiskFull"})


def test_a_disk_that_goes_up_and_down_alerts_nobody_while_there_is_room(tmp_path: Path) -> None:
    """Files come and go by the hour; a broker starts anew in between."""
    disk = SharedDisk()
    rig = EngineRig(files=disk)
    life = AlertLife(rig)
    for _ in range(4):
        for _ in range(45):
            disk.free_gib -= 0.1
            life.live(1)
        disk.free_gib = 60
        rig.restart()
    life.check(tmp_path, set())


def test_a_disk_around_its_bound_alerts_once_and_without_a_break(tmp_path: Path) -> None:
    disk = SharedDisk()
    rig = EngineRig(files=disk)
    disk.free_gib = 10.5
    life = AlertLife(rig)
    life.live(30)
    life.expect()
    disk.free_gib = 9.5
    life.live(3)
    for free_gib in (10.5, 9.8, 11, 10.2):  # above the bound, not by a fifth
        disk.free_gib = free_gib
        life.live(5)
        life.expect("LaterMQDiskLow")
    disk.free_gib = 12.5
    life.live(1)
    life.expect()
    life.check(tmp_path, {"LaterMQDiskLow"})


def test_a_disk_without_inodes_is_full_until_it_has_some(tmp_path: Path) -> None:
    disk = SharedDisk()
    rig = EngineRig(files=disk)
    life = AlertLife(rig)
    life.live(10)
    disk.inodes_free = 3
    life.live(1)
    life.expect("LaterMQDiskFull")
    rig.restart()
    life.live(1)
    life.expect("LaterMQDiskFull")
    disk.inodes_free = 10_000
    life.live(1)
    life.expect()
    life.check(tmp_path, {"LaterMQDiskFull"})


# --- the clock --------------------------------------------------------------------------------


@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000])
def test_a_clock_that_is_set_alerts_until_it_is_set_back_or_the_broker_starts(
    tmp_path: Path, step_ms: int
) -> None:
    rig = EngineRig()
    life = AlertLife(rig)
    life.live(20, lambda: work(rig))
    rig.step_wall(step_ms)
    life.live(1, lambda: work(rig))
    life.expect("LaterMQClockStepped")
    life.live(60, lambda: work(rig))
    life.expect("LaterMQClockStepped")
    rig.step_wall(-step_ms)
    life.live(20, lambda: work(rig))
    life.expect()
    life.check(tmp_path, {"LaterMQClockStepped"})


def test_a_clock_that_is_kept_right_alerts_nobody(tmp_path: Path) -> None:
    rig = EngineRig()
    life = AlertLife(rig)
    for step_ms in (400, -900, 3_000, -2_500) * 5:
        rig.step_wall(step_ms)
        rig.send("later", wait_ms=60_000)
        life.live(3, lambda: work(rig))
    life.check(tmp_path, set())


def test_delayed_messages_that_a_step_of_the_clock_makes_due_are_not_late(tmp_path: Path) -> None:
    rig = EngineRig()
    life = AlertLife(rig)
    rig.send(*(f"m{n}" for n in range(50)), wait_ms=1_800_000)
    life.live(10, lambda: work(rig))
    rig.step_wall(7_200_000)
    life.live(30, lambda: work(rig))
    life.check(tmp_path, {"LaterMQClockStepped"})


# --- what is paused ---------------------------------------------------------------------------


def test_a_listener_that_is_paused_for_a_few_minutes_alerts_nobody(tmp_path: Path) -> None:
    rig = EngineRig()
    life = AlertLife(rig)
    life.live(20, lambda: work(rig))
    for _ in range(3):
        life.live(9, lambda: rig.send("a"))
        life.live(10, lambda: work(rig))
    life.check(tmp_path, set())


def test_a_listener_that_stays_paused_alerts_until_it_goes_on(tmp_path: Path) -> None:
    rig = EngineRig()
    life = AlertLife(rig)
    life.live(20, lambda: work(rig))
    life.live(30, lambda: rig.send("a"))
    waits = {f"{NOBODY} billing orders", f"{BEHIND} billing orders"}
    life.expect(*waits)
    life.live(30, lambda: work(rig))
    life.expect()
    life.check(tmp_path, waits | {"LaterMQGroupSlow billing orders"})


def test_a_paused_listener_without_messages_alerts_nobody(tmp_path: Path) -> None:
    rig = EngineRig()
    life = AlertLife(rig)
    life.live(20, lambda: work(rig))
    life.live(120)
    life.check(tmp_path, set())


def test_a_schedule_alerts_that_cannot_send_and_not_one_that_its_owner_paused(
    tmp_path: Path,
) -> None:
    rig = ScheduleRig()
    for name in ("hourly", "nightly"):
        rig.put(name, every_ms=60_000)
    life = AlertLife(rig)
    life.live(10, rig.came)
    rig.engine.schedules.pause("nightly", rig.now_ms)
    life.live(60, rig.came)
    life.expect()
    rig.engine.schedules.pause("hourly", rig.now_ms, fault="its topic is gone")
    life.live(4)
    life.expect()
    life.live(3)
    life.expect("LaterMQNotWell")
    rig.engine.schedules.resume("hourly", rig.now_ms)
    life.live(20, rig.came)
    life.expect()
    life.check(tmp_path, {"LaterMQNotWell"})


def test_a_schedule_alerts_whose_tick_a_clock_ahead_has_sent_until_that_time_is_over(
    tmp_path: Path,
) -> None:
    rig = ScheduleRig()
    rig.put("report", cron="0 */3 * * *", zone="UTC")
    life = AlertLife(rig)
    life.live(10, rig.came)
    rig.step_wall(10_800_000)
    life.live(2, rig.came)
    rig.step_wall(-10_800_000)
    life.live(14, rig.came)
    life.expect()
    life.live(2, rig.came)
    life.expect("LaterMQScheduleBehind")
    life.live(180, rig.came)
    life.expect()
    life.check(tmp_path, {"LaterMQClockStepped", "LaterMQScheduleBehind"})


# --- shards -----------------------------------------------------------------------------------


def test_a_shard_that_is_down_alerts_and_the_others_go_on(tmp_path: Path) -> None:
    rigs = [EngineRig() for _ in range(4)]

    def all_work() -> None:
        for rig in rigs:
            work(rig)

    life = AlertLife(*rigs)
    life.live(20, all_work)
    life.be_down(0.75, rigs[2])  # it starts anew
    rigs[2].restart()
    life.live(20, all_work)
    life.expect()
    life.be_down(5, rigs[2])
    life.expect("LaterMQDown")
    rigs[2].crash()
    life.live(20, all_work)
    life.expect()
    life.check(tmp_path, {"LaterMQDown"})


def test_one_shard_of_a_group_that_stands_still_alerts_by_its_number(tmp_path: Path) -> None:
    """The group reads from the others, which hide it in any sum."""
    rigs = [EngineRig() for _ in range(4)]
    for rig in rigs:
        work(rig)
    life = AlertLife(*rigs)

    def send_to_all() -> None:
        for rig in rigs:
            rig.send("a")
            if rig is not rigs[1]:
                consume(rig)

    life.live(20, send_to_all)
    life.expect(f"{NOBODY} 1 billing orders", f"{BEHIND} 1 billing orders")
    life.live(5, lambda: consume(rigs[1]))
    slow = "LaterMQGroupSlow 1 billing orders"  # what waited for 20 minutes
    alerts = {f"{NOBODY} 1 billing orders", f"{BEHIND} 1 billing orders", slow}
    life.check(tmp_path, alerts)


def test_the_disk_of_one_shard_alerts_by_its_number(tmp_path: Path) -> None:
    disk = SharedDisk()
    rigs = [EngineRig(), EngineRig(files=disk)]
    life = AlertLife(*rigs)
    life.live(5)
    disk.free_gib = 4
    life.live(2)
    life.expect("LaterMQDiskLow 1", "LaterMQDiskFull 1")
    life.check(tmp_path, {"LaterMQDiskLow 1", "LaterMQDiskFull 1"})


# --- a log on several machines ----------------------------------------------------------------


def test_a_fail_over_alerts_nobody(tmp_path: Path) -> None:
    rig = EngineRig()
    owner, standby = Replica(rig), Replica()
    life = AlertLife(owner, standby)
    life.live(20, lambda: work(rig))
    life.be_down(0.25, owner)  # the standby is not the owner yet
    owner.rig, standby.rig = None, rig
    rig.restart()
    life.be_down(0.5, owner)
    standby.standbys = 1
    life.live(30, lambda: work(rig))
    life.check(tmp_path, set())


def test_a_log_that_nobody_owns_alerts_until_somebody_does(tmp_path: Path) -> None:
    rig = EngineRig()
    owner, standby = Replica(rig), Replica()
    life = AlertLife(owner, standby)
    life.live(20)
    life.be_down(2, owner)
    life.expect("LaterMQNoOwner", "LaterMQDown")
    standby.rig, owner.rig = rig, None
    life.be_down(2, owner)
    life.expect("LaterMQDown")
    life.be_down(12, owner)  # and nobody stands by any more
    life.expect("LaterMQDown")
    life.be_down(2, owner)
    life.expect("LaterMQDown", "LaterMQNoStandby")
    standby.standbys = 1
    life.live(1)
    life.expect()
    life.check(tmp_path, {"LaterMQNoOwner", "LaterMQDown", "LaterMQNoStandby"})


def test_a_standby_that_starts_anew_alerts_nobody(tmp_path: Path) -> None:
    rig = EngineRig()
    owner, standby = Replica(rig), Replica()
    life = AlertLife(owner, standby)
    for _ in range(3):
        life.live(10, lambda: work(rig))
        owner.standbys = 0
        life.be_down(0.75, standby)
        standby.lag_entries = 50_000  # it reads the log
        life.live(4, lambda: work(rig))
        standby.lag_entries, owner.standbys = 0, 1
    life.live(20)
    life.check(tmp_path, set())


def test_a_standby_that_does_not_catch_up_alerts(tmp_path: Path) -> None:
    owner, standby = Replica(EngineRig()), Replica()
    life = AlertLife(owner, standby)
    life.live(10)
    standby.lag_entries = 5_000
    life.live(6)
    life.expect("LaterMQStandbyBehind")
    standby.lag_entries = 3
    life.live(1)
    life.expect()
    life.check(tmp_path, {"LaterMQStandbyBehind"})


def test_a_replicated_log_that_does_not_answer_alerts(tmp_path: Path) -> None:
    owner, standby = Replica(EngineRig()), Replica()
    life = AlertLife(owner, standby)
    life.live(10)
    owner.silence_ms = 7_000
    life.live(0.25)
    owner.silence_ms = 0  # once
    life.live(10)
    for _ in range(6):
        owner.silence_ms += 15_000
        life.live(0.25)
    life.expect("LaterMQEngineSilent")
    owner.silence_ms = 0
    life.live(1)
    life.expect()
    life.check(tmp_path, {"LaterMQEngineSilent"})


def test_one_of_two_logs_that_nobody_owns_alerts(tmp_path: Path) -> None:
    """The other cluster's owner does not stand for this one's."""
    shop, idle = EngineRig(), EngineRig()
    brokers = [Replica(shop), Replica(), Replica(idle, "idle"), Replica(None, "idle")]
    life = AlertLife(*brokers)
    life.live(10)
    brokers[2].rig = None
    life.live(2)
    life.expect("LaterMQNoOwner")
    brokers[3].rig = idle
    life.live(1)
    life.expect()
    life.check(tmp_path, {"LaterMQNoOwner"})


# --- how fast it is ---------------------------------------------------------------------------


def test_a_broker_that_starts_again_and_again_alerts_and_one_new_start_does_not(
    tmp_path: Path,
) -> None:
    rig = EngineRig()
    life = AlertLife(rig)
    for _ in range(3):
        life.live(20, lambda: work(rig))
        rig.restart()
    life.live(20)
    life.expect()
    for _ in range(3):
        rig.crash()
        life.live(2, lambda: work(rig))
    life.expect("LaterMQRestarts")
    life.live(30, lambda: work(rig))
    life.expect()
    life.check(tmp_path, {"LaterMQRestarts"})


def test_a_slow_disk_and_a_blocked_loop_alert_while_they_last_and_not_for_a_moment(
    tmp_path: Path,
) -> None:
    rig = EngineRig()
    life = AlertLife(rig)
    ms = 2

    def serve() -> None:
        work(rig)
        for histogram in (rig.engine.figures.sync_ms, rig.engine.figures.loop_lag_ms):
            for _ in range(15):
                histogram.observe(ms)

    life.live(20, serve)
    ms = 2_000
    life.live(0.5, serve)  # once, for half a minute
    ms = 2
    life.live(30, serve)
    ms = 2_000
    life.live(20, serve)
    life.expect("LaterMQSlowDisk", "LaterMQLoopBlocked")
    rig.restart()
    ms = 2
    life.live(20, serve)
    life.expect()
    life.check(tmp_path, {"LaterMQSlowDisk", "LaterMQLoopBlocked"})


def test_delayed_messages_that_come_late_alert_and_those_of_a_stop_do_not(tmp_path: Path) -> None:
    rig = EngineRig()
    life = AlertLife(rig)

    def delay() -> None:
        rig.send("a", "b", wait_ms=30_000)
        consume(rig)

    life.live(20, delay)
    life.be_down(3)
    rig.advance(180_000)
    rig.restart()
    life.live(30, delay)
    life.expect()
    for _ in range(15):
        for _ in range(4):
            delay()
            rig.now_ms += 30_000  # it stands still: nothing is due meanwhile
            life.live(0.25)
    life.expect("LaterMQLate")
    life.live(20, delay)
    life.expect()
    life.check(tmp_path, {"LaterMQLate", "LaterMQDown"})


def test_consumers_that_hold_and_do_not_finish_alert(tmp_path: Path) -> None:
    rig = EngineRig()
    life = AlertLife(rig)
    life.live(20, lambda: work(rig))
    rig.send(*(f"m{n}" for n in range(8)))
    rig.receive(count=2, push=True, lease_ms=7_200_000)
    life.live(9)
    life.expect()
    life.live(20)
    stuck = "LaterMQNothingFinishes billing orders"
    life.expect(stuck, f"{BEHIND} billing orders")
    life.live(20, lambda: work(rig))  # another consumer works beside the one that hangs
    life.expect()
    life.check(tmp_path, {stuck, f"{BEHIND} billing orders"})
