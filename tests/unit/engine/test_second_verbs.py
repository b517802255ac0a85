"""What a second verb, a second group or a second life must not change."""

import pytest

from latermq_broker.config.config import DeliveryConfig
from latermq_broker.delivery.history import Outcome
from latermq_broker.delivery.leases.lease import State
from latermq_broker.delivery.leases.recently_done import RecentlyDone
from latermq_broker.delivery.leases.shared import DeliveryKey
from latermq_broker.engine.state.model import DeadFilter, Failure, Outgoing, TopicType
from latermq_broker.engine.views.message_life import LifeState
from latermq_broker.errors import MessageNotFoundError, StoreFullError
from support.engine_facts import newest_letter, waits_of
from support.engine_rig import EngineRig, until_full
from support.memory_files import MemoryFiles

ONE_ATTEMPT = DeliveryConfig(max_attempts=1)


@pytest.mark.parametrize("verb", ["nack", "suspend"])
def test_what_was_given_back_and_is_then_forwarded_had_no_further_attempt(verb: str) -> None:
    rig = EngineRig()
    rig.send("m1")
    (one,) = rig.receive(push=True)
    failure = Failure("TimeoutError", "bank") if verb == "nack" else None
    handle = rig.engine.change_invisible(
        "billing", one.handle, 5_000, rig.now_ms, suspend=verb == "suspend", failure=failure
    )
    rig.advance(1_000)
    rig.engine.forward("billing", handle, rig.now_ms)
    letter = newest_letter(rig.engine, "billing", "m1")
    outcome = Outcome.NACK if verb == "nack" else Outcome.SUSPENDED
    assert [(a.outcome, a.ended_ms - a.started_ms) for a in letter.attempts] == [(outcome, 0)]
    assert letter.attempt_count == (verb == "nack")
    assert letter.failure == failure


def test_a_letter_of_a_dead_letter_topics_reader_keeps_its_lives() -> None:
    rig = EngineRig(delivery=ONE_ATTEMPT)
    rig.send("m1")
    rig.engine.forward("billing", rig.receive()[0].handle, rig.now_ms)
    for life in range(3):
        (one,) = rig.receive("auditors", topic="%DLQ%billing")
        rig.now_ms += 1
        rig.engine.forward("auditors", one.handle, rig.now_ms)
        letter = rig.engine.dead.get("auditors", life)
        assert (letter.redrive_count, [a.life for a in letter.attempts]) == (
            life, list(range(1, life + 2)),
        )  # fmt: skip
        assert letter.origin_topic == "%DLQ%billing"
        rig.engine.dead.redrive("auditors", life, "", rig.now_ms)
        rig.crash()


def test_a_pull_of_dead_letters_gives_those_that_are_there() -> None:
    rig = EngineRig()
    names = [f"m{n}" for n in range(8)]
    rig.send(*names)
    for one in rig.receive():
        rig.engine.forward("billing", one.handle, rig.now_ms)
    rig.engine.dead.drop("billing", [0, 1, 2, 5], rig.now_ms)
    rig.engine.dead.redrive("billing", 3, "", rig.now_ms)
    rig.crash()
    rows, following = rig.engine.queues.pull("%DLQ%billing", 0, 0, 2)
    assert [(row.queue_offset, row.sys) for row in rows] == [(4, b"m4"), (6, b"m6")]
    rows, end = rig.engine.queues.pull("%DLQ%billing", 0, following, 2)
    assert ([row.sys for row in rows], end) == ([b"m7"], 8)


