"""The wall clock is set forward or back: times of day follow it, what lasts a while does not."""

import pytest

from latermq_broker.config.config import DeliveryConfig
from latermq_broker.engine.state.model import DeadFilter, PendingFilter, PendingKind
from support.engine_rig import EngineRig

HOUR_MS = 3_600_000


def due(rig: EngineRig) -> list[int]:
    items, _ = rig.engine.pending.page(PendingFilter(), 10)
    return [item.due_ms for item in items]


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
class TestWhileItRuns:
    def test_a_delay_asked_for_after_the_jump_lasts_as_long_as_it_says(self, jump_ms: int) -> None:
        rig = EngineRig()
        rig.engine.wall.ahead_ms = jump_ms
        [sent] = rig.send("m", wait_ms=jump_ms + 10_000)  # the producer's clock is right
        assert sent.due_ms == rig.now_ms + jump_ms + 10_000
        rig.advance(9_999)
        assert rig.names() == []
        rig.advance(1)
        assert rig.names() == ["m"]

    def test_a_level_lasts_as_long_as_it_says(self, jump_ms: int) -> None:
        rig = EngineRig()
        rig.engine.wall.ahead_ms = jump_ms
        [sent] = rig.send("m", level=3)
        assert sent.due_ms == rig.now_ms + jump_ms + 10_000
        rig.advance(9_999)
        assert rig.names() == []
        rig.advance(1)
        assert rig.names() == ["m"]

    def test_leases_and_backoffs_keep_their_length(self, jump_ms: int) -> None:
        rig = EngineRig()
        rig.send("leased", "failed")
        _, failed = rig.receive(push=True, lease_ms=30_000)
        rig.engine.change_invisible("billing", failed.handle, 10_000, rig.now_ms)
        rig.engine.wall.ahead_ms = jump_ms
        rig.advance(9_999)
        assert rig.names() == []
        rig.advance(1)
        assert rig.names() == ["failed"]

    def test_what_waits_is_listed_at_the_time_of_day(self, jump_ms: int) -> None:
        rig = EngineRig()
        rig.send("held")
        rig.receive(lease_ms=5_000)
        rig.engine.wall.ahead_ms = jump_ms
        assert due(rig) == [rig.now_ms + jump_ms + 5_000]

    def test_expedite_and_postpone_are_at_the_time_of_day(self, jump_ms: int) -> None:
        rig = EngineRig()
        rig.engine.wall.ahead_ms = jump_ms
        [one, two] = rig.send("now", "later", wait_ms=jump_ms + 60_000)
        wall_ms = rig.engine.wall.at(rig.now_ms)
        rig.engine.pending.postpone(two.pending_id, wall_ms + 20_000, rig.now_ms)
        rig.engine.pending.expedite(one.pending_id, rig.now_ms)
        rig.advance(0)
        assert rig.names() == ["now"]
        rig.advance(20_000)
        assert "later" in rig.names()


