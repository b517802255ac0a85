"""Cuts ranges of queues into Spark partitions, one task each.

A task costs about 50 ms of a core however little it reads, so neighbours are packed together; a
queue is random access, so a long range is split. The planner cannot see how many cores there are:
`partitions_min` is what stands in for them.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from latermq.spark.ranges import QueueRange

ROWS_WORTH_A_TASK: Final = 5_000


def partition(
    ranges: Sequence[QueueRange], *, partitions_min: int, rows_max: int
) -> list[tuple[QueueRange, ...]]:
    """Pack every row of every range exactly once, in the order given, `rows_max` to a partition."""
    backlog = sum(each.row_count for each in ranges)
    target = min(max(backlog // partitions_min, ROWS_WORTH_A_TASK), rows_max)
    return list(_pack(_split(ranges, target), target))


def _split(ranges: Iterable[QueueRange], rows_max: int) -> Iterator[QueueRange]:
    for whole in ranges:
        piece_count = -(-whole.row_count // rows_max)
        for index in range(piece_count):
            yield whole._replace(
                start=whole.start + whole.row_count * index // piece_count,
                end=whole.start + whole.row_count * (index + 1) // piece_count,
            )


def _pack(pieces: Iterable[QueueRange], rows_max: int) -> Iterator[tuple[QueueRange, ...]]:
    packed: list[QueueRange] = []
    row_count = 0
    for piece in pieces:
        if packed and row_count + piece.row_count > rows_max:
            yield tuple(packed)
            packed, row_count = [], 0
        packed.append(piece)
        row_count += piece.row_count
    if packed:
        yield tuple(packed)
