"""Consume queues: golden entries, memory and files read alike, damage noticed, never believed."""

from pathlib import Path
from typing import Final

import pytest

from latermq_broker.errors import DamagedQueueError, StoreBusyError
from latermq_broker.store.derived.consume_queue import (
    ENTRY,
    FILE_ENTRIES,
    OPEN_FILES_MAX,
    TIMES_MAX,
    ConsumeQueue,
    Entry,
    QueueFiles,
    count_since,
    write_entries,
)
from support.memory_files import MemoryFiles

ROOT: Final = Path("/cq")
GOLDEN: Final = bytes.fromhex(
    "9078563412000000 58000000 0100 0200 1100ffeeddccbbaa 0068e5cf8b010000"
)
GOLDEN_ENTRY: Final = Entry(0x1234567890, 88, 1, 2, 0xAABBCCDDEEFF0011, 1_700_000_000_000)


def entry(number: int) -> Entry:
    return Entry(64 + number * 8, 100 + number % 7, 0, 1, number * 31, 1000 + number // 3)


def shelf() -> QueueFiles:
    files = MemoryFiles()
    files.make_directory(ROOT)
    return QueueFiles(files, ROOT)


def memory(files: QueueFiles) -> MemoryFiles:
    assert isinstance(files.files, MemoryFiles)
    return files.files


def flush(queue: ConsumeQueue) -> None:
    """What a checkpoint does, without the checkpoint."""
    first = queue.next - queue.dirty_count
    state, data = queue.capture()
    write_entries(queue.files, queue.topic_id, queue.queue_id, first, data)
    queue.release(state.next)


def filled(files: QueueFiles, count: int, flush_every: int = 0) -> ConsumeQueue:
    queue = ConsumeQueue(files, 7, 3)
    for number in range(count):
        assert queue.append(entry(number)) == number
        if flush_every and (number + 1) % flush_every == 0:
            flush(queue)
    return queue


def test_golden_entry() -> None:
    assert ENTRY.pack(*GOLDEN_ENTRY) == GOLDEN
    files = shelf()
    queue = ConsumeQueue(files, 7, 3)
    queue.append(GOLDEN_ENTRY)
    flush(queue)
    assert memory(files).disk.bytes_of(ROOT / "7" / "3.00000000000000000000.cq") == GOLDEN


@pytest.mark.parametrize("flush_every", [0, 1, 7, 64, 100])
def test_memory_and_files_read_alike(flush_every: int) -> None:
    queue = filled(shelf(), 100, flush_every)
    assert (queue.first, queue.next) == (0, 100)
    for number in range(100):
        assert queue.get(number) == entry(number)
        assert queue.scan(number, 13) == [entry(n) for n in range(number, min(number + 13, 100))]
    assert queue.scan(100, 5) == []
    assert queue.scan(0, 0) == []
    assert queue.scan(0, 1000) == [entry(n) for n in range(100)]


@pytest.mark.parametrize("flush_every", [0, 64])
def test_outside_is_an_index_error(flush_every: int) -> None:
    queue = filled(shelf(), 100, flush_every)
    queue.first = 10
    for offset in (-1, 9, 100, 101):
        with pytest.raises(IndexError):
            queue.get(offset)
    for offset in (-1, 9, 101):
        with pytest.raises(IndexError):
            queue.scan(offset, 1)


@pytest.mark.parametrize("flush_every", [0, 1, 64])
def test_the_first_entry_at_or_after_a_time(flush_every: int) -> None:
    queue = filled(shelf(), 100, flush_every)
    assert queue.offset_at(0) == 0
    for number in range(100):
        first = number // 3 * 3
        assert queue.offset_at(1000 + number // 3) == first
    assert queue.offset_at(1033) == 99
    assert queue.offset_at(1034) == 100
    queue.first = 50
    assert queue.offset_at(0) == 50
    assert ConsumeQueue(shelf(), 1, 1).offset_at(5) == 0


@pytest.mark.parametrize("flush_every", [0, 7, 100])
def test_what_came_since_is_what_stands_from_the_first_of_that_time(flush_every: int) -> None:
    queue = filled(shelf(), 100, flush_every)
    for first in (0, 50, 97, 100):
        queue.trim(first)
        for time_ms in (0, *range(998, 1036)):
            assert count_since(queue, time_ms) == queue.next - queue.offset_at(time_ms)


def test_when_an_entry_came_is_read_from_its_file_once() -> None:
    queue = filled(shelf(), 100, 100)
    assert queue.entered_ms(50) == 1016
    memory(queue.files).inodes.clear()
    queue.files.forget()
    assert [queue.entered_ms(50) for _ in range(9)] == [1016] * 9
    assert queue.entered_ms(51) == 0  # which nobody asked for while the file was there


def test_an_entry_that_was_moved_is_asked_for_anew() -> None:
    queue = filled(shelf(), 100, 100)
    assert queue.entered_ms(50) == 1016
    queue.move(50, entry(50)._replace(position=9_000, time_ms=1017))
    assert queue.entered_ms(50) == 1017


def test_many_times_that_were_asked_for_take_little_memory() -> None:
    queue = filled(shelf(), 100, 100)
    assert [queue.entered_ms(offset) for offset in range(100)] == [
        entry(number).time_ms for number in range(100)
    ]
    assert len(queue._times) <= TIMES_MAX


def test_files_change_every_65536_entries() -> None:
    files = shelf()
    total = 2 * FILE_ENTRIES + 10
    queue = filled(files, total, flush_every=50_000)
    flush(queue)
    names = sorted(path.name for path in memory(files).inodes)
    assert names == [f"3.{n * FILE_ENTRIES:020d}.cq" for n in range(3)]
    assert [len(memory(files).disk.bytes_of(ROOT / "7" / name)) for name in names] == [
        2 << 20, 2 << 20, 320,
    ]  # fmt: skip
    around = FILE_ENTRIES - 2
    assert queue.scan(around, 5) == [entry(n) for n in range(around, around + 5)]
    assert queue.scan(0, total) == [entry(n) for n in range(total)]
    state, _ = queue.capture()
    again = ConsumeQueue.restore(QueueFiles(memory(files), ROOT), state)
    again.verify()
    assert again.scan(0, total) == [entry(n) for n in range(total)]
    assert again.append(entry(total)) == total
    flush(again)
    assert again.get(total) == entry(total)


def test_a_restored_queue_goes_on_where_it_was() -> None:
    files = shelf()
    queue = filled(files, 40, flush_every=40)
    state, _ = queue.capture()
    filled_later = queue.append(entry(40))
    flush(queue)
    again = ConsumeQueue.restore(QueueFiles(memory(files), ROOT), state)
    assert again.next == filled_later == 40
    assert again.append(entry(40)) == 40
    flush(again)
    assert again.capture()[0] == queue.capture()[0]


def test_digests_do_not_depend_on_when_they_are_taken() -> None:
    one, many = filled(shelf(), 1000), filled(shelf(), 1000, flush_every=3)
    for _ in range(2):
        assert one.capture()[0] == many.capture()[0]


@pytest.mark.parametrize("damage", ["missing", "short", "flipped"])
def test_a_damaged_last_file_is_noticed_at_once(damage: str) -> None:
    files = shelf()
    queue = filled(files, 40, flush_every=40)
    state, _ = queue.capture()
    spoil(files, ROOT / "7" / f"3.{0:020d}.cq", damage)
    again = QueueFiles(memory(files), ROOT)
    with pytest.raises(DamagedQueueError, match=r"3\.0+\.cq"):
        ConsumeQueue.restore(again, state)
    assert again.damaged


@pytest.mark.parametrize("damage", ["missing", "short", "flipped"])
def test_a_damaged_full_file_is_noticed_at_the_latest_when_read(damage: str) -> None:
    files = shelf()
    queue = filled(files, FILE_ENTRIES + 5, flush_every=FILE_ENTRIES + 5)
    state, _ = queue.capture()
    spoil(files, ROOT / "7" / f"3.{0:020d}.cq", damage)
    again = QueueFiles(memory(files), ROOT)
    if damage == "flipped":
        restored = ConsumeQueue.restore(again, state)
        assert restored.get(FILE_ENTRIES + 1) == entry(FILE_ENTRIES + 1)
        assert again.damaged is None
        with pytest.raises(DamagedQueueError):
            restored.get(0)
        with pytest.raises(DamagedQueueError):
            restored.verify()
    else:
        with pytest.raises(DamagedQueueError):
            ConsumeQueue.restore(again, state)
    assert again.damaged


def spoil(files: QueueFiles, path: Path, how: str) -> None:
    disk = memory(files).disk
    match how:
        case "missing":
            del disk.inodes[path]
        case "short":
            disk.replace(path, bytes(disk.bytes_of(path)[:-1]))
        case "flipped":
            disk.bytes_of(path)[33] ^= 1


def test_few_files_stay_open() -> None:
    files = shelf()
    queues = []
    for topic_id in range(OPEN_FILES_MAX + 20):
        queue = ConsumeQueue(files, topic_id, 0)
        queue.append(entry(topic_id))
        flush(queue)
        queues.append(queue)
    for _ in range(2):
        for topic_id, queue in enumerate(queues):
            assert queue.get(0) == entry(topic_id)
    assert memory(files).open_count == OPEN_FILES_MAX
    files.forget(OPEN_FILES_MAX + 19)
    assert memory(files).open_count == OPEN_FILES_MAX - 1
    files.forget()
    assert memory(files).open_count == 0


def test_a_file_that_may_not_be_read_is_not_called_damaged() -> None:
    files = shelf()
    queue = filled(files, 3, flush_every=3)

    def refuse(path: Path, mode: object) -> int:
        raise PermissionError(13, "Permission denied")

    files.files.open = refuse  # type: ignore[method-assign]
    with pytest.raises(StoreBusyError, match="Permission denied"):
        queue.get(0)
    assert files.damaged is None
