"""Which message a delivery is of: told by the delivery, whatever became of its queue entry."""

import struct
from collections.abc import Callable
from typing import Final

import pytest

from latermq_broker.delivery.leases.shared import Origin
from latermq_broker.delivery.section import FORMAT
from latermq_broker.engine.checkpoint.leases_section import pack_leases, restore_leases
from latermq_broker.engine.state.model import DeadFilter, DeadState, OnDead, Outgoing, TopicType
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import PreconditionFailedError
from latermq_broker.store.records.letter_records import (
    RedrivePayload,
    decode_redrive,
    encode_redrive,
)
from latermq_broker.store.records.record import RecordType
from support.engine_facts import facts
from support.engine_rig import EngineRig, short_store

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS


def rig_with_topics(*topics: str) -> EngineRig:
    rig = EngineRig(store=short_store(retention_ms=MINUTE_MS))
    for topic in topics:
        rig.engine.topics.create(topic, TopicType.NORMAL, 1, rig.now_ms)
    return rig


def die(rig: EngineRig, group: str = "billing", topic: str = "orders") -> None:
    for one in rig.receive(group, topic=topic, lease_ms=HOUR_MS):
        rig.engine.forward(group, one.handle, rig.now_ms)
    rig.engine.write()


def expire(rig: EngineRig, topic: str, first: int) -> None:
    for step in range(80):
        if step == 40:
            rig.advance(2 * MINUTE_MS)
        rig.send("f", topic="filler", body=b"x" * 1_000)
    rig.retain()
    assert rig.engine.queues.ends(topic, 0).earliest_offset == first


def redrive(rig: EngineRig, group: str, letter: int = 0, to_topic: str = "") -> None:
    rig.engine.dead.redrive(group, letter, to_topic, rig.now_ms)
    rig.engine.write()


def again(rig: EngineRig) -> None:
    """The state comes back from the log, and from a checkpoint."""
    for checkpoint in (False, True):
        if checkpoint:
            rig.checkpoint()
        known = facts(rig.engine)
        rig.crash()
        assert facts(rig.engine) == known


@pytest.mark.parametrize("reads_the_first", [False, True])
def test_a_copy_whose_queue_entry_expired_dies_where_it_was_read(reads_the_first: bool) -> None:
    rig = rig_with_topics("first", "second")
    rig.send("m", topic="first")
    die(rig, "first-group", "first")
    if reads_the_first:
        rig.ack(*rig.receive("second-group", topic="first"), group="second-group")
    redrive(rig, "first-group", to_topic="second")
    (held,) = rig.receive("second-group", topic="second", lease_ms=HOUR_MS)
    expire(rig, "second", 1)
    again(rig)
    rig.engine.forward("second-group", held.handle, rig.now_ms)
    (letter,) = rig.engine.dead.scan("second-group", DeadFilter()).letters
    assert (letter.origin_topic, letter.origin_offset) == ("second", 0)
    assert letter.redrive_count == 1
    redrive(rig, "second-group")
    again(rig)
    assert rig.names("second-group", topic="first") == []
    assert rig.names("second-group", topic="second") == ["m"]


def test_a_group_that_reads_its_own_letters_remembers_their_redrives() -> None:
    rig = rig_with_topics("orders")
    rig.send("m")
    die(rig)
    die(rig, "billing", "%DLQ%billing")
    redrive(rig, "billing", 1)
    die(rig, "billing", "%DLQ%billing")
    letters = rig.engine.dead.scan("billing", DeadFilter(state=None)).letters
    assert [letter.redrive_count for letter in letters] == [0, 0, 1]
    assert [letter.origin_topic for letter in letters] == ["orders", "%DLQ%billing", "%DLQ%billing"]
    assert letters[2].origin_offset == letters[1].origin_offset == 0
    assert [attempt.life for attempt in letters[2].attempts] == [1, 2]


def anew(type: TopicType) -> Callable[[EngineRig], None]:
    def make(rig: EngineRig) -> None:
        rig.engine.topics.delete("orders", rig.now_ms)
        rig.engine.topics.create("orders", type, 1, rig.now_ms)
        rig.engine.write()

    return make


@pytest.mark.parametrize(
    "between",
    [
        EngineRig.crash,
        EngineRig.checkpoint,
        anew(TopicType.FIFO),
        anew(TopicType.PRIORITY),
    ],
    ids=["killed", "checkpoint", "fifo", "priority"],
)
def test_two_letters_of_one_message_are_two_messages_of_who_reads_letters(
    between: Callable[[EngineRig], object],
) -> None:
    rig = rig_with_topics("orders")
    rig.send("m")
    die(rig)
    rig.engine.queues.commit("billing", "orders", 0, 0, rig.now_ms)
    die(rig)
    die(rig, "undertaker", "%DLQ%billing")
    between(rig)
    for letter in (0, 1):
        redrive(rig, "undertaker", letter)
        with pytest.raises(PreconditionFailedError, match="was redriven already"):
            redrive(rig, "undertaker", letter)
    again(rig)
    held = rig.receive("undertaker", topic="%DLQ%billing")
    assert sorted(one.queue_offset for one in held) == [0, 1]
    assert {one.sys for one in held} == {b"m"}
    assert rig.ack(*held, group="undertaker") == [True, True]


