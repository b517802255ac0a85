"""The store as the engine sees it: start, replay, checkpoints, stop; and every refusal to start."""

import errno
from pathlib import Path
from typing import Final

import pytest
from xxhash import xxh3_64_intdigest

from latermq_broker.errors import (
    CorruptRecordError,
    DamagedQueueError,
    StoreError,
    StoreLockedError,
    StoreReadOnlyError,
    StoreUnusableError,
    UnsupportedFormatError,
)
from latermq_broker.store import consume_queue
from latermq_broker.store import store as store_module
from latermq_broker.store.record import RecordType
from latermq_broker.store.segment import SegmentHeader, encode_segment_header
from support.memory_files import MemoryFiles
from support.store_rig import ROOT, SMALL_SEGMENT_BYTES, START_MS, StoreRig, small_config
from support.torn_files import Fault, TornFiles

LOG: Final = ROOT / "log"
QUEUES: Final = ROOT / "cq"
CHECKPOINTS: Final = ROOT / "ckpt"


def started(files: MemoryFiles) -> StoreRig:
    rig = StoreRig(files)
    rig.start()
    return rig


def used(files: MemoryFiles, *, rounds: int = 8) -> StoreRig:
    """A directory with two segments, two checkpoints and records behind them, not closed."""
    rig = started(files)
    for number in range(rounds):
        rig.append(2000, topic_id=1 + number % 2)
        rig.append(100, 200)
        rig.write()
        if number in (3, rounds - 2):
            rig.checkpoint()
    rig.sync()
    files.kill()
    return rig


def names(files: MemoryFiles, directory: Path) -> list[str]:
    return sorted(path.name for path in files.inodes if path.parent == directory)


# --- start and replay ------------------------------------------------------------------------


def test_a_new_directory() -> None:
    files = MemoryFiles()
    rig = started(files)
    report = rig.report
    assert report is not None
    assert (report.start, report.end, report.records, report.torn_bytes) == (64, 64, 0, 0)
    assert (report.clean, report.rebuilt, report.epoch) == (False, True, 1)
    assert names(files, LOG) == [f"{0:020d}.seg"]
    assert len(rig.store.log.uuid) == 16


def test_a_killed_store_comes_back_whole() -> None:
    files = MemoryFiles()
    rig = used(files)
    uuid = rig.store.log.uuid
    checkpoint = int(names(files, CHECKPOINTS)[-1].removesuffix(".ckpt"))
    report = rig.restart()
    assert (report.start, report.clean, report.rebuilt) == (checkpoint, False, False)
    assert report.records == len([f for f in rig.facts if f[0] >= checkpoint]) == 3
    assert report.epoch == 2
    assert rig.store.log.uuid == uuid
    assert rig.store.log.durable == rig.store.log.end == report.end


def test_checkpoint_and_replay_equal_full_replay_equal_live() -> None:
    files = MemoryFiles()
    rig = used(files)
    live = (rig.facts, rig.queued, rig.store.log.last_store_ms)
    for drop in ([], names(files, CHECKPOINTS)[-1:], names(files, CHECKPOINTS)):
        image = files.clone()
        for name in drop:
            image.unlink(CHECKPOINTS / name)
        again = started(image)
        assert again.report is not None
        assert again.report.rebuilt == (len(drop) == 2)
        assert (again.facts, again.queued, again.store.log.last_store_ms) == live
        again.check_queues()


def test_a_clean_stop_and_a_start_without_replay() -> None:
    files = MemoryFiles()
    rig = started(files)
    for _ in range(3):
        rig.append(500)
        rig.append(30, 30)
        rig.write()
        rig.close()
        assert files.open_count == 0
        report = rig.restart()
        assert (report.clean, report.records, report.torn_bytes) == (True, 0, 0)
    assert report.epoch == 4
    rig.append(1)
    rig.write()
    files.kill()
    assert not rig.restart().clean


