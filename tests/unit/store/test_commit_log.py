"""The commit log while it lives: positions, batches, groups, rolling, refusals, failures."""

import errno
from typing import Final

import pytest

from latermq_broker.config.config import Flush
from latermq_broker.errors import (
    CorruptRecordError,
    StoreFullError,
    StoreReadOnlyError,
)
from latermq_broker.store.records.record import FLAG_CLEAN, RecordType, record_bytes
from latermq_broker.store.store import Store
from support.memory_files import MemoryDisk, MemoryFiles
from support.store_rig import (
    FIRST_POSITION,
    ROOT,
    SMALL_SEGMENT_BYTES,
    START_MS,
    StoreRig,
    small_config,
)
from support.torn_files import SHORT_WRITE, Fault, TornFiles

FIRST: Final = ROOT / "log" / f"{0:020d}.seg"
MESSAGE: Final = RecordType.MESSAGE
RECORD_MAX: Final = SMALL_SEGMENT_BYTES // 4
LARGEST: Final = bytes(RECORD_MAX - 40)


def fresh(files: MemoryFiles | None = None, flush: Flush = Flush.ASYNC) -> Store:
    rig = StoreRig(files or MemoryFiles(), small_config(flush=flush))
    rig.start()
    return rig.store


def segments(files: MemoryFiles) -> list[str]:
    return sorted(path.name for path in files.inodes if path.parent.name == "log")


def test_an_append_is_readable_before_and_after_the_write() -> None:
    log = fresh().log
    assert (log.start, log.end, log.written, log.durable, log.epoch) == (64, 104, 104, 104, 1)
    first = log.append(MESSAGE, [b"one", memoryview(b" two")], START_MS + 1000)
    second = log.append(RecordType.ACK, [], START_MS + 900)
    assert (first, second, log.end, log.written) == (104, 152, 192, 104)
    before = [log.read(first), log.read(second)]
    assert log.write() == log.written == 192
    assert [log.read(first), log.read(second)] == before
    assert before[0].payload == b"one two"
    assert [record.store_ms for record in before] == [START_MS + 1000] * 2, (
        "store time never runs back"
    )
    assert before[0].next_position == second
    assert log.last_store_ms == START_MS + 1000
    assert log.durable == 104


@pytest.mark.parametrize("count", [1, 2, 9])
def test_a_group_in_one_go_is_the_records_one_by_one(count: int) -> None:
    payloads = [bytes([number]) * (number * 5) for number in range(count)]
    one, other = TornFiles(), TornFiles()
    log, log_too = fresh(one).log, fresh(other).log
    log.reserve(list(map(len, payloads)))
    positions = [
        log.append(MESSAGE, [payload], START_MS + 7, more=number < count - 1)
        for number, payload in enumerate(payloads)
    ]
    assert log_too.append_group(MESSAGE, payloads, START_MS + 7) == (
        positions,
        [40 + len(payload) for payload in payloads],
    )
    for name in ("end", "last_position", "last_store_ms", "appended"):
        assert getattr(log, name) == getattr(log_too, name)
    before = [log_too.read(position) for position in positions]
    assert log.write() == log_too.write()
    records = [log.read(position) for position in positions]
    assert records == before == [log_too.read(position) for position in positions]
    with pytest.raises(ValueError, match="group"):
        log_too.append_group(MESSAGE, [LARGEST] * 9, START_MS)
    assert log_too.end == log.end, "nothing changed"


def test_write_without_appends_does_nothing() -> None:
    files = TornFiles()
    log = fresh(files).log
    calls = files.calls
    assert log.write() == 104
    assert files.calls == calls


def test_one_write_per_touched_segment() -> None:
    files = TornFiles()
    log = fresh(files).log
    for _ in range(10):
        log.append(MESSAGE, [bytes(100)], 1)
    calls = files.calls
    log.write()
    assert files.calls == calls + 1
    for _ in range(4):
        log.append(MESSAGE, [LARGEST], 1)
    calls = files.calls
    log.write()
    assert files.calls == calls + 2


def test_short_counts_are_gone_on_with() -> None:
    files = TornFiles()
    log = fresh(files).log
    position = log.append(MESSAGE, [bytes(range(200))], 1)
    files.fault = Fault(files.calls + 1, SHORT_WRITE)
    log.write()
    assert files.fired == 1
    assert log.read(position).payload == bytes(range(200))


