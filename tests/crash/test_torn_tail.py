"""The last 4 KB of a whole broker's log, cut at each byte: what was whole before it stays, no more.

The tail crosses from one segment into the next, its header, its BLANK and groups included, and
holds records of most types. What must come back is what a log has that ends cleanly there.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Final

import pytest

from latermq_broker.store.log.segment import SEGMENT_HEADER_BYTES
from latermq_broker.store.offline.inspect import scan_directory
from latermq_broker.store.records.record import HEADER_BYTES, RecordType
from support.engine_facts import facts
from support.recount import check_uses
from support.simulation import DIRECTORY, Simulation
from support.torn_files import TornFiles

TAIL_BYTES: Final = 4096
GARBAGE: Final = Random(7).randbytes(1 << 16)
SEED: Final = 19

Cut = Callable[[TornFiles, Path, int], None]


def zero(files: TornFiles, path: Path, at: int) -> None:
    data = files.disk.bytes_of(path)
    data[at:] = bytes(len(data) - at)


def random(files: TornFiles, path: Path, at: int) -> None:
    data = files.disk.bytes_of(path)
    data[at:] = GARBAGE[: len(data) - at]


def shorter(files: TornFiles, path: Path, at: int) -> None:
    del files.disk.bytes_of(path)[at:]


@cache
def dead_broker() -> Simulation:
    """Nothing of its last 4 KB was synced, and they lie in two segments."""
    simulation = Simulation(SEED, image_share=0)
    simulation.begin()
    log = simulation.engine.store.log
    while len(log.segments) < 2 or log.end - log.segments[-1].base < TAIL_BYTES // 2:
        simulation.clients.act()
        simulation.now_ms += 40
        simulation.clients.now_ms = simulation.now_ms
        simulation.engine.tick(simulation.now_ms)
    simulation.engine.write()
    simulation.die(power=False)
    return simulation


def state_of(simulation: Simulation, files: TornFiles) -> tuple[int, dict[str, object]]:
    engine = simulation.opened(files)
    assert engine.recovery is not None
    check_uses(engine)
    found = engine.recovery.end, facts(engine)
    engine.abandon()
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("cut", [zero, random, shorter])
def test_cut_at_each_byte(cut: Cut) -> None:
    simulation = dead_broker()
    disk = simulation.files.disk
    segments = sorted(path for path in disk.inodes if path.suffix == ".seg")
    records = list(scan_directory(DIRECTORY, TornFiles(disk.clone())))
    end = records[-1].next_position
    closed = max(r.position for r in records if r.type is RecordType.BLANK) + HEADER_BYTES
    boundaries = [r.next_position for r in records if not r.more and r.type is not RecordType.BLANK]
    expected: dict[int, dict[str, object]] = {}
    for at in range(end - TAIL_BYTES, end):
        path = max(path for path in segments if int(path.stem) <= at)
        if cut is shorter and path != segments[-1]:
            continue  # only the last file may be short: unit/store/test_torn_tail.py
        copy = TornFiles(disk.clone())
        base = int(path.stem)
        before = bytes(disk.bytes_of(path))
        cut(copy, path, at - base)
        after = copy.disk.bytes_of(path)
        same = (i for i, byte in enumerate(before) if i >= len(after) or after[i] != byte)
        first = base + next(same, len(before))
        if path != segments[-1] and first >= closed:
            continue  # what lies behind BLANK means nothing
        kept = max(boundary for boundary in boundaries if boundary <= first)
        try:
            found, state = state_of(simulation, copy)
            assert kept <= found <= first or found - kept <= 2 * SEGMENT_HEADER_BYTES
            if kept not in expected:
                expected[kept] = clean_state(simulation, kept)
            assert state == expected[kept]
        except BaseException as error:
            error.add_note(f"{cut.__name__} at {at}")
            raise
    assert len(expected) > 3


def clean_state(simulation: Simulation, end: int) -> dict[str, object]:
    """Of the log that ends at a boundary between groups."""
    copy = TornFiles(simulation.files.disk.clone())
    for path in [path for path in copy.inodes if path.suffix == ".seg"]:
        base = int(path.stem)
        if base >= end:
            del copy.inodes[path]
        elif end - base < len(copy.disk.bytes_of(path)):
            zero(copy, path, end - base)
    return state_of(simulation, copy)[1]