def test_each_start_is_a_new_epoch_even_if_the_last_one_wrote_nothing_that_stayed() -> None:
    files = TornFiles()
    rig = started(files)
    rig.append(10)
    rig.write()
    rig.sync()
    image = files
    for epoch in (2, 3, 4):
        image.kill()
        rig.files = image
        assert rig.restart().epoch == epoch
        rig.append(10)
        rig.write()
        rig.sync()


def test_store_time_never_runs_back_across_a_start() -> None:
    files = MemoryFiles()
    rig = used(files)
    last = rig.store.log.last_store_ms
    rig.now_ms = START_MS - 3_600_000
    rig.restart()
    rig.append(5)
    assert rig.store.log.read(rig.facts[-1][0]).store_ms == last
    rig.close()
    rig.restart()
    assert rig.store.log.last_store_ms == last


def test_an_unfinished_group_is_cut_off_whole() -> None:
    files = MemoryFiles()
    rig = started(files)
    rig.append(10)
    log = rig.store.log
    end = log.end
    for _ in range(3):
        log.append(RecordType.MESSAGE, [bytes(50)], 1, more=True)
    log._group_open = False  # as if the crash came between two writes of one batch
    log.write()
    rig.ledger.wrote()
    files.kill()
    report = rig.restart()
    assert report.end == rig.store.log.end == end
    assert report.torn_bytes > 200
    assert not any(files.bytes_of(LOG / f"{0:020d}.seg")[end:])


def test_the_stores_own_records_are_not_applied() -> None:
    files = MemoryFiles()
    rig = started(files)
    rig.append(10)
    rig.write()
    rig.sync()
    rig.store.log.mark(rig.now_ms)
    for _ in range(6):
        rig.append(4000)
    rig.write()
    files.kill()
    assert rig.restart().records == 7


def test_leftovers_of_unfinished_work_are_removed() -> None:
    files = MemoryFiles()
    rig = used(files)
    files.replace(LOG / f"{SMALL_SEGMENT_BYTES * 2:020d}-0.prep", bytes(100))
    files.replace(CHECKPOINTS / "00000000000000099999.tmp", b"half")
    files.make_directory(QUEUES / "77")
    files.replace(QUEUES / "77" / f"0.{0:020d}.cq", b"of a topic that is gone")
    rig.restart()
    assert all(name.endswith(".seg") for name in names(files, LOG))
    assert all(name.endswith(".ckpt") for name in names(files, CHECKPOINTS))
    assert QUEUES / "77" not in files.directories
    assert QUEUES / "1" in files.directories


def test_the_segment_size_may_change_between_starts() -> None:
    files = MemoryFiles()
    rig = used(files)
    for size in (2 * SMALL_SEGMENT_BYTES, SMALL_SEGMENT_BYTES):
        rig.config = small_config(size)
        rig.restart()
        for _ in range(12):
            rig.append(3000)
        rig.write()
        files.kill()
    rig.restart()
    assert len({len(files.bytes_of(LOG / name)) for name in names(files, LOG)}) == 2


def test_a_long_replay_writes_queue_entries_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "SPILL_RECORDS", 50)
    files = MemoryFiles()
    rig = started(files)
    for _ in range(300):
        rig.append(1)
    rig.write()
    files.kill()
    rig.restart()
    queue = rig.store.queue(1, 0)
    assert (queue.next, queue.dirty_count) == (300, 0)
    rig.append(5)
    rig.check_queues()
    rig.checkpoint()
    files.kill()
    assert not rig.restart().rebuilt


# --- checkpoints -----------------------------------------------------------------------------


def test_due_by_time_records_or_bytes_and_only_when_something_happened() -> None:
    rig = started(MemoryFiles())
    store, config = rig.store, rig.config
    late = rig.now_ms + config.checkpoint_interval_ms
    assert not store.checkpoint_due(late)
    rig.append(10)
    assert not store.checkpoint_due(late - 1)
    assert store.checkpoint_due(late)
    rig.checkpoint()
    assert not store.checkpoint_due(late)
    object.__setattr__(config, "checkpoint_records", 3)
    rig.append(1, 1)
    assert not store.checkpoint_due(rig.now_ms)
    rig.append(1)
    assert store.checkpoint_due(rig.now_ms)
    rig.checkpoint()
    object.__setattr__(config, "checkpoint_bytes", 5000)
    rig.append(2000, 2000)
    assert not store.checkpoint_due(rig.now_ms)
    rig.append(1000)
    assert store.checkpoint_due(rig.now_ms)
    job = store.begin_checkpoint({}, rig.now_ms)
    rig.append(2000, 3000)
    assert not store.checkpoint_due(rig.now_ms), "one is running"
    job.run()
    store.finish_checkpoint(job)
    assert store.checkpoint_due(rig.now_ms)


