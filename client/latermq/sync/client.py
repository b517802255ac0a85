"""`latermq.Client` for threads, and the block of a transaction."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

from latermq import client, transaction
from latermq._connection.batching import Batching
from latermq._connection.loop_thread import LoopThread
from latermq._consuming.figures import ConsumerStats
from latermq._consuming.inbox import CACHED_BYTES_MAX, CACHED_COUNT_MAX
from latermq._consuming.lite_topics import tell_taken
from latermq._values.settings import MATCH_ALL, REQUEST_TIMEOUT
from latermq._values.tls import Tls
from latermq.message import (
    NO_PROPERTIES,
    Message,
    Received,
    Resolution,
    SendReceipt,
)
from latermq.middleware import Middleware
from latermq.producer import TRIES
from latermq.sync._twins import like
from latermq.sync.consumers import (
    LitePushConsumer,
    LiteSimpleConsumer,
    PushConsumer,
    SimpleConsumer,
)

if TYPE_CHECKING:
    from latermq.admin import Admin, AsyncAdmin


@like(transaction.Transaction)
class Transaction:
    """`latermq.Transaction` for threads."""

    def __init__(self, loop: LoopThread, inner: transaction.Transaction) -> None:
        self._loop = loop
        self._transaction = inner

    @property
    def message_id(self) -> str:
        """Return the half message's id."""
        return self._transaction.message_id

    @property
    def transaction_id(self) -> str:
        """Return what the broker calls the transaction: `latermq pending commit` takes it."""
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


@like(client.Client)
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
        dedup_id: str | None = None,
        tries: int = TRIES,
        timeout: timedelta | None = None,
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
            dedup_id=dedup_id,
            tries=tries,
            timeout=timeout,
        )
        return self._loop.call(work)

    def send_batch(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        delay_level: int | None = None,
        tries: int = TRIES,
        timeout: timedelta | None = None,
    ) -> list[SendReceipt]:
        work = self._client.send_batch(
            topic, messages, delay_level=delay_level, tries=tries, timeout=timeout
        )
        return self._loop.call(work)

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
        """Check as `latermq.Client.check_transactions`; the checker is called in its own thread."""

        async def in_thread(half: Received) -> Resolution:
            return await asyncio.to_thread(checker, half)

        self._loop.call(self._client.check_transactions(topic, in_thread))

    def use(self, middleware: Middleware) -> None:
        """Use as `latermq.Client.use`; its methods are called in the client's own loop."""
        self._client.use(middleware)

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
        concurrency: int | None = None,
        cached_count_max: int = CACHED_COUNT_MAX,
        cached_bytes_max: int = CACHED_BYTES_MAX,
        receive_max: int | None = None,
        receive_pause: timedelta = timedelta(0),
        broadcast: bool = False,
        lease_max: timedelta | None = None,
    ) -> PushConsumer:
        inner = self._client.push_consumer(
            topics,
            group=group,
            tags=tags,
            concurrency=concurrency,
            cached_count_max=cached_count_max,
            cached_bytes_max=cached_bytes_max,
            receive_max=receive_max,
            receive_pause=receive_pause,
            broadcast=broadcast,
            lease_max=lease_max,
        )
        consumer = PushConsumer(self._loop, inner, concurrency)
        self._keep(consumer)
        return consumer

    @property
    def reachable(self) -> bool:
        return self._client.reachable

    @property
    def admin(self) -> "Admin":
        """Return what administers this broker, over the connection of this client."""
        from latermq.admin import Admin  # with every service's messages, which few need

        async def made() -> "AsyncAdmin":
            return self._client.admin

        return Admin(self._loop.lent(), self._loop.call(made()))

    @property
    def stats(self) -> list[ConsumerStats]:
        return self._client.stats

    def lite_simple_consumer(
        self, parent: str, *, group: str, taken: Callable[[str], None] | None = None
    ) -> LiteSimpleConsumer:
        inner = self._client.lite_simple_consumer(parent, group=group, taken=_in_thread(taken))
        return LiteSimpleConsumer(self._loop, inner)

    def lite_push_consumer(
        self,
        parent: str,
        *,
        group: str,
        taken: Callable[[str], None] | None = None,
        concurrency: int | None = None,
        cached_count_max: int = CACHED_COUNT_MAX,
        cached_bytes_max: int = CACHED_BYTES_MAX,
    ) -> LitePushConsumer:
        """Make as `latermq.Client.lite_push_consumer`; `taken` is called in its own thread."""
        inner = self._client.lite_push_consumer(
            parent,
            group=group,
            taken=_in_thread(taken),
            concurrency=concurrency,
            cached_count_max=cached_count_max,
            cached_bytes_max=cached_bytes_max,
        )
        consumer = LitePushConsumer(self._loop, inner, concurrency)
        self._keep(consumer)
        return consumer

    def _keep(self, consumer: PushConsumer) -> None:
        """Keep a consumer in a new list: another thread may be closing those of the old one."""
        self._consumers = [*(c for c in self._consumers if not c.closed), consumer]

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


def _in_thread(taken: Callable[[str], None] | None) -> Callable[[str], None] | None:
    if not callable(taken):
        return taken  # None, or refused by name

    def start(lite_topic: str) -> None:
        asyncio.get_running_loop().run_in_executor(None, tell_taken, taken, lite_topic)

    return start


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
