"""Old segments go; what waits, is held, or is kept longer goes along to the end of the log."""

from dataclasses import replace
from pathlib import Path

import pytest

from latermq_broker.config.config import DeliveryConfig, StoreConfig
from latermq_broker.engine.state.model import DeadFilter, DeadState, Failure, PendingFilter
from latermq_broker.errors import CorruptRecordError
from latermq_broker.store.offline.inspect import scan_directory, verify_directory
from latermq_broker.store.records.record import RecordType
from latermq_broker.store.records.retention_records import decode_drop
from support.engine_facts import waits_of
from support.engine_rig import EngineRig, short_store
from support.memory_files import MemoryFiles, lose_checkpoints
from support.mended import repair_log
from support.recount import check_uses

DIRECTORY = EngineRig.DIRECTORY
HOUR_MS = 3_600_000
BODY = b"x" * 1_000


def rig_with(store: StoreConfig | None = None, *, max_attempts: int = 17) -> EngineRig:
    delivery = DeliveryConfig(max_attempts=max_attempts)
    return EngineRig(store=store or short_store(), delivery=delivery)


def fill(rig: EngineRig, segments: int = 3, *, topic: str = "filler") -> None:
    """Messages that nobody needs, until the log has so many segments more."""
    wanted = len(rig.engine.store.log.segments) + segments
    while len(rig.engine.store.log.segments) < wanted:
        rig.send("f", topic=topic, body=BODY)
    rig.checkpoint()


def expire(rig: EngineRig) -> None:
    """Age what is there, and let go."""
    rig.advance(60_000)
    rig.retain()
    check_uses(rig.engine)


def restarted(rig: EngineRig, *, checkpoints: bool = True) -> None:
    """Crash; the state that comes back counts as a recount, and the log verifies."""
    rig.engine.write()
    rig.engine.abandon()
    files = rig.files
    assert isinstance(files, MemoryFiles)
    if not checkpoints:
        for path in [path for path in files.inodes if path.suffix == ".ckpt"]:
            del files.inodes[path]
    assert verify_directory(Path("/data"), files).ok
    rig.engine = rig.reopened()
    assert rig.engine.recovery is not None
    assert rig.engine.recovery.rebuilt is not checkpoints
    check_uses(rig.engine)


def test_segments_nobody_needs_go_once_they_are_old_and_a_checkpoint_knows() -> None:
    rig = rig_with()
    fill(rig)
    before = rig.segments()
    rig.advance(50_000)
    rig.retain()
    assert rig.segments() == before  # not old enough
    rig.advance(60_000)
    assert rig.segments() == before  # dropped, but no checkpoint says so
    assert rig.engine.retention.segments_dropped == 3
    rig.checkpoint()
    assert rig.segments() == before[3:]
    assert rig.engine.store.log.start == before[3] + 64
    (ends,) = rig.engine.topics.describe("filler").queues
    assert 0 < ends.earliest_offset < ends.next_offset
    retention = rig.engine.retention
    assert retention.trims.entries_expired == ends.earliest_offset
    assert retention.trims.entries_expired_unread == 0  # nobody was to read them
    assert retention.bytes_dropped == before[3]


def test_retention_0_keeps_for_ever() -> None:
    rig = rig_with(short_store(retention_ms=0))
    fill(rig)
    rig.advance(1_000 * HOUR_MS)
    rig.retain()
    assert len(rig.segments()) == 4
    assert rig.engine.next_deadline_ms() is None


def test_other_ages_hold_as_soon_as_they_are_set() -> None:
    """Settings read again: nothing waited for an age of its own, so nobody looked."""
    forever, short = short_store(retention_ms=0), short_store()
    rig = rig_with(forever)
    fill(rig)
    rig.advance(1_000 * HOUR_MS)
    rig.retain()
    assert rig.engine.next_deadline_ms() is None
    before = rig.engine.config
    rig.engine.reconfigure(replace(before, store=short))
    assert rig.engine.next_deadline_ms() is not None
    rig.retain()
    rig.checkpoint()
    assert len(rig.segments()) == 1
    rig.engine.reconfigure(before)
    fill(rig)
    kept = rig.segments()
    rig.advance(1_000 * HOUR_MS)
    rig.retain()
    rig.checkpoint()
    assert rig.segments() == kept