def test_a_long_replay_makes_a_checkpoint_due_at_once() -> None:
    files = MemoryFiles()
    rig = used(files)
    object.__setattr__(rig.config, "checkpoint_records", 3)
    rig.restart()
    assert rig.store.checkpoint_due(rig.now_ms)


def test_what_happens_while_a_checkpoint_runs_is_not_lost() -> None:
    files = MemoryFiles()
    rig = started(files)
    rig.append(10)
    sections = rig.sections()
    job = rig.store.begin_checkpoint(sections, rig.now_ms)
    rig.ledger.wrote()
    rig.append(20)
    rig.write()
    rig.check_queues()
    job.run()
    rig.check_queues()
    rig.append(30)
    rig.store.finish_checkpoint(job)
    rig.check_queues()
    rig.write()
    assert rig.store.queue(1, 0).dirty_count == 2
    files.kill()
    assert rig.restart().records == 2


def test_a_failed_checkpoint_keeps_everything_and_the_next_one_succeeds() -> None:
    files = TornFiles()
    rig = started(files)
    rig.append(10)
    rig.write()
    for call in range(2, 12):
        files.fault = Fault(files.calls + call, errno.ENOSPC)
        with pytest.raises(OSError, match="No space"):
            rig.checkpoint()
        rig.append(10)
        rig.write()
        rig.check_queues()
    files.fault = None
    rig.checkpoint()
    rig.check_queues()
    assert rig.store.queue(1, 0).dirty_count == 0
    files.kill()
    report = rig.restart()
    assert (report.rebuilt, report.records) == (False, 0)


def test_a_checkpoint_whose_log_cannot_be_synced_fails_the_log() -> None:
    files = TornFiles()
    rig = started(files)
    rig.append(10)
    rig.write()
    job = rig.store.begin_checkpoint(rig.sections(), rig.now_ms)
    files.fault = Fault(files.calls + 1, errno.EIO)
    with pytest.raises(StoreReadOnlyError):
        job.run()
    rig.store.finish_checkpoint(job)
    assert rig.store.log.failed
    assert not rig.store.checkpoint_due(rig.now_ms + 10**9)
    assert names(files, CHECKPOINTS) == []


def test_dropped_topics_lose_their_files_with_the_next_checkpoint() -> None:
    files = MemoryFiles()
    rig = started(files)
    rig.append(10, topic_id=5)
    rig.append(10, topic_id=6)
    rig.checkpoint()
    assert QUEUES / "5" in files.directories
    rig.drop(5)
    rig.store.drop_topic(99)
    rig.write()
    assert QUEUES / "5" in files.directories, "the last checkpoint still needs them"
    image = files.clone()
    rig.checkpoint()
    assert QUEUES / "5" not in files.directories
    files.kill()
    rig.restart()
    assert rig.store.queue(6, 0).next == 1
    rig.write()
    # ... and a crash before that checkpoint replays the deletion
    rig.files = image
    rig.start()
    assert (5, 0) not in rig.queued


