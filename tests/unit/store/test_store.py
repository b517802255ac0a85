"""The store as the engine sees it: start, replay, checkpoints, stop."""

import errno
from pathlib import Path
from typing import Final

import pytest

from latermq_broker.errors import (
    DamagedQueueError,
    StoreReadOnlyError,
)
from latermq_broker.store import store as store_module
from latermq_broker.store.derived import consume_queue
from latermq_broker.store.files import OpenMode
from latermq_broker.store.records import record as record_module
from latermq_broker.store.records.record import RecordType
from support.memory_files import MemoryFiles
from support.store_rig import (
    ROOT,
    SMALL_SEGMENT_BYTES,
    START_MS,
    StoreRig,
    names,
    small_config,
    started,
    used,
)
from support.torn_files import Fault, TornFiles

LOG: Final = ROOT / "log"
QUEUES: Final = ROOT / "cq"
CHECKPOINTS: Final = ROOT / "ckpt"


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
    assert rig.store.log.durable == rig.store.log.end == report.end + 40


def test_checkpoint_and_replay_equal_full_replay_equal_live() -> None:
    files = MemoryFiles()
    rig = used(files)
    live = (rig.facts, rig.queued, rig.store.log.last_store_ms)
    for drop in ([], names(files, CHECKPOINTS)[-1:], names(files, CHECKPOINTS)):
        image = MemoryFiles(files.disk.clone())
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
    files.disk.kill()
    assert not rig.restart().clean


def test_each_start_is_a_new_epoch_even_if_the_last_one_wrote_nothing_that_stayed() -> None:
    files = TornFiles()
    rig = started(files)
    rig.append(10)
    rig.write()
    rig.sync()
    image = files
    for epoch in (2, 3, 4):
        image.disk.kill()
        rig.files = image
        assert rig.restart().epoch == epoch
        rig.append(10)
        rig.write()
        rig.sync()


def test_a_start_is_durable_before_anything_else_so_no_epoch_is_used_twice() -> None:
    for seed in range(50):
        files = TornFiles()
        rig = started(files)
        for epoch in range(2, 6):
            if seed % 2:
                rig.close()
            rig.files = files = files.power_loss(seed * 10 + epoch)
            assert rig.restart(power_lost=True).epoch == epoch
            rig.append(seed * 10, 300)
            rig.write()


def test_a_clean_mark_with_a_later_start_behind_it_is_no_clean_stop() -> None:
    files = MemoryFiles()
    rig = started(files)
    rig.close()
    rig.restart()
    begin = rig.store.log.end
    rig.append(1000)
    rig.write()
    files.disk.kill()
    files.disk.bytes_of(LOG / f"{0:020d}.seg")[begin : begin + 512] = bytes(512)
    rig.model.groups.clear()
    rig.model.written = 0
    report = rig.restart()
    assert (report.clean, report.torn_bytes > 500) == (False, True)
    assert not any(files.disk.bytes_of(LOG / f"{0:020d}.seg")[rig.store.log.end :])


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
    rig.model.wrote()
    files.disk.kill()
    report = rig.restart()
    assert report.end == end
    assert report.torn_bytes > 200
    assert not any(files.disk.bytes_of(LOG / f"{0:020d}.seg")[end + 40 :])


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
    files.disk.kill()
    assert rig.restart().records == 7


def test_leftovers_of_unfinished_work_are_removed() -> None:
    files = MemoryFiles()
    rig = used(files)
    files.disk.replace(LOG / f"{SMALL_SEGMENT_BYTES * 2:020d}-0.prep", bytes(100))
    files.disk.replace(CHECKPOINTS / "00000000000000099999.tmp", b"half")
    files.make_directory(QUEUES / "77")
    files.disk.replace(QUEUES / "77" / f"0.{0:020d}.cq", b"of a topic that is gone")
    rig.restart()
    assert all(name.endswith(".seg") for name in names(files, LOG))
    assert all(name.endswith(".ckpt") for name in names(files, CHECKPOINTS))
    assert QUEUES / "77" not in files.disk.directories
    assert QUEUES / "1" in files.disk.directories


def test_the_segment_size_may_change_between_starts() -> None:
    files = MemoryFiles()
    rig = used(files)
    for size in (2 * SMALL_SEGMENT_BYTES, SMALL_SEGMENT_BYTES):
        rig.config = small_config(size)
        rig.restart()
        for _ in range(12):
            rig.append(3000)
        rig.write()
        files.disk.kill()
    rig.restart()
    assert len({len(files.disk.bytes_of(LOG / name)) for name in names(files, LOG)}) == 2


def test_a_long_replay_writes_queue_entries_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "SPILL_RECORDS", 50)
    monkeypatch.setattr(record_module, "RUN_RECORDS", 10)
    files = MemoryFiles()
    rig = started(files)
    for _ in range(300):
        rig.append(1)
    rig.write()
    files.disk.kill()
    rig.restart()
    queue = rig.store.queue(1, 0)
    assert (queue.next, queue.dirty_count) == (300, 0)
    rig.append(5)
    rig.check_queues()
    rig.checkpoint()
    files.disk.kill()
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
    job = rig.begin_checkpoint()
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
    job = rig.begin_checkpoint()
    rig.model.wrote()
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
    files.disk.kill()
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
    files.disk.kill()
    report = rig.restart()
    assert (report.rebuilt, report.records) == (False, 0)


