"""One old segment checked record by record, from the medium."""

import json
from pathlib import Path

import pytest

from latermq_broker.store.offline.scrub import main, scrub_segment
from support.memory_files import MemoryFiles
from support.store_rig import ROOT, SMALL_SEGMENT_BYTES, used

FIRST = ROOT / "log" / f"{0:020d}.seg"


class Dropping(MemoryFiles):
    dropped = 0

    def drop_cache(self, fd: int) -> None:
        self.dropped += 1
        super().drop_cache(fd)


def test_a_sound_segment() -> None:
    files = Dropping()
    rig = used(files)
    before = files.disk.snapshot()
    files.dropped = 0
    found = scrub_segment(files, FIRST)
    in_first = [position for position, _ in rig.facts if position < SMALL_SEGMENT_BYTES]
    assert found.records == len(in_first) + 2  # MARK, BLANK
    assert (found.damaged, found.damages) == (0, [])
    assert files.dropped == 2
    assert files.disk.snapshot() == before
    assert files.open_count == 0


def test_every_damage_and_where_it_goes_on() -> None:
    files = MemoryFiles()
    rig = used(files)
    whole = scrub_segment(files, FIRST).records
    for index in (1, 4):
        files.disk.bytes_of(FIRST)[rig.facts[index][0] + 45] ^= 1
    found = scrub_segment(files, FIRST)
    assert found.records == whole - 2
    assert [(one[0], one[2]) for one in found.damages] == [
        (rig.facts[index][0], rig.facts[index + 1][0]) for index in (1, 4)
    ]
    files.disk.bytes_of(FIRST)[20] ^= 1
    found = scrub_segment(files, FIRST)
    assert found.damaged == 3
    assert "does not match its checksum" in found.damages[0][1]


def test_an_end_that_is_gone() -> None:
    files = MemoryFiles()
    rig = used(files)
    last = max(position for position, _ in rig.facts if position < SMALL_SEGMENT_BYTES)
    data = files.disk.bytes_of(FIRST)
    data[last:] = bytes(len(data) - last)
    found = scrub_segment(files, FIRST)
    assert [(one[0], one[2]) for one in found.damages] == [(last, 0)]


def test_a_segment_that_was_dropped_meanwhile() -> None:
    with pytest.raises(FileNotFoundError):
        scrub_segment(MemoryFiles(), FIRST)


def test_as_a_program(tmp_path: Path) -> None:
    files = MemoryFiles()
    used(files)
    path = tmp_path / FIRST.name
    path.write_bytes(files.disk.bytes_of(FIRST))
    shown: list[str] = []
    main(str(path), shown.append)
    assert json.loads(shown[0])["damages"] == []