def test_durable_is_what_was_written_before_the_sync_began() -> None:
    log = fresh().log
    log.append(MESSAGE, [b"a"], 1)
    log.write()
    target = log.sync()
    assert target == log.written
    log.append(MESSAGE, [b"b"], 1)
    log.write()
    assert log.durable == 104
    log.synced(target)
    assert log.durable == target < log.written
    log.synced(104)  # an older answer arriving late
    assert log.durable == target
    later = log.append(MESSAGE, [b"c"], 1)
    assert log.read(later).durable == target
    log.write()
    assert log.read(later).durable == target


def test_rolling_closes_a_segment_with_blank_and_goes_on_in_the_next() -> None:
    files = MemoryFiles()
    log = fresh(files).log
    positions = [log.append(MESSAGE, [LARGEST], 1) for _ in range(4)]
    assert positions == [104, 104 + RECORD_MAX, 104 + 2 * RECORD_MAX, SMALL_SEGMENT_BYTES + 64]
    blank = log.read(104 + 3 * RECORD_MAX)
    assert (blank.type, blank.length) == (RecordType.BLANK, 40)
    log.write()
    assert log.read(104 + 3 * RECORD_MAX) == blank
    assert all(log.read(position).payload == LARGEST for position in positions)
    assert segments(files) == [f"{0:020d}.seg", f"{SMALL_SEGMENT_BYTES:020d}.seg"]
    assert log.sync() == log.written


@pytest.mark.parametrize("left", [40, 48, 72, 80])
def test_a_record_that_leaves_just_room_for_blank_still_fits(left: int) -> None:
    log = fresh().log
    for _ in range(3):
        log.append(MESSAGE, [LARGEST], 1)
    room = SMALL_SEGMENT_BYTES - log.end
    log.append(MESSAGE, [bytes(room - left - 40)], 1)
    assert log.end == SMALL_SEGMENT_BYTES - left
    following = log.append(MESSAGE, [], 1)
    assert following == (SMALL_SEGMENT_BYTES + 64 if left < 80 else SMALL_SEGMENT_BYTES - 80)


def test_a_record_larger_than_a_quarter_of_a_segment_is_refused() -> None:
    log = fresh().log
    for too_large in (LARGEST + b"x", bytes(SMALL_SEGMENT_BYTES * 2)):
        with pytest.raises(ValueError, match=f"the largest is {RECORD_MAX}"):
            log.append(MESSAGE, [too_large], 1)
        with pytest.raises(ValueError, match=f"the largest is {RECORD_MAX}"):
            log.reserve([1, len(too_large)])
    assert log.end == FIRST_POSITION
    assert log.append(MESSAGE, [LARGEST], 1) == FIRST_POSITION


def test_a_group_is_kept_in_one_segment() -> None:
    log = fresh().log
    for _ in range(3):
        log.append(MESSAGE, [LARGEST], 1)
    sizes = [1000, 1000, 2000]
    log.reserve(sizes)
    positions = [log.append(MESSAGE, [bytes(size)], 1, more=size != 2000) for size in sizes]
    assert positions[0] == SMALL_SEGMENT_BYTES + 64
    assert positions[2] == positions[0] + 2 * record_bytes(1000)
    assert [log.read(position).more for position in positions] == [True, True, False]
    log.write()


def test_a_group_that_can_never_fit_is_refused() -> None:
    log = fresh().log
    with pytest.raises(ValueError, match="one atomic group"):
        log.reserve([RECORD_MAX - 40] * 4)
    log.reserve([RECORD_MAX - 40] * 3)
    log.reserve([])
    assert log.end == FIRST_POSITION


def test_a_group_that_was_not_reserved_cannot_span_segments() -> None:
    log = fresh().log
    for _ in range(3):
        log.append(MESSAGE, [LARGEST], 1, more=True)
    with pytest.raises(ValueError, match="outgrew"):
        log.append(MESSAGE, [LARGEST], 1)
    with pytest.raises(AssertionError):
        log.write()


def test_a_full_disk_is_refused_before_anything_changes() -> None:
    files = MemoryFiles(MemoryDisk(SMALL_SEGMENT_BYTES + 5000))
    store = fresh(files)
    log = store.log
    positions = [log.append(MESSAGE, [LARGEST], 1) for _ in range(3)]
    before = (log.end, log.appended, log.last_store_ms)
    for _ in range(2):
        with pytest.raises(StoreFullError, match=f"a further segment of {SMALL_SEGMENT_BYTES}"):
            log.append(MESSAGE, [LARGEST], 99)
        with pytest.raises(StoreFullError):
            log.reserve([RECORD_MAX - 40])
        with pytest.raises(StoreFullError):
            log.prepare_next()
    assert (log.end, log.appended, log.last_store_ms) == before
    assert files.disk.used_bytes == SMALL_SEGMENT_BYTES
    assert segments(files) == [f"{0:020d}.seg"]
    small = log.append(MESSAGE, [b"still fits"], 1)
    log.write()
    log.synced(log.sync())
    assert log.read(small).payload == b"still fits"
    files.disk.capacity_bytes = None
    positions.append(log.append(MESSAGE, [LARGEST], 1))
    log.write()
    assert [log.read(position).payload for position in positions] == [LARGEST] * 4


