"""What a repair writes at the end of the log: from then on that alone tells a broker all."""

import pytest

from latermq_broker.catalog.catalog import TopicTimes, TopicType
from latermq_broker.engine.engine import Engine
from latermq_broker.errors import GivenUpError
from latermq_broker.offline.mending.closing import Ending, close_log
from latermq_broker.store.offline.inspect import scan_directory
from latermq_broker.store.offline.repair import repair_directory
from latermq_broker.store.records.record import Record, RecordType
from latermq_broker.store.records.retention_records import DROP_BASE, decode_drop
from latermq_broker.store.store import Store
from support.engine_facts import facts
from support.engine_rig import EngineRig, short_store
from support.memory_files import MemoryFiles, lose_checkpoints
from support.mended import repair_log
from support.recount import recount_lossy
from support.torn_files import TornFiles

DIRECTORY = EngineRig.DIRECTORY
HOUR_MS = 3_600_000


def stop(rig: EngineRig) -> MemoryFiles:
    """The process dies; all it did is on the medium, as the log says."""
    log = rig.engine.store.log
    rig.engine.write()
    log.synced(log.sync())
    log.mark(rig.now_ms)
    rig.engine.write()
    log.synced(log.sync())
    rig.engine.abandon()
    assert isinstance(rig.files, MemoryFiles)
    return rig.files


def spoil(files: MemoryFiles, record: Record) -> None:
    """Change the last byte of a record."""
    segments = [path for path in files.inodes if path.suffix == ".seg"]
    path = max(path for path in segments if int(path.stem) <= record.position)
    files.inodes[path].data[record.position - int(path.stem) + record.length - 1] ^= 1


def records(files: MemoryFiles, type: RecordType) -> list[Record]:
    return [record for record in scan_directory(DIRECTORY, files) if record.type is type]


def is_closed(files: MemoryFiles) -> bool:
    ending = Ending()
    for record in scan_directory(DIRECTORY, files):
        ending.look(record)
    return not ending.open


def bases(files: MemoryFiles) -> list[Record]:
    drops = records(files, RecordType.DROP)
    return [record for record in drops if decode_drop(record.payload).kind == DROP_BASE]


def refused(rig: EngineRig) -> int:
    """A start that is refused since records were given up; the position it tells."""
    store = Store.open(DIRECTORY, rig.config.store, rig.files, rig.now_ms)
    with pytest.raises(GivenUpError, match=r"run `latermq log repair .* again") as refusal:
        Engine.open(store, rig.config, rig.now_ms)
    store.abandon()
    return refusal.value.position


def test_a_log_that_was_not_closed_is_refused_and_can_be_closed() -> None:
    """As an earlier version, or one that died, left it."""
    rig = EngineRig()
    rig.send("one", "two")
    rig.receive(count=1)
    files = stop(rig)
    lose_checkpoints(files)
    [lease] = records(files, RecordType.LEASE_FRESH)
    spoil(files, lease)
    repair_directory(DIRECTORY, files, rig.now_ms, lambda record: {})
    for _ in range(2):
        assert refused(rig) == lease.position
    close_log(DIRECTORY, files, rig.config, rig.now_ms)
    assert len(bases(files)) == 1
    rig.engine = rig.reopened()
    assert rig.names() == ["one", "two"]


def test_a_state_larger_than_a_segment_gets_one_of_its_size() -> None:
    rig = EngineRig(store=short_store())
    for number in range(100):
        rig.send("m", topic=f"{number:03}-{'long-' * 40}")
    files = stop(rig)
    lose_checkpoints(files)
    spoil(files, records(files, RecordType.MESSAGE)[3])
    repair_log(DIRECTORY, files, rig.config, rig.now_ms)
    assert sum(record.length for record in bases(files)) > rig.config.store.segment_bytes
    for _ in range(2):
        lose_checkpoints(files)
        rig.engine = rig.reopened()
        assert len(rig.engine.catalog.topics()) == 100
        rig.engine.abandon()


