"""Consumers for threads: those of `latermq`, called through the client's event loop."""

import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from datetime import timedelta
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Final, Generic, Self, TypeAlias, TypeVar

from latermq import delivery, lite_consumers, push_consumer, simple_consumer
from latermq._connection.loop_thread import LoopThread
from latermq._consuming.calling import (
    BATCH_WAIT,
    Handling,
    batch_of,
    done_reader,
    in_thread,
    refuse_generator,
    result_is_due,
)
from latermq._consuming.figures import ConsumerStats
from latermq._consuming.signals import asked_if_nobody_hears
from latermq._values import arguments
from latermq._values.settings import MATCH_ALL
from latermq.message import Begin, ConsumeResult, Received
from latermq.push_consumer import GRACE
from latermq.simple_consumer import INVISIBLE, WAIT
from latermq.sync._twins import like

Given = TypeVar("Given")
Result = TypeVar("Result")
Inner = TypeVar("Inner", bound=simple_consumer.AskingConsumer | push_consumer.PushConsumer)
_FIELDS: Final = tuple(field.name for field in fields(Received))


@like(delivery.Delivery)
class Delivery(Received):
    """`latermq.Delivery` for threads."""

    __slots__ = ("_delivery", "_loop")

    def __init__(self, loop: LoopThread, inner: delivery.Delivery) -> None:
        super().__init__(**{name: getattr(inner, name) for name in _FIELDS})
        self._loop = loop
        self._delivery = inner

    @property
    def group(self) -> str:
        return self._delivery.group

    @property
    def outcome(self) -> delivery.Outcome | None:
        return self._delivery.outcome

    @property
    def settled(self) -> bool:
        """Tell whether it is settled, as `latermq.Delivery.settled`."""
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
        self._delivery._began_s = monotonic()  # the clock of its loop, too
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        return self._loop.call(self._delivery.__aexit__(kind, error, trace))


Listener: TypeAlias = Callable[[Delivery], ConsumeResult | None]
BatchListener: TypeAlias = Callable[[list[Delivery]], int | ConsumeResult | None]