def test_prepared_room_keeps_working_on_a_full_disk() -> None:
    files = MemoryFiles()
    log = fresh(files).log
    assert log.next_wanted
    log.prepare_next()
    assert not log.next_wanted
    log.prepare_next()
    assert segments(files)[1].endswith(".prep")
    files.disk.capacity_bytes = files.disk.used_bytes
    for _ in range(6):
        log.append(MESSAGE, [LARGEST], 1)
    log.write()
    assert log.next_wanted
    with pytest.raises(StoreFullError):
        log.append(MESSAGE, [LARGEST], 1)


def test_a_segment_prepared_too_late_is_thrown_away() -> None:
    files = MemoryFiles()
    log = fresh(files).log
    late = log.row._prepare(SMALL_SEGMENT_BYTES, 0, zero_fill=False)
    for _ in range(4):
        log.append(MESSAGE, [LARGEST], 1)
    log.row._prepared = late  # as the thread does when it ends after the loop rolled without it
    assert log.next_wanted
    log.prepare_next()
    assert not log.next_wanted
    assert len(segments(files)) == 3
    assert segments(files)[2].startswith(f"{2 * SMALL_SEGMENT_BYTES:020d}")


@pytest.mark.parametrize("flush", list(Flush))
def test_sync_mode_fills_with_zeros_ahead(flush: Flush) -> None:
    files = TornFiles()
    log = fresh(files, flush).log
    calls = files.calls
    log.prepare_next()
    assert files.calls - calls == (5 if flush in (Flush.SYNC, Flush.SYNC_STRICT) else 4)


def test_a_failed_preparation_is_no_failed_log() -> None:
    files = TornFiles()
    log = fresh(files).log
    files.fault = Fault(files.calls + 1, errno.EIO)
    with pytest.raises(StoreFullError, match="needs a further segment, and cannot make it"):
        log.prepare_next()
    log.append(MESSAGE, [b"x"], 1)
    log.write()
    log.prepare_next()
    assert not log.next_wanted


def test_a_failed_rename_changes_nothing() -> None:
    files = TornFiles()
    log = fresh(files).log
    log.prepare_next()
    for _ in range(3):
        log.append(MESSAGE, [LARGEST], 1)
    end = log.end
    files.fault = Fault(files.calls + 1, errno.EIO)
    with pytest.raises(StoreFullError, match="needs a further segment, and cannot make it"):
        log.append(MESSAGE, [LARGEST], 1)
    assert log.end == end
    assert log.append(MESSAGE, [LARGEST], 1) == SMALL_SEGMENT_BYTES + 64


@pytest.mark.parametrize("records", [1, 4])
def test_a_failed_write_latches_and_leaves_no_trace(records: int) -> None:
    files = TornFiles()
    log = fresh(files).log
    kept = log.append(MESSAGE, [b"kept"], 1)
    log.write()
    written = log.written
    for _ in range(records):
        last = log.append(MESSAGE, [LARGEST], 1)
    files.fault = Fault(files.calls + (1 if records == 1 else 2), errno.EIO)
    with pytest.raises(StoreReadOnlyError, match=r"write failed .* restart the broker"):
        log.write()
    assert log.failed
    assert log.written == written
    assert not any(files.disk.bytes_of(FIRST)[written:])
    calls = files.calls
    for refused in (
        lambda: log.append(MESSAGE, [b"x"], 1),
        lambda: log.reserve([1]),
        log.write,
        log.sync,
    ):
        with pytest.raises(StoreReadOnlyError):
            refused()
    log.mark(5)
    log.prepare_next()
    assert files.calls == calls, "nothing is tried again"
    assert log.read(kept).payload == b"kept"
    assert log.read(last).payload == LARGEST


