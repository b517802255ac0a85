"""An owner and its disk: when one that does not answer is taken for hanging, and what follows."""

from latermq_broker.pump.disk_watch import DISK_MS, DiskWatch
from latermq_broker.replication.batch import encode_batch, fence_of
from latermq_broker.replication.entry import Entry
from latermq_broker.replication.reader import Reader
from latermq_broker.replication.tenure import BEAT_MS, SILENT_MS, Tenure
from latermq_broker.replication.validity import EMPTY, judge
from support.engine_rig import EngineRig

FENCE = fence_of(1, 1, 1, 77)


def tenure() -> Tenure:
    """One that claimed an empty log at 10,000 ms; its fence is the entry 0."""
    _, standing = judge(EMPTY, FENCE, 0)
    return Tenure(FENCE, Reader(1, 1, standing, 1), 10_000, 0)


def test_a_disk_that_is_at_one_sync_for_long_hangs() -> None:
    syncs: list[int] = []
    watch = DiskWatch(syncs)
    assert not watch.hangs(0)
    assert not watch.hangs(10 * DISK_MS)  # nothing was asked of it
    syncs.append(0)
    assert not watch.hangs(100_000)
    syncs.append(1)
    assert not watch.hangs(99_999 + DISK_MS)
    assert watch.hangs(100_000 + DISK_MS)
    syncs.clear()
    assert not watch.hangs(100_001 + DISK_MS)


def test_a_disk_that_is_at_one_sync_after_another_is_at_work() -> None:
    syncs = [0]
    watch = DiskWatch(syncs)
    for number in range(1, 10):
        assert not watch.hangs(number * DISK_MS)
        syncs.append(number)
        del syncs[0]


def test_the_time_in_which_the_process_stood_still_is_not_the_disks() -> None:
    watch = DiskWatch([0])
    assert not watch.hangs(0)
    watch.begin_anew()
    assert not watch.hangs(10 * DISK_MS)
    assert watch.hangs(11 * DISK_MS)


def test_a_log_tells_the_sync_that_the_disk_is_at() -> None:
    log = EngineRig().engine.store.log
    files = log._files
    seen: list[list[int]] = []
    datasync = files.datasync

    def looked(fd: int) -> None:
        seen.append(list(log.syncs))
        datasync(fd)

    files.datasync = looked  # type: ignore[method-assign]
    for _ in range(2):
        log.mark(0, clean=True)
        log.write()
        log.synced(log.sync())
        assert log.syncs == []
    first, second = seen
    assert len(first) == len(second) == 1
    assert first != second


def test_one_that_is_mute_says_nothing_and_serves_nobody() -> None:
    it = tenure()
    assert it.serving(10_000)
    it.mute = True
    assert not it.serving(10_000)
    assert it.step(10_000 + BEAT_MS) == []
    it.mute = False
    (beat,) = it.step(10_000 + SILENT_MS)
    assert not it.serving(10_000 + SILENT_MS)
    it.reported(beat, 1, 10_010 + SILENT_MS)
    assert it.serving(10_010 + SILENT_MS)


def test_one_that_is_mute_listens_for_the_next_owner() -> None:
    """No report tells it of a gap: it appends nothing."""
    it = tenure()
    it.mute = True
    gap = it.rest()
    assert gap is not None
    assert (gap.begin, gap.end) == (1, None)
    assert it.rest() is None  # one at a time
    it.read(gap, 1, 10_500)
    gap = it.rest()
    assert gap is not None
    it.take(Entry(1, encode_batch(fence_of(1, 1, 2, 88))))
    it.read(gap, 2, 10_600)
    assert it.fenced
    assert it.rest() is None
