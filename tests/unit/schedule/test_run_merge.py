"""Merging timer runs: what is damaged is not written anew under a good checksum."""

from pathlib import Path

import pytest

from latermq_broker.schedule.run_file import DamagedRunError, RunFile, encode_run, pack_entry
from latermq_broker.schedule.run_merge import MERGED_NAME, merge_runs
from latermq_broker.store.files import RealFiles

MINUTE = 30_000_000


def run_with(path: Path, *positions: int) -> None:
    entries = [
        pack_entry(MINUTE * 60_000 + number, position).to_bytes(8, "little")
        for number, position in enumerate(positions)
    ]
    path.write_bytes(b"".join(encode_run(path.name, [(MINUTE, entries)])))


def test_a_damaged_run_is_not_merged(tmp_path: Path) -> None:
    files = RealFiles()
    run_with(tmp_path / "a.run", 64, 128)
    run_with(tmp_path / "b.run", 192)
    merge_runs(files, tmp_path, 0, "c.run", ["a.run", "b.run"])
    (tmp_path / MERGED_NAME).rename(tmp_path / "c.run")
    merged = RunFile.open(files, tmp_path, "c.run")
    assert len(merged) == 3
    merged.close()
    damaged = bytearray((tmp_path / "b.run").read_bytes())
    damaged[-12] ^= 1
    (tmp_path / "b.run").write_bytes(damaged)
    with pytest.raises(DamagedRunError, match=r"b\.run does not match its checksum"):
        merge_runs(files, tmp_path, 0, "c.run", ["a.run", "b.run"])


def test_a_run_with_another_name_is_not_merged(tmp_path: Path) -> None:
    run_with(tmp_path / "a.run", 64)
    run_with(tmp_path / "b.run", 192)
    (tmp_path / "b.run").rename(tmp_path / "c.run")
    with pytest.raises(DamagedRunError, match=r"c\.run was written under another name"):
        merge_runs(RealFiles(), tmp_path, 0, "d.run", ["a.run", "c.run"])
