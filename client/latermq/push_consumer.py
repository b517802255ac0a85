"""A consumer that is handed messages: as an async iterator, or through a listener.

    assignment, every 5 s ─→ a receive loop per queue ─→ inbox ─→ iterator, or listeners
                                     ↑ window: room for more ←─ settled ─┘

The broker keeps the leases alive while this client is. A message that fails comes again after what
the group's retry policy says, until its attempts are used up and it is dead-lettered. `close` lets
what is being worked on finish and returns the rest uncounted.
"""

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from time import monotonic
from types import TracebackType
from typing import Final, Self
from weakref import WeakSet

from latermq._connection.session import Session
from latermq._connection.tasks import Tasks
from latermq._consuming.calling import (
    BATCH_WAIT,
    BatchListener,
    Calls,
    Handling,
    Listener,
    batch_of,
    done_reader,
    result_is_due,
    result_of,
)
from latermq._consuming.figures import ConsumerStats, Figures
from latermq._consuming.identities import Identities, Identity
from latermq._consuming.inbox import CACHED_BYTES_MAX, CACHED_COUNT_MAX, Inbox, Prefetch, Window
from latermq._consuming.keeping import Keeping, check_lease_max
from latermq._consuming.pulling import Pulling
from latermq._consuming.settle import give_all_back
from latermq._consuming.signals import asked_if_nobody_hears
from latermq._values import arguments
from latermq.delivery import Delivery, Outcome
from latermq.errors import ClosedError
from latermq.middleware import Around

log = logging.getLogger("latermq.client")

CONCURRENCY: Final = 20
GRACE: Final = timedelta(seconds=30)
CANCELLED_S_MAX: Final = 10.0  # that the close waits for what it cancelled


def _at_work(holder: object) -> bool:
    """Tell whether a task or thread that took a delivery can still settle it."""
    if isinstance(holder, asyncio.Task):
        return not holder.done()
    return not isinstance(holder, threading.Thread) or holder.is_alive()


