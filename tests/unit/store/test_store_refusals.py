"""Every refusal to start: one clear line, and not a byte of the directory touched."""

import errno
import json
import os
from typing import Final

import pytest
from xxhash import xxh3_64_intdigest

from latermq_broker.errors import (
    CorruptRecordError,
    StoreError,
    StoreLockedError,
    StoreUnusableError,
    UnsupportedFormatError,
)
from latermq_broker.store.log.segment import SegmentHeader, encode_segment_header
from latermq_broker.store.offline.inspect import scan_directory, verify_directory
from latermq_broker.store.offline.repair import repair_directory
from latermq_broker.store.records.record import RecordType
from support.memory_files import MemoryDisk, MemoryFiles
from support.store_rig import (
    ROOT,
    SMALL_SEGMENT_BYTES,
    StoreRig,
    names,
    small_config,
    started,
    used,
)
from support.torn_files import Fault, TornFiles

LOG: Final = ROOT / "log"
CHECKPOINTS: Final = ROOT / "ckpt"


def refused(files: MemoryFiles, error: type[StoreError], *words: str) -> StoreError:
    """A start that fails with one clear line and touches nothing but the lock file."""
    before = files.disk.snapshot()
    files.disk.kill()
    with pytest.raises(error) as raised:
        StoreRig(files).start()
    after = files.disk.snapshot()
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
    files.disk.replace(ROOT / "holiday.jpg", b"x")
    refused(files, UnsupportedFormatError, "not a LaterMQ data directory", "holiday.jpg")
    assert ROOT / "LOCK" not in files.inodes
    files.make_directory(ROOT / "log")
    files.disk.replace(ROOT / "log" / "syslog", b"x")
    refused(files, UnsupportedFormatError, "not a LaterMQ data directory")


def test_a_fresh_mount_and_an_aborted_start_are_fine() -> None:
    files = MemoryFiles()
    for name in ("lost+found", "cq", "log"):
        files.make_directory(ROOT / name)
    files.disk.replace(ROOT / "LOCK", b"")
    files.disk.replace(ROOT / "log" / f"{0:020d}.prep", b"\1\2")
    started(files).close()


def test_a_file_where_the_directory_should_be() -> None:
    files = MemoryFiles()
    files.make_directory(ROOT.parent)
    files.disk.replace(ROOT, b"x")
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
    files = MemoryFiles(MemoryDisk(1000))
    with pytest.raises(StoreUnusableError, match="disk full"):
        StoreRig(files).start()
    assert files.disk.used_bytes == 0
    files.disk.capacity_bytes = None
    started(files).close()


def test_no_room_for_a_segment_that_the_end_of_the_log_needs() -> None:
    files = MemoryFiles()
    rig = started(files)
    for _ in range(5):
        rig.append(4000)
    rig.write()
    files.disk.kill()
    files.unlink(LOG / f"{SMALL_SEGMENT_BYTES:020d}.seg")  # power was lost before its name stayed
    files.disk.capacity_bytes = files.disk.used_bytes + 100
    with pytest.raises(StoreUnusableError, match="disk full"):
        rig.start()
    files.disk.capacity_bytes = None
    del rig.model.groups[-1]
    rig.model.written = 4
    rig.restart()


def test_a_newer_format() -> None:
    files = MemoryFiles()
    rig = used(files)
    header = bytearray(encode_segment_header(SegmentHeader(0, 4096, rig.store.log.uuid, 1)))
    header[8] = 2

    header[56:] = xxh3_64_intdigest(bytes(header[:56])).to_bytes(8, "little")
    files.disk.bytes_of(LOG / f"{0:020d}.seg")[:64] = header
    refused(files, UnsupportedFormatError, "has format 2", "newer version", "nothing was changed")


