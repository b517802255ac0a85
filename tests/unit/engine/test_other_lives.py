"""A receipt of another life of the log: of a copy that went on beside it, with lives as many."""

from copy import copy

import pytest

from latermq_broker.delivery.halves import HalfEvent
from latermq_broker.engine.state.lives import LIVES_MAX
from latermq_broker.engine.state.model import Delivered, Outgoing
from latermq_broker.errors import (
    InvalidReceiptHandleError,
    InvalidTransactionIdError,
    MessageNotFoundError,
    StoreFullError,
)
from latermq_broker.store.offline.inspect import scan_directory
from latermq_broker.store.records.record import RecordType
from support.driven_standby import DrivenStandby, ShippedLog
from support.engine_rig import EngineRig, short_store, until_full
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
    return rig.receive(lease_ms=60_000)[0]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_receipt_of_another_life_ends_nothing(checkpoint: bool) -> None:
    lost, restored = copies(checkpoint=checkpoint)
    for rig in (lost, restored):
        rig.send("after")
    old, new = lent(lost), lent(restored)
    assert (old.queue_offset, old.attempt) == (new.queue_offset, new.attempt)
    assert {*lost.engine._state.leases.deliveries}.isdisjoint(
        restored.engine._state.leases.deliveries
    )
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


def test_a_transaction_of_another_life_ends_nothing() -> None:
    lost, restored = copies(checkpoint=True)
    (old,), (new,) = (
        rig.engine.transactions.send([Outgoing("orders", b"x", name.encode(), name)], rig.now_ms)
        for rig, name in ((lost, "old"), (restored, "new"))
    )
    assert old.position == new.position
    engine, now_ms = restored.engine, restored.now_ms
    older_name = old.transaction_id.rpartition("-")[0]  # as earlier versions named it
    for name in (old.transaction_id, older_name, "old"):
        for message_id in ("", "old"):
            with pytest.raises(InvalidTransactionIdError):
                engine.transactions.end("orders", name, message_id, HalfEvent.COMMIT, now_ms)
    for change in (engine.pending.cancel, engine.pending.commit):
        with pytest.raises(MessageNotFoundError):
            change(old.transaction_id, now_ms)
    assert engine.transactions.end("orders", older_name, "new", HalfEvent.COMMIT, now_ms)
    assert lost.engine.pending.commit(old.transaction_id, lost.now_ms).sys == b"old"
    for rig, name in ((lost, "old"), (restored, "new")):
        assert name in rig.names()
        rig.crash()
    assert engine is not restored.engine
    with pytest.raises(InvalidTransactionIdError):
        restored.engine.transactions.end("orders", older_name, "old", HalfEvent.COMMIT, now_ms)


def branched(
    how: str, *, checkpoint: bool, rig: EngineRig | None = None
) -> tuple[EngineRig, EngineRig, Delivered]:
    """A log with one lent message, which goes on; a copy of it, which begins a life of its own."""
    if rig is None:
        rig = EngineRig()
        rig.send("m1")
    held = lent(rig)
    if checkpoint:
        rig.checkpoint()
    rig.engine.write()
    assert isinstance(rig.files, MemoryFiles)
    other = copy(rig)
    other.files = MemoryFiles(rig.files.disk.clone())
    other.engine = other.reopened()
    if how != "live":  # else it is a backup of a running broker, which ran on
        rig.crash()
    return rig, other, held


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("how", ["live", "started again"])
@pytest.mark.parametrize("change", ["expired", "nacked", "given back", "extended"])
def test_what_both_lend_again_has_a_receipt_for_each(
    change: str, how: str, checkpoint: bool
) -> None:
    lost, restored, held = branched(how, checkpoint=checkpoint)
    told: list[str] = []
    for rig in (lost, restored):
        if change == "extended":
            told.append(rig.engine.change_invisible("billing", held.handle, 90_000, rig.now_ms))
            continue
        if change != "expired":
            suspend = change == "given back"
            rig.engine.change_invisible(
                "billing", held.handle, 1_000, rig.now_ms, suspend=suspend, repeatable=True
            )
        rig.advance(60_000)
        told.append(lent(rig).handle)
    old, new = told
    engine, now_ms = restored.engine, restored.now_ms
    assert isinstance(engine.ack("billing", [old], now_ms)[0], InvalidReceiptHandleError)
    with pytest.raises(InvalidReceiptHandleError):
        engine.forward("billing", old, now_ms)
    for repeatable, extends in ((False, False), (True, False), (False, True)):
        with pytest.raises(InvalidReceiptHandleError):
            engine.change_invisible(
                "billing", old, 600_000, now_ms, repeatable=repeatable, extends=extends
            )
    restored.restart()
    assert restored.engine.ack("billing", [new], restored.now_ms) == [None]
    lost.crash()
    assert lost.engine.ack("billing", [old], lost.now_ms) == [None]
    later = restored.engine.ack("billing", [old], restored.now_ms)  # the message is done here
    assert isinstance(later[0], InvalidReceiptHandleError)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_receipt_that_both_know_is_good_in_both(checkpoint: bool) -> None:
    for rig in (pair := branched("live", checkpoint=checkpoint))[:2]:
        rig.restart()
        rig.crash()
        assert rig.ack(pair[2]) == [True]
        assert rig.ack(pair[2]) == [True]  # told again


