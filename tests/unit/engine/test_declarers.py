"""Who declares schedules, where the model does not look: standstills, bounds, a full disk."""

import pytest

from latermq_broker.catalog.declarations import NO_WORKER, RUNNING
from latermq_broker.catalog.schedules import Schedule
from latermq_broker.engine.catalog import declarers
from latermq_broker.engine.catalog.declarers import SILENT_MS
from latermq_broker.errors import StoreFullError, TooManyRequestsError
from support.engine_facts import facts
from support.schedule_rig import ScheduleRig

DAY = 86_400_000


@pytest.fixture
def rig() -> ScheduleRig:
    return ScheduleRig()


def made(rig: ScheduleRig, *names: str, app: str = "billing") -> None:
    for name in names:
        wanted = Schedule(name=name, topic="reports", every_ms=DAY)
        rig.engine.schedules.put(wanted, rig.now_ms, app=app)
        rig.engine.declarers.claim(app, name, rig.now_ms)


def ran(rig: ScheduleRig, *names: str) -> None:
    rig.engine.declarers.declare("billing", "v0", names, rig.now_ms)
    rig.engine.declarers.end("billing", "v0", rig.now_ms)


def idle_ms(rig: ScheduleRig, name: str) -> int:
    return rig.engine.declarations.idle_since_ms(name)


def pruned(rig: ScheduleRig, app: str = "billing", *keep: str, idle_ms: int = 0) -> list[str]:
    found = rig.engine.declarers.prune(app, keep, rig.now_ms, dry_run=False, idle_ms=idle_ms)
    return [each.name for each in found.removed]


def test_a_rename_with_a_rolling_deploy(rig: ScheduleRig) -> None:
    made(rig, "old")
    rig.engine.declarers.declare("billing", "v1", ["old"], rig.now_ms)
    made(rig, "new")
    rig.engine.declarers.declare("billing", "v2", ["new"], rig.now_ms)
    assert pruned(rig, "billing", "new") == []
    for _ in range(10):
        rig.advance(10_000)
        rig.engine.declarers.declare("billing", "v1", ["old"], rig.now_ms)
        rig.engine.declarers.declare("billing", "v2", ["new"], rig.now_ms)
    assert (idle_ms(rig, "old"), idle_ms(rig, "new")) == (0, 0)
    rig.engine.declarers.end("billing", "v1", rig.now_ms)
    assert (idle_ms(rig, "old"), idle_ms(rig, "new")) == (rig.now_ms, 0)
    rig.advance(1_000)
    rig.engine.declarers.declare("billing", "v2", ["new"], rig.now_ms)
    assert pruned(rig, "billing", "new", idle_ms=2_000) == []
    assert pruned(rig, "billing", "new", idle_ms=1_000) == ["old"]
    assert rig.engine.schedules.table.get("old") is None


def test_a_worker_that_was_killed_is_missed_after_a_while(rig: ScheduleRig) -> None:
    made(rig, "old")
    rig.engine.declarers.declare("billing", "v1", ["old"], rig.now_ms)
    heard_ms = rig.now_ms
    rig.advance(0)
    assert rig.engine.declarers.next_deadline_ms() == heard_ms + SILENT_MS
    rig.advance(SILENT_MS - 1)
    assert idle_ms(rig, "old") == 0
    rig.advance(1)
    assert idle_ms(rig, "old") == heard_ms
    assert rig.engine.declarers.next_deadline_ms() is None


def test_while_the_broker_stood_still_nobody_was_silent(rig: ScheduleRig) -> None:
    made(rig, "old")
    rig.engine.declarers.declare("billing", "v1", ["old"], rig.now_ms)
    rig.engine.hearing.missed(rig.now_ms + 1_000, rig.now_ms + 3_600_000)
    rig.advance(3_600_000)
    assert idle_ms(rig, "old") == 0
    rig.advance(SILENT_MS)
    assert idle_ms(rig, "old") != 0


def test_a_worker_that_says_less_has_less(rig: ScheduleRig) -> None:
    made(rig, "old", "new")
    rig.engine.declarers.declare("billing", "v1", ["old", "new"], rig.now_ms)
    began_ms = rig.now_ms
    rig.advance(5_000)
    rig.engine.declarers.declare("billing", "v1", ["new", "none of that name"], rig.now_ms)
    rig.advance(0)
    assert (idle_ms(rig, "old"), idle_ms(rig, "new")) == (began_ms, 0)