def test_a_short_write_and_then_no_room_leaves_no_trace() -> None:
    files = TornFiles()
    log = fresh(files).log
    log.append(MESSAGE, [b"\xff" * 900], 1)

    real = files.pwrite
    answers = iter([100, None])

    def pwrite(fd: int, data: bytes | memoryview, offset: int) -> int:
        answer = next(answers, 0)
        if answer is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data[:answer] if answer else data, offset)

    files.pwrite = pwrite  # type: ignore[method-assign]
    with pytest.raises(StoreReadOnlyError, match="No space left"):
        log.write()
    assert not any(files.disk.bytes_of(FIRST)[FIRST_POSITION:])


@pytest.mark.parametrize("call", [1, 2], ids=["fdatasync", "directory"])
def test_a_failed_sync_latches_and_is_never_repeated(call: int) -> None:
    files = TornFiles()
    log = fresh(files).log
    for _ in range(3):
        log.append(MESSAGE, [LARGEST], 1)
    log.reserve([RECORD_MAX - 40])  # the new segment's name waits for a sync too
    log.write()
    files.fault = Fault(files.calls + call, errno.EIO)
    with pytest.raises(StoreReadOnlyError, match="sync failed"):
        log.sync()
    calls = files.calls
    with pytest.raises(StoreReadOnlyError):
        log.sync()
    assert files.calls == calls
    assert log.durable == FIRST_POSITION
    with pytest.raises(StoreReadOnlyError):
        log.append(MESSAGE, [b"x"], 1)


def test_marks_prove_what_was_synced_once() -> None:
    log = fresh().log
    log.mark(1)
    assert log.appended == 1, "the log begins with a mark"
    log.append(MESSAGE, [b"x"], 1)
    log.mark(2)
    assert log.appended == 2, "not durable yet"
    log.write()
    log.mark(2)
    assert log.appended == 2
    log.synced(log.sync())
    log.mark(2)
    mark = log.read(log.last_position)
    assert (mark.type, mark.flags, mark.durable) == (RecordType.MARK, 0, mark.position)
    log.write()
    log.synced(log.sync())
    log.mark(3)
    assert log.appended == 3, "the log ends with a mark already"
    log.mark(4, clean=True)
    assert log.read(log.last_position).flags == FLAG_CLEAN
    assert log.read(log.last_position).is_clean_mark


def test_marks_roll_too() -> None:
    log = fresh().log
    for _ in range(3):
        log.append(MESSAGE, [LARGEST], 1)
    log.append(MESSAGE, [bytes(SMALL_SEGMENT_BYTES - log.end - 80)], 1)
    log.write()
    log.synced(log.sync())
    log.mark(1)
    assert log.last_position == SMALL_SEGMENT_BYTES + 64


def test_descriptors_of_synced_segments_are_closed() -> None:
    files = MemoryFiles()
    log = fresh(files).log
    open_before = files.open_count
    for _ in range(12):
        log.append(MESSAGE, [LARGEST], 1)
    log.write()
    assert files.open_count == open_before + 3
    log.synced(log.sync())
    assert files.open_count == open_before
    assert log.read(FIRST_POSITION).payload == LARGEST


def test_no_descriptor_is_closed_under_a_running_sync() -> None:
    files = MemoryFiles()
    log = fresh(files).log
    for _ in range(4):
        log.append(MESSAGE, [LARGEST], 1)
    log.write()
    original = files.datasync
    synced_meanwhile = log.written

    def datasync(fd: int) -> None:
        log.synced(synced_meanwhile)  # another sync's answer reaches the loop just now
        original(fd)

    files.datasync = datasync  # type: ignore[method-assign]
    assert log.sync() == log.written
    log.synced(log.written)


def test_reading_what_is_not_there() -> None:
    log = fresh().log
    position = log.append(MESSAGE, [b"abc"], 1)
    log.write()
    for wrong in (position + 8, position + 4, log.end, SMALL_SEGMENT_BYTES * 3, 8):
        with pytest.raises(CorruptRecordError) as raised:
            log.read(wrong)
        assert raised.value.position == wrong


def test_reading_what_has_rotted() -> None:
    files = MemoryFiles()
    log = fresh(files).log
    position = log.append(MESSAGE, [b"abcdef"], 1)
    log.write()
    files.disk.bytes_of(FIRST)[position + 42] ^= 4
    with pytest.raises(CorruptRecordError, match="checksum does not match"):
        log.read(position)


def test_a_closed_log_takes_nothing() -> None:
    files = MemoryFiles()
    store = fresh(files)
    store.log.prepare_next()
    store.abandon()
    store.abandon()
    assert files.open_count == 0
    assert segments(files) == [f"{0:020d}.seg"]
    with pytest.raises(StoreReadOnlyError):
        store.log.append(MESSAGE, [b"x"], 1)