def test_a_hole_in_the_log() -> None:
    files = MemoryFiles()
    used(files)
    first = MemoryFiles(files.disk.clone())
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
    error = refused(files, CorruptRecordError, "the log itself is missing")
    with pytest.raises(CorruptRecordError) as verified:
        verify_directory(ROOT, files)
    assert str(verified.value) == str(error)


@pytest.mark.parametrize("evidence", ["records", "checkpoints", "segments"])
def test_a_first_header_that_is_none_of_ours_in_a_log_of_ours(evidence: str) -> None:
    """Damage for everybody who looks, with its way back; not a foreign file."""
    files = MemoryFiles()
    used(files, rounds={"records": 1, "checkpoints": 5, "segments": 20}[evidence])
    first = files.disk.bytes_of(LOG / f"{0:020d}.seg")
    first[:64] = b"\xff" * 64
    if evidence != "records":
        first[64:] = bytes(len(first) - 64)
    if evidence != "checkpoints":
        for name in names(files, CHECKPOINTS):
            files.unlink(CHECKPOINTS / name)
    refused(files, CorruptRecordError, "is not a segment", "see `latermq log repair --help`")
    assert not verify_directory(ROOT, files).ok
    repair_directory(ROOT, files, 5, lambda record: {})
    assert verify_directory(ROOT, files).ok


@pytest.mark.parametrize("header", [b"", b"\0" * 64, b"\xa9LMQSEG\n" + b"\xff" * 56])
def test_a_damaged_first_header_has_a_way_back(header: bytes) -> None:
    files = MemoryFiles()
    used(files)
    path = LOG / f"{0:020d}.seg"
    files.disk.replace(path, header + files.disk.bytes_of(path)[64:] if header else b"")
    refused(files, CorruptRecordError, "header", "see `latermq log repair --help`")


def test_a_foreign_file_alone_is_none_of_ours() -> None:
    files = MemoryFiles()
    files.make_directory(LOG)
    files.disk.replace(LOG / f"{0:020d}.seg", b"\x7fELF" * 1_000)
    refused(files, UnsupportedFormatError, "is not a segment of a LaterMQ log")
    with pytest.raises(UnsupportedFormatError):
        verify_directory(ROOT, files)


def test_a_new_directory_is_told_from_an_old_one() -> None:
    rig = StoreRig(MemoryFiles())
    report = rig.start()
    assert report.new
    assert rig.store.log.last_store_ms > 0, "its first record has a time"
    rig.store.abandon()
    assert not rig.restart().new


def test_a_log_that_ends_before_its_checkpoint() -> None:
    files = MemoryFiles()
    used(files)
    files.unlink(LOG / f"{SMALL_SEGMENT_BYTES:020d}.seg")
    refused(files, CorruptRecordError, "was taken after it", "restore it from a backup")


@pytest.mark.parametrize("size", [0, 30, 64, 500])
def test_the_segment_of_the_checkpoint_cut_short(size: int) -> None:
    files = MemoryFiles()
    used(files)
    path = LOG / f"{SMALL_SEGMENT_BYTES:020d}.seg"
    files.disk.replace(path, files.disk.bytes_of(path)[:size])
    refused(files, CorruptRecordError, "was taken after it")


def test_the_header_of_the_segment_of_the_checkpoint_is_damaged() -> None:
    files = MemoryFiles()
    used(files)
    files.disk.bytes_of(LOG / f"{SMALL_SEGMENT_BYTES:020d}.seg")[20] ^= 1
    error = refused(files, CorruptRecordError, "does not match its checksum", "a checkpoint covers")
    assert isinstance(error, CorruptRecordError)
    assert error.position == SMALL_SEGMENT_BYTES


def test_a_log_of_another_time_than_its_checkpoint() -> None:
    files = MemoryFiles()
    rig = used(files)
    assert rig.store.log.end > SMALL_SEGMENT_BYTES
    files.disk.bytes_of(LOG / names(files, LOG)[1])[64:] = bytes(SMALL_SEGMENT_BYTES - 64)
    refused(files, CorruptRecordError, "part of the log is missing or of another time")