def test_a_full_disk_does_not_keep_the_other_work_of_a_tick() -> None:
    """No room for the reference of a delayed message; the end of a wait needs none."""
    rig = EngineRig(files=(files := MemoryFiles()))
    late = [f"late-{n}" for n in range(20)]
    rig.send(*late, wait_ms=500)
    rig.send("waits")
    (one,) = rig.receive()
    rig.engine.change_invisible("billing", one.handle, 500, rig.now_ms, suspend=True)
    files.disk.capacity_bytes = 0
    until_full(lambda n: rig.send("filler", topic="filler", body=b"x" * 60_000))
    until_full(lambda n: rig.engine.ensure_group(f"filler-{n}", rig.now_ms))
    rig.now_ms += 500
    with pytest.raises(StoreFullError):
        rig.engine.tick(rig.now_ms)
    assert rig.engine._state.leases.count(State.READY) == 1
    files.disk.capacity_bytes = None
    rig.advance(0)
    assert sorted(rig.names()) == sorted([*late, "waits"])


def test_a_redriven_letter_is_not_taken_for_a_message_of_the_topic_made_anew() -> None:
    rig = EngineRig()
    rig.engine.topics.create("orders", TopicType.MIXED, 1, rig.now_ms)
    rig.send("old")
    rig.engine.forward("billing", rig.receive()[0].handle, rig.now_ms)
    rig.engine.topics.delete("orders", rig.now_ms)
    rig.engine.topics.create("orders", TopicType.MIXED, 1, rig.now_ms)
    rig.send("new")
    rig.engine.dead.redrive("billing", 0, "", rig.now_ms)
    old, new = sorted(rig.receive(), key=lambda one: one.sys, reverse=True)
    assert (old.sys, new.sys) == (b"old", b"new")
    rig.ack(new)
    (found,), _ = rig.engine.messages.by_id("new", "orders")
    assert [life.state for life in rig.engine.lives.life(found).groups] == [LifeState.DONE]


def test_of_two_ids_with_one_hash_the_right_one_is_meant() -> None:
    """The record has the hash of one id, and the other: as if the two had one hash."""
    rig = EngineRig()
    stored = Outgoing(topic="orders", rest=b"", sys=b"\x1a\x05other", message_id="wanted")
    rig.engine.send([stored._replace(deliver_at_ms=rig.now_ms + 500), stored], rig.now_ms)
    assert waits_of(rig.engine, "wanted") == []
    with pytest.raises(MessageNotFoundError):
        rig.engine.pending.cancel("wanted", rig.now_ms)
    rig.engine.forward("billing", rig.receive()[0].handle, rig.now_ms)
    one_of = DeadFilter(message_ids=frozenset({"wanted"}), state=None)
    assert rig.engine.dead.scan("billing", one_of).letters == ()


@pytest.mark.parametrize("end", ["killed", "checkpointed and killed", "stopped"])
def test_a_repeated_ack_or_forward_is_fine_over_a_restart(end: str) -> None:
    rig = EngineRig()
    rig.send("m1", "m2", "m3", "m4")
    one, two, three, late = rig.receive(lease_ms=10_000)
    rig.ack(one, two)
    rig.engine.forward("billing", three.handle, rig.now_ms)
    before = rig.engine._state.recently_done.snapshot()
    if end == "stopped":
        rig.restart()
    else:
        if end != "killed":
            rig.checkpoint()
        rig.crash()
    assert rig.engine._state.recently_done.snapshot() == before
    assert rig.ack(one, two, late) == [True, True, True]
    rig.engine.forward("billing", three.handle, rig.now_ms)
    assert rig.engine.ack("other", [one.handle], rig.now_ms) != [None]
    rig.advance(10_000)
    assert rig.ack(one, three) == [False, False]


def test_golden_section_of_what_is_done() -> None:
    """Never changes: a new version adds a decoder and a second literal."""
    done = RecentlyDone(10)
    done.remember((5, 6), 2, DeliveryKey(3, 4, 1), 1_000)
    section = done.snapshot()
    assert section == bytes.fromhex(
        "0100000001000000" + "e803000000000000" + "02000000" + "03000000" + "04000000"
        "02000000" + "0500000000000000" + "0600000000000000"
    )
    again = RecentlyDone(10)
    again.restore(section)
    assert again.snapshot() == section
    assert again.holds(6, 2, (3, 0), 999)
