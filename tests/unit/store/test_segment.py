"""Segment files: the golden header, and a file that is either whole or not there."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from xxhash import xxh3_64_intdigest

from latermq_broker.errors import CorruptRecordError, StoreFullError, UnsupportedFormatError
from latermq_broker.store.files import OpenMode
from latermq_broker.store.log.segment import (
    Segment,
    SegmentHeader,
    decode_segment_header,
    encode_segment_header,
    segment_name,
)
from support.memory_files import MemoryDisk, MemoryFiles
from support.torn_files import Fault, TornFiles

BASE: Final = 0x1000_0000
GOLDEN: Final = bytes.fromhex(
    "a94c4d515345470a 0100010040000000 0000001000000000 0000001000000000"
    "000102030405060708090a0b0c0d0e0f 0068e5cf8b010000 61f25ff329123f79"
)
HEADER: Final = SegmentHeader(BASE, BASE, bytes(range(16)), 1_700_000_000_000)
DIRECTORY: Final = Path("/log")
PREPARED: Final = DIRECTORY / "next.prep"


def test_golden_header() -> None:
    assert encode_segment_header(HEADER) == GOLDEN
    assert decode_segment_header(GOLDEN, BASE, "a.seg") == HEADER


def test_every_flipped_bit_and_every_cut_is_refused() -> None:
    for bit in range(len(GOLDEN) * 8):
        flipped = bytearray(GOLDEN)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptRecordError) as raised:
            decode_segment_header(bytes(flipped), BASE, "a.seg")
        assert raised.value.position == BASE
    for size in range(len(GOLDEN)):
        with pytest.raises(CorruptRecordError, match="never written"):
            decode_segment_header(GOLDEN[:size], BASE, "a.seg")


def test_a_segment_in_the_wrong_place() -> None:
    with pytest.raises(CorruptRecordError, match="was written for position 268435456"):
        decode_segment_header(GOLDEN, 0, "a.seg")


def test_the_first_file_of_something_else_is_not_called_damaged() -> None:
    with pytest.raises(UnsupportedFormatError, match="not a segment"):
        decode_segment_header(b"PK" + GOLDEN[2:], 0, "a.seg")


@pytest.mark.parametrize(("offset", "what"), [(8, "has format 2"), (10, "uses checksum 2")])
def test_a_newer_format(offset: int, what: str) -> None:
    newer = bytearray(GOLDEN[:56])
    newer[offset] = 2
    newer += xxh3_64_intdigest(bytes(newer)).to_bytes(8, "little")
    with pytest.raises(UnsupportedFormatError, match=what):
        decode_segment_header(bytes(newer), BASE, "a.seg")


@pytest.mark.parametrize("zero_fill", [False, True])
def test_prepared_whole_and_zero(zero_fill: bool) -> None:
    files = TornFiles()
    files.make_directory(DIRECTORY)
    header = SegmentHeader(0, 8192, bytes(16), 5)
    segment = Segment.prepare(files, PREPARED, header, zero_fill=zero_fill)
    assert files.disk.bytes_of(PREPARED) == encode_segment_header(header).ljust(8192, b"\0")
    segment.publish(DIRECTORY / segment_name(0))
    files.sync_directory(DIRECTORY)
    files.sync_directory(DIRECTORY.parent)
    after = files.power_loss(1)
    assert after.disk.snapshot() == files.disk.snapshot()
    assert list(after.inodes) == [DIRECTORY / "00000000000000000000.seg"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("call", range(3, 6))
def test_no_room_leaves_nothing_behind(number: int, call: int) -> None:
    files = TornFiles()
    files.make_directory(DIRECTORY)
    files.fault = Fault(call, number)
    with pytest.raises(StoreFullError, match="a further segment of 8192 bytes"):
        Segment.prepare(files, PREPARED, SegmentHeader(0, 8192, bytes(16), 5), zero_fill=False)
    assert not files.inodes
    assert files.open_count == 0


def test_a_partly_allocated_file_gives_its_room_back() -> None:
    files = MemoryFiles(MemoryDisk(10_000))
    files.make_directory(DIRECTORY)
    Segment.prepare(files, PREPARED, SegmentHeader(0, 8192, bytes(16), 5), zero_fill=False)
    header = SegmentHeader(8192, 8192, bytes(16), 5)
    with pytest.raises(StoreFullError):
        Segment.prepare(files, DIRECTORY / "more.prep", header, zero_fill=True)
    assert files.disk.used_bytes == 8192


def test_other_trouble_is_not_called_full() -> None:
    files = TornFiles()
    files.make_directory(DIRECTORY)
    files.fault = Fault(3, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        Segment.prepare(files, PREPARED, SegmentHeader(0, 8192, bytes(16), 5), zero_fill=False)
    assert not files.inodes


class Interrupted(MemoryFiles):
    """While a read is under way, another thread has its turn."""

    meanwhile: Callable[[], object] = staticmethod(bool)

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        data = super().pread(fd, count, offset)
        self.meanwhile()
        return data


def test_a_read_closes_what_it_opened_and_nothing_else() -> None:
    files = Interrupted()
    files.disk.replace(Path("/x.seg"), bytes(100))
    segment = Segment(files, Path("/x.seg"), 0, 100, None)
    files.meanwhile = segment.writable
    segment.pread(1, 0)
    assert files.open_count == 1  # the one for writing
    files.meanwhile = segment.release
    segment.pread(1, 0)
    assert files.open_count == 0


def test_a_map_sees_later_writes_and_a_short_file_as_far_as_it_goes() -> None:
    files = MemoryFiles()
    files.disk.replace(Path("/x.seg"), bytes(100))
    segment = Segment(files, Path("/x.seg"), 4096, 8192, None)
    view = segment.view()
    assert view[90:200] == bytes(10)
    fd = files.open(Path("/x.seg"), OpenMode.WRITE)
    files.pwrite(fd, b"new", 95)
    files.close(fd)
    assert view[95:98] == b"new"
    assert segment.pread(3, 4096 + 95) == b"new"
    segment.close()
    assert files.open_count == 0