def test_a_queue_file_found_damaged_in_use_is_rebuilt_by_the_next_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries = 64  # a file of them, to be quick
    monkeypatch.setattr(consume_queue, "FILE_ENTRIES", entries)
    monkeypatch.setattr(consume_queue, "FILE_BYTES", entries * consume_queue.ENTRY_BYTES)
    files = MemoryFiles()
    rig = started(files)
    for _ in range(entries + 6):
        rig.append(1)
    rig.write()
    rig.checkpoint()
    files.kill()
    files.bytes_of(QUEUES / "1" / f"0.{0:020d}.cq")[5] ^= 1
    assert not rig.start().rebuilt, "a full file is verified when it is first read"
    queue = rig.store.queue(1, 0)
    assert queue.get(entries + 3).position == rig.facts[entries + 3][0]
    with pytest.raises(DamagedQueueError, match="does not match its checkpoint"):
        queue.get(3)
    rig.append(1)
    rig.write()
    assert not rig.store.checkpoint_due(10**15)
    with pytest.raises(DamagedQueueError):
        rig.store.begin_checkpoint({}, 1)
    rig.close()
    report = rig.restart()
    assert (report.rebuilt, report.clean) == (True, True)
    assert rig.store.queue(1, 0).get(3).position == rig.facts[3][0]
    rig.close()
    assert not rig.restart().rebuilt


@pytest.mark.parametrize("spoil", ["missing", "short"])
def test_missing_or_short_queue_files_mean_a_full_replay(spoil: str) -> None:
    files = MemoryFiles()
    rig = used(files)
    path = QUEUES / "1" / f"0.{0:020d}.cq"
    if spoil == "missing":
        files.unlink(path)
    else:
        files.replace(path, bytes(files.bytes_of(path)[:33]))
    assert rig.restart().rebuilt
    rig.close()
    assert not rig.restart().rebuilt


# --- refusals --------------------------------------------------------------------------------


def refused(files: MemoryFiles, error: type[StoreError], *words: str) -> StoreError:
    """A start that fails with one clear line and touches nothing but the lock file."""
    before = files.snapshot()
    files.kill()
    with pytest.raises(error) as raised:
        StoreRig(files).start()
    after = files.snapshot()
    after.pop(ROOT / "LOCK", None)
    before.pop(ROOT / "LOCK", None)
    assert after == before
    assert files.open_count == 0
    for word in words:
        assert word in str(raised.value)
    assert "\n" not in str(raised.value)
    return raised.value


def test_a_second_broker_is_refused_by_name_of_the_directory() -> None:
    files = MemoryFiles()
    rig = started(files)
    with pytest.raises(StoreLockedError, match="/data/broker is in use by another broker"):
        StoreRig(files).start()
    rig.append(1)
    rig.write()
    rig.close()
    StoreRig(files).start()


def test_a_directory_that_holds_something_else() -> None:
    files = MemoryFiles()
    files.make_directory(ROOT)
    files.replace(ROOT / "holiday.jpg", b"x")
    refused(files, UnsupportedFormatError, "not a LaterMQ data directory", "holiday.jpg")
    assert ROOT / "LOCK" not in files.inodes
    files.make_directory(ROOT / "log")
    files.replace(ROOT / "log" / "syslog", b"x")
    refused(files, UnsupportedFormatError, "not a LaterMQ data directory")


def test_a_fresh_mount_and_an_aborted_start_are_fine() -> None:
    files = MemoryFiles()
    for name in ("lost+found", "cq", "log"):
        files.make_directory(ROOT / name)
    files.replace(ROOT / "LOCK", b"")
    files.replace(ROOT / "log" / f"{0:020d}.prep", b"\1\2")
    started(files).close()


def test_a_file_where_the_directory_should_be() -> None:
    files = MemoryFiles()
    files.make_directory(ROOT.parent)
    files.replace(ROOT, b"x")
    refused(files, StoreUnusableError, "is a file, not a directory")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.EIO])
def test_a_file_system_that_refuses(number: int) -> None:
    for call in range(1, 9):
        files = TornFiles()
        files.fault = Fault(call, number, persistent=True)
        with pytest.raises(StoreUnusableError, match="/data/broker cannot be used: "):
            StoreRig(files).start()
        assert files.open_count == 0


def test_no_room_for_the_first_segment() -> None:
    files = MemoryFiles(capacity_bytes=1000)
    with pytest.raises(StoreUnusableError, match="disk full"):
        StoreRig(files).start()
    assert files.used_bytes == 0
    files.capacity_bytes = None
    started(files).close()


