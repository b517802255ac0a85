"""Directories that earlier versions wrote: opened by this one, they hold what they held.

`python -m golden.make` adds one; those that are there never change.
"""

import json
import tarfile
from pathlib import Path
from typing import Final

import pytest

from golden.make import EXPECTED, HERE, SCENARIOS, View, view
from latermq_broker.store.offline.inspect import verify_directory
from support.audit import locked
from support.engine_rig import EngineRig, short_store
from support.memory_files import MemoryDisk, MemoryFiles
from support.recount import check_uses

ARCHIVES: Final = sorted(HERE.glob("*.tar.xz"))
BYTES_MAX: Final = 8 << 10


def unpacked(archive: Path) -> tuple[MemoryFiles, View]:
    disk = MemoryDisk()
    expected: View = {}
    with tarfile.open(archive, "r:xz") as members:
        for member in members:
            file = members.extractfile(member)
            assert file is not None
            if member.name == EXPECTED:
                expected = json.load(file)
                continue
            path = EngineRig.DIRECTORY / member.name
            disk.directories.update((path.parent, *path.parents))
            disk.replace(path, file.read())
    return MemoryFiles(disk), expected


def opened(files: MemoryFiles, now_ms: int) -> EngineRig:
    return EngineRig(files=files, store=short_store(64 << 10), now_ms=now_ms)


def test_every_scenario_has_its_archive() -> None:
    assert {path.name.removesuffix(".tar.xz") for path in ARCHIVES} >= set(SCENARIOS)
    assert all(path.stat().st_size <= BYTES_MAX for path in ARCHIVES)


@pytest.mark.parametrize("checkpoints", [True, False], ids=["checkpoints", "log alone"])
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_what_was_there_is_there(archive: Path, checkpoints: bool) -> None:
    files, expected = unpacked(archive)
    if not checkpoints:
        for path in [path for path in files.inodes if path.suffix == ".ckpt"]:
            del files.inodes[path]
    assert verify_directory(EngineRig.DIRECTORY, files).ok
    rig = opened(files, expected["now_ms"])
    found = json.loads(json.dumps(view(rig.engine, rig.now_ms)))
    assert {name: found[name] for name in expected} == expected
    check_uses(rig.engine)
    locked(EngineRig.DIRECTORY, rig.config.store, files, rig.now_ms)


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_it_goes_on_from_there(archive: Path) -> None:
    files, expected = unpacked(archive)
    rig = opened(files, expected["now_ms"])
    waiting = sum(name == "BACKOFF" for name, *_ in expected["pending"])
    rig.send("new", body=b"new")
    rig.advance(3 * 3_600_000)
    names = rig.names()
    assert "new" in names
    assert len(names) > waiting
    before = view(rig.engine, rig.now_ms)
    rig.checkpoint()
    rig.crash()
    assert view(rig.engine, rig.now_ms) == before