def test_a_group_goes_on_with_what_is_left() -> None:
    rig = rig_with()
    rig.send("old", topic="orders", body=BODY)
    rig.engine.ensure_group("billing", rig.now_ms)
    first = rig.receive()
    rig.ack(*first)
    fill(rig, topic="orders")
    expire(rig)
    rig.send("new")
    ends = rig.engine.queues.ends("orders", 0)
    left = [one.queue_offset for _ in range(10) for one in rig.receive()]
    assert left == list(range(ends.earliest_offset, ends.next_offset))
    assert rig.engine.retention.trims.entries_expired_unread == ends.earliest_offset - 1


def test_a_log_over_its_size_loses_its_oldest() -> None:
    rig = rig_with(short_store(retention_ms=0, retention_bytes=64 << 10))
    fill(rig, 8)
    rig.retain()
    assert len(rig.engine.store.log.segments) == 4
    assert rig.engine.retention.segments_dropped == 5
    check_uses(rig.engine)
    restarted(rig)


def test_delayed_messages_are_rolled_forward_and_come_on_time() -> None:
    rig = rig_with()
    sent = rig.send("tomorrow", "also", wait_ms=24 * HOUR_MS, body=b"precious", tag="a")
    pending_ids = {one.pending_id for one in sent}
    fill(rig)
    sent_ms = rig.now_ms
    for _ in range(3):
        expire(rig)
        fill(rig)
    assert rig.engine.retention.roll_forward.messages_moved >= 6
    (waiting,) = rig.engine.pending.count(PendingFilter())
    assert waiting.count == 2
    items, _ = rig.engine.pending.page(PendingFilter(), 10)
    assert [item.stored_ms for item in items] == [items[0].stored_ms] * 2
    assert items[0].stored_ms <= sent_ms
    assert {item.pending_id for item in items} == pending_ids  # producers keep them
    assert set(waits_of(rig.engine, "also")) < pending_ids
    restarted(rig)
    rig.engine.pending.postpone(items[0].pending_id, rig.now_ms + 25 * HOUR_MS, rig.now_ms)
    fill(rig)
    expire(rig)
    restarted(rig, checkpoints=False)
    rig.advance(24 * HOUR_MS)
    assert [one.rest for one in rig.receive()] == [b"precious"]
    rig.advance(2 * HOUR_MS)
    (other,) = [one for one in rig.receive() if one.attempt == 1]
    assert other.rest == b"precious"


def test_what_came_due_lately_is_as_young_as_its_coming() -> None:
    rig = rig_with()
    rig.send("late", wait_ms=59_000, body=b"precious")
    fill(rig)
    expire(rig)  # its message is old, its entry is not
    assert rig.engine.retention.segments_dropped >= 3
    restarted(rig)
    restarted(rig, checkpoints=False)
    assert [(one.rest, one.queue_offset) for one in rig.receive()] == [(b"precious", 0)]


def test_leased_messages_and_retries_with_their_history_are_rolled_forward() -> None:
    rig = rig_with(max_attempts=3)
    rig.send("failing", "held", body=b"precious")
    failing, _ = rig.receive("billing", lease_ms=10 * HOUR_MS)
    failure = Failure("ValueError", "bad", "", "")
    handle = rig.engine.change_invisible(
        "billing", failing.handle, 5 * HOUR_MS, rig.now_ms, failure=failure
    )
    rig.engine.change_invisible("billing", handle, 9 * HOUR_MS, rig.now_ms)
    fill(rig)
    expire(rig)
    assert rig.engine.retention.roll_forward.histories_moved == 1
    assert rig.engine.retention.roll_forward.messages_moved == 2
    fill(rig)
    expire(rig)
    assert rig.engine.retention.roll_forward.histories_moved == 2
    restarted(rig)
    restarted(rig, checkpoints=False)
    rig.advance(9 * HOUR_MS)
    (again,) = rig.receive("billing", lease_ms=1_000)
    assert (again.attempt, again.rest) == (2, b"precious")
    fill(rig)
    rig.advance(1_000)
    for _ in range(10):
        rig.receive("billing", lease_ms=1_000)
        rig.advance(1_000)
    letters = rig.engine.dead.scan("billing", DeadFilter()).letters
    story = next(one for one in letters if one.sys == b"failing")
    assert [one.attempt for one in story.attempts] == [1, 2, 3]
    assert story.attempts[0].failure == failure
    assert story.attempts[0].client_id == "client-1"


def dead_letter(rig: EngineRig, name: str) -> None:
    rig.send(name, body=b"precious")
    (one,) = [one for one in rig.receive() if one.sys == name.encode()]
    rig.engine.forward("billing", one.handle, rig.now_ms, Failure("Bad", "no", "", ""))
    rig.engine.write()


