"""Schedules against lists: crashes before and after the write, outages, checkpoints, commands, and
a wall clock that is set forward and back.

Held all the time: each tick is there once, or was passed over by the schedule's own word about
missed ones, in the order of time; none comes of a schedule that is paused or removed. After the
clock was set back, each schedule's next tick is its first after now that was not its last one.
After each recovery the schedules are what they were.
"""

from dataclasses import dataclass, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from latermq_broker.catalog.schedules import Missed
from latermq_broker.config.config import SchedulesConfig
from latermq_broker.engine.send.scheduled_sends import LATE_MS_MAX
from support.engine_facts import facts
from support.schedule_rig import ScheduleRig
from support.small_bounds import MODEL_STORE

NAMES = ("a", "b", "c")
CATCH_UP_MS = 200_000
INTERVALS_MS = (1_000, 1_500, 7_000, 60_000, 90_000)


@dataclass(frozen=True)
class Known:
    every_ms: int
    missed: Missed
    next_ms: int
    last_ms: int = 0
    paused: bool = False

    def after(self, at_ms: int) -> int:
        return (at_ms // self.every_ms + 1) * self.every_ms

    def first(self, wall_ms: int) -> int:
        """Return its first tick after now that was not its last one."""
        first_ms = self.after(wall_ms)
        return self.after(first_ms) if first_ms == self.last_ms else first_ms


class ScheduleMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rig = ScheduleRig(
            store=MODEL_STORE,
            schedules=SchedulesConfig(count_max=3, catch_up_ms_max=CATCH_UP_MS),
        )
        self.known: dict[str, Known] = {}
        self.expected: list[tuple[int, str]] = []

    def teardown(self) -> None:
        self.rig.engine.abandon()

    @property
    def wall_ms(self) -> int:
        return self.rig.now_ms + self.rig.ahead_ms

    def happen(self) -> None:
        """What is due now is sent, or passed over."""
        now_ms = self.wall_ms
        for name, known in self.known.items():
            if known.paused:
                continue
            due = list(range(known.next_ms, now_ms + 1, known.every_ms))
            if not due:
                continue
            if known.missed is Missed.ALL:
                sent = [tick_ms for tick_ms in due if tick_ms >= now_ms - CATCH_UP_MS]
            elif known.missed is Missed.SKIP:
                sent = [tick_ms for tick_ms in due[-1:] if tick_ms >= now_ms - LATE_MS_MAX]
            else:
                sent = due[-1:]
            self.expected += ((tick_ms, name) for tick_ms in sent)
            last_ms = sent[-1] if sent else known.last_ms
            self.known[name] = replace(known, last_ms=last_ms, next_ms=known.after(now_ms))

    @rule(
        name=st.sampled_from(NAMES),
        every_ms=st.sampled_from(INTERVALS_MS),
        missed=st.sampled_from(Missed),
        alter=st.booleans(),
    )
    def declare(self, name: str, every_ms: int, missed: Missed, alter: bool) -> None:
        put = self.rig.put(name, every_ms, missed=missed, alter=alter)
        known = self.known.get(name)
        assert (put.before is None) == (known is None)
        now_ms = self.wall_ms
        if known is None:
            made = Known(every_ms, missed, 0)
            self.known[name] = replace(made, next_ms=made.after(now_ms))
        elif (every_ms, missed) == (known.every_ms, known.missed) or not alter:
            assert put.before is put.after
        else:
            changed = replace(known, every_ms=every_ms, missed=missed)
            self.known[name] = replace(changed, next_ms=changed.first(now_ms))

    @precondition(lambda self: bool(self.known))
    @rule(data=st.data(), paused=st.booleans())
    def pause_or_resume(self, data: st.DataObject, paused: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.known)))
        schedules = self.rig.engine.schedules
        (schedules.pause if paused else schedules.resume)(name, self.rig.now_ms)
        self.rig.engine.write()
        known = self.known[name]
        if known.paused and not paused:
            known = replace(known, next_ms=known.first(self.wall_ms))
        self.known[name] = replace(known, paused=paused)

    @precondition(lambda self: bool(self.known))
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.known)))
        self.rig.engine.schedules.remove(name, self.rig.now_ms)
        self.rig.engine.write()
        del self.known[name]

    @rule(step_ms=st.sampled_from((1, 500, 1_000, 3_000, 59_000)))
    def time_passes(self, step_ms: int) -> None:
        self.rig.advance(step_ms)
        self.happen()

    @rule(step_ms=st.sampled_from((-86_400_000, -61_000, -1_700, -1, 900, 61_000, 86_400_000)))
    def somebody_sets_the_clock(self, step_ms: int) -> None:
        self.rig.step_wall(step_ms)
        for name, known in self.known.items():
            if not known.paused and self.wall_ms < known.first(self.wall_ms) < known.next_ms:
                self.known[name] = replace(known, next_ms=known.first(self.wall_ms))
        self.happen()
        put_off = [
            name
            for name, known in self.known.items()
            if not known.paused and known.next_ms > known.after(self.wall_ms)
        ]
        assert self.rig.engine.schedules.behind_count(self.rig.now_ms) == len(put_off)

    @rule(away_ms=st.sampled_from((0, 700, 61_000, 150_000, 400_000)), checkpoint=st.booleans())
    def dies_and_comes_back(self, away_ms: int, checkpoint: bool) -> None:
        """Killed after a write; what was due meanwhile is missed."""
        self.rig.engine.write()
        before = facts(self.rig.engine)
        if checkpoint:
            self.rig.checkpoint()
        self.rig.crash()
        assert facts(self.rig.engine) == before
        self.rig.advance(away_ms)
        self.happen()

    @rule(step_ms=st.sampled_from((1_000, 3_000, 61_000)))
    def dies_in_a_tick(self, step_ms: int) -> None:
        """Killed with ticks decided, and not written: they are decided anew."""
        self.rig.now_ms += step_ms
        self.rig.engine.tick(self.rig.now_ms)
        self.rig.engine.abandon()
        self.rig.engine = self.rig.reopened()
        self.rig.advance(0)
        self.happen()

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        came = self.rig.came()
        wanted = [self.rig.tick_of(name, tick_ms) for tick_ms, name in self.expected]
        for name in NAMES:
            assert [one for one in came if one[0] == name] == [
                one for one in wanted if one[0] == name
            ]
        self.expected = []
        table = self.rig.engine.schedules.table
        assert {each.name: (each.next_ms, each.paused) for each in table.all()} == {
            name: (0 if known.paused else known.next_ms, known.paused)
            for name, known in self.known.items()
        }
        waiting = [known.next_ms for known in self.known.values() if not known.paused]
        assert table.next_ms() == min(waiting, default=None)


TestSchedules = ScheduleMachine.TestCase
TestSchedules.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
