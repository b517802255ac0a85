"""A receipt of another life of the log: of a copy that went on beside it, with lives as many."""

from copy import copy

import pytest

from latermq_broker.engine.state.model import Delivered
from latermq_broker.errors import InvalidReceiptHandleError, MessageNotFoundError
from support.engine_rig import EngineRig
from support.memory_files import MemoryFiles, lose_checkpoints


def copies(*, checkpoint: bool) -> tuple[EngineRig, EngineRig]:
    """A log, and a copy of it: what a backup restores, a snapshot, or another machine's log."""
    rig = EngineRig()
    rig.send("before")
    rig.ack(*rig.receive())
    rig.checkpoint()
    assert isinstance(rig.files, MemoryFiles)
    other = copy(rig)
    other.files = MemoryFiles(rig.files.disk.clone())
    if not checkpoint:
        lose_checkpoints(other.files)
    rig.crash()
    other.engine = other.reopened()
    assert rig.engine.store.log.epoch == other.engine.store.log.epoch
    return rig, other


def lent(rig: EngineRig) -> Delivered:
    (one,) = rig.receive(lease_ms=60_000)
    return one


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_receipt_of_another_life_ends_nothing(checkpoint: bool) -> None:
    lost, restored = copies(checkpoint=checkpoint)
    for rig in (lost, restored):
        rig.send("after")
    old, new = lent(lost), lent(restored)
    assert (old.queue_offset, old.attempt) == (new.queue_offset, new.attempt)
    engine, now_ms = restored.engine, restored.now_ms
    assert isinstance(engine.ack("billing", [old.handle], now_ms)[0], InvalidReceiptHandleError)
    with pytest.raises(InvalidReceiptHandleError):
        engine.forward("billing", old.handle, now_ms)
    with pytest.raises(InvalidReceiptHandleError):
        engine.change_invisible("billing", old.handle, 600_000, now_ms)
    restored.advance(60_000)  # whoever had it died
    assert restored.names() == ["after"]


def test_a_receipt_from_before_the_copy_is_good_in_both() -> None:
    rig = EngineRig()
    rig.send("m")
    held = lent(rig)
    rig.crash()
    assert rig.ack(held) == [True]


def test_ids_of_a_life_grow_and_begin_below_those_of_the_next() -> None:
    rig = EngineRig()
    ids: list[int] = []
    for number in range(4):
        rig.send(f"m{number}")
        lent(rig)
        ids.append(max(rig.engine._state.leases.deliveries))
        rig.crash()
    assert ids == sorted(ids)
    assert [id >> 40 for id in ids] == [0, 1, 2, 3]


def test_a_recall_handle_of_another_life_cancels_nothing() -> None:
    lost, restored = copies(checkpoint=True)
    (old,) = lost.send("old", wait_ms=60_000)
    (new,) = restored.send("new", wait_ms=60_000)
    assert (old.position, old.due_ms) == (new.position, new.due_ms)
    with pytest.raises(MessageNotFoundError):
        restored.engine.pending.cancel(old.pending_id, restored.now_ms, topic="orders")
    assert lost.engine.pending.cancel(old.pending_id, lost.now_ms).sys == b"old"
    older_name = new.pending_id.rpartition("-")[0]  # as earlier versions named it
    assert restored.engine.pending.cancel(older_name, restored.now_ms).sys == b"new"