def test_dead_letters_have_their_own_time() -> None:
    rig = rig_with(short_store(dead_letter_retention_ms=HOUR_MS))
    for name in ("kept", "redriven", "gone"):
        dead_letter(rig, name)
    rig.engine.dead.drop("billing", [2], rig.now_ms)
    fill(rig)
    expire(rig)
    dead_letter(rig, "younger")
    rig.engine.dead.redrive("billing", 1, "", rig.now_ms)
    fill(rig)
    expire(rig)
    restarted(rig)
    restarted(rig, checkpoints=False)
    everything = rig.engine.dead.scan("billing", DeadFilter(state=None)).letters
    assert [(one.sys.decode(), one.state) for one in everything] == [
        ("kept", DeadState.DEAD),
        ("redriven", DeadState.REDRIVEN),
        ("gone", DeadState.DROPPED),
        ("younger", DeadState.DEAD),
    ]
    assert [one.rest for one in rig.receive()] == [b"precious"]
    fill(rig)
    rig.advance(2 * HOUR_MS)
    rig.retain()
    check_uses(rig.engine)
    assert rig.engine.dead.scan("billing", DeadFilter(state=None)).letters == ()
    assert rig.engine.groups.describe("billing").dead_letter_count == 0
    restarted(rig)


def test_a_letter_that_moved_between_two_drops_comes_back_without_a_checkpoint() -> None:
    """The log still has the state of the first drop, and not the record of the letter."""
    rig = rig_with(short_store(dead_letter_retention_ms=HOUR_MS))
    fill(rig)
    rig.advance(30_000)
    for name in ("a", "b"):
        dead_letter(rig, name)
    fill(rig)
    rig.advance(40_000)
    rig.retain()
    first = rig.segments()[0]
    assert first > 0
    fill(rig)
    rig.advance(25_000)
    rig.retain()
    bases = [
        record
        for record in scan_directory(DIRECTORY, rig.files)
        if record.type is RecordType.DROP and decode_drop(record.payload).start
    ]
    assert rig.segments()[0] > first
    assert len(bases) == 2
    rig.engine.write()
    files = rig.files
    assert isinstance(files, MemoryFiles)
    for path in [path for path in files.inodes if path.suffix == ".cq"]:
        del files.inodes[path]  # as in a directory made of the log alone
    restarted(rig, checkpoints=False)
    letters = rig.engine.dead.scan("billing", DeadFilter()).letters
    assert [one.sys.decode() for one in letters] == ["a", "b"]


def test_a_letter_redriven_to_a_topic_keeps_its_bytes() -> None:
    rig = rig_with(short_store(dead_letter_retention_ms=30_000))
    dead_letter(rig, "back")
    fill(rig)
    rig.advance(20_000)
    rig.engine.topics.create("again", rig.engine.catalog.topics()[0].type, 1, rig.now_ms)
    rig.engine.dead.redrive("billing", 0, "again", rig.now_ms)
    rig.advance(41_000)
    rig.retain()
    check_uses(rig.engine)
    assert rig.engine.queues.ends("%DLQ%billing", 0).earliest_offset == 1
    restarted(rig)
    assert [one.rest for one in rig.receive("other", topic="again")] == [b"precious"]


def test_a_segment_that_is_much_needed_stays_and_all_behind_it() -> None:
    rig = rig_with()
    rig.send(*(f"m{n}" for n in range(6)), wait_ms=24 * HOUR_MS, body=BODY)
    fill(rig)
    expire(rig)
    assert rig.engine.retention.segments_kept > 0
    assert rig.engine.retention.segments_dropped == 0
    assert rig.engine.retention.roll_forward.messages_moved == 0
    assert rig.segments()[0] == 0
    rig.advance(24 * HOUR_MS)
    fill(rig)
    expire(rig)
    expire(rig)
    assert rig.engine.retention.segments_dropped >= 6
    assert rig.engine.retention.roll_forward.messages_moved == 0


def test_what_is_deleted_needs_nothing() -> None:
    rig = rig_with()
    rig.send("m", "n", wait_ms=24 * HOUR_MS)
    rig.send("held", "letter", topic="orders")
    (_, letter) = rig.receive(lease_ms=HOUR_MS)
    rig.engine.forward("billing", letter.handle, rig.now_ms)
    rig.engine.topics.delete("orders", rig.now_ms)
    rig.engine.topics.delete("%DLQ%billing", rig.now_ms)
    check_uses(rig.engine)
    fill(rig)
    expire(rig)
    assert rig.engine.retention.roll_forward.messages_moved == 0
    assert rig.engine.retention.segments_dropped == 3
    restarted(rig, checkpoints=False)
    rig.advance(25 * HOUR_MS)
    assert rig.engine.pending.count(PendingFilter()) == []