def test_segments_of_two_logs() -> None:
    files, other = MemoryFiles(), MemoryFiles()
    used(files)
    used(other)
    name = f"{SMALL_SEGMENT_BYTES:020d}.seg"
    files.disk.replace(LOG / name, bytes(other.disk.bytes_of(LOG / name)))
    refused(files, CorruptRecordError, "belongs to another log")


def test_a_checkpoint_of_another_log_is_not_used() -> None:
    files, other = MemoryFiles(), MemoryFiles()
    rig = used(files)
    used(other)
    for name in names(files, CHECKPOINTS):
        files.unlink(CHECKPOINTS / name)
    for name in names(other, CHECKPOINTS):
        files.disk.replace(CHECKPOINTS / name, bytes(other.disk.bytes_of(CHECKPOINTS / name)))
    assert rig.restart().rebuilt


def test_a_foreign_segment_name() -> None:
    files = MemoryFiles()
    used(files)
    files.disk.replace(LOG / "copy of 0.seg", b"x")
    refused(files, UnsupportedFormatError, "copy of 0.seg is not a segment")


def test_a_network_file_system_is_refused_unless_it_is_allowed() -> None:
    files = MemoryFiles()
    files.disk.remote_kind = "NFS"
    refused(files, StoreUnusableError, "/data/broker is on NFS", "allow_network_files")
    assert ROOT not in files.disk.directories
    config = small_config()
    object.__setattr__(config, "allow_network_files", True)
    rig = StoreRig(files, config)
    rig.start()
    rig.close()


class BadSectors(MemoryFiles):
    """A medium that cannot read some bytes of the log."""

    bad: range = range(0)

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        inode = self.disk.opened(fd)
        path = next(path for path, one in self.disk.inodes.items() if one is inode)
        if path.suffix == ".seg" and offset < self.bad.stop and self.bad.start < offset + count:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().pread(fd, count, offset)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        if offset <= self.bad.start and self.bad.stop <= offset + len(data):
            self.bad = range(0)  # disks put another sector in its place
        return super().pwrite(fd, data, offset)


def test_a_sector_that_cannot_be_read_is_damage_and_can_be_given_up() -> None:
    files = BadSectors()
    rig = used(files, rounds=3)
    position, payload = rig.facts[6]
    files.bad = range(position + 50, position + 60)
    refused(files, CorruptRecordError, "the disk cannot read the log", "Input/output error")
    repaired = repair_directory(ROOT, files, 5, lambda record: {})
    [loss] = repaired.losses
    assert loss.position <= position
    assert loss.end >= position + len(payload)
    report = json.loads(bytes(files.disk.bytes_of(repaired.reports[0])))
    assert report["copies"][0]["unreadable_bytes"] > 0
    kept = [fact for fact in rig.facts if not loss.position <= fact[0] < loss.end]
    found = [r for r in scan_directory(ROOT, files) if r.type is RecordType.MESSAGE]
    assert [(r.position, bytes(r.payload)) for r in found] == kept


def test_a_start_says_which_checkpoints_it_passed_over() -> None:
    files = MemoryFiles()
    rig = used(files)
    newest, older = sorted(names(files, CHECKPOINTS), reverse=True)
    files.disk.bytes_of(CHECKPOINTS / newest)[100] ^= 1
    report = rig.restart()
    assert not report.rebuilt
    assert report.passed_over == (f"{newest}: it does not match its checksum",)
    files.disk.kill()
    [queue] = [path for path in files.inodes if path.suffix == ".cq" and path.parent.name == "1"]
    files.disk.bytes_of(queue)[3] ^= 1
    report = rig.restart()
    assert report.rebuilt
    assert [why.partition(": ")[0] for why in report.passed_over] == [newest, older]
    assert report.passed_over[1].endswith(f"{queue} does not match its checkpoint")
