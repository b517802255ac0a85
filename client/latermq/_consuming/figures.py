"""What a consumer did, by topic: how many deliveries ended how, lately and in all."""

import math
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from latermq.delivery import Outcome

LATELY_S: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStats:
    """One topic of one consumer, now.

    Fields:
        ok, dead_lettered, failed, returned, lost: deliveries since it started, by how they ended.
        ok_per_s, failed_per_s: over the last minute; failed ones are also dead-lettered and lost.
        in_hand: being worked on; of all topics of the consumer.
        waiting: received, and not begun; of all topics.
        held_count, held_bytes: received and not settled, of all topics.
        full: there is no room for more until something is settled; of any queue.
        paused: nothing is received until `resume`.
        refused: what the broker refuses its group, and why; "": nothing for more than a moment.
        concurrency: calls of its listener at a time.
        cached_count_max, cached_bytes_max: what may be held for a queue.
        receive_max: messages of one receive; None: what the broker gives.
        receive_pause: at least so long between two receives from a queue.
    """

    topic: str
    group: str
    ok: int
    failed: int
    dead_lettered: int
    returned: int
    lost: int
    ok_per_s: float
    failed_per_s: float
    in_hand: int
    waiting: int
    held_count: int
    held_bytes: int
    full: bool
    paused: bool
    refused: str
    concurrency: int
    cached_count_max: int
    cached_bytes_max: int
    receive_max: int | None
    receive_pause: timedelta


class _Lately:
    """Counts by second, for a minute."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, int, int]] = deque()  # second, ok, failed

    def add(self, second: int, *, ok: bool) -> None:
        if self._seconds and self._seconds[-1][0] == second:
            _, done, failed = self._seconds.pop()
        else:
            done = failed = 0
            self._forget(second)
        self._seconds.append((second, done + ok, failed + (not ok)))

    def rates(self, second: int) -> tuple[float, float]:
        self._forget(second)
        done = sum(each[1] for each in self._seconds)
        failed = sum(each[2] for each in self._seconds)
        return done / LATELY_S, failed / LATELY_S

    def _forget(self, second: int) -> None:
        while self._seconds and self._seconds[0][0] <= second - LATELY_S:
            self._seconds.popleft()


class Figures:
    """Counts how deliveries of one consumer ended, by topic.

    Args:
        now_s: a clock that only goes forward.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._counts: dict[str, Counter[Outcome]] = {}
        self._lately: dict[str, _Lately] = {}

    def left(self, topic: str, outcome: Outcome) -> None:
        """Count one of the topic."""
        counts = self._counts.get(topic)
        if counts is None:
            counts = self._counts[topic] = Counter()
            self._lately[topic] = _Lately()
        counts[outcome] += 1
        if outcome is not Outcome.RETURNED:
            ok = outcome is Outcome.ACKNOWLEDGED
            self._lately[topic].add(math.floor(self._now_s()), ok=ok)

    def of(self, topic: str) -> tuple[Counter[Outcome], tuple[float, float]]:
        """Return a topic's counts, and its rates of what was done and what failed."""
        if topic not in self._counts:
            return Counter(), (0.0, 0.0)
        return self._counts[topic], self._lately[topic].rates(math.floor(self._now_s()))
