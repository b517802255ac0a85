"""The planning of one streaming query: what Spark asks for between two micro-batches.

Lives in one process per query, beside the driver, and may keep state. Knows neither Spark nor gRPC:
what the queues hold comes from `describe`, the time from `clock_ms`.

Spark does not tell a source where its checkpoint is, and after a crash in batch 0 it asks for the
initial offset again, when `latest` is later than it was. So if the initial offset was asked for and
may move, the first batch is empty: it writes the position down and nothing else.
"""

from collections.abc import Callable
from typing import Final

from latermq.spark.losses import Losses
from latermq.spark.offsets import Offsets
from latermq.spark.options import Edge, Options
from latermq.spark.packing import partition
from latermq.spark.planner import Planner
from latermq.spark.ranges import Ends, QueueRange

Describe = Callable[[int], Ends]
"""at_ms, 0 for none → the subscription's topics."""


class StreamPlan:
    def __init__(self, options: Options, describe: Describe, clock_ms: Callable[[], int]) -> None:
        self.options: Final = options
        self._planner: Final = Planner(options.subscription, Losses(fail=options.fail_on_data_loss))
        self._describe: Final = describe
        self._clock_ms: Final = clock_ms
        self._polled: Ends = {}
        self._polled_ms: int | None = None
        self._frozen: Ends | None = None  # AvailableNow: what there was when it began
        self._initial: Offsets | None = None
        self._hold: Offsets | None = None  # the start that the first batch must not go beyond
        self._reached: Offsets | None = None  # the end of the last batch that was planned
        self._ran_ms: int | None = (
            None  # when a batch with rows was last let through; first, when asked
        )

    def initial(self) -> Offsets:
        """Find where a new query starts. Asked for several times; the answer stays."""
        if self._initial is None:
            boundary = self.options.starting
            ends = self._poll(boundary.at_ms)
            option = "startingTimestamp" if boundary.edge is Edge.TIME else "startingOffsets"
            self._initial = self._planner.boundary(boundary, ends, option)
            if boundary.moves:
                self._hold = self._initial
        return self._initial

    def freeze(self) -> None:
        """Freeze the ends for AvailableNow: with what is stored from now on it would never end."""
        self._frozen = self._poll()

    def latest(self, start: Offsets | None, limit: int | None) -> Offsets:
        """Find the end of the next batch; `start` itself when there is to be none.

        start: None before Spark 4.2, which does not tell it: the last batch's end then.
        limit: rows at most.
        """
        if start is None:
            start = self._reached or self.initial()
        held, self._hold = self._hold, None
        if held == start:
            return start
        end, waiting = self._planner.advance(start, self._ends(), limit, self._frozen)
        return end if self._enough(waiting) else start

    def report(self) -> Offsets:
        """Return the queues' true ends, for the lag in the query's progress."""
        ends = self._ends()
        return Offsets(
            {
                topic: {queue_id: queue.next for queue_id, queue in held.queues.items()}
                for topic, held in ends.items()
            },
            {topic: held.epoch for topic, held in ends.items()},
        )

    def partitions(self, start: Offsets, end: Offsets) -> list[tuple[QueueRange, ...]]:
        """Plan the tasks of the batch from `start` to `end`."""
        self._hold = None  # a batch is under way: its end is already written down
        self._reached = end
        if start == end:
            return []
        return partition(
            self._planner.ranges(start, end, self._ends()),
            partitions_min=self.options.partitions_min,
            rows_max=self.options.partition_rows_max,
        )

    def _enough(self, waiting: int) -> bool:
        """Tell whether a batch is worth its cost, by minOffsetsPerTrigger and maxTriggerDelay."""
        now_ms = self._clock_ms()
        early = (
            self._ran_ms is not None
            and now_ms - self._ran_ms < self.options.trigger_delay_ms_max
            and waiting < self.options.offsets_per_trigger_min
        )
        if early and self._frozen is None:
            return False
        if waiting or self._ran_ms is None:
            self._ran_ms = now_ms
        return True

    def _ends(self) -> Ends:
        """Return what the queues hold, at most `offsetPollMs` old: Spark asks 77 times a second."""
        fresh_from_ms = self._clock_ms() - self.options.offset_poll_ms
        if self._polled_ms is None or self._polled_ms <= fresh_from_ms:
            return self._poll()
        return self._polled

    def _poll(self, at_ms: int = 0) -> Ends:
        self._polled_ms = self._clock_ms()
        self._polled = self._describe(at_ms)
        return self._polled


def plan_batch(options: Options, describe: Describe) -> list[tuple[QueueRange, ...]]:
    """Plan the tasks of a batch read, from the starting to the ending options."""
    planner = Planner(options.subscription, Losses(fail=options.fail_on_data_loss))
    edges = []
    for which, boundary in (("starting", options.starting), ("ending", options.ending)):
        ends = describe(boundary.at_ms)
        option = f"{which}{'Timestamp' if boundary.edge is Edge.TIME else 'Offsets'}"
        edges.append(planner.boundary(boundary, ends, option))
    start, end = edges
    return partition(
        planner.ranges(start, end, ends),
        partitions_min=options.partitions_min,
        rows_max=options.partition_rows_max,
    )
