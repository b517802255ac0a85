"""Lite topics behind a record that an operator gave up: whichever it is, the rest is there."""

from dataclasses import replace

import pytest

from latermq_broker.config.config import LiteConfig
from latermq_broker.delivery.failure import Failure
from latermq_broker.engine.catalog.lites import Begin, Beginning
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import Delivered
from latermq_broker.store.offline.inspect import scan_directory
from latermq_broker.store.records.lite_records import LITE_CURSOR, LITE_EXPIRED, decode_lite
from latermq_broker.store.records.message_records import message_slices
from latermq_broker.store.records.record import Record, RecordType
from support.engine_facts import facts
from support.engine_rig import short_store
from support.memory_files import MemoryFiles
from support.mended import repair_log
from support.recount import recount_lossy
from unit.engine.test_lite import LiteRig, named

SECOND_MS = 1_000
SENT = {"i0", "a0", "a1", "a2", "a3", "a4", "b0", "b1", "b2", "c0", "c1", "c2"}
UNDONE = {"a1", "a2", "a3", "a4", "b2"}
LITE_TOPICS = ("a", "b", "c", "idle")


class DamagedRig(LiteRig):
    """A life with every kind of record that lite topics have; then one of them is given up."""

    files: MemoryFiles

    def live(self) -> None:
        self.config = replace(self.config, lite=LiteConfig(topic_idle_ms_max=60 * SECOND_MS))
        self.crash()
        self.make()
        self.tell("idle", "i0")
        self.advance(30 * SECOND_MS)
        self.tell("a", "a0", "a1", "a2", "a3")
        self.tell("b", "b0", "b1", "b2")
        self.tell("c", "c0", "c1")
        first = {one.sys.decode(): one for one in self.hear("a", "b", "c")}
        self.ack(first["a0"], first["b0"], group="agents")
        self.engine.change_invisible(
            "agents",
            first["a1"].handle,
            SECOND_MS,
            self.now_ms,
            failure=Failure("ValueError", "bad", "", ""),
        )
        self.engine.forward("agents", first["b1"].handle, self.now_ms)
        self.engine.write()
        group = self.engine.catalog.require_group("agents")
        self.engine.lites.begin(group, ["c"], Beginning(Begin.END), self.now_ms)
        self.tell("c", "c2")
        self.advance(40 * SECOND_MS)  # the idle one expires
        self.tell("a", "a4")
        self.ack(*self.hear("c"), group="agents")
        log = self.engine.store.log
        self.engine.write()
        log.synced(log.sync())
        log.mark(self.now_ms)
        self.engine.write()
        self.engine.abandon()

    def records(self) -> list[Record]:
        return list(scan_directory(self.DIRECTORY, self.files))

    def give_up(self, record: Record) -> None:
        """Spoil it, and repair; from now on nothing expires."""
        self.config = replace(self.config, lite=LiteConfig())
        [path] = [path for path in self.files.inodes if path.suffix == ".seg"]
        offset = record.position - int(path.stem) + record.length - 1
        self.files.inodes[path].data[offset] ^= 1
        done = repair_log(self.DIRECTORY, self.files, self.config, self.now_ms)
        assert [loss.position for loss in done.losses] == [record.position]
        self.engine = self.reopened()


def all_of(rig: DamagedRig, group: str) -> list[Delivered]:
    """Everything that a group gets, acknowledged."""
    found: list[Delivered] = []
    for _ in range(10):
        rig.advance(10 * SECOND_MS)
        delivered = rig.hear(*LITE_TOPICS, group=group)
        rig.ack(*delivered, group=group)
        found += delivered
    return found


def sound(rig: DamagedRig) -> Engine:
    """By replay, and from a checkpoint: it is the same."""
    assert rig.engine._state.uses.facts() == recount_lossy(rig.engine)
    for checkpoint in (False, True):
        if checkpoint:
            rig.checkpoint()
        before = facts(rig.engine)
        rig.crash()
        assert facts(rig.engine) == before
    return rig.engine


