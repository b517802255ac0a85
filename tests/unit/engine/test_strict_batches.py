"""FIFO batches with `compat.strict`: acknowledged ones come again with one before them."""

import pytest

from latermq_broker.engine.state.model import (
    DeadFilter,
    Delivered,
    Outgoing,
    PendingFilter,
    TopicType,
)
from latermq_broker.engine.views.message_life import LifeState
from support.engine_facts import facts
from support.engine_rig import EngineRig


class StrictRig(EngineRig):
    def __init__(self, *, strict: bool = True) -> None:
        super().__init__(strict=strict)
        self.engine.topics.create("orders", TopicType.FIFO, 1, self.now_ms)
        self.engine.groups.create(
            "billing", fifo=True, max_attempts=4, backoff=None, now_ms=self.now_ms
        )

    def put(self, *names: str) -> None:
        """`a1` is of message group `a`."""
        messages = [
            Outgoing("orders", b"x", name.encode(), name, message_group=name[0]) for name in names
        ]
        self.engine.send(messages, self.now_ms)
        self.engine.write()

    def batch(self, count: int = 32) -> list[Delivered]:
        return self.receive(count=count)

    def restarted(self, *, checkpoint: bool) -> None:
        if checkpoint:
            self.checkpoint()
        before = facts(self.engine)
        self.crash()
        assert facts(self.engine) == before


def told(batch: list[Delivered]) -> list[tuple[str, int]]:
    return [(one.sys.decode(), one.attempt) for one in batch]


@pytest.mark.parametrize("checkpoint", [True, False])
def test_the_batch_comes_again_from_the_first_that_was_not_acknowledged(checkpoint: bool) -> None:
    rig = StrictRig()
    rig.put("a1", "a2", "a3", "a4", "b1")
    first, second, third, fourth, other = rig.batch()
    assert rig.ack(first, third, fourth, other) == [True] * 4
    rig.restarted(checkpoint=checkpoint)
    assert rig.ack(third, fourth) == [True, True]  # a repeat is OK, as ever
    assert rig.names() == []
    rig.advance(1_000)
    again = rig.batch()
    assert told(again) == [("a2", 2), ("a3", 2), ("a4", 2)]
    assert rig.ack(second, third) == [False, False]
    rig.restarted(checkpoint=checkpoint)
    assert rig.ack(*again) == [True] * 3
    assert not rig.engine._state.leases.deliveries


@pytest.mark.parametrize("checkpoint", [True, False])
def test_acknowledged_in_any_order_all_of_it_is_done(checkpoint: bool) -> None:
    rig = StrictRig()
    rig.put("a1", "a2", "a3")
    first, second, third = rig.batch()
    assert rig.ack(third) == [True]
    assert rig.ack(second) == [True]
    rig.restarted(checkpoint=checkpoint)
    assert rig.ack(first) == [True]
    rig.restarted(checkpoint=checkpoint)
    assert not rig.engine._state.leases.deliveries
    rig.put("a4")
    assert rig.names() == ["a4"]


def test_from_the_third_attempt_on_it_goes_alone_and_nothing_acknowledged_dies() -> None:
    rig = StrictRig()
    rig.put("a1", "a2", "a3")
    for attempt in (1, 2):
        batch = rig.batch()
        assert told(batch) == [("a1", attempt), ("a2", attempt), ("a3", attempt)]
        rig.ack(*batch[1:])
        rig.advance(1_000)
    for attempt in (3, 4):
        assert told(rig.batch()) == [("a1", attempt)]
        rig.advance(1_000)
    (letter,) = rig.engine.dead.scan("billing", DeadFilter()).letters
    assert letter.sys == b"a1"
    assert not rig.engine._state.leases.deliveries  # a2 and a3 are done with it
    rig.put("a4")
    assert told(rig.batch()) == [("a4", 1)]


def test_a_failure_brings_it_again_with_how_each_attempt_ended() -> None:
    rig = StrictRig()
    rig.put("a1", "a2")
    first, second = rig.batch()
    rig.ack(second)
    handle = rig.engine.change_invisible("billing", first.handle, 500, rig.now_ms, suspend=True)
    rig.advance(500)
    again = rig.batch()
    assert told(again) == [("a1", 1), ("a2", 2)]
    assert rig.engine.ack("billing", [handle], rig.now_ms) != [None]
    rig.engine.forward("billing", again[1].handle, rig.now_ms)
    (letter,) = rig.engine.dead.scan("billing", DeadFilter()).letters
    assert [one.outcome.name for one in letter.attempts] == ["ACKNOWLEDGED", "FORWARDED"]


def test_what_is_acknowledged_is_neither_pending_nor_a_reason_to_wait() -> None:
    rig = StrictRig()
    rig.put("a1", "a2")
    _, second = rig.batch()
    rig.ack(second)
    items, _ = rig.engine.pending.page(PendingFilter(), 9)
    assert [item.sys for item in items] == [b"a1"]
    (found,), _ = rig.engine.messages.by_id("a2", "orders")
    assert rig.engine.lives.life(found).groups[0].state is LifeState.DONE
    with pytest.raises(Exception, match="receipt handle"):
        rig.engine.change_invisible("billing", second.handle, 1_000, rig.now_ms)
    rig.engine.forward("billing", second.handle, rig.now_ms)  # done already
    assert not rig.engine.dead.scan("billing", DeadFilter()).letters
    (progress,) = rig.engine.groups.describe("billing").topics
    assert (progress.in_flight_count, progress.ready_count) == (1, 0)


def test_without_strict_an_acknowledged_message_stays_done() -> None:
    rig = StrictRig(strict=False)
    rig.put("a1", "a2", "a3")
    _, second, third = rig.batch()
    rig.ack(second, third)
    rig.advance(1_000)
    assert told(rig.batch()) == [("a1", 2)]


def test_strict_is_about_what_comes_not_about_what_was() -> None:
    """What was acknowledged while it was on is done in order after it was turned off, too."""
    rig = StrictRig()
    rig.put("a1", "a2", "b1", "b2")
    batch = rig.batch()
    rig.ack(batch[1], batch[3])
    rig.config = StrictRig(strict=False).config
    rig.restarted(checkpoint=True)
    rig.ack(batch[0])
    rig.advance(1_000)
    assert told(rig.batch()) == [("b1", 2), ("b2", 2)]