def test_what_only_a_checkpoint_knew_is_kept_in_the_log() -> None:
    """The record is lost by which a delayed message entered its queue: it does not fire again."""
    rig = EngineRig()
    rig.send("late", wait_ms=HOUR_MS)
    rig.send("soon")
    rig.advance(HOUR_MS)
    rig.checkpoint()
    files = stop(rig)
    [ref] = records(files, RecordType.REF)
    spoil(files, ref)
    repair_log(DIRECTORY, files, rig.config, rig.now_ms)
    for _ in range(2):
        lose_checkpoints(files)
        rig.engine = rig.reopened()
        assert not len(rig.engine._state.timer)
        assert rig.engine._state.uses.facts() == recount_lossy(rig.engine)
        assert sorted(rig.names("new")) == ["late", "soon"]
        rig.advance(2 * HOUR_MS)
        assert sorted(rig.names("another")) == ["late", "soon"]
        rig.engine.write()
        rig.engine.abandon()


def test_what_has_fired_since_a_repair_does_not_fire_after_the_next() -> None:
    """The first repair's base alone tells that it waited: its own record is lost now."""
    rig = EngineRig(store=short_store())
    while len(rig.segments()) < 4:
        rig.send("old", body=b"x" * 1_000)
    rig.advance(55_000)
    rig.send("first", "late", "later", wait_ms=1_000)
    files = stop(rig)
    lose_checkpoints(files)
    *_, first, late, _ = records(files, RecordType.MESSAGE)
    spoil(files, first)
    repair_log(DIRECTORY, files, rig.config, rig.now_ms)
    rig.engine = rig.reopened()
    rig.advance(1_000)
    rig.retain()
    assert rig.segments()[0] > 0, "a replay has no state before it meets a newer base"
    stop(rig)
    lose_checkpoints(files)
    spoil(files, late)
    repair_log(DIRECTORY, files, rig.config, rig.now_ms)
    for _ in range(2):
        rig.engine = rig.reopened()
        rig.advance(1)
        assert rig.engine._state.uses.facts() == recount_lossy(rig.engine)
        assert not records(files, RecordType.TIMER), "it was taken for one that waits"
        rig.engine.write()
        rig.engine.abandon()
        lose_checkpoints(files)


def test_a_second_repair_goes_on_from_the_first() -> None:
    """Whether the new damage lies before what closed the log, or behind it."""
    rig = EngineRig()
    rig.send("one", "two", "three")
    rig.receive(count=2)
    files = stop(rig)
    lose_checkpoints(files)
    spoil(files, records(files, RecordType.LEASE_FRESH)[0])
    repair_log(DIRECTORY, files, rig.config, rig.now_ms)
    rig.engine = rig.reopened()
    rig.ack(*rig.receive(count=1))
    known = facts(rig.engine)
    stop(rig)
    lose_checkpoints(files)
    first, _, third = records(files, RecordType.MESSAGE)
    spoil(files, first)
    repair_log(DIRECTORY, files, rig.config, rig.now_ms)
    rig.engine = rig.reopened()
    assert {**facts(rig.engine), "index": 0} == {**known, "index": 0}
    rig.send("four")
    rig.receive(count=1)
    stop(rig)
    lose_checkpoints(files)
    for record in (records(files, RecordType.LEASE_FRESH)[-1], third):
        spoil(files, record)
    repair_log(DIRECTORY, files, rig.config, rig.now_ms)
    assert len(bases(files)) == 3
    for _ in range(2):
        lose_checkpoints(files)
        rig.engine = rig.reopened()
        assert rig.engine._state.uses.facts() == recount_lossy(rig.engine)
        rig.advance(5_000)
        assert {"two", "four"} <= set(rig.names())
        rig.engine.write()
        rig.engine.abandon()


