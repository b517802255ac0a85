"""A full disk: sends are refused and leave no trace, everything else goes on in what was kept."""

import pytest

from latermq_broker.engine.state.model import Failure
from latermq_broker.errors import StoreFullError
from latermq_broker.store.files import Space
from support.engine_rig import EngineRig, short_store
from support.memory_files import MemoryFiles
from support.recount import check_uses

BODY = b"x" * 1_000


def full_rig() -> tuple[EngineRig, MemoryFiles]:
    """Not a byte free; 20 messages to be received; the spare is kept."""
    rig = EngineRig(files=(files := MemoryFiles()), store=short_store())
    rig.send(*(f"m{n}" for n in range(20)))
    rig.engine.store.log.row.prepare_spare()
    files.disk.capacity_bytes = files.disk.used_bytes
    return rig, files


def until_refused(rig: EngineRig) -> int:
    for count in range(1_000):
        try:
            rig.send(f"taken-{count}", topic="other", body=BODY)
        except StoreFullError:
            return count
    pytest.fail("it is never full")


def test_sends_are_refused_and_consumers_drain() -> None:
    rig, files = full_rig()
    taken = until_refused(rig)
    segments = len(rig.engine.store.log.segments)
    failure = Failure("ValueError", "bad", "", "")
    for number, one in enumerate(held := rig.receive(lease_ms=1_000)):
        if number % 4 == 0:
            rig.engine.change_invisible("billing", one.handle, 500, rig.now_ms, failure=failure)
        elif number % 4 == 1:
            rig.engine.forward("billing", one.handle, rig.now_ms, failure)  # whole copies
    rig.engine.write()
    assert len(held) == 20
    rig.advance(1_000)
    again = rig.receive(lease_ms=100)
    assert len(again) == 15
    assert rig.ack(*again) == [True] * 15
    with pytest.raises(StoreFullError, match="disk full: need 32,768 bytes free, there are 0"):
        rig.send("refused", topic="new")
    assert len(rig.engine.store.log.segments) == segments + 1
    spare = rig.engine.store.log.segments[-1]
    assert spare.size == rig.config.store.segment_bytes // 2
    assert spare.path.suffix == ".seg"
    check_uses(rig.engine)

    rig.crash()
    check_uses(rig.engine)
    assert rig.engine.catalog.topic("new") is None
    assert len(rig.names(topic="other")) == taken
    assert rig.names() == []
    files.disk.capacity_bytes = None
    rig.send("again")
    assert rig.names() == ["again"]


def test_sends_of_one_second_leave_room_for_a_checkpoint() -> None:
    """Nobody looked at the disk in between but the log itself, with each segment."""
    rig = EngineRig(files=(files := MemoryFiles()), store=short_store())
    files.disk.capacity_bytes = files.disk.used_bytes + 60 * rig.config.store.segment_bytes
    assert until_refused(rig)
    assert rig.engine.store.disk.full
    free = files.free_bytes(rig.DIRECTORY).free
    assert rig.config.store.segment_bytes <= free < rig.engine.store.disk.needed_bytes
    rig.checkpoint()


def test_a_refused_batch_never_appears() -> None:
    rig, _ = full_rig()
    until_refused(rig)
    end = rig.engine.store.log.end
    with pytest.raises(StoreFullError):
        rig.send("a", "b", "c", topic="other", body=BODY)
    assert rig.engine.store.log.end == end
    assert rig.engine.store.disk.sends_refused == 2
    rig.crash()
    assert not {"a", "b", "c"} & set(rig.names(topic="other"))


def test_the_spare_is_for_what_fits_into_it_and_for_no_send() -> None:
    rig, _ = full_rig()
    until_refused(rig)
    log = rig.engine.store.log
    with pytest.raises(StoreFullError):
        log.reserve([4_000, 4_000, 100], spare=True)  # half a segment is too small
    with pytest.raises(StoreFullError):
        log.reserve([1_000, 1_000])
    log.reserve([1_000, 1_000], spare=True)


def test_sends_are_taken_again_when_a_segment_could_be_prepared() -> None:
    rig, files = full_rig()
    until_refused(rig)
    log, disk = rig.engine.store.log, rig.engine.store.disk
    files.disk.capacity_bytes = None
    rig.engine.store.look_at_disk()
    assert disk.full
    log.prepare_next()
    disk.room()
    rig.send("again", topic="other")


def test_on_a_disk_nearly_full_goes_early_what_every_group_has_read() -> None:
    rig = EngineRig(store=short_store(retention_ms=86_400_000))
    for topic in ("read", "unread"):
        while rig.engine.store.log.end < (40 << 10 if topic == "read" else 75 << 10):
            rig.send("m", topic=topic, body=BODY)
    rig.engine.ensure_group("slow", rig.now_ms)
    while got := rig.receive("fast", topic="read"):
        rig.ack(*got, group="fast")
    rig.retain()
    assert rig.engine.retention.segments_dropped == 0
    rig.engine.store.disk.look(Space(8, 100))
    rig.receive("slow", topic="read", count=1)
    rig.retain()
    assert rig.engine.retention.segments_dropped == 0  # slow has not read it
    while got := rig.receive("slow", topic="read"):
        rig.ack(*got, group="slow")
    rig.advance(60_000)
    rig.retain()
    assert 1 <= rig.engine.retention.segments_dropped <= 2
    assert rig.engine.retention.early_drops == rig.engine.retention.segments_dropped
    assert rig.engine.queues.ends("unread", 0).earliest_offset == 0
    assert rig.engine.retention.trims.entries_expired_unread == 0
    check_uses(rig.engine)