def test_no_room_for_a_segment_that_the_end_of_the_log_needs() -> None:
    files = MemoryFiles()
    rig = started(files)
    for _ in range(5):
        rig.append(4000)
    rig.write()
    files.kill()
    files.unlink(LOG / f"{SMALL_SEGMENT_BYTES:020d}.seg")  # power was lost before its name stayed
    files.capacity_bytes = files.used_bytes + 100
    with pytest.raises(StoreUnusableError, match="disk full"):
        rig.start()
    files.capacity_bytes = None
    del rig.ledger.groups[-1]
    rig.ledger.written = 4
    rig.restart()


def test_a_newer_format() -> None:
    files = MemoryFiles()
    rig = used(files)
    header = bytearray(encode_segment_header(SegmentHeader(0, 4096, rig.store.log.uuid, 1)))
    header[8] = 2

    header[56:] = xxh3_64_intdigest(bytes(header[:56])).to_bytes(8, "little")
    files.bytes_of(LOG / f"{0:020d}.seg")[:64] = header
    refused(files, UnsupportedFormatError, "has format 2", "newer version", "nothing was changed")


def test_a_hole_in_the_log() -> None:
    files = MemoryFiles()
    used(files)
    first = files.clone()
    first.unlink(LOG / f"{0:020d}.seg")
    error = refused(first, CorruptRecordError, "has a hole", f"{0:020d}.seg is missing")
    assert isinstance(error, CorruptRecordError)
    assert error.position == 0


def test_a_hole_in_the_middle_of_the_log() -> None:
    files = MemoryFiles()
    used(files, rounds=20)
    files.unlink(LOG / f"{SMALL_SEGMENT_BYTES:020d}.seg")
    error = refused(files, CorruptRecordError, "has a hole", f"{SMALL_SEGMENT_BYTES:020d}.seg")
    assert isinstance(error, CorruptRecordError)
    assert error.position == SMALL_SEGMENT_BYTES


def test_checkpoints_without_a_log() -> None:
    files = MemoryFiles()
    used(files)
    for name in names(files, LOG):
        files.unlink(LOG / name)
    refused(files, CorruptRecordError, "the log itself is missing")


def test_a_log_that_ends_before_its_checkpoint() -> None:
    files = MemoryFiles()
    used(files)
    files.unlink(LOG / f"{SMALL_SEGMENT_BYTES:020d}.seg")
    refused(files, CorruptRecordError, "was taken after it", "restore it from a backup")


def test_a_log_of_another_time_than_its_checkpoint() -> None:
    files = MemoryFiles()
    rig = used(files)
    assert rig.store.log.end > SMALL_SEGMENT_BYTES
    files.bytes_of(LOG / names(files, LOG)[1])[64:] = bytes(SMALL_SEGMENT_BYTES - 64)
    refused(files, CorruptRecordError, "part of the log is missing or of another time")


def test_segments_of_two_logs() -> None:
    files, other = MemoryFiles(), MemoryFiles()
    used(files)
    other.unique()
    used(other)
    name = f"{SMALL_SEGMENT_BYTES:020d}.seg"
    files.replace(LOG / name, bytes(other.bytes_of(LOG / name)))
    refused(files, CorruptRecordError, "belongs to another log")


def test_a_checkpoint_of_another_log_is_not_used() -> None:
    files, other = MemoryFiles(), MemoryFiles()
    rig = used(files)
    other.unique()
    used(other)
    for name in names(files, CHECKPOINTS):
        files.unlink(CHECKPOINTS / name)
    for name in names(other, CHECKPOINTS):
        files.replace(CHECKPOINTS / name, bytes(other.bytes_of(CHECKPOINTS / name)))
    assert rig.restart().rebuilt


def test_a_foreign_segment_name() -> None:
    files = MemoryFiles()
    used(files)
    files.replace(LOG / "copy of 0.seg", b"x")
    refused(files, UnsupportedFormatError, "copy of 0.seg is not a segment")
