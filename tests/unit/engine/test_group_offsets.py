"""UpdateOffset and GetOffset on the engine: what they move, and what they leave alone."""

import pytest

from latermq_broker.delivery.order import fifo
from latermq_broker.delivery.order.fifo import FifoGate
from latermq_broker.engine.state.model import OnDead, Outgoing
from latermq_broker.store.records.catalog_records import (
    OFFSET_MOVED,
    OFFSET_REWIND,
    OFFSET_SKIP,
    OffsetPayload,
    decode_offset,
    encode_offset,
)
from latermq_broker.store.records.record import RecordType
from support.engine_facts import facts
from support.engine_rig import EngineRig


class OffsetRig(EngineRig):
    def __init__(self, *, fifo: bool, on_dead: OnDead = OnDead.SKIP) -> None:
        super().__init__()
        self.engine.groups.create(
            "billing", fifo=fifo, max_attempts=0, backoff=None, on_dead=on_dead, now_ms=self.now_ms
        )

    def put(self, *names: str) -> None:
        """`a1` is of message group `a`."""
        messages = [
            Outgoing("orders", b"x", name.encode(), name, message_group=name[0]) for name in names
        ]
        self.engine.send(messages, self.now_ms)
        self.engine.write()

    def told(self) -> int | None:
        return self.engine.queues.committed("billing", "orders", 0)

    def commit(self, offset: int) -> None:
        self.engine.queues.commit("billing", "orders", 0, offset, self.now_ms)
        self.engine.write()

    def same_after_a_crash(self) -> None:
        before = facts(self.engine)
        self.crash()
        assert facts(self.engine) == before


def test_to_commit_the_offset_that_was_told_changes_nothing_of_what_is_held() -> None:
    rig = OffsetRig(fifo=True)
    rig.put("a1", "a2", "b1", "a3", "a4", "a5")
    (first, second) = rig.receive(count=2, single_file=True)
    assert [first.sys, second.sys] == [b"a1", b"b1"]
    rig.ack(second)
    assert rig.names() == []
    assert rig.told() == 1  # a2 is the oldest that was not given
    rig.commit(1)
    rig.same_after_a_crash()
    assert rig.ack(first) == [True]
    assert rig.names() == ["a2", "a3", "a4", "a5"]
    assert rig.told() == 6


def test_forwards_skips_what_was_not_given_and_leaves_what_is_in_hand() -> None:
    rig = OffsetRig(fifo=True)
    rig.put("a1", "a2", "a3", "a4")
    (first,) = rig.receive(count=1)
    rig.names()
    rig.commit(2)
    assert rig.told() == 2
    rig.same_after_a_crash()
    assert rig.names() == []  # blocked still
    assert rig.ack(first) == [True]
    assert rig.names() == ["a3", "a4"]


def test_forwards_leaves_leases_and_retries() -> None:
    rig = OffsetRig(fifo=False)
    rig.put("a1", "a2", "a3", "a4")
    first, second = rig.receive(count=2)
    rig.commit(4)
    rig.same_after_a_crash()
    assert (rig.told(), rig.ack(first), rig.names()) == (4, [True], [])
    rig.advance(1_000)
    assert [(one.sys, one.attempt) for one in rig.receive()] == [(second.sys, 2)]


@pytest.mark.parametrize("fifo", [True, False])
def test_backwards_ends_leases_and_retries_from_there_on(fifo: bool) -> None:
    rig = OffsetRig(fifo=fifo)
    rig.put("a1", "b1", "c1", "d1")
    kept, leased, retried, _ = rig.receive()
    rig.engine.change_invisible("billing", retried.handle, 60_000, rig.now_ms, suspend=True)
    rig.commit(1)
    rig.same_after_a_crash()
    assert rig.told() == 1
    assert rig.ack(leased, retried) == [False, False]
    again = rig.receive()
    assert [(one.sys, one.attempt) for one in again] == [(b"b1", 1), (b"c1", 1), (b"d1", 1)]
    assert rig.ack(kept, *again) == [True] * 4  # in hand all the while
    rig.advance(10_000)
    assert rig.names() == []


def test_backwards_gives_what_is_held_once() -> None:
    rig = OffsetRig(fifo=True)
    rig.put("a1", "a2", "a3", "b1")
    (first,) = rig.receive(count=1)
    assert rig.names() == ["b1"]
    rig.commit(0)
    rig.same_after_a_crash()
    assert rig.ack(first) == [False]
    assert rig.names() == ["a1", "a2", "a3", "b1"]


def test_backwards_leaves_parked_what_is_parked() -> None:
    rig = OffsetRig(fifo=True, on_dead=OnDead.PARK)
    rig.put("a1", "a2", "b1")
    (first,) = rig.receive(count=1)
    rig.engine.forward("billing", first.handle, rig.now_ms)
    assert rig.names() == ["b1"]
    assert rig.told() == 1
    rig.commit(1)  # no more than was told
    rig.same_after_a_crash()
    assert rig.names() == []
    rig.engine.dead.drop("billing", [0], rig.now_ms)
    assert rig.names() == ["a2"]


def test_a_commit_of_a_group_that_never_read_is_where_it_begins() -> None:
    rig = OffsetRig(fifo=True)
    rig.put("a1", "a2")
    assert rig.told() is None
    rig.commit(1)
    rig.same_after_a_crash()
    assert rig.told() == 1
    assert rig.names() == ["a2"]


def test_what_earlier_versions_wrote_means_what_it_meant() -> None:
    """The act of theirs is 0: of what is in hand they left everything."""
    rig = OffsetRig(fifo=False)
    rig.put("a1", "a2")
    first, _ = rig.receive()
    group = rig.engine.catalog.require_group("billing")
    payload = OffsetPayload(group.id, 1, 0, 0)
    assert b"".join(encode_offset(payload))[10:16] == bytes(6)
    rig.engine._journal.write(RecordType.OFFSET, payload, rig.now_ms)
    rig.same_after_a_crash()
    assert rig.names() == ["a1", "a2"]
    assert rig.ack(first) == [True]


def test_an_offset_record_has_its_act() -> None:
    golden = bytes.fromhex("01000000 02000000 0300 02 0000000000 0400000000000000")
    payload = OffsetPayload(1, 2, 3, 4, OFFSET_REWIND)
    assert b"".join(encode_offset(payload)) == golden
    assert decode_offset(golden) == payload
    assert [OFFSET_MOVED, OFFSET_SKIP, OFFSET_REWIND] == [0, 1, 2]


def test_the_first_that_is_held_is_known_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of many message groups that hold and let go, without a memory of all that ever was."""
    monkeypatch.setattr(fifo, "_STALE_FIRSTS_MIN", 4)
    gate = FifoGate()
    assert gate.first_held(0) is None
    for offset in range(60):
        gate.hold(offset % 3, 0, offset)
        gate.hold(100 + offset % 3, 1, offset)
    for offset in range(60):
        assert gate.first_held(0) == offset
        if offset % 4 == 0:
            gate.unhold(offset % 3, offset)
        else:
            gate.trim(0, offset + 1)
        assert all(len(firsts) <= 2 * 6 + 5 for firsts in gate._firsts.values())
    assert (gate.first_held(0), gate.first_held(1), gate.first_held(2)) == (None, 0, None)
    gate.hold(7, 0, 100)
    assert gate.first_held(0) == 100
