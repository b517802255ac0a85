"""latermq.spark.stream_plan: what Spark asks for, in the order in which Spark asks."""

from dataclasses import replace

import pytest

from latermq.spark.offsets import Offsets
from latermq.spark.options import Boundary, Edge, Options, Subscription
from latermq.spark.ranges import Ends
from latermq.spark.stream_plan import StreamPlan, plan_batch
from support.queue_shelf import QueueShelf

OPTIONS = Options(endpoints=("a:1",), subscription=Subscription(topics=("t",)))
LATEST = replace(OPTIONS, starting=Boundary(edge=Edge.LATEST))


class Planning:
    """A plan over a shelf, with a clock that stands still and calls that are counted."""

    def __init__(self, options: Options, row_count: int = 0) -> None:
        self.shelf = QueueShelf()
        self.shelf.create("t")
        self.shelf.append("t", 0, row_count)
        self.now_ms = 0
        self.call_count = 0
        self.plan = self.restarted(options)

    def restarted(self, options: Options) -> StreamPlan:
        self.plan = StreamPlan(options, self.describe, lambda: self.now_ms)
        return self.plan

    def describe(self, at_ms: int) -> Ends:
        self.call_count += 1
        return self.shelf.describe(lambda topic: topic == "t", at_ms)

    def append(self, count: int, at_ms: int = 1) -> None:
        self.shelf.append("t", 0, count, at_ms)
        self.now_ms += 1_000


def reached(offsets: Offsets) -> int:
    return offsets.topics["t"][0]


def test_the_initial_offset_stays() -> None:
    planning = Planning(LATEST, row_count=5)
    first = planning.plan.initial()
    planning.append(3)
    assert planning.plan.initial() is first
    assert reached(first) == 5


@pytest.mark.parametrize(
    "starting", [Boundary(edge=Edge.LATEST), Boundary(edge=Edge.TIME, at_ms=500)]
)
def test_a_start_that_moves_is_written_down_by_an_empty_batch(starting: Boundary) -> None:
    planning = Planning(replace(OPTIONS, starting=starting), row_count=5)
    start = planning.plan.initial()
    planning.append(3, at_ms=1_000)
    assert planning.plan.latest(start, None) is start
    assert planning.plan.partitions(start, start) == []
    assert reached(planning.plan.latest(start, None)) == 8


def test_earliest_reads_at_once() -> None:
    planning = Planning(OPTIONS, row_count=5)
    assert reached(planning.plan.latest(planning.plan.initial(), None)) == 5


def test_after_a_batch_that_was_under_way_nothing_is_held_back() -> None:
    planning = Planning(LATEST, row_count=5)
    start = planning.plan.initial()
    planning.append(3)
    plan = planning.restarted(LATEST)
    plan.freeze()
    assert reached(plan.initial()) == 8  # later than before the crash
    assert plan.partitions(plan.initial(), start) == []
    assert reached(plan.latest(start, None)) == 8


def test_ends_are_asked_for_at_most_five_times_a_second() -> None:
    planning = Planning(OPTIONS, row_count=5)
    offsets = planning.plan.latest(planning.plan.initial(), None)
    planning.call_count = 0
    for _ in range(77 * 10):  # what Spark does when idle
        planning.now_ms += 13
        planning.plan.latest(offsets, None)
        planning.plan.report()
    assert planning.call_count <= 5 * 10


def test_available_now_ends_where_it_began() -> None:
    planning = Planning(OPTIONS, row_count=40)
    planning.plan.freeze()
    planning.append(7)
    offsets = planning.plan.initial()
    batch_ends = []
    while (end := planning.plan.latest(offsets, 12)) != offsets:
        planning.append(7)
        batch_ends.append(reached(end))
        offsets = end
    assert batch_ends == [12, 24, 36, 40]
    assert reached(planning.plan.report()) > 40


def test_available_now_from_latest_reads_nothing_and_ends() -> None:
    planning = Planning(LATEST, row_count=5)
    planning.plan.freeze()
    planning.append(3)  # initial() is then beyond the frozen end
    start = planning.plan.initial()
    assert [planning.plan.latest(start, None) for _ in range(3)] == [start] * 3


def test_a_limit_is_obeyed_as_given() -> None:
    planning = Planning(replace(OPTIONS, offsets_per_trigger_max=3), row_count=40)
    start = planning.plan.initial()
    assert reached(planning.plan.latest(start, 10)) == 10
    assert reached(planning.plan.latest(start, None)) == 40


def test_a_batch_waits_for_enough_rows_or_long_enough() -> None:
    options = replace(OPTIONS, offsets_per_trigger_min=10, trigger_delay_ms_max=60_000)
    planning = Planning(options, row_count=1)
    end = planning.plan.latest(planning.plan.initial(), None)
    assert reached(end) == 1  # after a start nothing is held back
    planning.append(9)
    assert planning.plan.latest(end, None) is end
    planning.append(1)
    end = planning.plan.latest(end, None)
    assert reached(end) == 11
    planning.append(2)
    assert planning.plan.latest(end, None) is end
    planning.now_ms += 60_000
    assert reached(planning.plan.latest(end, None)) == 13


def test_available_now_does_not_wait_for_enough() -> None:
    options = replace(OPTIONS, offsets_per_trigger_min=10)
    planning = Planning(options, row_count=1)
    end = planning.plan.latest(planning.plan.initial(), None)
    planning.append(2)
    planning.plan.freeze()
    assert reached(planning.plan.latest(end, None)) == 3


def test_before_spark_4_2_the_plan_knows_the_start_itself() -> None:
    planning = Planning(OPTIONS, row_count=10)
    start = planning.plan.initial()
    end = planning.plan.latest(None, 4)
    assert reached(end) == 4
    assert reached(planning.plan.latest(None, 4)) == 4  # not planned yet
    planning.plan.partitions(start, end)
    assert reached(planning.plan.latest(None, 4)) == 8
    plan = planning.restarted(OPTIONS)
    plan.partitions(end, end)  # what 4.0 and 4.1 do with the last offset at a restart
    assert reached(plan.latest(None, 4)) == 8


class TestBatch:
    def test_from_earliest_to_latest(self) -> None:
        planning = Planning(OPTIONS, row_count=10)
        assert self.read(planning, OPTIONS) == [f"row {number}" for number in range(10)]

    def test_between_offsets(self) -> None:
        options = replace(
            OPTIONS,
            starting=Boundary(edge=Edge.OFFSETS, offsets={"t": {0: 3}}),
            ending=Boundary(edge=Edge.OFFSETS, offsets={"t": {0: 5}}),
        )
        assert self.read(Planning(options, row_count=10), options) == ["row 3", "row 4"]

    def test_between_times(self) -> None:
        options = replace(
            OPTIONS,
            starting=Boundary(edge=Edge.TIME, at_ms=100),
            ending=Boundary(edge=Edge.TIME, at_ms=200),
        )
        planning = Planning(options, row_count=2)
        planning.append(1, at_ms=100)
        planning.append(1, at_ms=199)
        planning.append(1, at_ms=200)
        assert self.read(planning, options) == ["row 2", "row 3"]

    def test_nothing_there_is_no_task(self) -> None:
        planning = Planning(OPTIONS)
        assert plan_batch(OPTIONS, planning.describe) == []

    def read(self, planning: Planning, options: Options) -> list[str]:
        packed = plan_batch(options, planning.describe)
        return [row for ranges in packed for row in planning.shelf.read(ranges)]