def test_one_that_is_paused_is_told_of_and_pruned_like_others(rig: ScheduleRig) -> None:
    made(rig, "old")
    ran(rig, "old")
    rig.engine.schedules.pause("old", rig.now_ms)
    assert idle_ms(rig, "old") == rig.now_ms
    assert pruned(rig) == ["old"]


def test_a_clock_that_was_ahead_keeps_nothing_from_being_pruned(rig: ScheduleRig) -> None:
    rig.step_wall(30 * DAY)
    made(rig, "old")
    ran(rig, "old")
    rig.step_wall(-30 * DAY)
    assert idle_ms(rig, "old") == rig.now_ms + 30 * DAY
    assert pruned(rig) == ["old"]


def test_one_that_needs_no_worker_is_neither_told_of_nor_pruned_by_others(rig: ScheduleRig) -> None:
    made(rig, "old", "shared", app="deployer")
    made(rig, "shared")
    ran(rig, "old", "shared")
    rig.engine.schedules.remove("old", rig.now_ms)
    made(rig, "old", app="deployer")
    assert (idle_ms(rig, "old"), idle_ms(rig, "shared")) == (0, 0)
    assert pruned(rig, "") == []
    assert dict(rig.engine.declarations.of("shared")) == {"deployer": NO_WORKER}
    assert pruned(rig, "deployer", "shared") == []
    found = rig.engine.declarers.prune(
        "deployer", ["shared"], rig.now_ms, dry_run=False, by_code=True
    )
    assert [each.name for each in found.removed] == ["old"]


def test_only_changes_are_written(rig: ScheduleRig) -> None:
    made(rig, "old")
    rig.engine.declarers.declare("billing", "v1", ["old"], rig.now_ms)
    end = rig.engine.store.log.end
    for _ in range(20):
        rig.advance(10_000)
        rig.engine.declarers.declare("billing", "v1", ["old"], rig.now_ms)
    assert rig.engine.store.log.end == end


def test_bounds(rig: ScheduleRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declarers, "WORKERS_MAX", 2)
    monkeypatch.setattr(declarers, "NAMES_MAX", 3)
    made(rig, "old", "new")
    tell = rig.engine.declarers.declare
    tell("billing", "1", ["old", "new"], rig.now_ms)
    with pytest.raises(TooManyRequestsError, match="3 schedules"):
        tell("billing", "2", ["old", "new"], rig.now_ms)
    tell("billing", "2", ["old"], rig.now_ms)
    tell("billing", "1", ["old", "new"], rig.now_ms)
    with pytest.raises(TooManyRequestsError, match="2 workers"):
        tell("billing", "3", [], rig.now_ms)
    rig.engine.declarers.end("billing", "1", rig.now_ms)
    tell("billing", "3", ["old", "new"], rig.now_ms)
    rig.advance(SILENT_MS)
    tell("billing", "4", ["old", "new"], rig.now_ms)


def test_a_full_disk_puts_the_word_off(rig: ScheduleRig, monkeypatch: pytest.MonkeyPatch) -> None:
    made(rig, "old")
    rig.engine.declarers.declare("billing", "v1", ["old"], rig.now_ms)
    heard_ms = rig.now_ms
    rig.now_ms += SILENT_MS

    def full(*_: object) -> None:
        raise StoreFullError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(rig.engine._journal, "write", full)
        with pytest.raises(StoreFullError):
            rig.engine.tick(rig.now_ms)
        assert rig.engine.declarations.of("old")["billing"] == RUNNING
    rig.advance(0)
    assert idle_ms(rig, "old") == heard_ms


@pytest.mark.parametrize("checkpoint", [False, True])
def test_it_outlives_the_broker(rig: ScheduleRig, checkpoint: bool) -> None:
    made(rig, "old", "new")
    rig.put("by hand", DAY)
    ran(rig, "old")
    rig.engine.declarers.declare("billing", "v1", ["new"], rig.now_ms)
    before, began_ms = facts(rig.engine), rig.now_ms
    if checkpoint:
        rig.checkpoint()
    rig.now_ms += 3 * DAY
    rig.crash()
    assert facts(rig.engine) == before
    rig.advance(0)
    assert (idle_ms(rig, "old"), idle_ms(rig, "new"), idle_ms(rig, "by hand")) == (began_ms, 0, 0)
    back_ms = rig.now_ms
    rig.advance(SILENT_MS)
    assert idle_ms(rig, "new") == back_ms
    assert pruned(rig, "") == ["new", "old"]
