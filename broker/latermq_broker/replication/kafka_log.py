"""A shard's log as one partition of a topic of Kafka, or of what speaks its protocol.

    append ─→ producer (idempotent, acks=all) ─→ partition ─→ a quorum ─→ report
                                                                            │ thread: poll
    loop: Later settled, in the order of the reports ←── one wake-up for all ┘

An entry is one record's value. Offsets of a producer are dense but for records that librdkafka
sends again and does not know the place of: those are UNTOLD. Loaded with `[replication]` alone.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from latermq_broker.deferred import Later
from latermq_broker.errors import (
    EntriesGoneError,
    EntriesLostError,
    FencedError,
    LogUnavailableError,
)
from latermq_broker.replication.entry import UNTOLD, Entry, Offset

log = logging.getLogger("latermq.replication")
Read = TypeVar("Read")

POLL_S: Final = 0.2
READ_MAX: Final = 64  # entries at a time
CALL_S: Final = 10.0
KEPT_S: Final = 1.0  # for a consumer that has asked before: its leader may be gone
# A trim that Kafka does not get done is given up there, then here, before anybody waits in vain.
TRIM_S: Final = 5.0
TRIM_REQUEST_S: Final = 8.0
CLOSE_S: Final = 5.0
ENTRY_BYTES_MAX: Final = 1_000_000
CANARY: Final = b"canary"
PRODUCER: Final = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 0,
    "compression.type": "none",  # what is in an entry is compressed already, or small
    "message.max.bytes": ENTRY_BYTES_MAX,
}
# Unless the operator's file says otherwise.
PATIENCE: Final = {"delivery.timeout.ms": 10_000, "request.timeout.ms": 5_000}
CONSUMER: Final = {
    "enable.auto.commit": False,
    "auto.offset.reset": "error",  # never skip: what was trimmed is told from what was lost
    "fetch.wait.max.ms": 100,
    "queued.max.messages.kbytes": 16_384,
}
# Kafka knows a newer producer of this name; only what looks at epochs says so.
FENCED: Final = frozenset(
    [KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED]
)


LEADERLESS: Final = frozenset(
    [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE]
)


class Report(NamedTuple):
    """What Kafka said of one append."""

    number: int
    offset: Offset
    error: Any  # KafkaError, or None


class KafkaWriter:
    """Appends to one partition. Used in the event loop; its thread waits for the reports.

    Args:
        settings: librdkafka's, for every client: addresses, TLS, SASL.
        make: the producer; after a fatal error another one.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        partition: int,
        make: Callable[[dict[str, Any]], Any] = Producer,
    ) -> None:
        self._settings = {**PATIENCE, **settings, **PRODUCER}
        self._topic = topic
        self._partition = partition
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._producer: Any = None
        self._waiting: dict[int, Later[Offset]] = {}
        self._number = 0
        self._reports: deque[Report] = deque()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    def append(self, data: bytes | None, key: bytes | None = None) -> Later[Offset]:
        """Send an entry; as `ReplicatedLog.append`."""
        later: Later[Offset] = Later()
        if self._closed:
            later.fail(LogUnavailableError("the log is closed"))
            return later
        number = self._number = self._number + 1
        try:
            self._open().produce(
                self._topic, data, key, partition=self._partition,
                on_delivery=lambda error, sent: self._reports.append(
                    Report(number, UNTOLD if error else max(sent.offset(), UNTOLD), error)
                ),
            )  # fmt: skip
        except (BufferError, KafkaException) as error:
            later.fail(LogUnavailableError(f"not sent: {error}"))
            return later
        self._waiting[number] = later
        self._idle.clear()
        return later

    def prepare(self) -> None:
        """Have a producer that is known: the first append of a new one takes half a second."""
        self._open()

    async def settled(self) -> None:
        """Wait until nothing is in flight."""
        await self._idle.wait()

    async def close(self) -> None:
        """Wait a while for what is in flight, then fail it."""
        self._closed = True
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._idle.wait()
        except TimeoutError:
            log.warning("%s-%d: closed with appends in flight", self._topic, self._partition)
        self._producer = None  # its thread sees that it was let go
        self._fail_all(LogUnavailableError("closed before Kafka answered"))

    def _open(self) -> Any:
        if self._producer is None:
            self._producer = self._make(self._settings)
            name = f"kafka {self._topic}-{self._partition}"
            arguments = (self._producer,)
            threading.Thread(target=self._hear, args=arguments, name=name, daemon=True).start()
        return self._producer

    def _hear(self, producer: Any) -> None:
        """Wait for reports, until the producer was let go. A fatal error ends it without reports
        of what is in flight, so whoever waits for those is told here."""
        while self._producer is producer:
            try:
                producer.poll(POLL_S)
            except Exception as error:  # noqa: BLE001  KafkaException, or what a callback raised
                self._in_loop(self._broken, producer, error)
                return
            if self._reports:
                self._in_loop(self._settle)

    def _in_loop(self, call: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:  # the loop has ended, and nobody waits
            log.debug("reports came too late")

    def _settle(self) -> None:
        while self._reports:
            number, offset, error = self._reports.popleft()
            later = self._waiting.pop(number, None)
            if later is None:
                continue
            if error is None:
                later.give(offset)
            else:
                later.fail(_error_of(error))
                if error.fatal():
                    self._broken(self._producer, KafkaException(error))
        if not self._waiting:
            self._idle.set()

    def _broken(self, producer: Any, error: Exception) -> None:
        """Fail all who wait, and begin anew with the next append."""
        if producer is None or self._producer is not producer:
            return
        self._settle_what_came()
        log.error("%s-%d: the producer failed: %s", self._topic, self._partition, error)
        self._producer = None
        reason = error.args[0] if isinstance(error, KafkaException) and error.args else None
        known = isinstance(reason, KafkaError)
        self._fail_all(_error_of(reason) if known else LogUnavailableError(str(error)))

    def _settle_what_came(self) -> None:
        for number, offset, error in list(self._reports):
            if error is None and (later := self._waiting.pop(number, None)) is not None:
                later.give(offset)
        self._reports.clear()

    def _fail_all(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, {}
        for later in waiting.values():
            later.fail(error)
        self._idle.set()


class KafkaLog:
    """The `ReplicatedLog` of one shard: partition `shard` of the cluster's topic.

    Args:
        settings: librdkafka's, for every client.
        canary_topic: takes records of no meaning, which tell whether Kafka takes any.
    """

    def __init__(
        self, settings: Mapping[str, Any], topic: str, partition: int, canary_topic: str
    ) -> None:
        self._settings = dict(settings)
        self._place = (topic, partition)
        self._writer = KafkaWriter(settings, topic, partition)
        self._canary = KafkaWriter(settings, canary_topic, partition)
        self._prepared = False
        # Calls that wait for an answer; what is read has threads of its own.
        self._calls = ThreadPoolExecutor(2, thread_name_prefix="kafka-calls")
        self._asking = ThreadPoolExecutor(1, thread_name_prefix="kafka-end")
        self._ends = _Ends(settings, topic, partition)

    async def claim(self, fence: bytes) -> Offset:
        """Append a fence; as `ReplicatedLog.claim`."""
        await self._writer.settled()
        offset = await self._writer.append(fence)
        if offset == UNTOLD:
            raise LogUnavailableError("the fence stands, and Kafka does not say where")
        return offset

    def append(self, batch: bytes) -> Later[Offset]:
        """Append a batch; as `ReplicatedLog.append`."""
        return self._writer.append(batch)

    async def canary(self) -> None:
        """Have a quorum take a record of no meaning. Raises LogUnavailableError: it does not."""
        await self._canary.append(CANARY)

    def tail(self, offset: Offset) -> AsyncGenerator[Entry, None]:
        """Read entries; as `ReplicatedLog.tail`."""
        self._prepare()
        return tail_partition(self._settings, *self._place, offset, _entry_of)

    def _prepare(self) -> None:
        """Have both producers known, and the canary's topic: who reads may ask, and then claim,
        and clients wait then; a first canary that is slow is taken for no answer."""
        self._writer.prepare()
        if not self._prepared:
            self._prepared = True
            self._canary.append(CANARY)

    async def trim(self, offset: Offset) -> None:
        """Have what is before `offset` deleted; as `ReplicatedLog.trim`."""
        await self._call(self._calls, self._trim, offset)

    async def end(self) -> Offset:
        """Return the offset behind the last entry; as `ReplicatedLog.end`."""
        return int(await self._call(self._asking, self._ends.end))

    async def close(self) -> None:
        """Let the log go; as `ReplicatedLog.close`."""
        await asyncio.gather(self._writer.close(), self._canary.close())
        self._calls.shutdown(wait=False, cancel_futures=True)
        self._asking.submit(self._ends.close)
        self._asking.shutdown(wait=False)

    async def _call(
        self, threads: ThreadPoolExecutor, call: Callable[..., Any], *arguments: Any
    ) -> Any:
        """Call in a thread, again where a partition has no leader yet, or another one now."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + CALL_S
        while True:
            try:
                return await loop.run_in_executor(threads, call, *arguments)
            except TimeoutError as error:
                raise LogUnavailableError("Kafka does not answer") from error
            except KafkaException as error:
                if error.args[0].code() not in LEADERLESS or loop.time() > end_s:
                    raise LogUnavailableError(str(error)) from error
            await asyncio.sleep(POLL_S)

    def _trim(self, offset: Offset) -> None:
        place = TopicPartition(*self._place, offset)
        admin = AdminClient(self._settings)
        futures = admin.delete_records(
            [place], request_timeout=TRIM_REQUEST_S, operation_timeout=TRIM_S
        )
        for future in futures.values():
            future.result(CALL_S)


class _Ends:
    """Asks where a partition ends, again and again; used in one thread.

    Its consumer stays: to connect and log in may take longer than a standby takes for an answer.
    """

    def __init__(self, settings: Mapping[str, Any], topic: str, partition: int) -> None:
        self._settings = {**settings, **CONSUMER, "group.id": _no_group()}
        self._place = topic, partition
        self._consumer: Any = None

    def end(self) -> Offset:
        """Ask; another consumer, which looks for the leader anew, if the one that is kept fails.

        Raises KafkaException, TimeoutError.
        """
        if self._consumer is not None:
            with suppress(KafkaException, TimeoutError):
                return self._ask(KEPT_S)
        self._consumer = Consumer(self._settings)
        return self._ask(CALL_S)

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _ask(self, wait_s: float) -> Offset:
        end: Offset | None = None
        try:
            marks = self._consumer.get_watermark_offsets(TopicPartition(*self._place), wait_s)
            end = None if marks is None else int(marks[1])
        finally:
            if end is None:
                self.close()
        if end is None:
            raise TimeoutError
        return end


async def tail_partition(
    settings: Mapping[str, Any],
    topic: str,
    partition: int,
    offset: Offset,
    of_message: Callable[[Any], Read],
) -> AsyncGenerator[Read, None]:
    """Read a partition, what `of_message` makes of each message; as `ReplicatedLog.tail`."""
    loop = asyncio.get_running_loop()
    reading = ThreadPoolExecutor(1, thread_name_prefix="kafka-tail")
    reader = _Reader(settings, topic, partition, offset)
    try:
        while True:
            for message in await loop.run_in_executor(reading, reader.read):
                yield of_message(message)
    finally:
        reading.submit(reader.close)
        reading.shutdown(wait=False)


class _Reader:
    """A consumer of one partition, used in one thread."""

    def __init__(
        self, settings: Mapping[str, Any], topic: str, partition: int, offset: Offset
    ) -> None:
        self._settings = {**settings, **CONSUMER, "group.id": _no_group()}
        self._topic = topic
        self._partition = partition
        self._next = offset
        self._consumer: Any = None

    def read(self) -> list[Any]:
        """Wait a moment for messages; raises as `ReplicatedLog.tail`."""
        try:
            return self._read()
        except KafkaException as error:
            raise LogUnavailableError(str(error)) from error

    def _read(self) -> list[Any]:
        if self._consumer is None:
            self._consumer = Consumer(self._settings)
            self._assign(self._next)
        first = self._consumer.poll(POLL_S)
        messages = [] if first is None else [first, *self._consumer.consume(READ_MAX - 1, 0)]
        for at, each in enumerate(messages):
            refusal = each.error()
            if refusal is not None:
                self._mend(refusal)
                return messages[:at]  # from here on it is read again
            self._next = each.offset() + 1
        return messages

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def _assign(self, offset: Offset) -> None:
        self._consumer.assign([TopicPartition(self._topic, self._partition, offset)])

    def _mend(self, error: Any) -> None:
        """Begin with what trim left. Raises LogUnavailableError: that is not what is wrong;
        EntriesGoneError: it was to be read from an entry on that is gone; EntriesLostError: from
        one on that was there, and so were those before it."""
        if error.code() not in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise LogUnavailableError(error.str())
        place = TopicPartition(self._topic, self._partition)
        start, end = self._consumer.get_watermark_offsets(place, CALL_S)
        if self._next > end:
            why = f"asked for entry {self._next} of a log that ends at {end}: entries were lost"
            raise EntriesLostError(why)
        if self._next >= start:  # it is there by now
            raise LogUnavailableError(error.str())
        if self._next:
            raise EntriesGoneError(f"entry {self._next} is gone, the log begins at {start}")
        self._next = start
        self._assign(start)


def _entry_of(message: Any) -> Entry:
    return Entry(message.offset(), message.value() or b"")


def _no_group() -> str:
    """Name a group that nobody joins; a consumer must have one."""
    return f"latermq-{uuid4()}"


def _error_of(error: Any) -> Exception:
    kind = FencedError if error.code() in FENCED else LogUnavailableError
    return kind(error.str())
