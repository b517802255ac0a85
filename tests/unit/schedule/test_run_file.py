"""Run files: golden bytes, and no byte of one may change unseen."""

from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

from latermq_broker.errors import UnsupportedFormatError
from latermq_broker.schedule.run_file import (
    DamagedRunError,
    RunFile,
    encode_run,
    pack_entry,
    unpack_entry,
)
from latermq_broker.store.files import OpenMode
from support.memory_files import MemoryFiles

DIRECTORY = Path("/timer")
MINUTE = 28_333_333
DUES = {
    MINUTE: [(MINUTE * 60_000 + 59_999, 64), (MINUTE * 60_000, 1 << 40)],
    MINUTE + 7: [((MINUTE + 7) * 60_000 + 1, 4_096)],
}
NAME = "1.run"
GOLDEN_1 = (
    "a94c4d5152554e0a0100010002000000030000000000000000000000000000001555b0010200000000000000"
    "000000001c55b0010100000002000000000000000800000000005fea00000000200000000002000000000100"
    "ecd7ab1b415f915b"
)
GOLDEN = (
    "a94c4d5152554e0a020001000200000003000000000000001947fa85555073d21555b0010200000000000000"
    "000000001c55b0010100000002000000000000000800000000005fea00000000200000000002000000000100"
    "81f5b5f35266d089"
)


def encoded() -> bytes:
    minutes = [
        (minute, [pack_entry(*entry).to_bytes(8, "little") for entry in entries])
        for minute, entries in DUES.items()
    ]
    return b"".join(encode_run(NAME, minutes))


def opened(data: bytes, name: str = NAME) -> RunFile:
    files = MemoryFiles()
    files.make_directory(DIRECTORY)
    fd = files.open(DIRECTORY / name, OpenMode.CREATE)
    files.pwrite(fd, data, 0)
    files.close(fd)
    return RunFile.open(files, DIRECTORY, name)


def entries(run: RunFile, minute: int) -> list[tuple[int, int]]:
    data = run.packed(minute)
    packed = [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]
    return [unpack_entry(minute, one) for one in packed]


def test_golden() -> None:
    assert encoded().hex() == GOLDEN


@pytest.mark.parametrize("golden", [GOLDEN_1, GOLDEN])
def test_minutes_are_read_one_by_one(golden: str) -> None:
    run = opened(bytes.fromhex(golden))
    assert len(run) == 3
    assert list(run.minutes) == list(DUES)
    for minute, expected in DUES.items():
        assert entries(run, minute) == expected
    assert entries(run, MINUTE + 1) == entries(run, MINUTE - 1) == entries(run, MINUTE + 8) == []
    assert [run.count_from(MINUTE + step) for step in (-1, 0, 1, 7, 8)] == [3, 3, 1, 1, 0]


def test_any_byte_changed_or_cut_is_seen() -> None:
    data = encoded()
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1
        with pytest.raises(DamagedRunError):
            opened(bytes(changed))
        with pytest.raises(DamagedRunError):
            opened(data[:at])


def test_a_run_with_the_name_of_another_is_damage() -> None:
    with pytest.raises(DamagedRunError, match=r"2\.run was written under another name"):
        opened(encoded(), "2.run")
    assert len(opened(bytes.fromhex(GOLDEN_1), "2.run")) == 3  # it does not say


def test_a_missing_run_is_damage() -> None:
    files = MemoryFiles()
    files.make_directory(DIRECTORY)
    with pytest.raises(DamagedRunError, match="missing"):
        RunFile.open(files, DIRECTORY, "2.run")


def test_a_newer_run_is_no_damage() -> None:
    changed = bytearray(encoded())
    changed[8] = 3  # the format
    with pytest.raises(DamagedRunError):  # only the header says so
        opened(bytes(changed))
    changed[-8:] = xxh3_64_intdigest(bytes(changed[:-8])).to_bytes(8, "little")
    with pytest.raises(UnsupportedFormatError, match="has format 3, this version reads up to 2"):
        opened(bytes(changed))