@pytest.mark.parametrize("seed", range(3))
def test_power_lost_at_any_call_leaves_a_log_that_can_be_closed(seed: int) -> None:
    files = TornFiles()
    rig = EngineRig(files=files, store=short_store())
    for number in range(20):
        rig.send(f"m{number}", body=b"x" * 1_000)
    rig.send("late", wait_ms=HOUR_MS)
    rig.receive(count=5)
    stop(rig)
    spoil(files, records(files, RecordType.LEASE_FRESH)[0])
    repair_directory(DIRECTORY, files, rig.now_ms, lambda record: {})
    images: list[TornFiles] = []
    files.after_call = lambda: images.append(files.power_loss(seed * 1_000 + len(images)))
    close_log(DIRECTORY, files, rig.config, rig.now_ms)
    files.after_call = None
    rig.engine = rig.reopened()
    known = facts(rig.engine)
    assert len(images) > 20
    closed = 0
    for image in images:
        rig.files = image
        if is_closed(image):
            closed += 1
        else:
            refused(rig)
            close_log(DIRECTORY, image, rig.config, rig.now_ms)
        engine = rig.reopened()
        assert facts(engine) == known
        engine.abandon()
    assert 0 < closed < len(images)


def config_with(files: MemoryFiles, text: bytes) -> Record:
    """Find the first CONFIG record with a text."""
    found = (one for one in records(files, RecordType.CONFIG) if text in bytes(one.payload))
    return next(found)


def spoilt_at(files: MemoryFiles, record: Record, text: bytes) -> None:
    """Change the first byte of a text in a record."""
    segments = [path for path in files.inodes if path.suffix == ".seg"]
    path = max(path for path in segments if int(path.stem) <= record.position)
    data = files.inodes[path].data
    at = data.find(text, record.position - int(path.stem))
    assert 0 <= at < record.position - int(path.stem) + record.length
    data[at] ^= 4


@pytest.mark.parametrize(
    ("spot", "known"),
    [
        (b"{", "orders"),  # no JSON any more
        (b":1700", "orders"),
        (b'"type', "orders"),
        (b"orders", "krders"),
        (b'"name', ""),
        (b'","ordered', ""),
    ],
)
def test_a_topic_whose_record_is_damaged_keeps_the_name_that_it_still_has(
    spot: bytes, known: str
) -> None:
    rig = EngineRig(store=short_store())
    ages = TopicTimes(HOUR_MS)
    rig.engine.topics.create("orders", TopicType.MIXED, 3, rig.now_ms, ages)
    rig.send(*"abcdef")
    files = stop(rig)
    lose_checkpoints(files)
    topic = config_with(files, b"orders")
    spoilt_at(files, topic, spot)
    repair_log(DIRECTORY, files, rig.config, rig.now_ms)
    rig.engine = rig.reopened()
    (found,) = [one for one in rig.engine.catalog.topics() if not one.internal]
    assert found.name == (known or f"lost-topic-{found.id}")
    if known:
        assert found.retention_ms == HOUR_MS
        assert found.queue_count == 3
    assert sorted(rig.names("new", topic=found.name)) == list("abcdef")


def test_a_group_whose_record_is_damaged_keeps_its_name_and_what_it_has() -> None:
    rig = EngineRig(store=short_store())
    rig.send("a", "b")
    (one,) = rig.receive(count=1, lease_ms=HOUR_MS)
    files = stop(rig)
    lose_checkpoints(files)
    group = config_with(files, b"billing")
    spoilt_at(files, group, b"1")
    repair_log(DIRECTORY, files, rig.config, rig.now_ms)
    rig.engine = rig.reopened()
    assert rig.engine.catalog.group("billing") is not None
    assert rig.ack(one) == [True]
    assert rig.names() == ["b"]


def test_a_name_that_another_topic_has_is_not_believed() -> None:
    rig = EngineRig(store=short_store())
    rig.send("a", topic="orders")
    rig.send("b", topic="krders")
    files = stop(rig)
    lose_checkpoints(files)
    topic = config_with(files, b'"orders')
    spoilt_at(files, topic, b"orders")
    repair_log(DIRECTORY, files, rig.config, rig.now_ms)
    rig.engine = rig.reopened()
    assert rig.names("new", topic="krders") == ["b"]
    assert rig.names("new", topic=f"lost-topic-{1}") == ["a"]