def places() -> list[int]:
    rig = DamagedRig()
    rig.live()
    return list(range(len(rig.records()) - 1))  # a mark at the end is a torn write


def sent_in(record: Record) -> set[str]:
    """The message whose bytes the record holds."""
    if record.type is not RecordType.MESSAGE:
        return set()
    _, sys = message_slices(bytes(record.payload))
    return {bytes(sys).decode()}


def test_the_life_has_every_kind_of_record() -> None:
    rig = DamagedRig()
    rig.live()
    kinds = {record.type for record in rig.records()}
    assert {RecordType.LITE, RecordType.LEASE_ORDERED, RecordType.DEAD, RecordType.ACK} <= kinds
    lite = [
        decode_lite(bytes(one.payload)).kind for one in rig.records() if one.type is RecordType.LITE
    ]
    assert set(lite) == {LITE_CURSOR, LITE_EXPIRED}


@pytest.mark.parametrize("index", places())
def test_any_one_record_given_up(index: int) -> None:
    """A group that reads from the begin gets every message whose own record is there, and the
    group everything that it was not done with."""
    rig = DamagedRig()
    rig.live()
    record = rig.records()[index]
    rig.give_up(record)
    engine = sound(rig)
    lost = sent_in(record)
    if engine.catalog.topic("chat") is None:
        return  # the record that made it is lost: its messages have another name now
    engine.lites.bind("new", "chat", rig.now_ms)
    if engine.catalog.group("agents") is not None:
        got = set(named(all_of(rig, "agents")))
        assert UNDONE - lost <= got
        assert got <= SENT
    assert SENT - {"i0"} - lost <= set(named(all_of(rig, "new")))
    rig.tell("a", "a5")
    rig.tell("idle", "i1")
    assert set(named(all_of(rig, "new"))) == {"a5", "i1"}
    sound(rig)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_beginning_is_kept_when_its_record_goes(checkpoint: bool) -> None:
    """Retention lets go of the segment with the LITE record; where the group goes on is known."""
    rig = LiteRig(store=short_store(retention_ms=60 * SECOND_MS))
    rig.make()
    rig.tell("a", "a0", "a1", body=b"x" * 1_000)
    group = rig.engine.catalog.require_group("agents")
    rig.engine.lites.begin(group, ["a"], Beginning(Begin.END), rig.now_ms)
    rig.tell("a", "a2", body=b"x" * 1_000)
    [held] = rig.hear("a")
    assert held.sys == b"a2"
    rig.engine.change_invisible("agents", held.handle, 3_600 * SECOND_MS, rig.now_ms)
    for _ in range(3):
        rig.tell("filler", *(f"f{number}" for number in range(20)), body=b"x" * 1_000)
        rig.advance(61 * SECOND_MS)
    rig.tell("a", "a3")
    rig.retain()
    assert RecordType.LITE not in {one.type for one in scan_directory(rig.DIRECTORY, rig.files)}
    before = facts(rig.engine)
    if checkpoint:
        rig.checkpoint()
    rig.crash()
    assert facts(rig.engine) == before
    assert rig.hear("a") == []  # a3 waits for what is still held, which was rolled forward
    rig.advance(3_600 * SECOND_MS)
    assert named(rig.hear("a")) == ["a2", "a3"]


def test_behind_a_lost_topic_a_group_that_only_asked_leaves_one_that_can_be_read() -> None:
    rig = DamagedRig()
    rig.engine.ensure_topic("orders", rig.now_ms)
    rig.engine.ensure_group("billing", rig.now_ms)
    assert rig.names() == []
    log = rig.engine.store.log
    log.synced(log.sync())
    log.mark(rig.now_ms)
    rig.engine.write()
    rig.engine.abandon()
    made = next(record for record in rig.records() if record.type is RecordType.CONFIG)
    rig.give_up(made)
    [topic] = rig.engine.catalog.topics()
    assert topic.queue_count == 1
    assert rig.engine.topics.describe(topic.name).groups == ("billing",)
    rig.send("m", topic=topic.name)
    assert rig.names(topic=topic.name) == ["m"]
