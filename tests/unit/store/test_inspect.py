"""Reading a directory offline: all records, every damage, nothing touched."""

from pathlib import Path
from typing import Final

import pytest

from latermq_broker.errors import CorruptRecordError, StoreUnusableError, UnsupportedFormatError
from latermq_broker.store.offline.inspect import Damage, scan_directory, verify_directory
from latermq_broker.store.records.record import Record, RecordType
from support.memory_files import MemoryFiles
from support.store_rig import ROOT, SMALL_SEGMENT_BYTES, StoreRig

FIRST: Final = ROOT / "log" / f"{0:020d}.seg"
SECOND: Final = ROOT / "log" / f"{SMALL_SEGMENT_BYTES:020d}.seg"


def closed() -> tuple[MemoryFiles, StoreRig]:
    """Two segments, groups, two checkpoints, stopped in order."""
    files = MemoryFiles()
    rig = StoreRig(files)
    rig.start()
    for number in range(8):
        rig.append(2500)
        rig.append(10, 20)
        rig.write()
        if number == 3:
            rig.checkpoint()
    rig.close()
    return files, rig


def facts(records: list[Record]) -> list[tuple[int, bytes]]:
    return [(r.position, bytes(r.payload)) for r in records if r.type is RecordType.MESSAGE]


def test_every_record_from_any_position() -> None:
    files, rig = closed()
    before = files.disk.snapshot()
    everything = list(scan_directory(ROOT, files))
    assert facts(everything) == rig.facts
    assert [r.type.name for r in everything if r.type is not RecordType.MESSAGE] == [
        "MARK",
        "BLANK",
        "MARK",
    ]
    assert everything[-1].is_clean_mark
    for index in (0, 1, 5, 17, len(everything) - 1):
        start = everything[index].position
        assert list(scan_directory(ROOT, files, start)) == everything[index:]
        assert list(scan_directory(ROOT, files, start - 7)) == everything[index:]
    assert list(scan_directory(ROOT, files, 10**9)) == []
    assert files.disk.snapshot() == before
    assert files.open_count == 0


def test_beside_a_running_broker() -> None:
    files = MemoryFiles()
    rig = StoreRig(files)
    rig.start()
    rig.append(10)
    rig.append(20)
    rig.write()
    rig.append(30)
    assert facts(list(scan_directory(ROOT, files))) == rig.facts[:2]
    scan = scan_directory(ROOT, files)
    assert next(scan).type is RecordType.MARK
    assert next(scan).position == rig.facts[0][0]
    rig.write()
    assert facts(list(scan))[:1] == rig.facts[1:2]
    assert verify_directory(ROOT, files).ok


def test_records_that_appear_between_two_looks_are_no_damage() -> None:
    files = MemoryFiles()
    rig = StoreRig(files)
    rig.start()
    rig.append(10)
    rig.write()
    scan = scan_directory(ROOT, files)
    real, looks = files.pread, 0

    def pread(fd: int, count: int, offset: int) -> bytes:
        nonlocal looks
        data = real(fd, count, offset)
        looks += 1
        if looks == 3:  # header, first piece, and now the piece that shows the end
            for _ in range(3):
                rig.append(50)
                rig.write()
                rig.sync()
        return data

    files.pread = pread  # type: ignore[method-assign]
    found = facts(list(scan))
    assert found == rig.facts[: len(found)]
    assert found


def test_verify_a_sound_directory() -> None:
    files, rig = closed()
    report = verify_directory(ROOT, files)
    assert report.ok
    assert report.clean
    assert (report.start, report.end, report.torn_bytes) == (64, rig.store.log.end, 0)
    assert report.records == {RecordType.MESSAGE: 24, RecordType.MARK: 2, RecordType.BLANK: 1}
    assert [(s.name, s.base, s.size) for s in report.segments] == [
        (FIRST.name, 0, SMALL_SEGMENT_BYTES),
        (SECOND.name, SMALL_SEGMENT_BYTES, SMALL_SEGMENT_BYTES),
    ]
    assert sum(s.records for s in report.segments) == 27
    assert [c.problem for c in report.checkpoints] == ["", ""]
    assert report.checkpoints[0].position > report.checkpoints[1].position


def test_verify_counts_a_torn_tail_and_an_unfinished_group() -> None:
    files = MemoryFiles()
    rig = StoreRig(files)
    rig.start()
    rig.append(10)
    end = rig.store.log.end
    rig.append(10, 10, 10)
    rig.write()
    files.disk.kill()
    files.disk.bytes_of(FIRST)[rig.facts[-1][0] + 45] ^= 1
    report = verify_directory(ROOT, files)
    assert report.ok
    assert not report.clean
    assert (report.end, report.torn_bytes > 100) == (end, True)
    assert len(facts(list(scan_directory(ROOT, files)))) == 3


def test_verify_names_every_damage_and_where_it_goes_on() -> None:
    files, rig = closed()
    spoiled = [rig.facts[2], rig.facts[9], rig.facts[-4]]
    for position, _ in spoiled:
        path = FIRST if position < SMALL_SEGMENT_BYTES else SECOND
        files.disk.bytes_of(path)[position % SMALL_SEGMENT_BYTES + 50] ^= 8
    before = files.disk.snapshot()
    report = verify_directory(ROOT, files)
    assert not report.ok
    following = [rig.facts[rig.facts.index(fact) + 1][0] for fact in spoiled]
    assert report.damages == tuple(
        Damage(fact[0], "its checksum does not match", after)
        for fact, after in zip(spoiled, following, strict=True)
    )
    assert report.records[RecordType.MESSAGE] == 21
    with pytest.raises(CorruptRecordError) as raised:
        list(scan_directory(ROOT, files))
    assert raised.value.position == spoiled[0][0]
    assert "not merely cut short by a crash" in str(raised.value)
    assert FIRST.name in str(raised.value)
    assert files.disk.snapshot() == before


def test_verify_looks_at_checkpoints_and_queue_files() -> None:
    files, _ = closed()
    newest, oldest = sorted((p for p in files.inodes if p.suffix == ".ckpt"), reverse=True)
    files.disk.bytes_of(oldest)[80] ^= 1
    (queue,) = (p for p in files.inodes if p.suffix == ".cq")
    files.disk.bytes_of(queue)[3] ^= 1
    report = verify_directory(ROOT, files)
    assert report.ok, "both are rebuilt from the log"
    assert [(c.name, c.problem) for c in report.checkpoints] == [
        (newest.name, f"{queue} does not match its checkpoint"),
        (oldest.name, "does not match its checksum"),
    ]


def test_verify_a_log_that_ends_before_its_checkpoint() -> None:
    files, _ = closed()
    files.unlink(SECOND)
    report = verify_directory(ROOT, files)
    assert not report.ok
    assert "beyond the log's end" in report.damages[0].reason


@pytest.mark.parametrize("read", [verify_directory, lambda *a: list(scan_directory(*a))])
def test_what_is_no_data_directory(read: object) -> None:
    assert callable(read)
    files = MemoryFiles()
    with pytest.raises(StoreUnusableError, match="does not exist"):
        read(ROOT, files)
    files.make_directory(ROOT)
    with pytest.raises(StoreUnusableError, match="holds no log yet"):
        read(ROOT, files)
    files.disk.replace(ROOT / "notes.txt", b"x")
    with pytest.raises(UnsupportedFormatError, match="not a LaterMQ data directory"):
        read(ROOT, files)
    with pytest.raises(StoreUnusableError, match="is a file"):
        read(ROOT / "notes.txt", files)
    assert files.open_count == 0
    assert Path("/data") in files.disk.directories