def test_a_finished_checkpoint_survives_a_power_loss_with_its_queue_files() -> None:
    for seed in range(30):
        files = TornFiles()
        rig = started(files)
        for topic_id in (1, 2):
            rig.append(10, topic_id=topic_id)
            rig.checkpoint()
            rig.files = files = files.power_loss(seed)
            report = rig.restart(power_lost=True)
            assert (report.rebuilt, report.records) == (False, 0)


def test_a_start_reads_from_the_medium_what_it_replays() -> None:
    files = MemoryFiles()
    rig = used(files)
    dropped: list[str] = []
    opened: dict[int, str] = {}
    real_open = files.open

    def open_(path: Path, mode: OpenMode) -> int:
        fd = real_open(path, mode)
        opened[fd] = path.name
        return fd

    files.open = open_  # type: ignore[method-assign]
    files.drop_cache = lambda fd: dropped.append(opened[fd])  # type: ignore[method-assign]
    rig.restart()
    assert dropped == [f"{SMALL_SEGMENT_BYTES:020d}.seg"]
    for name in names(files, CHECKPOINTS):
        files.unlink(CHECKPOINTS / name)
    files.disk.kill()
    rig.restart()
    assert dropped[1:] == names(files, LOG)


def test_a_failed_checkpoint_is_tried_again_after_the_interval() -> None:
    files = TornFiles()
    rig = started(files)
    object.__setattr__(rig.config, "checkpoint_records", 1)
    rig.append(10)
    rig.write()
    assert rig.store.checkpoint_due(rig.now_ms)
    files.fault = Fault(files.calls + 2, errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        rig.checkpoint()
    assert not rig.store.checkpoint_due(rig.now_ms + 1000)
    assert rig.store.checkpoint_due(rig.now_ms + rig.config.checkpoint_interval_ms)
    rig.checkpoint()
    assert not rig.store.checkpoint_due(rig.now_ms + rig.config.checkpoint_interval_ms)


def test_damage_found_while_a_checkpoint_runs_takes_it_back() -> None:
    files = MemoryFiles()
    rig = started(files)
    rig.append(10)
    rig.checkpoint()
    rig.append(10)
    job = rig.begin_checkpoint()
    files.disk.inodes.pop(QUEUES / "1" / f"0.{0:020d}.cq")
    rig.store.queue_files.forget()
    with pytest.raises(DamagedQueueError):
        rig.store.queue(1, 0).get(0)
    job.run()
    rig.store.finish_checkpoint(job)
    assert names(files, CHECKPOINTS) == []
    files.disk.kill()
    rig.model.wrote()
    assert rig.restart().rebuilt


def test_a_checkpoint_whose_log_cannot_be_synced_fails_the_log() -> None:
    files = TornFiles()
    rig = started(files)
    rig.append(10)
    rig.write()
    job = rig.begin_checkpoint()
    files.fault = Fault(files.calls + 1, errno.EIO)
    with pytest.raises(StoreReadOnlyError):
        job.run()
    rig.store.finish_checkpoint(job)
    assert rig.store.log.failed
    assert not rig.store.checkpoint_due(rig.now_ms + 10**9)
    assert names(files, CHECKPOINTS) == []


def test_dropped_topics_lose_their_files_when_no_checkpoint_names_them() -> None:
    files = MemoryFiles()
    rig = started(files)
    rig.append(10, topic_id=5)
    rig.append(10, topic_id=6)
    rig.checkpoint()
    assert QUEUES / "5" in files.disk.directories
    rig.drop(5)
    rig.store.drop_topic(99)
    rig.write()
    assert QUEUES / "5" in files.disk.directories, "the last checkpoint still needs them"
    image = MemoryFiles(files.disk.clone())
    rig.checkpoint()
    assert QUEUES / "5" in files.disk.directories, "the one before needs them"
    before = MemoryFiles(files.disk.clone())
    newest = max(names(before, CHECKPOINTS))
    before.inodes[CHECKPOINTS / newest].data[-1] ^= 1
    assert not StoreRig(before).start().rebuilt
    rig.append(10, topic_id=6)
    rig.checkpoint()
    assert QUEUES / "5" not in files.disk.directories
    files.disk.kill()
    rig.restart()
    assert rig.store.queue(6, 0).next == 2
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
    files.disk.kill()
    files.disk.bytes_of(QUEUES / "1" / f"0.{0:020d}.cq")[5] ^= 1
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
        files.disk.replace(path, bytes(files.disk.bytes_of(path)[:33]))
    assert rig.restart().rebuilt
    rig.close()
    assert not rig.restart().rebuilt
