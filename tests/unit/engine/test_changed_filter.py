"""A FIFO group whose filter changes: a retry that nobody wants any more withholds nobody."""

import pytest

from latermq_broker.config.config import DeliveryConfig
from latermq_broker.engine.state.model import (
    DeadFilter,
    DeadLetter,
    Failure,
    OnDead,
    Outgoing,
)
from support.engine_facts import facts
from support.engine_rig import EngineRig

FAILURE = Failure("ValueError", "bad", "", "")
WAIT_MS = 60_000


class FilterRig(EngineRig):
    def __init__(self, *, fifo: bool = True, on_dead: OnDead = OnDead.SKIP) -> None:
        super().__init__(delivery=DeliveryConfig(max_attempts=4, unwanted_retry_ms_max=WAIT_MS))
        self.engine.groups.create(
            "billing", fifo=fifo, max_attempts=0, backoff=None, on_dead=on_dead, now_ms=self.now_ms
        )

    def put(self, *names: str) -> None:
        """All of one message group; `x1` has the tag `x`."""
        messages = [
            Outgoing("orders", b"x", name.encode(), name, tag=name[0], message_group="customer")
            for name in names
        ]
        self.engine.send(messages, self.now_ms)
        self.engine.write()

    def fail(self, tags: str) -> None:
        (one,) = self.receive(count=1, tags=tags)
        self.engine.change_invisible("billing", one.handle, 1_000, self.now_ms, failure=FAILURE)
        self.advance(1_000)

    def letters(self) -> tuple[DeadLetter, ...]:
        return self.engine.dead.scan("billing", DeadFilter()).letters

    def same_after_a_crash(self) -> None:
        before = facts(self.engine)
        self.crash()
        assert facts(self.engine) == before


@pytest.mark.parametrize("on_dead", OnDead)
def test_a_retry_of_the_old_tag_ends_as_filtered_and_those_behind_it_come(on_dead: OnDead) -> None:
    """Where dead letters park their message group, too: this one is no failure."""
    rig = FilterRig(on_dead=on_dead)
    rig.put("x1", "y2")
    rig.fail("x")
    assert rig.names(tags="y") == []
    rig.advance(WAIT_MS - 1)
    assert rig.names(tags="y") == []  # one that wants it may come still
    rig.advance(1)
    assert rig.names(tags="y") == ["y2"]
    rig.same_after_a_crash()
    (letter,) = rig.letters()
    assert (letter.sys, letter.reason, letter.attempt_count) == (b"x1", "filtered", 1)
    assert [one.failure for one in letter.attempts] == [FAILURE]
    assert not letter.parks


def test_who_still_wants_it_gets_it() -> None:
    rig = FilterRig()
    rig.put("x1", "y2")
    rig.fail("x")
    rig.advance(WAIT_MS // 2)
    assert rig.names(tags="y") == []
    assert rig.names(tags="x") == ["x1"]
    assert not rig.letters()


def test_a_redriven_letter_waits_as_long_for_who_wants_it() -> None:
    rig = FilterRig()
    rig.put("x1", "y2")
    (one,) = rig.receive(count=1, tags="x")
    rig.engine.forward("billing", one.handle, rig.now_ms, FAILURE)
    rig.engine.dead.redrive("billing", 0, "", rig.now_ms)
    rig.advance(WAIT_MS - 1)
    assert rig.names(tags="y") == []
    rig.advance(1)
    assert rig.names(tags="y") == ["y2"]
    (letter,) = rig.letters()
    assert (letter.reason, letter.queue_offset) == ("filtered", 1)


def test_the_last_attempt_is_over_whoever_asks() -> None:
    """A policy that was tightened, and a filter that changed."""
    rig = FilterRig()
    rig.put("x1")
    rig.fail("x")
    rig.fail("x")
    rig.put("y2")
    rig.engine.groups.alter(
        "billing", max_attempts=2, backoff=None, clear_backoff=False, now_ms=rig.now_ms
    )
    assert rig.names(tags="y") == ["y2"]
    assert [letter.reason for letter in rig.letters()] == ["attempts_exhausted"]


def test_without_an_order_to_keep_it_withholds_nobody_and_waits() -> None:
    rig = FilterRig(fifo=False)
    rig.put("x1", "y2")
    rig.fail("x")
    rig.advance(10 * WAIT_MS)
    assert rig.names(tags="y") == ["y2"]
    assert rig.names(tags="x") == ["x1"]
    assert not rig.letters()