@pytest.mark.parametrize("verb", ["nack", "give back"])
def test_a_nack_is_known_in_later_lives_after_others_had_the_message(verb: str) -> None:
    rig = EngineRig()
    rig.send("m1")
    held = lent(rig)

    def again() -> str:
        return rig.engine.change_invisible(
            "billing", held.handle, 1_000, rig.now_ms, suspend=verb != "nack", repeatable=True
        )

    again()
    for _ in range(3):
        rig.crash()
        rig.advance(60_000)
        assert len(rig.receive(lease_ms=1_000)) == 1
        assert again() == held.handle


def test_each_life_has_a_stride_of_its_own_live_and_restored() -> None:
    rig = EngineRig()
    rig.send("m1")
    strides: list[int] = []
    for number in range(4):
        strides.append(rig.engine._state.leases.stride)
        if number % 2:
            rig.checkpoint()
        rig.crash()
    assert len(set(strides)) == len(strides)
    assert all(stride & 1 for stride in strides)


async def test_a_deposed_owner_and_its_standby_give_different_receipts() -> None:
    rig = EngineRig()
    shipped = ShippedLog(rig.engine.store.log)
    rig.send("m1")
    held = lent(rig)
    rig.engine.write()
    driven = DrivenStandby(shipped, rig.config, MemoryFiles(), lambda: rig.now_ms)
    driven.catch_up()
    heir = copy(rig)
    heir.engine, _ = await driven.standby.begin_life()
    for each in (rig, heir):
        each.advance(30_000)
        assert each.engine.change_invisible(
            "billing", held.handle, 60_000, each.now_ms, extends=True
        )
        each.advance(60_000)
    old, new = lent(rig), lent(heir)
    assert isinstance(
        heir.engine.ack("billing", [old.handle], heir.now_ms)[0], InvalidReceiptHandleError
    )
    assert heir.ack(new) == [True]


def life_of(rig: EngineRig, offset: int) -> int:
    """Find the life that the entry at an offset is of, as a reader does."""
    lives = rig.engine.queues.lives("orders", 0)
    return [0, *(life for begin, life in lives if begin <= offset)][-1]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_readers_can_tell_which_life_an_entry_is_of(checkpoint: bool) -> None:
    rig = EngineRig()
    rig.send("at once")  # in the millisecond in which the life began
    rig.advance(1)
    rig.send("m1", "m2")
    rig.advance(1)
    before = [life_of(rig, offset) for offset in range(3)]
    assert before[0] == 0
    assert before[1] == before[2] == rig.engine._state.leases.stride
    lost, restored, _ = branched("live", checkpoint=checkpoint, rig=rig)
    for each in (lost, restored):
        each.advance(1)
        each.send("m3")
        each.advance(1)
        each.restart()
        assert [life_of(each, offset) for offset in range(3)] == before
    assert len({life_of(lost, 3), life_of(restored, 3), before[1]}) == 2
    assert life_of(lost, 3) == before[1]


def test_a_bounded_number_of_lives_is_remembered() -> None:
    rig = EngineRig()
    for number in range(LIVES_MAX + 3):
        rig.advance(1)
        rig.send(f"m{number}")
        rig.advance(1)
        rig.crash()
    rig.advance(1)
    rig.send("last")
    lives = [life_of(rig, offset) for offset in range(LIVES_MAX + 4)]
    assert lives[:4] == [0] * 4
    assert len(set(lives[4:])) == LIVES_MAX
    assert len(rig.engine.queues.lives("orders", 0)) <= 2 * LIVES_MAX


def test_a_life_that_begins_without_room_is_written_before_all_it_writes() -> None:
    rig = EngineRig(files=(files := MemoryFiles()), store=short_store())
    rig.send("m1", "m2")
    held = rig.receive(count=1, lease_ms=60_000)[0]
    rig.engine.store.log.row.prepare_spare()
    files.disk.capacity_bytes = files.disk.used_bytes
    until_full(lambda n: rig.engine.ensure_group(f"g{n}", rig.now_ms))
    rig.crash()
    stride, end = rig.engine._state.leases.stride, rig.engine.store.log.end
    with pytest.raises(StoreFullError):
        rig.receive()
    assert (rig.engine.store.log.end, rig.engine._state.leases.stride) == (end, stride)
    files.disk.capacity_bytes = None
    rig.engine.store.look_at_disk()
    new = rig.receive(lease_ms=60_000)[0]
    written = [one.type for one in scan_directory(rig.DIRECTORY, files) if one.position >= end]
    assert written[:2] == [RecordType.BLANK, RecordType.LIFE]
    assert rig.engine._state.leases.stride != stride
    rig.crash()
    assert rig.ack(held, new) == [True, True]