class PushConsumer:
    """Consumes for a group. Made by `Client.push_consumer`; starts on first use.

    Iterate over it, from as many tasks as you like, and settle each delivery (`async with
    delivery`); or give it a `listener` and `run` it, or enter it and go on with other things.
    """

    def __init__(
        self,
        open_session: Callable[[], Session],
        around: Around,
        *,
        concurrency: int | None = None,
        cached_count_max: int = CACHED_COUNT_MAX,
        cached_bytes_max: int = CACHED_BYTES_MAX,
        receive_max: int | None = None,
        receive_pause: timedelta = timedelta(0),
        lease_max: timedelta | None = None,
    ) -> None:
        check_lease_max(lease_max, broadcast=isinstance(self, BroadcastConsumer))
        if concurrency is not None:
            arguments.at_least_one("concurrency", concurrency)
        prefetch = Prefetch(cached_count_max, cached_bytes_max, receive_max, receive_pause)
        prefetch.check()
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._concurrency = CONCURRENCY if concurrency is None else concurrency
        self._says_concurrency = concurrency is not None
        self._prefetch = prefetch

        def window() -> Window:
            made = Window(
                cached_count_max, cached_bytes_max, self._is_open, receive_max, receive_pause
            )
            self._windows.add(made)
            return made

        self._windows: WeakSet[Window] = WeakSet()
        self._now_s = monotonic  # until there is a loop, whose clock tests may move
        self._figures = Figures(lambda: self._now_s())
        self._handling: Handling | None = None
        self._around = around
        self._inbox = Inbox(lambda: self._identities.look())
        self._identities = self._source(open_session, window)
        self._in_hand: dict[Delivery, object] = {}  # and with whom: a task, or a thread
        self._leases = Keeping(self._in_hand, lease_max)
        self._released = asyncio.Event()
        self._workers = Tasks()
        self._returns = Tasks()  # of what came while nothing more was wanted
        self._starting = asyncio.Lock()
        self._started = False
        self._closing: asyncio.Task[None] | None = None
        self._unfinished = 0  # still in hand when the grace was over
        self._ends = asyncio.Event()  # it is closed, or `run` is to close it

    @property
    def group(self) -> str:
        """Return the consumer group's name."""
        return self._session.profile.group

    @property
    def closed(self) -> bool:
        """Tell whether `close` was called: nothing more is received."""
        return self._closing is not None

    @property
    def receiving(self) -> bool:
        """Tell whether it has started, and is not closed or closing.

        False as well while it stands still because 16 of its former client ids hold messages.
        """
        return self._started and self._closing is None and not self._identities.stands_still

    @property
    def refused(self) -> str:
        """Return which of its calls the broker refuses, and why; "": none for more than a moment.

        Each is made again until it is taken; a WARNING says when that begins and ends.
        """
        return self._session.refusals.reason

    @property
    def paused(self) -> bool:
        """Tell whether it was paused and not resumed."""
        return not self._is_open.is_set()

    @property
    def _session(self) -> Session:
        """Return the session that it receives under now."""
        return self._identities.present.session

    def _source(
        self, open_session: Callable[[], Session], window: Callable[[], Window]
    ) -> Identities | Pulling:
        """Return where deliveries come from."""
        withdraw = self._inbox.withdraw
        return Identities(open_session, window, self._arrived, self._left, withdraw)

    @property
    def stats(self) -> list[ConsumerStats]:
        """Return what it did and holds, for each topic."""
        windows = list(self._windows)
        rows = []
        for topic in self._session.profile.topics:
            counts, (ok_per_s, failed_per_s) = self._figures.of(topic)
            rows.append(
                ConsumerStats(
                    topic=topic,
                    group=self.group,
                    ok=counts[Outcome.ACKNOWLEDGED],
                    failed=counts[Outcome.FAILED],
                    dead_lettered=counts[Outcome.DEAD_LETTERED],
                    returned=counts[Outcome.RETURNED],
                    lost=counts[Outcome.LOST],
                    ok_per_s=ok_per_s,
                    failed_per_s=failed_per_s,
                    in_hand=len(self._in_hand),
                    waiting=len(self._inbox),
                    held_count=sum(window.held[0] for window in windows),
                    held_bytes=sum(window.held[1] for window in windows),
                    full=any(window.room() <= 0 for window in windows),
                    paused=self.paused,
                    refused=self.refused,
                    concurrency=self._concurrency,
                    **self._prefetch._asdict(),
                )
            )
        return rows

    def __repr__(self) -> str:
        topics = ", ".join(self._session.profile.topics)
        count_max, bytes_max, *_ = self._prefetch
        return (
            f"<{type(self).__name__} of {topics} for {self.group}: concurrency "
            f"{self._concurrency}, holds {count_max} messages and {bytes_max} bytes a queue>"
        )

    async def pause(self) -> None:
        """Receive nothing until `resume`, and give back, uncounted, what nobody has in hand.

        What is in hand goes on, and its leases are kept. A broker that is away is waited for as
        long as for any call, and is told when it is back.
        """
        self._session.check_loop()
        self._is_open.clear()
        returns = give_all_back(self._inbox.empty(), insist=True)
        returning = self._workers.start(returns, "latermq return")
        await asyncio.wait((returning,), timeout=self._session.timeout)

    def resume(self) -> None:
        """Receive again."""
        self._is_open.set()

    def listener(self, listener: Listener) -> Listener:
        """Set the coroutine function that is called with each delivery; usable as a decorator.

        Returning acknowledges, raising gives back for another attempt; so does returning
        RECONSUME_LATER, and returning None from a function that says it returns ConsumeResult.

        Raises:
            ValueError: it is running already.
        """
        if not inspect.iscoroutinefunction(listener):
            raise TypeError("a listener is an `async def` function; see latermq.sync for threads")
        self._listen(Handling(listener, result_due=result_is_due(listener)))
        return listener

    def batch_listener(
        self, batch: int, batch_wait: timedelta | str = BATCH_WAIT
    ) -> Callable[[BatchListener], BatchListener]:
        """Decorate the coroutine function that is called with lists of deliveries.

        Returning None acknowledges them. A number says how many of them, from the first, are done;
        each of the others has failed, and so have all when it raises, or returns RECONSUME_LATER.
        What it settled itself stays as it is.

        Args:
            batch: a call gets so many at most.
            batch_wait: how long the first of a batch waits for others.
        Raises:
            ValueError: it is running already.
        """
        several = batch_of(batch, batch_wait)

        def listen(listener: BatchListener) -> BatchListener:
            if not inspect.iscoroutinefunction(listener):
                raise TypeError(
                    "a listener is an `async def` function; see latermq.sync for threads"
                )
            done = done_reader(listener)

            async def call(deliveries: Sequence[Delivery]) -> int:
                result = await result_of(await listener(list(deliveries)))
                return done(result, len(deliveries))

            self._listen(Handling(batch_listener=call, batch=several))
            return listener

        return listen

    async def start(self) -> None:
        """Begin to receive; with a listener, to call it. Starting twice changes nothing.

        Raises:
            TopicNotFoundError, GroupNotFoundError: and it is not created on use.
            UnavailableError: no broker answers.
        """
        self._session.check_loop()
        async with self._starting:
            if self._closing is not None:
                raise ClosedError("this consumer is closed")
            if self._started:
                return
            calls = None
            if self._handling is not None:
                calls = Calls(
                    self._handling, self._around, self._inbox, self._in_hand, self._workers,
                    self._concurrency,
                )  # fmt: skip
            self._now_s = asyncio.get_running_loop().time
            await self._identities.start()
            if self._closing is not None:
                raise ClosedError("this consumer was closed while it started")
            self._started = True
            if isinstance(self._identities, Identities):  # a broadcast has no leases
                self._workers.start(self._leases.run(), "latermq leases")
            if calls is not None:
                self._workers.start(calls.run(), "latermq dispatch")

    async def run(self) -> None:
        """Call the listener until the consumer is closed, by `close`, by cancelling this, or in the
        main thread by SIGTERM or SIGINT, unless the program has handlers of its own for them.

        What is in hand then is finished, as `close` does, and this returns: Ctrl+C raises no
        KeyboardInterrupt. A second signal ends the process.
        """
        if self._handling is None:
            raise ValueError("set a listener first")
        loop = asyncio.get_running_loop()
        with asked_if_nobody_hears(lambda: loop.call_soon_threadsafe(self._ends.set)):
            try:
                await self.start()
                await self._ends.wait()
            finally:
                await self.close()

    async def close(self, grace: timedelta = GRACE) -> None:
        """Stop receiving, let what is in hand finish for up to `grace`, return the rest.

        Called while holding a delivery, it does not wait for that one.
        """
        arguments.span("grace", grace)
        await self._close_for(asyncio.current_task(), grace)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        if self._handling is not None:
            raise ValueError("this consumer has a listener")
        if self._says_concurrency:
            raise ValueError(
                "a loop works on one message at a time: loop in several tasks and leave out "
                "concurrency, or set a listener"
            )
        return self

    async def __anext__(self) -> Delivery:
        delivery = await self._next_for(asyncio.current_task())
        if delivery is None:
            raise StopAsyncIteration
        return delivery

    async def _next_for(self, holder: object) -> Delivery | None:
        """Hand the next delivery to `holder`; None once the consumer is closed."""
        self._session.check_loop()
        if not self._started:
            await self.start()
        delivery = await self._inbox.take()
        if delivery is not None:
            self._in_hand[delivery] = holder
            delivery._taken_s = asyncio.get_running_loop().time()
        return delivery

    def _arrived(self, identity: Identity, delivery: Delivery, damage: str) -> None:
        if self._closing is not None:
            self._returns.start(delivery._settler.give_back(delivery), "latermq return")
        elif self.paused:
            work = delivery._settler.return_it(delivery, quietly=True)
            self._workers.start(work, "latermq return")
        elif damage:
            work = identity.settler.refuse(delivery, damage)
            self._workers.start(work, "latermq damaged")
        else:
            self._inbox.put(delivery, in_order=identity.session.settings.fifo)

    def _left(self, delivery: Delivery, outcome: Outcome) -> None:
        self._in_hand.pop(delivery, None)
        for behind in self._inbox.finished(delivery, failed=not outcome.final):
            self._workers.start(behind._settler.return_it(behind), "latermq return")
        self._released.set()
        self._figures.left(delivery.topic, outcome)
        self._around.settled(delivery, outcome)

    def _listen(self, handling: Handling) -> None:
        """Call a listener with what comes."""
        if self._started:
            raise ValueError("set the listener before the consumer starts")
        self._handling = handling

    async def _close_for(self, holder: object, grace: timedelta) -> None:
        self._session.check_loop()
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(holder, grace))
        await asyncio.shield(self._closing)

    async def _close(self, holder: object, grace: timedelta) -> None:
        waiting = self._inbox.close()
        await self._identities.stop()
        await give_all_back(waiting)
        await self._returns.wait()
        try:  # until nothing is in hand but what `holder` itself has, or nobody any more
            async with asyncio.timeout(grace.total_seconds()):
                while any(o is not holder and _at_work(o) for o in self._in_hand.values()):
                    self._released.clear()
                    await self._released.wait()
        except TimeoutError:
            count = self._unfinished = len(self._in_hand)
            log.warning("consumer closed with work in hand: %d", count, extra={"count": count})
        if late := await self._workers.cancel(CANCELLED_S_MAX):
            log.warning(
                "calls that were cancelled and do not end: %d; given back what they have in hand",
                len(late), extra={"count": len(late)},
            )  # fmt: skip
            await give_all_back([each for each, by in self._in_hand.items() if by in late])
        # What was on its way back has no task any more.
        await give_all_back([d for d in self._identities.held() if d not in self._in_hand])
        await self._identities.leave()
        self._ends.set()


class BroadcastConsumer(PushConsumer):
    """Has every message handled in every process. Made by `Client.push_consumer` with `broadcast`.

    It begins with what is sent once it has started. A message comes once: what fails is a warning
    and is not tried again, and what is in hand when the process ends is lost to it.
    """

    def _source(
        self, open_session: Callable[[], Session], window: Callable[[], Window]
    ) -> Identities | Pulling:
        return Pulling(open_session(), window, self._pulled, self._left)

    async def pause(self) -> None:
        """Read no more until `resume`; what was read is still handed out."""
        self._is_open.clear()

    def _pulled(self, delivery: Delivery) -> None:
        if self._closing is None:
            self._inbox.put(delivery, in_order=False)
