"""An application of listeners, and the worker that runs them.

    app = latermq.App("127.0.0.1:8081")

    @app.listener("orders", group="billing")
    async def bill(order: Order) -> None: ...  # returning acknowledges, raising has it come again

    await bill.send(Order(17))  # in whatever process makes orders
    app.run()                   # in the worker; or: latermq worker shop:app

A worker waits for its broker, at the start and whenever it goes away. Asked to end, it stops
receiving, lets what is in hand finish for a grace, and gives the rest back uncounted.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from latermq._consuming.calling import BATCH_WAIT, Batch, batch_of
from latermq._consuming.figures import ConsumerStats
from latermq._consuming.keeping import check_lease_max
from latermq._consuming.signals import until_signalled
from latermq._values import arguments
from latermq._values.settings import MATCH_ALL
from latermq._values.tls import Tls
from latermq._worker.calls import Function, Shape, shape_of
from latermq._worker.clients import LoopClients
from latermq._worker.declared import Attempts, Declared, Group, Topic, TopicKind, attempts_of
from latermq._worker.declaring import Declaring
from latermq._worker.health import Health
from latermq._worker.listeners import (
    BatchDecorator,
    Bounds,
    Decorator,
    Listener,
    ListenerFields,
    MessageFields,
    Ticking,
    check_listener,
    prefetch_of,
    served,
)
from latermq._worker.rates import interval_of
from latermq._worker.schedules import Missed, Schedule
from latermq._worker.services import (
    Serving,
    check_app_name,
    known_here,
    maker_here,
    service_of,
    warn_of_others,
)
from latermq._worker.verdicts import Rules
from latermq._worker.worker import Listening, Worker
from latermq.backoff import RETRY_IN, Backoff, Kinds, WaitOf
from latermq.client import Client, connect
from latermq.message import Message
from latermq.middleware import Middleware
from latermq.push_consumer import CONCURRENCY, GRACE

if TYPE_CHECKING:  # it brings every consumer for threads
    from latermq import sync

__all__ = ["App", "Bounds", "Listener", "MessageFields"]


class App:
    """Listeners, and the client through which they are called and sent to.

    Args:
        name: of the service: what is named after a function begins with it ("billing-sweep"), and
            other services see it. The same in all versions of one service; None: its module's.
        check_payloads: what a listener is sent is read again first, and refused by its field's name
            where it would not arrive as it is; False: half the work, and nobody is told.
        the others: as `connect`; nothing is opened before it is used.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        access_key: str | None = None,
        secret: str | None = None,
        tls: bool | Tls | None = None,
        check_payloads: bool = True,
        name: str | None = None,
    ) -> None:
        check_app_name(name)
        arguments.truth("check_payloads", check_payloads)
        arguments.not_blank("endpoint", endpoint, "leave it out for $LATERMQ_ENDPOINT")
        self.checks_payloads = check_payloads
        self.name = name
        self._service = partial(service_of, self, name, maker_here())
        self._connect = partial(connect, access_key=access_key, secret=secret, tls=tls)
        self._open: Callable[[], Client] = partial(self._connect, endpoint)
        self._clients = LoopClients()
        self._listeners: list[Listener[Any]] = []
        self._declared = Declared()
        self._middleware: list[Middleware] = []

    @property
    def listeners(self) -> Sequence[Listener[Any]]:
        """Return those made so far."""
        return tuple(self._listeners)

    @property
    def stats(self) -> list[ConsumerStats]:
        """Return what its listeners did here and hold, a row for each; none while nothing serves.

        `Listener.consumer` has one listener's, and pauses it.
        """
        return [row for client in self._clients.all for row in client.stats]

    @property
    def client(self) -> Client:
        """Return the client that this app has for the running event loop, made on first use.

        It is there until `close`, or until its loop is closed, as `asyncio.run` does at its end.
        """
        return self._clients.here(lambda: self._open(), self._middleware, self._service)

    @property
    def middleware(self) -> Sequence[Middleware]:
        """Return what is used, the outermost first."""
        return tuple(self._middleware)

    def use(self, middleware: Middleware) -> None:
        """Have it called around what is sent through this app, and around its listeners.

        Raises:
            TypeError: it is no `latermq.middleware.Middleware`.
            ValueError: the app is in use.
        """
        if not isinstance(middleware, Middleware):
            raise arguments.wrong("middleware", "a latermq.middleware.Middleware", middleware)
        if self._clients:
            raise ValueError("this app is in use: say what to use before its first send")
        self._middleware.append(middleware)

    @overload
    def listener(
        self, topic: str, *, group: str, **fields: Unpack[ListenerFields]
    ) -> Decorator: ...

    @overload
    def listener(
        self,
        topic: str,
        *,
        group: str,
        batch: int,
        batch_wait: timedelta | str = BATCH_WAIT,
        **fields: Unpack[ListenerFields],
    ) -> BatchDecorator: ...

    def listener(
        self,
        topic: str,
        *,
        group: str,
        batch: int | None = None,
        batch_wait: timedelta | str = BATCH_WAIT,
        tags: str = MATCH_ALL,
        concurrency: int = CONCURRENCY,
        broadcast: bool = False,
        timeout: timedelta | None = None,
        lease_max: timedelta | None = None,
        rate: str | None = None,
        retry: Backoff | str | None = None,
        max_attempts: Attempts | None = None,
        retry_on: Kinds | None = None,
        dead_letter_on: Kinds = (),
        give_back_on: Kinds = (),
        retry_in: WaitOf = RETRY_IN,
        **bounds: Unpack[Bounds],
    ) -> Decorator | BatchDecorator:
        """Decorate a function that is to be called with each message of the topic.

        It takes a payload, a `Delivery`, or both in this order; the payload's annotation says how
        bodies are read: bytes, str, or JSON of a dataclass, TypedDict or model. What it returns or
        raises counts as `PushConsumer.listener` says; a body that does not fit is a dead letter at
        once. A function that is not `async` is called in a thread. One function for a topic and a
        group: what one does not want, by its tags, no other one of the group gets.

        Args:
            batch: a call gets a list of so many at most, and may return how many of them, from the
                first, are done: the others, or all if it raises, have failed, each by itself.
            batch_wait: how long the first of a batch waits for others.
            tags: "a || b", "*" for all, or an `Sql`.
            concurrency: how many calls of it run at a time.
            broadcast: every worker gets every message, once, from its start on; what fails is a
                warning, and is not tried again. The rules below are for listeners that share.
            timeout: a call that takes longer is cancelled, and its attempt has failed.
            lease_max: how long a call keeps its message, at most 12 h; then the message comes again
                though the call goes on. None: 3 h since it was received, as the broker renews.
            rate: so many calls at most, evenly spaced: "10/s", "100/m"; the others wait, and no
                attempt of theirs has begun.
            retry, max_attempts: the group's policy; as `group`.
            retry_on: only these exceptions are worth another attempt; others are dead letters.
            dead_letter_on: these are dead letters at once.
            give_back_on: after these it comes again, uncounted: something it needs is away. After
                what `retry_in` finds, or a second, and longer while nothing succeeds: a minute.
            retry_in: where an exception says how long to wait, whatever the group's backoff is: the
                name of its attribute, or a function of it; a timedelta, seconds, text or None.
            bounds: cached_count_max, cached_bytes_max, receive_max, receive_pause: how much it
                holds and asks for; as `Client.push_consumer`.
        """
        rules = Rules(retry_on, dead_letter_on, give_back_on, retry_in)
        check_listener(topic, tags, concurrency, timeout, rules)
        check_lease_max(lease_max, broadcast=broadcast)
        prefetch = prefetch_of(bounds)
        several: Batch | None = None
        if batch is not None:
            several = batch_of(batch, batch_wait)
        arguments.truth("broadcast", broadcast)
        if broadcast and (retry is not None or max_attempts is not None or rules != Rules()):
            raise ValueError("a broadcast is not tried again: leave out retry and rules")
        if not broadcast:
            self.group(group, retry=retry, max_attempts=max_attempts)
        return (Decorator if several is None else BatchDecorator)(
            self, topic=topic, group=group, tags=tags, concurrency=concurrency, timeout=timeout,
            interval=None if rate is None else interval_of(rate), rules=rules, batch=several,
            broadcast=broadcast, prefetch=prefetch, lease_max=lease_max,
        )  # fmt: skip

    def _listen(
        self, function: Function, shape: Shape | None = None, **about: Any
    ) -> Listener[Any]:
        """Make a listener of the function, and have it called by workers."""
        shape = shape or shape_of(function, batches=about["batch"] is not None)
        listening = Listening(function=function, shape=shape, **about)
        if listening.timeout is not None and not shape.waits:
            raise ValueError("timeout needs an `async def` function: a thread cannot be stopped")
        self._refuse_second(listening)
        made: Listener[Any] = Listener(self, listening)
        self._listeners.append(made)
        return made

    def _refuse_second(self, listening: Listening) -> None:
        """Raises ValueError: messages would go to one of two functions, whichever asks first."""
        if listening.broadcast:
            return  # it takes nothing from its group
        for each in self._listeners:
            if (each.topic, each.group) == listening[:2] and not each.listening.broadcast:
                raise ValueError(
                    f"group {each.group} has a listener of topic {each.topic}, {each.__name__}: "
                    "give another one a group of its own"
                )

    def every(
        self,
        interval: timedelta | str,
        *,
        name: str | None = None,
        missed: Missed = "one",
        payload: Any = None,
        **fields: Unpack[MessageFields],
    ) -> Ticking:
        """Decorate a function, or a listener, that is to be called every so often.

        The broker sends one message a tick, however many workers there are, and over restarts; one
        of them is called. A function that takes nothing, or the tick's time as a `datetime`, gets a
        topic and a group of its own, named as the schedule; a listener is sent `payload`. Made by
        the first worker, altered by `declare`.

        Args:
            interval: "15m" is at :00, :15, :30 and :45 of each hour of UTC; at least a second.
            name: of the schedule; None: the function's.
            missed: of ticks that are due together, after an outage: "one", the last; "skip", the
                last if it is less than a minute late; "all", each of the last day.
            payload: what a listener is sent; None: the tick's time, as text.
            fields: as `Message` takes them, but for delays.
        Raises:
            ValueError: no such interval, or a listener of payloads without one.
            TypeError: a function that takes something else.
        """
        return Ticking(self, name, {"every": interval, "missed": missed}, payload, fields)

    def cron(
        self,
        expression: str,
        *,
        tz: str = "",
        name: str | None = None,
        missed: Missed = "one",
        payload: Any = None,
        **fields: Unpack[MessageFields],
    ) -> Ticking:
        """Decorate as `every` does, with what is to be called by a cron expression.

        Args:
            expression: "minute hour day month weekday", or "@hourly", "@daily", "@weekly",
                "@monthly", "@yearly". What is wrong with it the broker says.
            tz: the time zone, such as "Europe/Berlin"; "" is UTC.
            name, missed, payload, fields: as there, which says what is raised, too.
        """
        about = {"cron": expression, "tz": tz, "missed": missed}
        return Ticking(self, name, about, payload, fields)

    def schedule(
        self,
        name: str,
        topic: str,
        *,
        every: timedelta | str | None = None,
        cron: str = "",
        tz: str = "",
        missed: Missed = "one",
        message: Message | None = None,
    ) -> None:
        """Declare a schedule for a topic that this app need not listen to; see `declare`.

        Args:
            message: what is sent; an empty body is the tick's time.
            the others: as of `every` and `cron`, one of which is given.
        Raises:
            ValueError: neither or both; no such interval; it is declared already.
        """
        self._declared.add_schedule(
            Schedule(
                name=name, topic=topic, every=every, cron=cron, tz=tz, missed=missed,
                message=message,
            )
        )  # fmt: skip

    def group(
        self,
        name: str,
        *,
        retry: Backoff | str | None = None,
        max_attempts: Attempts | None = None,
        fifo: bool | None = None,
    ) -> None:
        """Declare a group; see `declare`. What is None is as the broker has it, or makes it.

        Args:
            retry: how long a failed message waits for its next attempt: "1s 5s 30s".
            max_attempts: deliveries in all; then it is a dead letter. "unlimited": it comes again
                until it is done.
            fifo: each message group in order; for good. One that is made, and told nothing else,
                waits 3 s after each attempt, and has no last one, as in RocketMQ 5.
        Raises:
            ValueError: it was declared otherwise, or these are no words for waits.
        """
        backoff = Backoff(retry) if isinstance(retry, str) else retry
        if not isinstance(backoff, Backoff | None):
            raise arguments.wrong("retry", 'a Backoff, or text such as "1s 5s 30s"', retry)
        attempts = attempts_of(max_attempts)
        group = Group(name=name, retry=backoff, max_attempts=attempts, fifo=fifo)
        self._declared.add_group(group)

    def topic(self, name: str, *, kind: TopicKind | None = None, queues: int | None = None) -> None:
        """Declare a topic; see `declare`. What is None is as the broker has it, or makes it.

        Raises:
            ValueError: it was declared otherwise, or there is no such kind.
        """
        self._declared.add_topic(Topic(name=name, kind=kind, queues=queues))

    async def declare(self, *, prune: bool = False) -> list[str]:
        """Have the broker's topics, groups and schedules be as the code says: make, alter them.

        A worker makes what is missing, too, when it starts; of what differs it only warns.

        Args:
            prune: remove the schedules that an app of this name declared and this code does not
                have, but for those that a running worker, or another app, still declares.
        Returns:
            what was done, a line each.
        Raises:
            RequestError: the broker refuses: it cannot be altered so, or by this user.
            UnavailableError, RequestTimeoutError: no broker answers.
            ValueError: a group's order cannot be altered; or `prune`, and the app has no name.
        """
        return await self._declare(self.client, prune=prune)

    def declare_with(self, client: "sync.Client", *, prune: bool = False) -> list[str]:
        """Have it as `declare` does, with a client for threads: in programs that do not await.

        Args:
            client: made by `latermq.sync.connect`; the app's own is not used.
        """
        return client._loop.call(self._declare(client._client, prune=prune))

    async def _declare(self, client: Client, *, prune: bool) -> list[str]:
        arguments.truth("prune", prune)
        if prune and self.name is None:
            raise ValueError("prune needs App(name=…): others may have a module of this one's name")
        return await self._declared.put(client.admin, self._service(), prune=prune)

    def move_to(self, endpoint: str) -> None:
        """Use another broker than the app was made with. Raises ValueError: it is in use."""
        if self._clients:
            raise ValueError("this app is in use: move it before its first send")
        self._open = partial(self._connect, endpoint)

    def run(
        self,
        *,
        grace: timedelta = GRACE,
        concurrency: int | None = None,
        health_file: Path | None = None,
        health: str | None = None,
        declare: bool = False,
    ) -> bool:
        """Serve until SIGTERM or SIGINT; a second one ends the process at once.

        A thread that is still at work then cannot be stopped, and Python waits for its end when
        the program ends; `latermq worker` does not.

        Args: those of `serve`, which says what it returns and raises, too.
        Raises:
            RuntimeError: in another thread than the main one, which alone gets signals.
        """
        serve = partial(
            self.serve, grace=grace, concurrency=concurrency, health_file=health_file,
            health=health, declare=declare,
        )  # fmt: skip
        return asyncio.run(until_signalled(serve))

    async def serve(
        self,
        end: asyncio.Event,
        *,
        grace: timedelta = GRACE,
        concurrency: int | None = None,
        health_file: Path | None = None,
        health: str | None = None,
        declare: bool = False,
        ready: asyncio.Event | None = None,
    ) -> bool:
        """Call the listeners until `end` is set; then finish what is in hand, and close.

        Args:
            grace: how long to wait for calls to end; what is left then is given back uncounted.
            concurrency: instead of each listener's own.
            health_file: touched each second while all is well; not there when it is not.
            health: HOST:PORT that answers GET /healthz (its loop runs) and /readyz (all is well).
            declare: first have topics, groups and schedules as `declare` does.
            ready: set when all of them receive.
        Returns:
            Whether all that was in hand was finished within the grace.
        Raises:
            ValueError: there are no listeners.
            OSError: `health` cannot be listened on.
            TopicNotFoundError, GroupNotFoundError, UnauthorizedError: what is needed is not there.
        """
        arguments.span("grace", grace)
        if not self._listeners:
            raise ValueError("this app has no listeners")
        client, listening = self.client, [each.listening for each in self._listeners]
        declaring = Declaring(client.admin, self._service(), self._declared)
        prepare = partial(declaring.begin, alter=declare)
        worker = Worker(client, listening, prepare, concurrency)
        serving = Serving(self, self._service(), client, listening, worker.consumers)
        worker.begun = partial(warn_of_others, serving)
        try:
            with served(self._listeners, worker.consumers), known_here(serving):
                async with Health(worker.trouble, health_file, health):
                    return await self._work(worker, end, grace, ready)
        finally:
            await declaring.end()
            await self.close()

    async def _work(
        self,
        worker: Worker,
        end: asyncio.Event,
        grace: timedelta,
        ready: asyncio.Event | None,
    ) -> bool:
        """Run the worker, and what an app has beside it."""
        return await worker.run(end, grace, ready)

    @contextmanager
    def _connecting(self, open_client: Callable[[], Client]) -> Iterator[None]:
        """Use clients that `open_client` makes, for as long as the block lasts."""
        if self._clients:
            raise ValueError("this app is in use: close it before it is used with another broker")
        before, self._open = self._open, open_client
        try:
            yield
        finally:
            self._open = before
            self._clients.clear()

    async def close(self) -> None:
        """Close the client of the running event loop, if it has one; the next use makes another.

        Those of other loops stay: of threads that have one each, each closes its own.
        """
        client = self._clients.take()
        if client is not None:
            await client.close()