@like(push_consumer.PushConsumer)
class Consumer(Generic[Inner]):
    """What all consumers for threads have in common; as a block it is closed at the end."""

    def __init__(self, loop: LoopThread, inner: Inner) -> None:
        self._loop = loop
        self._consumer = inner

    @property
    def group(self) -> str:
        return self._consumer.group

    @property
    def closed(self) -> bool:
        return self._consumer.closed

    def close(self) -> None:
        self._loop.call(self._consumer.close())

    def __enter__(self) -> Self:
        self._loop.call(self._consumer.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@like(simple_consumer.AskingConsumer)
class AskingConsumer(Consumer[simple_consumer.AskingConsumer]):
    """What simple consumers for threads have in common."""

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


@like(simple_consumer.SimpleConsumer)
class SimpleConsumer(AskingConsumer):
    """`latermq.SimpleConsumer` for threads."""

    def __init__(self, loop: LoopThread, inner: simple_consumer.SimpleConsumer) -> None:
        super().__init__(loop, inner)
        self._whole = inner

    @property
    def subscriptions(self) -> Mapping[str, str]:
        return self._whole.subscriptions

    def subscribe(self, topic: str, tags: str = MATCH_ALL) -> None:
        self._loop.call(self._whole.subscribe(topic, tags))

    def unsubscribe(self, topic: str) -> None:
        self._loop.call(self._whole.unsubscribe(topic))


@like(lite_consumers.LiteSimpleConsumer)
class _LiteReader:
    """What both kinds of lite consumers have."""

    _loop: LoopThread
    _lite: lite_consumers.LiteSimpleConsumer | lite_consumers.LitePushConsumer

    @property
    def lite_topics(self) -> frozenset[str]:
        return self._lite.lite_topics

    def subscribe(self, *lite_topics: str, begin: Begin | None = None) -> None:
        self._loop.call(self._lite.subscribe(*lite_topics, begin=begin))

    def unsubscribe(self, *lite_topics: str) -> None:
        self._loop.call(self._lite.unsubscribe(*lite_topics))


class LiteSimpleConsumer(_LiteReader, AskingConsumer):
    """`latermq.LiteSimpleConsumer` for threads."""

    def __init__(self, loop: LoopThread, inner: lite_consumers.LiteSimpleConsumer) -> None:
        super().__init__(loop, inner)
        self._lite = inner


@like(push_consumer.PushConsumer)
class PushConsumer(Consumer[push_consumer.PushConsumer]):
    """`latermq.PushConsumer` for threads: iterate from any of them, or set a listener."""

    def __init__(
        self, loop: LoopThread, inner: push_consumer.PushConsumer, concurrency: int | None
    ) -> None:
        super().__init__(loop, inner)
        self._concurrency = push_consumer.CONCURRENCY if concurrency is None else concurrency
        self._pool: ThreadPoolExecutor | None = None

    def listener(self, listener: Listener) -> Listener:
        """Set the function that is called with each delivery, in a pool of `concurrency` threads.

        What it returns or raises counts as it does for `latermq.PushConsumer.listener`.
        """
        run = self._threads(listener)

        async def in_pool(inner: delivery.Delivery) -> ConsumeResult | None:
            return await run(Delivery(self._loop, inner))

        self._consumer._listen(Handling(in_pool, result_due=result_is_due(listener)))
        return listener

    def batch_listener(
        self, batch: int, batch_wait: timedelta | str = BATCH_WAIT
    ) -> Callable[[BatchListener], BatchListener]:
        """Decorate the function that is called with lists of deliveries, in a pool of `concurrency`
        threads.

        What it takes, returns and raises counts as for `latermq.PushConsumer.batch_listener`.
        """
        several = batch_of(batch, batch_wait)

        def listen(listener: BatchListener) -> BatchListener:
            run, done = self._threads(listener), done_reader(listener)

            async def in_pool(inner: Sequence[delivery.Delivery]) -> int:
                given = [Delivery(self._loop, each) for each in inner]
                return done(await run(given), len(given))

            self._consumer._listen(Handling(batch_listener=in_pool, batch=several))
            return listener

        return listen

    def _threads(self, listener: Callable[[Given], Result]) -> Callable[[Given], Awaitable[Result]]:
        """Make the pool; return what calls the function in it.

        Raises TypeError: its call would do nothing.
        """
        if inspect.iscoroutinefunction(listener):
            raise TypeError("a listener for threads is no `async def` function: see latermq.App")
        refuse_generator(listener)
        pool = ThreadPoolExecutor(self._concurrency, thread_name_prefix="latermq-listener")
        self._pool = pool

        def run(given: Given) -> Awaitable[Result]:
            return in_thread(pool, listener, given)

        return run

    @property
    def stats(self) -> list[ConsumerStats]:
        return self._consumer.stats

    def __repr__(self) -> str:
        return repr(self._consumer)

    @property
    def receiving(self) -> bool:
        return self._consumer.receiving

    @property
    def refused(self) -> str:
        return self._consumer.refused

    @property
    def paused(self) -> bool:
        return self._consumer.paused

    def pause(self) -> None:
        self._loop.call(self._consumer.pause())

    def resume(self) -> None:
        async def resume() -> None:
            self._consumer.resume()

        self._loop.call(resume())

    def start(self) -> None:
        self._loop.call(self._consumer.start())

    def run(self) -> None:
        """Call the listener until the consumer is closed, from another thread, or in the main one
        by SIGTERM or SIGINT, unless the program has handlers of its own for them.

        What is in hand then is finished, as `close` does; a second signal ends the process.
        """
        try:
            with asked_if_nobody_hears(partial(self._loop.call_soon, self._consumer._ends.set)):
                self._loop.call(self._consumer.run())
        finally:
            self.close()

    def close(self, grace: timedelta = GRACE) -> None:
        """Stop receiving, let what other threads have in hand finish, return the rest.

        Not for a listener to call: it would wait for itself until the grace is over.
        """
        arguments.span("grace", grace)
        holder = threading.current_thread()
        self._loop.call(self._consumer._close_for(holder, grace))
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def __iter__(self) -> Self:
        self._consumer.__aiter__()
        return self

    def __next__(self) -> Delivery:
        inner = self._loop.call(self._consumer._next_for(threading.current_thread()))
        if inner is None:
            raise StopIteration
        return Delivery(self._loop, inner)


class LitePushConsumer(_LiteReader, PushConsumer):
    """`latermq.LitePushConsumer` for threads."""

    def __init__(
        self, loop: LoopThread, inner: lite_consumers.LitePushConsumer, concurrency: int | None
    ) -> None:
        super().__init__(loop, inner, concurrency)
        self._lite = inner
