"""Deliveries in checkpoints: columns, copied or picked, and the rows that older versions wrote."""

import struct

import pytest

from latermq_broker.delivery.leases.lease import Delivery, State
from latermq_broker.engine.checkpoint.leases_section import pack_leases, restore_leases
from latermq_broker.engine.checkpoint.snapshot import restore, snapshot
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import UnsupportedFormatError
from support.engine_rig import EngineRig

_OLD_ROW = struct.Struct("<QQqQQQQQQIIIIHHBBBx")


def various() -> EngineRig:
    """Deliveries in every state, of two groups, with two tags; and rows that are free again."""
    rig = EngineRig()
    for number in range(20):
        rig.send(f"m{number}", tag="ab"[number % 2], body=b"x" * number)
    rig.receive("shipping", lease_ms=50_000, push=True)
    rig.ack(*rig.receive(count=5, lease_ms=10))
    delivered = rig.receive(count=10, lease_ms=10, client="client-2")
    rig.engine.change_invisible("billing", delivered[0].handle, 60_000, rig.now_ms, suspend=True)
    rig.advance(10)  # nine are ready
    rig.receive(count=2, lease_ms=30_000, client="client-3")
    rig.engine.write()
    return rig


def facts(state: EngineState) -> object:
    return (
        {id: one.key() for id, one in state.leases.deliveries.items()},
        {key: one.counts for key, one in state.subscriptions.items() if any(one.counts.values())},
        {
            key: [delivery.id for delivery in one.ready]
            for key, one in state.subscriptions.items()
            if any(one.counts.values())
        },
        list(state.leases.deadlines.in_order()),
        {client: state.leases.renewed_by(client) for client in ("client-1", "client-2")},
        {base: use.deliveries for base, use in state.uses._uses.items() if use.deliveries},
    )


def fresh(rig: EngineRig) -> EngineState:
    state = EngineState(rig.engine.store, rig.config)
    state.catalog.restore(rig.engine._state.catalog.snapshot())
    return state


def test_the_copy_is_the_same() -> None:
    rig = various()
    state = fresh(rig)
    before = rig.engine._state
    assert {delivery.state for delivery in before.leases.deliveries.values()} == {
        State.READY,
        State.LEASED,
        State.BACKOFF,
    }
    restore_leases(state, pack_leases(before))
    assert facts(state) == facts(before)
    assert len(state.leases.slab.holders) == len(before.leases.slab.holders)


def test_free_rows_are_left_out_when_they_are_many() -> None:
    rig = various()
    before = rig.engine._state
    slab = before.leases.slab
    few = len(pack_leases(before))
    for _ in range(slab.rows * 8):
        slab.take()
    for row in range(slab.rows - 100, slab.rows):
        slab.give(row)
    sparse = pack_leases(before)
    assert len(sparse) <= few
    state = fresh(rig)
    restore_leases(state, sparse)
    assert facts(state) == facts(before)
    assert state.leases.slab.rows < slab.rows / 4


def test_a_newer_format_is_refused_before_anything_changes() -> None:
    rig = various()
    state = fresh(rig)
    section = bytearray(pack_leases(rig.engine._state))
    section[0] = 9
    with pytest.raises(UnsupportedFormatError, match="have format 9, this version reads 1"):
        restore_leases(state, bytes(section))
    assert not len(state.leases.deliveries)


def old_row(delivery: Delivery) -> bytes:
    return _OLD_ROW.pack(
        delivery.id, delivery.position, delivery.offset, delivery.tag_hash, delivery.deadline_ms,
        delivery.leased_ms, delivery.client, delivery.last_attempt, delivery.first_attempt,
        delivery.group_id, delivery.topic_id, delivery.length, delivery.generation,
        delivery.queue_id, delivery.attempt, delivery.state, delivery.auto_renew,
        delivery.renewals,
    )  # fmt: skip


def test_the_rows_of_older_versions_are_read() -> None:
    rig = various()
    before = rig.engine._state
    sections = snapshot(before)
    del sections["leases"]
    deliveries = list(before.leases.deliveries.values())
    held = [one for one in deliveries if one.state is not State.READY]
    ready = [one for subscription in before.subscriptions.values() for one in subscription.ready]
    sections["deliveries"] = b"".join(map(old_row, [*held, *ready]))
    state = EngineState(rig.engine.store, rig.config)
    restore(state, sections)
    assert facts(state) == facts(before)


def test_a_start_from_the_checkpoint_gives_what_was_there() -> None:
    rig = various()
    before = facts(rig.engine._state)
    rig.checkpoint()
    rig.crash()
    assert facts(rig.engine._state) == before
