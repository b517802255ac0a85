"""A streaming query against a broker that moves on, loses things, and a driver that dies.

`Query` does what Spark does with a source: offsets written down before a batch, the batch planned
from them, its rows put into the sink under the batch's number, then the commit. It may be killed
between any two of these.
"""

import json
from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from latermq.spark.offsets import Offsets
from latermq.spark.options import Boundary, Edge, Options, Subscription
from latermq.spark.ranges import Ends
from latermq.spark.stream_plan import StreamPlan
from support.queue_shelf import QueueShelf

OPTIONS = Options(endpoints=("a:1",), subscription=Subscription(pattern="t.*"), offset_poll_ms=0)


class Killed(Exception):
    """The driver died here."""


class Query:
    def __init__(self, shelf: QueueShelf, options: Options) -> None:
        self.shelf = shelf
        self.options = options
        self.log: list[str] = []  # Spark's offset log: one JSON text for each batch
        self.commit_count = 0
        self.sink: dict[int, list[str]] = {}  # by batch: a batch done twice is there once
        self.plan = self.started()

    def started(self) -> StreamPlan:
        self.plan = StreamPlan(self.options, self.describe, lambda: 0)
        return self.plan

    def describe(self, at_ms: int) -> Ends:
        return self.shelf.describe(self.options.subscription.__contains__, at_ms)

    def restart(self) -> None:
        """With a checkpoint: first the batch that was written down and not committed."""
        self.started()
        if len(self.log) > self.commit_count:
            self.run_batch(kill_at=0)

    def trigger(self, limit: int | None, kill_at: int) -> bool:
        """Plan and run one batch if there is news. kill_at: 0 never, 1 … 3 the moment."""
        start = self.offsets(len(self.log) - 1)
        end = json.dumps(self.plan.latest(start, limit).encode())
        if self.log and end == self.log[-1]:
            return False
        if kill_at == 1:
            raise Killed
        self.log.append(end)
        self.run_batch(kill_at)
        return True

    def run_batch(self, kill_at: int) -> None:
        batch_id = len(self.log) - 1
        if kill_at == 2:
            raise Killed
        start, end = self.offsets(batch_id - 1), self.offsets(batch_id)
        packed = self.plan.partitions(start, end)
        self.sink[batch_id] = [row for ranges in packed for row in self.shelf.read(ranges)]
        if kill_at == 3:
            raise Killed
        self.commit_count += 1

    def offsets(self, batch_id: int) -> Offsets:
        if batch_id < 0:
            return Offsets.decode(json.loads(json.dumps(self.plan.initial().encode())))
        return Offsets.decode(json.loads(self.log[batch_id]))

    def drain(self, limit: int | None) -> None:
        for _ in range(10_000):
            if not self.trigger(limit, kill_at=0):
                return
        raise AssertionError("it never ends")

    def rows(self) -> list[str]:
        return [row for batch_id in sorted(self.sink) for row in self.sink[batch_id]]


limits = st.none() | st.integers(1, 40)
moments = st.sampled_from([0, 0, 1, 2, 3])


class Streams(RuleBasedStateMachine):
    """Rules of every machine: rows arrive, queues appear, batches run, drivers die."""

    options = OPTIONS

    def __init__(self) -> None:
        super().__init__()
        self.shelf = QueueShelf()

    @initialize(queue_count=st.integers(1, 3), row_count=st.integers(0, 30))
    def begin(self, queue_count: int, row_count: int) -> None:
        self.shelf.create("t", queue_count)
        self.shelf.append("t", 0, row_count)
        self.query = Query(self.shelf, self.options)

    @rule(data=st.data(), count=st.integers(1, 30))
    def append(self, data: st.DataObject, count: int) -> None:
        topic = data.draw(st.sampled_from(sorted(self.shelf.topics)))
        queue_count = len(self.shelf.topics[topic].queues)
        self.shelf.append(topic, data.draw(st.integers(0, queue_count - 1)), count)

    @precondition(lambda self: len(self.shelf.topics["t"].queues) < 5)
    @rule()
    def add_queue(self) -> None:
        self.shelf.add_queue("t")

    @precondition(lambda self: "t2" not in self.shelf.topics)
    @rule()
    def add_topic(self) -> None:
        self.shelf.create("t2")

    @rule(limit=limits, kill_at=moments)
    def trigger(self, limit: int | None, kill_at: int) -> None:
        try:
            self.query.trigger(limit, kill_at)
        except Killed:
            self.query.restart()

    @rule(limit=limits)
    def available_now(self, limit: int | None) -> None:
        self.query.restart()
        self.query.plan.freeze()
        self.query.drain(limit)

    def teardown(self) -> None:
        self.query.restart()
        self.query.drain(None)
        self.check_all_there()

    def check_all_there(self) -> None:
        raise NotImplementedError


class FromEarliest(Streams):
    """Nothing is deleted: every row once, and in the order of its queue."""

    @invariant()
    def no_row_twice(self) -> None:
        if hasattr(self, "query"):
            rows = self.query.rows()
            assert len(rows) == len(set(rows))

    def check_all_there(self) -> None:
        rows = self.query.rows()
        assert set(rows) == self.shelf.everything()
        places = {row: place for place, row in enumerate(rows)}
        for topic in self.shelf.topics.values():
            for queue in topic.queues:
                assert sorted(queue.rows, key=places.__getitem__) == queue.rows


class FromLatest(FromEarliest):
    """From the moment the first batch is written down, every row once."""

    options = replace(OPTIONS, starting=Boundary(edge=Edge.LATEST))
    before: set[str] | None = None  # what was there when the position was written down

    @rule(limit=limits, kill_at=moments)
    def trigger(self, limit: int | None, kill_at: int) -> None:
        there = self.shelf.everything()
        super().trigger(limit, kill_at)
        self.note(there)

    @rule(limit=limits)
    def available_now(self, limit: int | None) -> None:
        there = self.shelf.everything()
        super().available_now(limit)
        self.note(there)

    def note(self, there: set[str]) -> None:
        if self.before is None and self.query.log:
            self.before = there

    def check_all_there(self) -> None:
        if self.before is not None:
            assert set(self.query.rows()) >= self.shelf.everything() - self.before


class Lossy(Streams):
    """failOnDataLoss=false: it always ends, and what is there in the end was all read."""

    options = replace(OPTIONS, fail_on_data_loss=False)

    @rule(data=st.data())
    def retain(self, data: st.DataObject) -> None:
        queue = self.shelf.topics["t"].queues[0]
        self.shelf.retain("t", 0, data.draw(st.integers(queue.earliest, queue.next)))

    @rule(data=st.data(), kill_at=st.sampled_from([0, 2, 3]))
    def truncate(self, data: st.DataObject, kill_at: int) -> None:
        """Written down before the queue grows to its old end: later nobody could tell."""
        queue = self.shelf.topics["t"].queues[0]
        self.shelf.truncate("t", 0, data.draw(st.integers(queue.earliest, queue.next)))
        self.trigger(limit=1, kill_at=kill_at)

    @rule(queue_count=st.integers(1, 3), row_count=st.integers(0, 30))
    def make_anew(self, queue_count: int, row_count: int) -> None:
        self.shelf.create("t", queue_count)
        self.shelf.append("t", 0, row_count)

    def check_all_there(self) -> None:
        assert set(self.query.rows()) >= self.shelf.everything()


def _case(machine: Any) -> Any:
    case = machine.TestCase
    case.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
    return case


TestFromEarliest = _case(FromEarliest)
TestFromLatest = _case(FromLatest)
TestLossy = _case(Lossy)
