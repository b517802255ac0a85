"""latermq.spark.packing: ranges into tasks."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from latermq.spark.packing import ROWS_WORTH_A_TASK, partition
from latermq.spark.ranges import QueueRange


def whole(topic: str, row_count: int, start: int = 0) -> QueueRange:
    return QueueRange(topic, "e", 0, start, start + row_count)


def test_sixteen_small_queues_are_one_task() -> None:
    ranges = [whole(f"%DLQ%group-{number:02}", 10) for number in range(16)]
    assert partition(ranges, partitions_min=4, rows_max=50_000) == [tuple(ranges)]


def test_a_long_queue_is_split_into_even_pieces() -> None:
    packed = partition([whole("t", 200_000)], partitions_min=4, rows_max=50_000)
    assert [[piece.row_count for piece in pieces] for pieces in packed] == [[50_000]] * 4


def test_a_small_backlog_stays_one_task_whatever_the_minimum() -> None:
    ranges = [whole("t", ROWS_WORTH_A_TASK)]
    assert partition(ranges, partitions_min=16, rows_max=50_000) == [tuple(ranges)]


def test_nothing_gives_no_task() -> None:
    assert partition([], partitions_min=4, rows_max=50_000) == []


ranges_of_queues = st.lists(
    st.tuples(st.integers(0, 1_000), st.integers(1, 30_000)), max_size=8
).map(lambda pairs: [whole(f"t{i}", count, start) for i, (start, count) in enumerate(pairs)])


@given(ranges_of_queues, st.integers(1, 16), st.integers(100, 40_000))
def test_splits_cover_each_range_once_in_order(
    ranges: list[QueueRange], partitions_min: int, rows_max: int
) -> None:
    packed = partition(ranges, partitions_min=partitions_min, rows_max=rows_max)
    assert all(0 < sum(piece.row_count for piece in pieces) <= rows_max for pieces in packed)
    joined: list[QueueRange] = []
    for piece in (piece for pieces in packed for piece in pieces):
        if joined and joined[-1].topic == piece.topic:
            assert joined[-1].end == piece.start
            joined[-1] = joined[-1]._replace(end=piece.end)
        else:
            joined.append(piece)
    assert joined == ranges


@given(ranges_of_queues, st.integers(1, 16), st.integers(100, 40_000))
def test_neighbours_are_packed_as_tightly_as_order_allows(
    ranges: list[QueueRange], partitions_min: int, rows_max: int
) -> None:
    packed = partition(ranges, partitions_min=partitions_min, rows_max=rows_max)
    backlog = sum(each.row_count for each in ranges)
    target = min(max(backlog // partitions_min, ROWS_WORTH_A_TASK), rows_max)
    sizes = [sum(piece.row_count for piece in pieces) for pieces in packed]
    heads = [pieces[0].row_count for pieces in packed]
    assert all(size + head > target for size, head in zip(sizes, heads[1:], strict=False))
    assert all(one[-1] != other[0] for one, other in pairwise(packed))
