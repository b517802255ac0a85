"""Writes records to their topic and partition again, for one group alone."""

import asyncio
import threading
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from latermq.kafka._record import ATTEMPT_HEADER, GROUP_HEADER, Record, without_ours

POLL_S: Final = 0.2
FLUSH_S: Final = 10.0
# Without these an answer would not mean that it is stored.
SETTINGS: Final = {"acks": "all", "enable.idempotence": True, "linger.ms": 5}


class KafkaAwayError(Exception):
    """Kafka did not take a record; it may later."""


class RefusedByKafkaError(Exception):
    """Kafka will not take a record: its partition is gone, or it is too large."""


REFUSALS: Final = frozenset(
    [
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    ]
)


class Republisher:
    """A producer, and the thread that hears its answers; made on first use, for the running loop.

    Args:
        settings: librdkafka's, for producers.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = {**settings, **SETTINGS}
        self._producer: Any = None
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    async def write(self, record: Record, group: str, attempt: int) -> None:
        """Write the record as one for the group, which is to make this attempt with it.

        Raises:
            KafkaAwayError: it may or may not be there; write it again.
            RefusedByKafkaError: it will be refused again.
        """
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[None] = loop.create_future()

        def answered(error: Any, _: Any) -> None:
            loop.call_soon_threadsafe(_settle, stored, error)

        headers = [
            *without_ours(record.headers),
            (GROUP_HEADER, group.encode()),
            (ATTEMPT_HEADER, str(attempt).encode()),
        ]
        try:
            self._open().produce(
                record.topic, record.value, record.key, record.partition,
                on_delivery=answered, headers=headers,
            )  # fmt: skip
        except BufferError as error:
            raise KafkaAwayError("its producer's queue is full") from error
        except KafkaException as error:
            raise _error_of(error.args[0]) from error
        await stored

    async def close(self) -> None:
        """Wait for what was written, for a while."""
        producer, thread = self._producer, self._thread
        if producer is None or thread is None:
            return
        await asyncio.to_thread(producer.flush, FLUSH_S)
        self._closing.set()
        await asyncio.to_thread(thread.join)
        self._producer = self._thread = None

    def _open(self) -> Any:
        if self._producer is None:
            self._closing.clear()
            self._producer = Producer(self._settings)
            self._thread = threading.Thread(
                target=self._hear, args=(self._producer,), name="latermq-kafka-answers", daemon=True
            )
            self._thread.start()
        return self._producer

    def _hear(self, producer: Any) -> None:
        while not self._closing.is_set():
            producer.poll(POLL_S)


def _settle(stored: "asyncio.Future[None]", error: Any) -> None:
    if stored.done():  # its call was cancelled
        return
    if error is None:
        stored.set_result(None)
    else:
        stored.set_exception(_error_of(error))


def _error_of(error: Any) -> Exception:
    kind = RefusedByKafkaError if error.code() in REFUSALS else KafkaAwayError
    return kind(error.str())
