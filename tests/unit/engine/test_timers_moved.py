"""Delayed messages whose time was moved: found by the id of their send, wherever they stand."""

import pytest

from latermq_broker.engine.state import timers_moved
from latermq_broker.engine.state.timers_moved import TimersMoved
from latermq_broker.errors import MessageNotFoundError
from support.engine_facts import facts
from support.engine_rig import EngineRig, short_store

DAY_MS = 86_400_000


def test_over_checkpoint_and_replay_it_is_as_it_was() -> None:
    rig = EngineRig()
    sent = rig.send("m1", "m2", "m3", "m4", wait_ms=60_000)
    pending = rig.engine.pending
    pending.postpone(sent[0].pending_id, rig.now_ms + 90_000, rig.now_ms)
    pending.postpone(sent[1].pending_id, rig.now_ms + 90_000, rig.now_ms)
    rig.checkpoint()
    pending.postpone(sent[1].pending_id, rig.now_ms + 30_000, rig.now_ms)
    pending.expedite(sent[2].pending_id, rig.now_ms)
    rig.advance(0)
    before = facts(rig.engine)
    assert len(rig.engine._state.timers_moved) == 2
    rig.crash()
    assert facts(rig.engine) == before
    rig.restart()
    assert facts(rig.engine) == before
    rig.advance(90_000)
    assert len(rig.engine._state.timers_moved) == 0


@pytest.mark.parametrize("first", ["moved", "rolled"])
def test_rolled_forward_before_or_after_it_is_found(first: str) -> None:
    rig = EngineRig(store=short_store())
    (sent,) = rig.send("m1", wait_ms=30 * DAY_MS)

    def roll() -> None:
        start = rig.engine.store.log.start
        for n in range(20):
            rig.send(f"filler-{n}", body=b"x" * 1_500)
        rig.advance(120_000)
        rig.retain()
        assert rig.engine.store.log.start > max(start, sent.position)

    if first == "rolled":
        roll()
    rig.engine.pending.postpone(sent.pending_id, rig.now_ms + 40 * DAY_MS, rig.now_ms)
    if first == "moved":
        roll()
    roll()
    rig.crash()
    assert rig.engine.pending.cancel(sent.pending_id, rig.now_ms).sys == b"m1"
    assert len(rig.engine._state.timers_moved) == 0
    with pytest.raises(MessageNotFoundError):
        rig.engine.pending.cancel(sent.pending_id, rig.now_ms)


def test_the_oldest_is_forgotten_at_the_bound_and_it_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timers_moved, "MOVED_MAX", 3)
    found = TimersMoved()
    for position in range(8, 40, 8):
        assert not found.forgot
        found.move(position, position, 1_000)
    assert found.forgot
    assert found.wait_of(8) is None
    assert found.wait_of(16) == (1_000, 16)
    again = TimersMoved()
    again.restore(found.snapshot())
    assert again.snapshot() == found.snapshot()


def test_golden_section() -> None:
    """Never changes: a new version adds a decoder and a second literal."""
    found = TimersMoved()
    found.move(64, 64, 1_000)
    found.roll(64, 4_096)
    assert found.snapshot() == bytes.fromhex(
        "000000000000000000100000000000004000000000000000e803000000000000"
    )
