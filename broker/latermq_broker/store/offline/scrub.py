"""Reads one old segment from the medium and checks every record: `python -m … SEGMENT`.

A process of its own: checking a segment takes the interpreter's lock for as long as it computes.
Nothing is written. What it found is one JSON object on standard output. The pages it read are given
back, so that what consumers read stays in memory.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from latermq_broker.store.files import Files, OpenMode, RealFiles
from latermq_broker.store.offline.salvage import FoundSegment, open_segment
from latermq_broker.store.recovery import LogScan, inspect_tail

NICE: Final = 19
DAMAGES_MAX: Final = 100  # told of one segment; the rest is counted


class Scrubbed(NamedTuple):
    records: int
    damaged: int  # places, however many records were there
    damages: list[list[Any]]  # position, why, where it goes on or 0


class ScrubCounts:
    """What checking old segments has found since the start of a broker."""

    def __init__(self) -> None:
        self.segments = 0
        self.records = 0
        self.damages = 0


def scrub_segment(files: Files, path: Path) -> Scrubbed:
    """Check all of a segment that another one follows.

    Raises FileNotFoundError: it was dropped meanwhile; UnsupportedFormatError, OSError.
    """
    _drop_cache(files, path)
    segment = open_segment(files, path, int(path.stem), None)
    scrubbed = _check(segment)
    _drop_cache(files, path)
    return scrubbed


def _check(segment: FoundSegment) -> Scrubbed:
    records = damaged = 0
    damages: list[list[Any]] = []
    position, epoch = segment.base, 0
    while True:
        scan = LogScan([segment], position, epoch, within=True)
        records += sum(1 for _ in scan)
        if scan.position == segment.end:
            return Scrubbed(records, damaged, damages)
        tail = inspect_tail([segment], scan.position, scan.epoch)
        resumes = tail.first.position if tail.first is not None else 0
        damaged += 1
        if damaged <= DAMAGES_MAX:
            damages.append([scan.position, scan.reason, resumes])
        if not resumes:
            return Scrubbed(records, damaged, damages)
        position, epoch = resumes, scan.epoch


def _drop_cache(files: Files, path: Path) -> None:
    """Have what is read next come from the medium; or: what was read need not stay."""
    fd = files.open(path, OpenMode.READ)
    try:
        files.drop_cache(fd)
    finally:
        files.close(fd)


def main(path: str, show: Callable[[str], object]) -> None:
    show(json.dumps(scrub_segment(RealFiles(), Path(path))._asdict()))


if __name__ == "__main__":
    os.nice(NICE)  # whoever else wants the processor has it first
    main(sys.argv[1], print)
