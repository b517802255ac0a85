"""Reads a topic of Kafka for a group, in a thread of its own, and commits what is done.

    thread: poll ─→ batch ─→ loop: lanes, one for each partition ─→ done ─→ stored, then committed
            ↑ pause, resume: by what a lane holds

Only offsets of what is done are stored for librdkafka to commit. A partition that goes to another
consumer is given up when the record in hand is finished.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Final, Protocol, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

log = logging.getLogger("latermq.kafka")

Raw: TypeAlias = Any  # confluent_kafka.Message

POLL_S: Final = 0.1
BATCH: Final = 200
FAREWELL_S_MAX: Final = 15.0  # of a farewell to a Kafka that does not answer
ASK_EVERY_S: Final = 5.0  # between two questions whether Kafka is back
ASK_S_MAX: Final = 1.0  # of one of them
# Nobody but the user can say where to begin: `auto.offset.reset` is "error".
ENDS: Final = frozenset([KafkaError._AUTO_OFFSET_RESET])
AWAY: Final = frozenset(
    [
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._AUTHENTICATION,
        KafkaError._RESOLVE,
        KafkaError._SSL,
        KafkaError._TRANSPORT,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    ]
)
HELD_MAX: Final = 500  # by one lane; then its partition is paused
HELD_MIN: Final = 100  # and here it goes on
MAX_POLL_INTERVAL: Final = "max.poll.interval.ms"
MAX_POLL_INTERVAL_MS: Final = 300_000  # librdkafka's own
# What the bridge stands on, and what users would not expect otherwise.
OURS: Final = {"enable.auto.commit": True, "enable.auto.offset.store": False}
DEFAULTS: Final = {"auto.offset.reset": "earliest", "auto.commit.interval.ms": 1000}


class Lanes(Protocol):
    """Where records go; all in the event loop."""

    paused: bool  # nothing more is to be read; looked at in the thread

    async def assigned(self, partitions: Sequence[int]) -> None: ...

    async def revoked(self, partitions: Sequence[int], wait_s: float) -> None:
        """Give up partitions when what is in hand is finished, after `wait_s` as it is."""

    def arrived(self, batch: Sequence[Raw]) -> None: ...

    def held(self) -> Mapping[int, int]:
        """Count what each partition has here that is not done. Called in the thread."""

    def failed(self, error: BaseException) -> None: ...


def settings_of(kafka: Mapping[str, Any], group: str) -> dict[str, Any]:
    """Return a consumer's settings. Raises ValueError: some are not the user's to choose."""
    taken = [name for name in (*OURS, "group.id") if name in kafka]
    if taken:
        raise ValueError(f"{taken[0]} is set by latermq.kafka")
    return {**DEFAULTS, **kafka, **OURS, "group.id": group}


class Feed:
    """One consumer of Kafka. Made in the event loop, whose lanes it feeds from `start` on."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        lanes: Lanes,
        farewell_s: float = FAREWELL_S_MAX,
    ) -> None:
        self._topic = topic
        self._farewell_s = farewell_s
        self._lanes = lanes
        self._loop = asyncio.get_running_loop()
        self._settings = dict(settings)
        self._consumer: Any = None
        self._wait_s = int(settings.get(MAX_POLL_INTERVAL, MAX_POLL_INTERVAL_MS)) / 2000
        self._stopping = threading.Event()
        self._taken = threading.Event()  # the loop has the last batch
        self._taken.set()
        self._paused: set[int] = set()
        self._done: deque[tuple[int, int]] = deque()  # partitions, and offsets behind what is done
        self._reported: set[int] = set()  # codes of errors that are in the log
        self.trouble = ""  # why nothing is read; "": nothing is known to be in the way
        self._asked_s = 0.0  # when Kafka was last asked whether it is back
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=f"kafka {topic}", daemon=True)

    def start(self) -> None:
        """Begin to read. Raises KafkaException: settings that librdkafka refuses."""
        self._consumer = Consumer(self._settings, logger=log)
        self._thread.start()

    def done(self, partition: int, offset: int) -> None:
        """Have everything of the partition up to this record committed, soon."""
        self._done.append((partition, offset + 1))

    async def stop(self) -> None:
        """Commit what is done, and leave the group; of a Kafka that is silent, wait a while only.

        Its group then learns by the session's time-out that this consumer has gone, and what was
        not committed comes again.
        """
        self._stopping.set()
        if not self._thread.is_alive():
            return
        try:
            async with asyncio.timeout(self._farewell_s):
                await self._ended.wait()
        except TimeoutError:
            log.warning(
                "Kafka has not answered for %g s: its group of topic %s is left without a word",
                self._farewell_s, self._topic,
            )  # fmt: skip

    def _run(self) -> None:
        consumer = self._consumer
        try:
            consumer.subscribe(
                [self._topic],
                on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost,
            )  # fmt: skip
            while not self._stopping.is_set():
                self._turn(consumer)
        except Exception as error:  # noqa: BLE001  the listener ends of it
            self._loop.call_soon_threadsafe(self._lanes.failed, error)
        finally:
            self._store(consumer)
            consumer.close()
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(self._ended.set)

    def _turn(self, consumer: Any) -> None:
        behind = not self._taken.wait(POLL_S)
        first = consumer.poll(0 if behind else POLL_S)
        if first is not None:
            batch = [first, *consumer.consume(BATCH - 1, 0)]
            good = [each for each in batch if not self._is_error(each)]
            if good:
                self._taken.clear()
                self._loop.call_soon_threadsafe(self._arrived, good)
                self._reported.clear()
                self.trouble = ""
        if self.trouble:
            self._ask(consumer)
        self._regulate(consumer, shut=behind or self._lanes.paused)
        self._store(consumer)

    def _arrived(self, batch: Sequence[Raw]) -> None:
        """Take a batch; in the loop."""
        self._lanes.arrived(batch)
        self._taken.set()

    def _store(self, consumer: Any) -> None:
        """Have librdkafka commit what is done; in this thread alone, or both wait for ever."""
        done = dict(self._done.popleft() for _ in range(len(self._done)))
        for partition, offset in done.items():
            try:
                consumer.store_offsets(offsets=[TopicPartition(self._topic, partition, offset)])
            except KafkaException:
                log.debug("partition %d: not committed, it was given up", partition)

    def _is_error(self, message: Raw) -> bool:
        error = message.error()
        if error is None:
            return False
        if error.fatal() or error.code() in ENDS:
            raise KafkaException(error)
        if error.code() in AWAY:
            self.trouble = f"Kafka, topic {self._topic}: {error.str()}"
        if error.code() not in self._reported:
            self._reported.add(error.code())
            log.warning("Kafka, topic %s: %s", self._topic, error.str())
        return True

    def _ask(self, consumer: Any) -> None:
        """Find out, now and then, whether Kafka is back: a topic without news would not show it."""
        if monotonic() - self._asked_s < ASK_EVERY_S:
            return
        self._asked_s = monotonic()
        try:
            consumer.list_topics(self._topic, timeout=ASK_S_MAX)
        except KafkaException:
            return
        self.trouble = ""

    def _regulate(self, consumer: Any, *, shut: bool) -> None:
        """Read no more of partitions whose lanes hold much.

        Args:
            shut: no partition is read: the listener is paused, or the loop is held up, and what was
                read waits before it, where nothing counts it.
        """
        held = self._lanes.held()
        full = {p for p, count in held.items() if count >= HELD_MAX and p not in self._paused}
        free = {p for p in self._paused if held.get(p, 0) <= HELD_MIN}
        if shut:
            assigned = {each.partition for each in consumer.assignment()}
            full, free = assigned - self._paused, set()
        if full:
            log.debug("partitions paused, their handlers are behind: %s", full)
        self._set(consumer.pause, full)
        self._set(consumer.resume, free)
        self._paused = (self._paused | full) - free

    def _set(self, how: Callable[[list[Any]], None], partitions: Iterable[int]) -> None:
        """Pause or resume each, whatever becomes of the others."""
        for each in partitions:
            try:
                how([TopicPartition(self._topic, each)])
            except KafkaException:  # it was given up meanwhile
                log.debug("partition %d: not paused or resumed", each)

    def _assigned(self, _: Any, partitions: Sequence[Any]) -> None:
        self._in_loop(self._lanes.assigned([each.partition for each in partitions]))

    def _revoked(self, consumer: Any, partitions: Sequence[Any]) -> None:
        self._give_up(consumer, partitions, self._wait_s)
        self._store(consumer)

    def _lost(self, consumer: Any, partitions: Sequence[Any]) -> None:
        self._give_up(consumer, partitions, 0.0)

    def _give_up(self, consumer: Any, partitions: Sequence[Any], wait_s: float) -> None:
        numbers = [each.partition for each in partitions]
        # librdkafka remembers what is paused, also of partitions that go and come back.
        self._set(consumer.resume, self._paused & set(numbers))
        self._paused -= set(numbers)
        self._in_loop(self._lanes.revoked(numbers, wait_s))

    def _in_loop(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()
