"""A broker in the test's own loop, and its clock: `latermq_time`."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from latermq._values.durations import span_of
from latermq._values.endpoints import Endpoints
from latermq._values.identity import new_client_id
from latermq._values.settings import ClientKind, Profile
from latermq.admin import AsyncAdmin, Method, check_status
from latermq.client import Client
from latermq.push_consumer import PushConsumer
from latermq.testing._clock import HeldClock
from latermq.testing._desk import Desk
from latermq.testing._inside import ADDRESS, InsideTransport
from latermq_broker.embedded import Embedded
from latermq_broker.services.call.handler import MethodTable

T = TypeVar("T")
PATIENCE: Final = timedelta(milliseconds=100)
DRAIN_MAX: Final = timedelta(days=1)


class _Client(Client):
    """One whose end may take its time, although the clock stands still."""

    def __init__(self, clock: HeldClock, methods: MethodTable) -> None:
        super().__init__(
            Endpoints.parse(ADDRESS),
            transport=lambda _: InsideTransport(methods),
            now=clock.now,
        )
        self._clock = clock

    async def close(self) -> None:
        if self._clock.is_moved:
            await super().close()
            return
        closing = asyncio.create_task(super().close(), name="latermq close")
        await self._clock.until(closing.done, DRAIN_MAX)
        await closing


class HeldBroker(Desk):
    """An engine, its services and a client in one loop, whose time passes when the test says so.

    The broker begins, and time stands still, with the first use in a running loop. From then on
    `asyncio.sleep`, time-outs and everything else in this loop goes by this clock, too.
    """

    def __init__(self) -> None:
        self._clock = HeldClock(self._tasks_in_hand, PATIENCE)
        self._clients: list[Client] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._embedded: Embedded | None = None
        self._profile = Profile(
            kind=ClientKind.PRODUCER,
            client_id=new_client_id(),
            access_point=Endpoints.parse(ADDRESS),
        )

    def connect(self) -> Client:
        """Return a client of this broker. Raises RuntimeError: not asyncio's own event loop."""
        broker = self._broker
        client = _Client(self._clock, broker.methods)
        self._clients.append(client)
        return client

    def now(self) -> datetime:
        """Return the broker's time of day: now when it began, and what `advance` has added."""
        assert self._broker
        return self._clock.now()

    async def advance(self, by: timedelta | str) -> None:
        """Let time pass: "2h", "1m30s", or a timedelta. What is due until then happens when it is.

        Before and after, all that can be done is done: listeners have been called, and have
        returned, unless they wait for a time that has not come.
        """
        span = span_of("by", by)
        assert self._broker
        await self._clock.advance(span)

    async def until(self, work: Coroutine[Any, Any, T]) -> T:
        """Let time pass, from one due time to the next, until `work` is done; return its result.

        Raises:
            TimeoutError: it is not done within a day, or waits for what no time brings.
        """
        task = asyncio.create_task(work)
        try:
            await self._until(task.done, task)
        finally:
            task.cancel()
        return await task

    async def settle(self) -> None:
        """Do all that can be done now, without letting time pass."""
        assert self._broker
        await self._clock.settle()

    @property
    def patience(self) -> timedelta:
        """Return how long a listener is waited for, in real time, that waits for no timer: for a
        database or a thread. Each such wait is given up once, and time passes."""
        return self._clock.patience

    @patience.setter
    def patience(self, patience: timedelta) -> None:
        self._clock.patience = patience

    def call(self, method: Method[Any], request: Any) -> Any:
        return _driven(self._admin.call(method, request), self._broker.turn)

    async def stream(self, method: Method[Any], request: Any) -> AsyncGenerator[Any, None]:
        """Yield what a service answers piece by piece; time passes until each piece is there.

        Raises:
            RequestError: a status other than OK.
            TimeoutError: as `until`.
        """
        async with aclosing(self._admin.stream(method, request)) as elements:
            while (element := await self.until(_next(elements))) is not None:
                check_status(element)
                yield element

    async def _until(self, ended: Callable[[], bool], task: asyncio.Task[Any]) -> None:
        assert self._broker
        if not await self._clock.until(ended, DRAIN_MAX):
            task.cancel()
            raise TimeoutError(f"{task.get_name()} is not done within a day, or waits for no time")

    def close(self) -> None:
        """End what the test left, and let go of the loop and its clock."""
        broker, self._embedded = self._embedded, None
        if broker is None or self._loop is None:
            return
        try:
            if not self._loop.is_closed():
                self._loop.run_until_complete(self._close(broker))
        finally:
            self._clock.let_go()
            broker.close()

    async def _close(self, broker: Embedded) -> None:
        for client in self._clients:
            await client.close()
        await broker.stop()

    @property
    def _broker(self) -> Embedded:
        """Start it, in the loop that runs now.

        Raises:
            RuntimeError: no loop runs, or it is not asyncio's own, or another one than before.
        """
        loop = asyncio.get_running_loop()
        if self._embedded is None:
            self._clock.hold(loop)
            self._loop = loop
            self._embedded = Embedded(self._clock.wall_ns, self._clock.monotonic_ns)
            self._embedded.start()
        elif loop is not self._loop:
            raise RuntimeError("latermq_time belongs to the event loop that it was first used in")
        return self._embedded

    @property
    def _admin(self) -> AsyncAdmin:
        return AsyncAdmin(self._profile, InsideTransport(self._broker.methods))

    def _tasks_in_hand(self) -> Iterator[asyncio.Task[Any]]:
        """List the tasks that a consumer has handed a delivery, but for the one that asks."""
        current = asyncio.current_task()
        for client in self._clients:
            for consumer in client._consumers:
                if isinstance(consumer, PushConsumer):
                    for holder in list(consumer._in_hand.values()):
                        if isinstance(holder, asyncio.Task) and holder is not current:
                            yield holder


async def _next(elements: AsyncGenerator[T, None]) -> T | None:
    """Return the next element, None at the end."""
    return await anext(elements, None)


def _driven(work: Coroutine[Any, Any, T], turn: Callable[[], None]) -> T:
    """Run a coroutine that waits for nothing but the log, which `turn` writes, to its end."""
    try:
        while True:
            waits_for = work.send(None)
            if waits_for is not None:
                turn()
                assert waits_for.done(), "a call that waits for more than a write"
    except StopIteration as end:
        answer: T = end.value
        return answer
