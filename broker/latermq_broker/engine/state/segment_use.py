"""What still needs each segment of the log: counted, so that a segment nothing needs can go.

Counted per segment, by the position of the record that is needed:

    timers      delayed messages that wait, and half messages
    deliveries  whose message lies there: leased, in backoff or ready
    chains      deliveries whose oldest attempt lies there
    queues      queue entries that refer there from elsewhere, or are kept longer than others: due
                and redriven messages, dead letters, what was rolled forward; per queue, with the
                offsets between which they lie

A plain queue entry counts nowhere: it expires with the segment of its message. Kept by the apply
functions of the records; I9: equal to a recount at any time.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from latermq_broker.delivery.leases.lease import Delivery
from latermq_broker.store.log.commit_log import CommitLog

QueueKey = tuple[int, int]  # topic id, queue id


class QueueUse:
    """Entries of one queue that need a segment. The bounds may be wider than the entries."""

    __slots__ = ("count", "high", "low")

    def __init__(self, count: int, low: int, high: int) -> None:
        self.count = count
        self.low = low
        self.high = high


class SegmentUse:
    __slots__ = ("chains", "deliveries", "queues", "timer_bytes", "timers")

    def __init__(self) -> None:
        self.timers = 0
        self.timer_bytes = 0
        self.deliveries = 0
        self.chains = 0
        self.queues: dict[QueueKey, QueueUse] = {}

    @property
    def empty(self) -> bool:
        return not (self.timers or self.deliveries or self.chains or self.queues)

    def facts(self) -> tuple[object, ...]:
        """Return the counts, for comparisons."""
        queues = {key: use.count for key, use in self.queues.items()}
        return self.timers, self.timer_bytes, self.deliveries, self.chains, queues


class SegmentUses:
    def __init__(self, log: CommitLog) -> None:
        self._base_of = log.row.base_of
        self._span_of = log.row.span_of
        self._uses: dict[int, SegmentUse] = {}  # by base
        self._near = SegmentUse()  # of the segment counted last: most often the next one is it too
        self._near_base = self._near_end = 0

    def at(self, base: int) -> SegmentUse:
        use = self._uses.get(base)
        if use is None:
            use = self._uses[base] = SegmentUse()
        return use

    def arm(self, position: int, length: int) -> None:
        """Count a message that waits in the timer."""
        if not self._near_base <= position < self._near_end:
            self._come_near(position)
        self._near.timers += 1
        self._near.timer_bytes += length

    def disarm(self, position: int, length: int) -> None:
        if not self._near_base <= position < self._near_end:
            self._come_near(position)
        use = self._near
        use.timers -= 1
        use.timer_bytes -= length if use.timers else use.timer_bytes  # of a damaged one: unknown

    def hold(self, position: int) -> None:
        """Count a delivery that begins, of the message there, or was moved to there."""
        self.hold_all((position,))

    def unhold(self, position: int) -> None:
        self.hold_all((position,), -1)

    def hold_all(self, positions: Sequence[int], step: int = 1) -> None:
        """Count deliveries that begin; or that are over, where `step` is -1."""
        for position in positions:
            if not self._near_base <= position < self._near_end:
                self._come_near(position)
            self._near.deliveries += step

    def chain(self, first_attempt: int) -> None:
        """Count a delivery whose first attempt was written, or whose attempts were moved."""
        self.at(self._base_of(first_attempt)).chains += 1

    def unchain(self, first_attempt: int) -> None:
        self.at(self._base_of(first_attempt)).chains -= 1

    def release(self, delivery: Delivery) -> None:
        """Count a delivery no more: it is over."""
        self.unhold(delivery.position)
        if delivery.first_attempt:
            self.unchain(delivery.first_attempt)

    def refer(self, position: int, key: QueueKey, offset: int) -> None:
        """Add a queue entry that counts. What is below the log needs no segment."""
        if not self._near_base <= position < self._near_end:
            self._come_near(position)
        if self._near_base < 0:
            return
        queues = self._near.queues
        use = queues.get(key)
        if use is None:
            queues[key] = QueueUse(1, offset, offset)
            return
        use.count += 1
        if offset < use.low:
            use.low = offset
        if offset > use.high:
            use.high = offset

    def unrefer(self, position: int, key: QueueKey) -> None:
        queues = self.at(self._base_of(position)).queues
        use = queues.get(key)
        if use is not None:  # not of a dropped segment
            use.count -= 1
            if not use.count:
                del queues[key]

    def forget_topic(self, topic_id: int) -> None:
        """Forget the topic's queues."""
        for use in self._uses.values():
            for key in [key for key in use.queues if key[0] == topic_id]:
                del use.queues[key]

    def forget_queues(self) -> None:
        """Forget all queue entries."""
        for use in self._uses.values():
            use.queues.clear()

    def drop_before(self, start: int) -> None:
        """Forget the segments below `start`."""
        for base in [base for base in self._uses if base < start]:
            del self._uses[base]
        self._near_end = 0

    def facts(self) -> dict[int, tuple[object, ...]]:
        """Return the counts by base, of the used segments."""
        return {base: use.facts() for base, use in self._uses.items() if not use.empty}

    def snapshot(self) -> bytes:
        """Encode timers and queues; deliveries are counted again as they are restored."""
        return json.dumps(list(self._rows()), separators=(",", ":")).encode()

    def restore(self, section: bytes) -> None:
        """Put the section's timers and queues in place of those that are counted."""
        self.forget_queues()
        for use in self._uses.values():
            use.timers = use.timer_bytes = 0
        for base, timers, timer_bytes, queues in json.loads(section):
            numbers = [base, timers, timer_bytes, *chain(*queues)]
            if not all(type(number) is int for number in numbers):
                raise ValueError(f"uses of segment {base!r} that are no numbers")
            use = self.at(base)
            use.timers, use.timer_bytes = timers, timer_bytes
            use.queues = {
                (topic_id, queue_id): QueueUse(count, low, high)
                for topic_id, queue_id, count, low, high in queues
            }

    def _come_near(self, position: int) -> None:
        self._near_base, self._near_end = self._span_of(position)
        self._near = self.at(self._near_base)

    def _rows(self) -> Iterator[list[Any]]:
        for base, use in sorted(self._uses.items()):
            if use.timers or use.queues:
                queues = [
                    [*key, use_of_queue.count, use_of_queue.low, use_of_queue.high]
                    for key, use_of_queue in use.queues.items()
                ]
                yield [base, use.timers, use.timer_bytes, queues]