def test_a_message_of_a_topic_made_anew_keeps_its_identity() -> None:
    rig = rig_with_topics("orders")
    rig.send("m0", "m1")
    die(rig)
    rig.engine.queues.commit("billing", "orders", 0, 0, rig.now_ms)
    die(rig)
    former = rig.engine.catalog.require_topic("orders").id
    anew(TopicType.NORMAL)(rig)
    rig.send("n0", "n1")
    redrive(rig, "billing", 1)
    with pytest.raises(PreconditionFailedError, match="has this message in hand"):
        redrive(rig, "billing", 3)
    (delivery,) = rig.engine._state.leases.deliveries.values()
    assert (delivery.origin, delivery.redrive) == (Origin(former, 0, 1), 1)
    again(rig)
    die(rig)
    (letter,) = rig.engine.dead.scan("billing", DeadFilter(queue_offsets=frozenset({4}))).letters
    assert (letter.sys, letter.redrive_count) == (b"m1", 1)
    redrive(rig, "billing", 4)
    (delivery,) = rig.engine._state.leases.deliveries.values()
    assert (delivery.origin, delivery.redrive) == (Origin(former, 0, 1), 2)


def test_a_copy_that_was_kept_and_never_given_was_not_ready_before() -> None:
    rig = rig_with_topics("first")
    rig.engine.topics.create("orders", TopicType.FIFO, 1, rig.now_ms)
    rig.engine.groups.create(
        "billing", fifo=True, max_attempts=0, backoff=None, on_dead=OnDead.PARK, now_ms=rig.now_ms
    )
    for topic in ("orders", "first"):
        rig.engine.send([Outgoing(topic, b"x", b"m", "m", message_group="a")], rig.now_ms)
    die(rig, "other", "first")
    die(rig)  # it parks its message group
    redrive(rig, "other", to_topic="orders")
    assert rig.names() == []
    expire(rig, "orders", 2)
    again(rig)
    (kept,) = rig.engine._state.leases.deliveries.values()
    assert (kept.origin.offset, kept.redrive) == (1, 0)
    assert rig.engine._attempts.ready_since_ms(kept) == 0


def older_section(section: bytes) -> bytes:
    """The same deliveries as format 1 had them."""
    _, rows, places, holders, ready = struct.unpack_from("<IIIII", section)
    head = struct.pack("<IIIII4x", FORMAT - 1, rows, places, holders, ready)
    kept = b"".join(
        section[at : at + 10] + b"\0\0" + section[at + 12 : at + 32]
        for at in range(24, 24 + 40 * places, 40)
    )
    return head + kept + section[24 + 40 * places :]


def test_an_older_checkpoint_is_read_by_the_letters() -> None:
    rig = rig_with_topics("orders")
    rig.send("m0", "m1")
    die(rig)
    anew(TopicType.NORMAL)(rig)
    rig.send("n0")
    redrive(rig, "billing", 0)
    rig.receive(lease_ms=HOUR_MS)
    redrive(rig, "billing", 1)
    before = rig.engine._state
    state = EngineState(rig.engine.store, rig.config)
    state.catalog.restore(before.catalog.snapshot())
    restore_leases(state, older_section(pack_leases(before)))
    assert {id: (one.key(), one.origin) for id, one in state.leases.deliveries.items()} == {
        id: (one.key(), one.origin) for id, one in before.leases.deliveries.items()
    }
    assert sorted(one.redrive for one in state.leases.deliveries.values()) == [0, 1, 1]


REDRIVE: Final = RedrivePayload(8, 0x400, 4, 10, 3, 5, 6, 1, 222, 2, 13, 9, 7, 2)
GOLDEN: Final = (
    "0800000000000000 0004000000000000 0400000000000000 0a00000000000000 0300000000000000"
    "05000000 06000000 01000000 de000000 0200 0000 0d00000000000000 09000000 0700 0200"
)


def test_a_redrive_says_of_what() -> None:
    payload = bytes.fromhex(GOLDEN)
    assert b"".join(encode_redrive(REDRIVE)) == payload
    assert decode_redrive(memoryview(payload)) == REDRIVE


@pytest.mark.parametrize("ordered", [False, True])
def test_a_redrive_of_an_older_version_says_it_by_its_letter(ordered: bool) -> None:
    rig = rig_with_topics("orders")
    rig.send("m")
    die(rig)
    former = rig.engine.catalog.require_topic("orders").id
    anew(TopicType.NORMAL)(rig)
    redrive(rig, "billing")
    rig.engine.write()
    (delivery,) = rig.engine._state.leases.deliveries.values()
    old = REDRIVE._replace(
        order_key=13 * ordered, origin_topic_id=0, origin_queue_id=0, redrive=0,
        letter=delivery.position, group_id=delivery.group_id, topic_id=delivery.topic_id,
        dlq_topic_id=rig.engine.catalog.require_topic("%DLQ%billing").id, letter_offset=0,
        origin_offset=0, queue_id=0, id=delivery.id + 1,
    )  # fmt: skip
    payload = b"".join(encode_redrive(old))
    assert decode_redrive(payload) == old
    journal = rig.engine.dead._journal
    journal.write(RecordType.REDRIVE, old, rig.now_ms)
    added = rig.engine._state.leases.deliveries[old.id]
    assert (added.origin, added.redrive) == (Origin(former, 0, 0), 1)
    assert rig.engine.dead.get("billing", 0).state is DeadState.REDRIVEN
