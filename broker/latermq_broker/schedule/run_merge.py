"""Many timer runs into one, in a process of its own.

    python -m …run_merge DIRECTORY UNTIL INTO NAME…

Reads minute by minute, so it needs little memory; minutes before UNTIL are over and left out. The
result is `merge.tmp` in the directory, written to be called INTO: the broker gives it that name
when it suits (`Checkpoints.adopt_merge`); the next merge writes over one that nobody takes up.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from latermq_broker.schedule.run_file import RunFile, encode_run_by_minute
from latermq_broker.store.files import Files, OpenMode, RealFiles, write_all

MERGED_NAME: Final = "merge.tmp"
_WRITE_BYTES: Final = 1 << 20


def merge_runs(files: Files, directory: Path, until: int, into: str, names: Sequence[str]) -> None:
    """Merge runs into `merge.tmp`. Raises as `RunFile.open`: then it is absent or unfinished.

    Args:
        into: the name that the merged run is to have.
    """
    if MERGED_NAME in files.list_directory(directory):
        files.unlink(directory / MERGED_NAME)
    runs = [RunFile.open(files, directory, name) for name in names]
    fd = files.open(directory / MERGED_NAME, OpenMode.CREATE)
    try:
        at = 0
        for piece in _pieces(encode_run_by_minute(into, _minutes(runs, until))):
            write_all(files, fd, piece, at)
            at += len(piece)
        files.datasync(fd)
    finally:
        files.close(fd)
        for run in runs:
            run.close()


def _minutes(runs: Sequence[RunFile], until: int) -> "dict[int, tuple[int, Iterator[bytes]]]":
    """Map each minute to (how many entries, their bytes when they are asked for)."""
    counts: dict[int, int] = {}
    for run in runs:
        for minute, count in run.counts():
            if minute >= until:
                counts[minute] = counts.get(minute, 0) + count

    def entries(minute: int) -> Iterator[bytes]:
        return (run.packed(minute) for run in runs)

    return {minute: (counts[minute], entries(minute)) for minute in sorted(counts)}


def _pieces(small: Iterator[bytes]) -> Iterator[bytes]:
    """Join small pieces to about a mebibyte each."""
    waiting: list[bytes] = []
    size = 0
    for piece in small:
        waiting.append(piece)
        size += len(piece)
        if size >= _WRITE_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    yield b"".join(waiting)


if __name__ == "__main__":
    merge_runs(RealFiles(), Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