def test_what_waits_for_a_time_of_day_comes_when_the_clock_is_set_past_it() -> None:
    rig = EngineRig()
    rig.send("in half an hour", wait_ms=HOUR_MS // 2)
    rig.send("in two hours", wait_ms=2 * HOUR_MS)
    rig.engine.wall.ahead_ms = HOUR_MS
    deadline_ms = rig.engine.next_deadline_ms()
    assert deadline_ms is not None
    assert deadline_ms <= rig.now_ms
    rig.advance(0)
    assert rig.names() == ["in half an hour"]
    rig.advance(HOUR_MS)
    assert rig.names(group="other") == ["in half an hour", "in two hours"]


def test_what_waits_for_a_time_of_day_waits_for_it_again_when_the_clock_is_set_back() -> None:
    rig = EngineRig(delivery=DeliveryConfig(tick_timers_max=1))
    rig.send("a", "b", wait_ms=10_000)
    rig.now_ms += 10_000
    rig.engine.tick(rig.now_ms)  # the first; the second is due too
    assert rig.names() == ["a"]
    rig.engine.wall.ahead_ms = -HOUR_MS
    rig.advance(HOUR_MS - 1)
    assert rig.names(group="other") == ["a"]
    rig.advance(1)
    assert rig.names(group="third") == ["a", "b"]


def test_a_restart_with_an_earlier_clock_neither_ends_leases_nor_delivers_early() -> None:
    rig = EngineRig()
    rig.send("held", "waits")
    [held, _] = rig.receive(push=True, lease_ms=1_000)
    ended_ms = rig.now_ms
    rig.now_ms -= HOUR_MS  # what Store.open and Engine.open are told
    rig.restart()
    rig.now_ms = ended_ms  # SystemClock.not_before
    rig.engine.wall.ahead_ms = -HOUR_MS
    [sent] = rig.send("in 10 s", wait_ms=10_000 - HOUR_MS)
    assert sent.due_ms == ended_ms - HOUR_MS + 10_000
    rig.advance(9_999)
    assert rig.names(group="other") == ["held", "waits"]
    rig.advance(1)
    assert rig.names(group="third") == ["held", "waits", "in 10 s"]
    assert rig.ack(held) == [True]
    [item] = rig.engine.pending.page(PendingFilter(kind=PendingKind.IN_FLIGHT, group="billing"), 9)[
        0
    ]
    assert item.group == "billing"


def test_a_letter_that_was_redriven_is_pending_though_the_clock_was_set_back() -> None:
    rig = EngineRig()
    rig.send("m")
    [held] = rig.receive()
    rig.engine.forward("billing", held.handle, rig.now_ms)
    rig.engine.dead.redrive("billing", 0, "", rig.now_ms)
    rig.engine.wall.ahead_ms = -1_000
    items, _ = rig.engine.pending.page(PendingFilter(kind=PendingKind.BACKOFF), 10)
    assert [item.sys for item in items] == [b"m"]


@pytest.mark.parametrize("died", [False, True])
@pytest.mark.parametrize("jump_ms", [8 * HOUR_MS, -8 * HOUR_MS])
def test_what_was_before_a_jump_is_shown_at_the_time_that_it_was_then(
    jump_ms: int, died: bool
) -> None:
    rig = EngineRig(delivery=DeliveryConfig(max_attempts=1))
    began_ms = rig.now_ms
    rig.send("dead", "waits")
    rig.send("later", wait_ms=60_000)
    [dead] = rig.receive(count=1)
    rig.advance(500)
    rig.engine.forward("billing", dead.handle, rig.now_ms)
    rig.engine.write()
    rig.step_wall(jump_ms)
    rig.advance(250)
    rig.send("after")
    if died:  # and the next life measures its time from another beginning
        rig.checkpoint()
        rig.now_ms += max(jump_ms, 0)
        rig.ahead_ms = min(jump_ms, 0)
        rig.crash()
    found, _ = rig.engine.messages.by_time("orders", 0, 0)
    shown = [rig.engine.wall.time_of_day(hit.stored_ms) for hit in found]
    after_ms = began_ms + 500 + jump_ms + 250
    assert shown[:2] == [began_ms, began_ms]
    assert after_ms <= shown[-1] <= after_ms + 1
    scan = rig.engine.dead.scan
    [letter] = scan("billing", DeadFilter(), count_max=9).letters
    assert letter.dead_ms == letter.last_failure_ms == began_ms + 500
    [attempt] = letter.attempts
    assert (attempt.started_ms, attempt.ended_ms) == (began_ms, began_ms + 500)
    for dead_after_ms, count in ((began_ms + 500, 1), (began_ms + 501, 0)):
        wanted = DeadFilter(dead_after_ms=dead_after_ms)
        assert len(scan("billing", wanted, count_max=9).letters) == count
    [progress] = rig.engine.groups.describe("billing").topics
    assert progress.oldest_unread_ms == began_ms
    assert progress.last_consumed_ms == began_ms
