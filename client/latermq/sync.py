"""The same client for threads: no `async`, no `await`, everything else alike.

    with latermq.sync.connect("127.0.0.1:8081") as mq:
        mq.send("orders", body, deliver_at=tomorrow)
        for delivery in mq.push_consumer("orders", group="billing"):
            with delivery:  # ack on exit; on raise, delivered again after its backoff
                bill(delivery.body)

A `Client` runs one event loop in a thread of its own. Its objects may be used from any thread, also
from several at a time; a listener is an ordinary function, called in a pool of `concurrency`
threads. Errors and their meaning are those of the async objects.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, TypeAlias, TypeVar

from latermq import client, delivery, push_consumer, simple_consumer, transaction
from latermq._batching import Batching
from latermq._inbox import CACHED_BYTES_MAX, CACHED_COUNT_MAX
from latermq._settings import MATCH_ALL, REQUEST_TIMEOUT
from latermq._tls import Tls
from latermq.errors import ClosedError
from latermq.message import (
    NO_PROPERTIES,
    ConsumeResult,
    Message,
    Received,
    Resolution,
    SendReceipt,
)
from latermq.push_consumer import CONCURRENCY, GRACE
from latermq.simple_consumer import INVISIBLE, WAIT

Result = TypeVar("Result")
_FIELDS: Final = tuple(field.name for field in fields(Received))


class LoopThread:
    """An event loop in a daemon thread; `call` runs a coroutine there and waits for its result."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="latermq", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        if not self.running:
            work.close()
            raise ClosedError("this client is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # interrupted while waiting; without effect once it is done
            raise

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()


class Delivery(Received):
    """`latermq.Delivery` for threads."""

    __slots__ = ("_delivery", "_loop")

    def __init__(self, loop: LoopThread, inner: delivery.Delivery) -> None:
        super().__init__(**{name: getattr(inner, name) for name in _FIELDS})
        self._loop = loop
        self._delivery = inner

    @property
    def settled(self) -> bool:
        """Whether it was acknowledged, given back or dead-lettered."""
        return self._delivery.settled

    def ack(self) -> None:
        self._loop.call(self._delivery.ack())

    def retry_in(self, after: timedelta, error: BaseException | None = None) -> None:
        self._loop.call(self._delivery.retry_in(after, error))

    def nack(self, error: BaseException | None = None) -> None:
        self._loop.call(self._delivery.nack(error))

    def dead_letter(self, reason: str, error: BaseException | None = None) -> None:
        self._loop.call(self._delivery.dead_letter(reason, error))

    def extend(self, invisible: timedelta) -> None:
        self._loop.call(self._delivery.extend(invisible))

    def __enter__(self) -> "Delivery":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        return self._loop.call(self._delivery.__aexit__(kind, error, trace))


Listener: TypeAlias = Callable[[Delivery], ConsumeResult | None]


class SimpleConsumer:
    """`latermq.SimpleConsumer` for threads."""

    def __init__(self, loop: LoopThread, inner: simple_consumer.SimpleConsumer) -> None:
        self._loop = loop
        self._consumer = inner

    @property
    def group(self) -> str:
        return self._consumer.group

    @property
    def subscriptions(self) -> Mapping[str, str]:
        return self._consumer.subscriptions

    def subscribe(self, topic: str, tags: str = MATCH_ALL) -> None:
        self._loop.call(self._consumer.subscribe(topic, tags))

    def unsubscribe(self, topic: str) -> None:
        self._loop.call(self._consumer.unsubscribe(topic))

    def receive(
        self, max_count: int = 1, *, invisible: timedelta = INVISIBLE, wait: timedelta = WAIT
    ) -> list[Delivery]:
        work = self._consumer.receive(max_count, invisible=invisible, wait=wait)
        return [Delivery(self._loop, inner) for inner in self._loop.call(work)]

    def ack(self, delivery: Delivery) -> None:
        delivery.ack()

    def nack(
        self,
        delivery: Delivery,
        *,
        after: timedelta | None = None,
        error: BaseException | None = None,
    ) -> None:
        self._loop.call(self._consumer.nack(delivery._delivery, after=after, error=error))

    def change_invisible_duration(self, delivery: Delivery, invisible: timedelta) -> None:
        delivery.extend(invisible)

    def dead_letter(
        self, delivery: Delivery, reason: str, error: BaseException | None = None
    ) -> None:
        delivery.dead_letter(reason, error)

    def close(self) -> None:
        self._loop.call(self._consumer.close())

    def __enter__(self) -> "SimpleConsumer":
        self._loop.call(self._consumer.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class PushConsumer:
    """`latermq.PushConsumer` for threads: iterate from any of them, or set a listener."""

    def __init__(
        self, loop: LoopThread, inner: push_consumer.PushConsumer, concurrency: int
    ) -> None:
        self._loop = loop
        self._consumer = inner
        self._concurrency = concurrency
        self._pool: ThreadPoolExecutor | None = None

    @property
    def group(self) -> str:
        return self._consumer.group

    @property
    def closed(self) -> bool:
        return self._consumer.closed

    def listener(self, listener: Listener) -> Listener:
        """Set the function that is called with each delivery, in a pool of `concurrency` threads.

        What it returns or raises counts as it does for `latermq.PushConsumer.listener`.
        """
        pool = ThreadPoolExecutor(self._concurrency, thread_name_prefix="latermq-listener")

        async def in_pool(inner: delivery.Delivery) -> ConsumeResult | None:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(pool, listener, Delivery(self._loop, inner))

        self._consumer._listen(in_pool, push_consumer.result_is_due(listener))
        self._pool = pool
        return listener

    def start(self) -> None:
        self._loop.call(self._consumer.start())

    def run(self) -> None:
        """Call the listener until the consumer is closed, from another thread or by a signal."""
        try:
            self._loop.call(self._consumer.run())
        finally:
            self.close()

    def close(self, grace: timedelta = GRACE) -> None:
        """Stop receiving, let what other threads have in hand finish, return the rest.

        Not for a listener to call: it would wait for itself until the grace is over.
        """
        holder = threading.current_thread()
        self._loop.call(self._consumer._close_for(holder, grace))
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> "PushConsumer":
        self._loop.call(self._consumer.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> "PushConsumer":
        self._consumer.__aiter__()
        return self

    def __next__(self) -> Delivery:
        inner = self._loop.call(self._consumer._next_for(threading.current_thread()))
        if inner is None:
            raise StopIteration
        return Delivery(self._loop, inner)


class Transaction:
    """`latermq.Transaction` for threads."""

    def __init__(self, loop: LoopThread, inner: transaction.Transaction) -> None:
        self._loop = loop
        self._transaction = inner

    @property
    def message_id(self) -> str:
        return self._transaction.message_id

    @property
    def transaction_id(self) -> str:
        return self._transaction.transaction_id

    def commit(self) -> None:
        self._loop.call(self._transaction.commit())

    def rollback(self) -> None:
        self._loop.call(self._transaction.rollback())

    def __enter__(self) -> "Transaction":
        self._loop.call(self._transaction.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call(self._transaction.__aexit__(kind, error, trace))


Checker: TypeAlias = Callable[[Received], Resolution]


class Client:
    """`latermq.Client` for threads. Made by `connect`; to be closed, or used as a block."""

    def __init__(self, loop: LoopThread, inner: client.Client) -> None:
        self._loop = loop
        self._client = inner
        self._consumers: list[PushConsumer] = []

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] = NO_PROPERTIES,
        message_group: str | None = None,
        priority: int | None = None,
        lite_topic: str | None = None,
        deliver_at: datetime | None = None,
        delay: timedelta | None = None,
        delay_level: int | None = None,
    ) -> SendReceipt:
        work = self._client.send(
            topic,
            body,
            tag=tag,
            keys=keys,
            properties=properties,
            message_group=message_group,
            priority=priority,
            lite_topic=lite_topic,
            deliver_at=deliver_at,
            delay=delay,
            delay_level=delay_level,
        )
        return self._loop.call(work)

    def send_batch(
        self, topic: str, messages: Sequence[Message], *, delay_level: int | None = None
    ) -> list[SendReceipt]:
        return self._loop.call(self._client.send_batch(topic, messages, delay_level=delay_level))

    def transaction(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] = NO_PROPERTIES,
        check_after: timedelta | None = None,
    ) -> Transaction:
        async def make() -> transaction.Transaction:
            return self._client.transaction(
                topic, body, tag=tag, keys=keys, properties=properties, check_after=check_after
            )

        return Transaction(self._loop, self._loop.call(make()))

    def check_transactions(self, topic: str, checker: Checker) -> None:
        """As `latermq.Client.check_transactions`; the checker is called in a thread of its own."""

        async def in_thread(half: Received) -> Resolution:
            return await asyncio.to_thread(checker, half)

        self._loop.call(self._client.check_transactions(topic, in_thread))

    def recall(self, topic: str, recall_handle: str) -> str:
        return self._loop.call(self._client.recall(topic, recall_handle))

    def simple_consumer(
        self, topics: str | Mapping[str, str], *, group: str, tags: str = MATCH_ALL
    ) -> SimpleConsumer:
        inner = self._client.simple_consumer(topics, group=group, tags=tags)
        return SimpleConsumer(self._loop, inner)

    def push_consumer(
        self,
        topics: str | Mapping[str, str],
        *,
        group: str,
        tags: str = MATCH_ALL,
        concurrency: int = CONCURRENCY,
        cached_count_max: int = CACHED_COUNT_MAX,
        cached_bytes_max: int = CACHED_BYTES_MAX,
    ) -> PushConsumer:
        inner = self._client.push_consumer(
            topics,
            group=group,
            tags=tags,
            concurrency=concurrency,
            cached_count_max=cached_count_max,
            cached_bytes_max=cached_bytes_max,
        )
        consumer = PushConsumer(self._loop, inner, concurrency)
        self._consumers = [*(c for c in self._consumers if not c.closed), consumer]
        return consumer

    def close(self) -> None:
        """Close every consumer as its own `close` does, then the connection and its thread."""
        if not self._loop.running:
            return
        try:
            for consumer in self._consumers:
                consumer.close()
            self._loop.call(self._client.close())
        finally:
            self._loop.stop()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def connect(
    endpoint: str | None = None,
    *,
    namespace: str = "",
    request_timeout: timedelta = REQUEST_TIMEOUT,
    access_key: str | None = None,
    secret: str | None = None,
    tls: bool | Tls | None = None,
    transport: str | None = None,
    batching: Batching | None = client.TOGETHER,
) -> Client:
    """Return a client for threads; arguments as for `latermq.connect`."""
    inner = client.connect(
        endpoint,
        namespace=namespace,
        request_timeout=request_timeout,
        access_key=access_key,
        secret=secret,
        tls=tls,
        transport=transport,
        batching=batching,
    )
    return Client(LoopThread(), inner)