def test_a_lost_segment_is_told_from_a_dropped_one() -> None:
    rig = rig_with()
    fill(rig, 4)
    rig.advance(60_000)
    rig.retain()
    fill(rig, 3)
    rig.engine.close(rig.now_ms)
    files = rig.files
    assert isinstance(files, MemoryFiles)
    first = min(path for path in files.inodes if path.suffix == ".seg")
    assert int(first.stem) > 0
    assert verify_directory(Path("/data"), files).ok
    kept = bytes(files.inodes[first].data)
    before = files.disk.snapshot()
    del files.inodes[first]
    for checkpoints in (True, False):
        if not checkpoints:
            for path in [path for path in files.inodes if path.suffix == ".ckpt"]:
                del files.inodes[path]
        expected = first.name if checkpoints else f"{0:020d}.seg"  # the DROP record lay in it
        with pytest.raises(CorruptRecordError, match=f"{expected} is missing before"):
            rig.reopened()
        files.disk.kill()
        report = verify_directory(Path("/data"), files)
        assert [damage.reason.split()[5] for damage in report.damages] == [expected]
    assert [path for path in before if path not in files.inodes and path.suffix != ".ckpt"] == [
        first
    ]
    files.disk.replace(first, kept)
    assert verify_directory(Path("/data"), files).ok
    rig.reopened().abandon()


def test_a_drop_that_lost_a_part_accounts_for_nothing() -> None:
    """Repaired, the log starts: what the lost state stood for is given up, not missed."""
    rig = rig_with()
    for number in range(12):  # their names alone are more than one part
        rig.send("m", topic=f"{number:02}-{'long-' * 40}")
    fill(rig, 4)
    expire(rig)
    fill(rig, 3)
    rig.engine.close(rig.now_ms)
    files = rig.files
    assert isinstance(files, MemoryFiles)
    lose_checkpoints(files)
    drops = [
        (record, drop)
        for record in scan_directory(DIRECTORY, files)
        if record.type is RecordType.DROP and (drop := decode_drop(record.payload)).parts > 1
    ]
    spoilt = next(record for record, drop in reversed(drops) if drop.part == 0)
    segments = [one for one in files.inodes if one.suffix == ".seg"]
    path = max(one for one in segments if int(one.stem) <= spoilt.position)
    files.inodes[path].data[spoilt.position - int(path.stem) + spoilt.length - 1] ^= 1
    repaired = repair_log(DIRECTORY, files, rig.config, rig.now_ms)
    assert sorted(loss.position for loss in repaired.losses) == [0, spoilt.position]
    assert verify_directory(DIRECTORY, files).ok
    rig.engine = rig.reopened()
    rig.send("again", topic="filler")
    assert "again" in rig.names(topic="filler")


def test_damage_keeps_its_segment() -> None:
    rig = rig_with()
    (sent,) = rig.send("m", wait_ms=24 * HOUR_MS, body=b"to be damaged")
    fill(rig)
    files = rig.files
    assert isinstance(files, MemoryFiles)
    data = files.disk.bytes_of(Path("/data/log") / f"{0:020d}.seg")
    data[data.index(b"to be damaged", sent.position)] ^= 1
    rig.advance(61_000)
    rig.retain()
    assert rig.segments()[0] == 0
    assert rig.engine.retention.segments_kept > 0


def test_replay_from_the_older_checkpoint_goes_through_the_drop() -> None:
    rig = rig_with()
    rig.send("tomorrow", wait_ms=24 * HOUR_MS, body=b"precious")
    rig.receive()
    fill(rig)
    rig.checkpoint()
    rig.advance(60_000)
    for _ in range(60):
        rig.advance(100)
    rig.checkpoint()
    assert rig.segments()[0] > 0
    rig.engine.abandon()
    files = rig.files
    assert isinstance(files, MemoryFiles)
    newest = max(path for path in files.inodes if path.suffix == ".ckpt")
    files.inodes[newest].data[100] ^= 1
    rig.engine = rig.reopened()
    check_uses(rig.engine)
    assert rig.engine.store.log.start > 64
    rig.advance(24 * HOUR_MS)
    assert [one.rest for one in rig.receive()] == [b"precious"]


def test_dump_reads_what_retention_wrote() -> None:
    rig = rig_with()
    rig.send("tomorrow", wait_ms=24 * HOUR_MS)
    fill(rig)
    expire(rig)
    rig.engine.close(rig.now_ms)
    counts = verify_directory(Path("/data"), rig.files).records
    assert counts[RecordType.MOVE] == 1
    assert counts[RecordType.DROP] >= 2
