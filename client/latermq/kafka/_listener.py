"""What `kafka_listener` makes of a function, and what consumes for it while its app serves."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from latermq._connection.loop_thread import BorrowedLoop
from latermq._worker.listeners import Listener
from latermq.delivery import Outcome
from latermq.kafka._bridge import Bridge, Place
from latermq.kafka._handler import HandlerFunction
from latermq.kafka._lanes import KafkaLanes
from latermq.push_consumer import PushConsumer


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaStats:
    """A listener's topic of Kafka in this process, now; `retries` has what LaterMQ brings back.

    Fields:
        ok, failed, dead_lettered, returned: records since it began, by how their attempt at Kafka
            ended; all but the first are LaterMQ's.
        behind: handed over without an attempt: their key waits there.
        ok_per_s, failed_per_s: over the last minute; failed ones are also dead-lettered.
        in_hand: being worked on, one of a partition at most.
        waiting: read, and not begun.
        partitions: that this process has.
        full: a partition is read no further until some of it is done.
        paused: nothing is begun until `resume`.
    """

    topic: str
    group: str
    ok: int
    failed: int
    dead_lettered: int
    returned: int
    behind: int
    ok_per_s: float
    failed_per_s: float
    in_hand: int
    waiting: int
    partitions: tuple[int, ...]
    full: bool
    paused: bool


class KafkaConsumer:
    """What consumes for a listener while its app serves: from Kafka, and what LaterMQ brings back.

    Attributes:
        retries: brings the records back that failed; has figures of its own.
    """

    def __init__(self, bridge: Bridge, lanes: KafkaLanes, retries: PushConsumer) -> None:
        self._bridge = bridge
        self._lanes = lanes
        self.retries = retries

    @property
    def paused(self) -> bool:
        """Tell whether it was paused and not resumed."""
        return self._lanes.paused

    @property
    def stats(self) -> KafkaStats:
        """Return what it did at Kafka and holds."""
        bridge = self._bridge
        counts, (ok_per_s, failed_per_s) = bridge.figures.of(bridge.place.topic)
        return KafkaStats(
            topic=bridge.place.topic,
            group=bridge.place.group,
            ok=counts[Outcome.ACKNOWLEDGED],
            failed=counts[Outcome.FAILED],
            dead_lettered=counts[Outcome.DEAD_LETTERED],
            returned=counts[Outcome.RETURNED],
            behind=bridge.behind,
            ok_per_s=ok_per_s,
            failed_per_s=failed_per_s,
            **self._lanes.now(),
        )

    async def pause(self) -> None:
        """Begin nothing until `resume`, of either side; what is in hand goes on.

        The process stays a member of Kafka's group, and keeps its partitions.
        """
        self._lanes.pause()
        await self.retries.pause()

    def resume(self) -> None:
        """Go on."""
        self._lanes.resume()
        self.retries.resume()


class KafkaConsumerForThreads:
    """`KafkaConsumer` for a thread, such as that of a handler which is not `async`."""

    def __init__(self, loop: BorrowedLoop, inner: KafkaConsumer) -> None:
        self._loop = loop
        self._consumer = inner

    @property
    def paused(self) -> bool:
        """Tell whether it was paused and not resumed."""
        return self._consumer.paused

    @property
    def stats(self) -> KafkaStats:
        """Return what it did at Kafka and holds."""
        return self._consumer.stats

    def pause(self) -> None:
        """Pause as `KafkaConsumer.pause` does."""
        self._loop.call(self._consumer.pause())

    def resume(self) -> None:
        """Go on."""
        self._loop.call_soon(self._consumer.resume)


class KafkaListener:
    """A function that is called with each record of a topic. Made by `KafkaApp.kafka_listener`.

    Calling it calls the function, with a record that a test made.
    """

    def __init__(self, place: Place, function: HandlerFunction, retries: Listener[Any]) -> None:
        self.topic = place.topic
        self.group = place.group
        self.retry_topic = place.retry_topic
        self.function = function
        self._retries = retries
        self._consumer: KafkaConsumer | None = None
        self._loop: BorrowedLoop | None = None
        self.__name__ = getattr(function, "__name__", repr(function))
        self.__doc__ = function.__doc__

    def __call__(self, record: Any) -> Any:
        return self.function(record)

    @property
    def consumer(self) -> KafkaConsumer:
        """Return what consumes for it in this process, to pause, to resume, and for its `stats`.

        Raises:
            ValueError: no worker of this process serves it.
        """
        if self._consumer is None:
            raise ValueError(f"no worker serves {self.__name__} in this process, now")
        return self._consumer

    @property
    def consumer_for_threads(self) -> KafkaConsumerForThreads:
        """Return `consumer` for a thread, such as that of a handler which is not `async`.

        Raises:
            ValueError: no worker of this process serves it.
        """
        consumer, loop = self.consumer, self._loop
        assert loop is not None  # they come and go together
        return KafkaConsumerForThreads(loop, consumer)

    @contextmanager
    def _served(self, bridge: Bridge, lanes: KafkaLanes) -> Iterator[None]:
        """Know what consumes for it, in this loop, as long as the block lasts."""
        self._loop = BorrowedLoop(asyncio.get_running_loop(), threading.current_thread())
        self._consumer = KafkaConsumer(bridge, lanes, self._retries.consumer)
        try:
            yield
        finally:
            self._consumer = self._loop = None


def plain(function: HandlerFunction) -> HandlerFunction:
    """Return what is decorated: a function may listen to several topics."""
    return function.function if isinstance(function, KafkaListener) else function
