"""The life of a worker: wait for the broker, call listeners, drain.

waiting ──broker there──→ ready ──asked to end──→ draining ──in hand: none, or grace over──→ ended
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple

from latermq._consuming.calling import SINGLE, Batch, Handling
from latermq._consuming.inbox import Prefetch
from latermq._worker.calls import Call, Function, Shape
from latermq._worker.existence import TopicsThere
from latermq._worker.rates import Pacer
from latermq._worker.verdicts import Rules
from latermq.backoff import RECONNECT_BACKOFF
from latermq.client import Client
from latermq.errors import RequestTimeoutError, UnavailableError
from latermq.push_consumer import PushConsumer
from latermq_text.durations import format_exact

log = logging.getLogger("latermq.worker")


class Listening(NamedTuple):
    """What a listener consumes, and how it is called."""

    topic: str
    group: str
    tags: str
    concurrency: int
    timeout: timedelta | None
    lease_max: timedelta | None
    interval: timedelta | None  # between two calls
    rules: Rules
    batch: Batch | None  # None: one message a call
    broadcast: bool  # every worker gets every message
    prefetch: Prefetch
    function: Function
    shape: Shape

    def __str__(self) -> str:
        parts = [f"tags {self.tags}", f"concurrency {self.concurrency}"]
        if self.batch is not None:
            parts.append(f"batches of {self.batch.count_max} within {_spelled(self.batch.wait)}")
        if self.broadcast:
            parts.append("broadcast")
        if self.timeout is not None:
            parts.append(f"timeout {_spelled(self.timeout)}")
        if self.lease_max is not None:
            parts.append(f"leases of {_spelled(self.lease_max)}")
        if self.interval is not None:
            parts.append(f"a call each {_spelled(self.interval)}")
        if not self.shape.waits:
            parts.append("in threads")
        parts += self.rules.words()
        parts.append(self.prefetch.words())
        return ", ".join(parts)


class Worker:
    """Calls listeners with what their topics hold. Runs once.

    Args:
        prepare: called once a broker answers, before anything is received.
        concurrency: instead of each listener's own.
    """

    def __init__(
        self,
        client: Client,
        listeners: Sequence[Listening],
        prepare: Callable[[], Awaitable[None]],
        concurrency: int | None = None,
    ) -> None:
        self.begun: Callable[[], Awaitable[None]] | None = None  # called when all of them receive
        self._client = client
        self._prepare = prepare
        self._pools: list[ThreadPoolExecutor] = []
        self._consumers = [self._consumer(each, concurrency) for each in listeners]
        topics = [each.topic for each in listeners]
        self._topics_there = TopicsThere(client, topics, self._consumers)
        self._others: list[Callable[[], str]] = []
        self._is_ending = False
        self._names = ", ".join(f"{each.topic} for {each.group}" for each in listeners)

    async def run(
        self,
        end: asyncio.Event,
        grace: timedelta,
        ready: asyncio.Event | None = None,
    ) -> bool:
        """Work until `end` is set; return whether all in hand was finished within the grace.

        Sets `ready` when all of them receive.
        """
        starting = asyncio.create_task(self._start())
        ending = asyncio.create_task(end.wait())
        try:
            await asyncio.wait((starting, ending), return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                log.info("worker ready: %s", self._names)
                if ready is not None:
                    ready.set()
                await ending
        finally:
            starting.cancel()
            ending.cancel()
            self._is_ending = True
            await self._drain(grace)
            with suppress(asyncio.CancelledError, Exception):  # said already, or not wanted
                await starting
        unfinished = sum(each._unfinished for each in self._consumers)
        if unfinished:
            log.warning("ended; not finished within the grace, given back: %d", unfinished)
        else:
            log.info("ended; all that was in hand is finished")
        return not unfinished

    def trouble(self) -> str:
        """Say why it is not ready; "": every listener receives and the broker answers."""
        if self._is_ending:
            return "ending"
        if not self._client.reachable:
            return "no broker answers"
        idle = sum(not each.receiving for each in self._consumers)
        if idle:
            return f"{idle} of {len(self._consumers)} listeners do not receive"
        refused = dict.fromkeys(filter(None, (each.refused for each in self._consumers)))
        if refused:
            return f"the broker refuses: {'; '.join(refused)}"
        return "; ".join(filter(None, (trouble() for trouble in self._others)))

    def heed(self, trouble: Callable[[], str]) -> None:
        """Ask this, too, why it is not ready: what an app has beside its listeners."""
        self._others.append(trouble)

    @property
    def consumers(self) -> Sequence[PushConsumer]:
        """Return what consumes for each listener, in their order."""
        return self._consumers

    async def _start(self) -> None:
        await _once_there(self._prepare)
        await asyncio.gather(*(_once_there(each.start) for each in self._consumers))
        self._topics_there.begin()
        if self.begun is not None:
            await self.begun()

    def _consumer(self, listener: Listening, concurrency: int | None) -> PushConsumer:
        count = listener.concurrency if concurrency is None else concurrency
        threads: ThreadPoolExecutor | None = None
        if not listener.shape.waits:
            threads = ThreadPoolExecutor(count, thread_name_prefix="latermq-listener")
            self._pools.append(threads)
        call = Call(listener.function, listener.shape, listener.timeout, threads, listener.rules)
        consumer = self._client.push_consumer(
            listener.topic,
            group=listener.group,
            tags=listener.tags,
            concurrency=count,
            broadcast=listener.broadcast,
            lease_max=listener.lease_max,
            **listener.prefetch._asdict(),
        )
        several = listener.batch is not None
        handling = Handling(
            listener=None if several else call,
            batch_listener=call.batch if several else None,
            batch=listener.batch or SINGLE,
            result_due=call.result_due,
            pace=None if listener.interval is None else Pacer(listener.interval),
            judge=call.judge.verdict,
        )
        consumer._listen(handling)
        return consumer

    async def _drain(self, grace: timedelta) -> None:
        await self._topics_there.end()
        await asyncio.gather(*(each.close(grace) for each in self._consumers))
        for pool in self._pools:
            pool.shutdown(wait=False, cancel_futures=True)


def _spelled(span: timedelta) -> str:
    return format_exact(span // timedelta(milliseconds=1))


async def _once_there(begin: Callable[[], Awaitable[None]]) -> None:
    """Begin as soon as a broker answers."""
    retry = 0
    while True:
        try:
            await begin()
        except (UnavailableError, RequestTimeoutError):  # of which the connection tells
            retry += 1
            await asyncio.sleep(RECONNECT_BACKOFF.wait(retry, random.random()).total_seconds())
        else:
            return
