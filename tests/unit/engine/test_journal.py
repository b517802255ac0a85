"""A record that our own state cannot take must not stop every later start."""

import pytest

from latermq_broker.errors import StoreBusyError, StoreReadOnlyError
from latermq_broker.store.records.record import RecordType
from support.engine_rig import EngineRig


def test_a_record_that_cannot_be_applied_is_never_written() -> None:
    rig = EngineRig()
    rig.send("m1")
    with pytest.raises(KeyError):
        rig.engine._journal.write(RecordType.ACK, (999,), rig.now_ms)  # nobody's delivery
    with pytest.raises(StoreReadOnlyError):
        rig.send("m2")
    with pytest.raises(StoreReadOnlyError):
        rig.engine.write()
    rig.engine.abandon()
    rig.engine = rig.reopened()
    assert rig.names() == ["m1"]


def test_nor_is_the_group_it_belongs_to() -> None:
    rig = EngineRig()
    (sent,) = rig.send("m1")
    items = [(RecordType.CLIENT, "somebody"), (RecordType.ACK, (999,))]
    with pytest.raises(KeyError):
        rig.engine._journal.write_group(items, rig.now_ms)
    with pytest.raises(StoreReadOnlyError):
        rig.engine.write()
    rig.engine.abandon()
    rig.engine = rig.reopened()
    assert rig.engine._state.clients.position("somebody") is None
    assert rig.engine.store.log.read(sent.position).type is RecordType.MESSAGE


def test_nor_is_one_whose_queue_can_no_longer_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that is told in the log and not in the state would give its ids to others."""
    rig = EngineRig()
    rig.send("m1")
    rig.checkpoint()
    rig.crash()
    files = rig.engine.store.queue_files
    read, times = files.read, iter((True, False))

    def once(topic_id: int, queue_id: int, number: int, count: int, offset: int) -> bytes:
        if next(times):
            return read(topic_id, queue_id, number, count, offset)
        raise StoreBusyError("Too many open files")

    monkeypatch.setattr(files, "read", once)
    with pytest.raises(StoreBusyError):
        rig.receive()
    monkeypatch.undo()
    with pytest.raises(StoreReadOnlyError, match=r"at a record \(Too many open files\); restart"):
        rig.receive()
    rig.engine.abandon()
    rig.engine = rig.reopened()
    assert rig.names() == ["m1"]
