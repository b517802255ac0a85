"""Faults of clocks, for `mutations.py`: fault, who finds it, file, text now, text then."""

from typing import Final

SCHEDULES: Final = "property.test_schedules_model:ScheduleMachine"
WALL_CLOCK: Final = "property.test_wall_clock_model:WallClockMachine"
FAIR_SHARE: Final = "tests/property/test_fair_share_model.py"
STANDSTILL: Final = "tests/unit/engine/test_standstill.py"

OF_TIME: Final[tuple[tuple[str, str, str, str, str], ...]] = (
    (
        "a group is reset to a time of the broker's own clock",
        WALL_CLOCK,
        "engine/catalog/groups.py",
        "        own_ms = state.wall.first_at(to_ms)\n",
        "        own_ms = to_ms\n",
    ),
    (
        "stored times are told by the step of the wall clock that holds now",
        WALL_CLOCK,
        "engine/state/wall_clock.py",
        "return own_ms + self._ahead_ms[bisect_right(self._from_ms, own_ms)]",
        "return own_ms + self._ahead_ms[-1]",
    ),
    (
        "steps of the wall clock are in no checkpoint",
        WALL_CLOCK,
        "engine/checkpoint/snapshot.py",
        '    state.wall.restore(json.loads(sections.get("clock") or b"[]"))\n',
        "",
    ),
    (
        "a search by time goes to where the clock showed it last",
        WALL_CLOCK,
        "engine/state/wall_clock.py",
        "            if own_ms < self._from_ms[step]:\n                return max(own_ms, 0)\n",
        "            pass\n",
    ),
    (
        "the broker's own standstill counts as its clients' silence",
        STANDSTILL,
        "engine/outcome/due.py",
        "if judged_ms - self._seen_ms(client_id) > self._silent_ms_max",
        "if now_ms - self._seen_ms(client_id) > self._silent_ms_max",
    ),
    (
        "a lease ends in a standstill in which its holder could not be heard",
        STANDSTILL,
        "engine/state/hearing.py",
        "                return until_ms + deadline_ms - from_ms\n",
        "                return deadline_ms\n",
    ),
    (
        "a clock that was ahead for a moment silences schedules for as long",
        SCHEDULES,
        "engine/send/scheduled_sends.py",
        "        if self._is_put_off:\n            self._plan_anew(now_ms)\n",
        "        self._planned_ahead_ms = self._state.wall.ahead_ms\n",
    ),
    (
        "a schedule that is put while its last tick lies ahead waits for that tick",
        SCHEDULES,
        "engine/send/scheduled_sends.py",
        "            next_ms = self._next(schedule, wall_ms)\n        put",
        "            next_ms = self._first_after(schedule, max(wall_ms, schedule.last_ms))\n"
        "        put",
    ),
    (
        "lasting work takes turns by kind alone: a user with more kinds has more of the time",
        FAIR_SHARE,
        "background/fair_share.py",
        "        user.charged_ns += used_ns\n",
        "",
    ),
    (
        "a user who comes back to lasting work makes up for all the time it did not want",
        FAIR_SHARE,
        "background/fair_share.py",
        "max(member.charged_ns, self.served_ns)",
        "member.charged_ns",
    ),
    (
        "a slice of lasting work is charged to its share as if it had not run over",
        FAIR_SHARE,
        "background/fair_share.py",
        "        self._left_ns -= used_ns\n",
        "        self._left_ns -= SLICE_NS // 4\n",
    ),
    (
        "one lasting call more than may run takes turns",
        FAIR_SHARE,
        "background/fair_share.py",
        "user.seated >= self._running_max",
        "user.seated > self._running_max",
    ),
)
