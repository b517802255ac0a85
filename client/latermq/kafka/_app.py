"""`KafkaApp`: an application whose listeners are fed by Kafka, and retried by LaterMQ."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

from latermq._values import arguments
from latermq._values.tls import Tls
from latermq._worker.declared import Attempts, Group
from latermq._worker.verdicts import Rules
from latermq._worker.worker import Worker
from latermq.app import App
from latermq.backoff import RETRY_IN, Backoff, Kinds, WaitOf
from latermq.delivery import Delivery
from latermq.kafka._bridge import Bridge, Place
from latermq.kafka._feed import Feed, settings_of
from latermq.kafka._handler import Handler, HandlerFunction
from latermq.kafka._lanes import KafkaLanes
from latermq.kafka._listener import KafkaListener, plain
from latermq.kafka._record import retry_topic_of
from latermq.kafka._republish import KafkaAwayError, Republisher
from latermq.push_consumer import CONCURRENCY


class KafkaApp(App):
    """An `App` that listens to topics of Kafka, too.

    Args:
        kafka: librdkafka's settings, of consumers and producers: "bootstrap.servers", and what TLS
            and SASL need.
        consumer, producer: what the one or the other needs beside them. Consumers begin at the
            earliest record unless "auto.offset.reset" says otherwise.
        others: as `App`.
    """

    def __init__(
        self,
        kafka: Mapping[str, Any],
        endpoint: str | None = None,
        *,
        consumer: Mapping[str, Any] | None = None,
        producer: Mapping[str, Any] | None = None,
        access_key: str | None = None,
        secret: str | None = None,
        tls: bool | Tls | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(endpoint, access_key=access_key, secret=secret, tls=tls, name=name)
        self._of_consumers = {**kafka, **(consumer or {})}
        settings_of(self._of_consumers, "")
        self._republisher = Republisher({**kafka, **(producer or {})})
        self._bridges: dict[Bridge, KafkaListener] = {}

    def kafka_listener(
        self,
        topic: str,
        *,
        group: str,
        ordered: bool = False,
        republish: bool = False,
        retry_topic: str | None = None,
        concurrency: int = CONCURRENCY,
        timeout: timedelta | None = None,
        retry: Backoff | str | None = None,
        max_attempts: Attempts | None = None,
        retry_on: Kinds | None = None,
        dead_letter_on: Kinds = (),
        give_back_on: Kinds = (),
        retry_in: WaitOf = RETRY_IN,
    ) -> Callable[[HandlerFunction], KafkaListener]:
        """Decorate a function that is to be called with each `Record` of a topic of Kafka.

        Each partition's records are its one after the other. When it raises, LaterMQ has the record
        and the partition goes on; when the record is due the function is called with it again. A
        function that is not `async` is called in a thread.

        Args:
            group: of Kafka's consumers, and of LaterMQ's.
            ordered: while a record waits, what follows of its key waits behind it; once it is a
                dead letter they go on: never, with `max_attempts="unlimited"`.
            republish: write a record that is due to its topic and partition again, for this group,
                instead of calling the function; see `meant_for`. Not with `ordered`.
            retry_topic: where LaterMQ keeps its records, and no others; the topic's name and the
                group's unless named.
            concurrency: calls at a time for what LaterMQ brings.
            others: as `App.listener`; the attempt at Kafka is the first.
        Raises ValueError: `republish` and `ordered`; another listener's retry topic.
        """
        arguments.name_of("topic", topic)
        arguments.name_of("group", group)
        arguments.truth("ordered", ordered)
        arguments.truth("republish", republish)
        if ordered and republish:
            raise ValueError("republish puts a record behind those that follow it: not ordered")
        name = retry_topic or retry_topic_of(topic, group)
        place = Place(topic, group, name, ordered)
        self._check_retry_topic(place)
        rules = Rules(retry_on, dead_letter_on, give_back_on, retry_in)
        self.topic(name, kind="fifo" if ordered else None)
        if ordered:
            # Not as other FIFO groups are: what follows would wait for a bad record for ever.
            self._declared.add_group(Group(name=group, fifo=True, usual=True))

        def listen(function: HandlerFunction) -> KafkaListener:
            function = plain(function)
            writer = self._republisher if republish else None
            bridge = Bridge(place, Handler(function, timeout), rules, lambda: self.client, writer)

            async def again(delivery: Delivery) -> None:
                await bridge.again(delivery)

            # What the handler's rules say is said at Kafka, of a record that is written there.
            ours = Rules(give_back_on=KafkaAwayError) if republish else rules
            retries = self.listener(
                name, group=group, concurrency=concurrency, retry=retry, max_attempts=max_attempts,
                retry_on=ours.retry_on, dead_letter_on=ours.dead_letter_on,
                give_back_on=ours.give_back_on, retry_in=ours.retry_in,
            )(again)  # fmt: skip
            made = self._bridges[bridge] = KafkaListener(place, function, retries)
            return made

        return listen

    def _check_retry_topic(self, place: Place) -> None:
        """Raises ValueError: it has the records of another listener."""
        for known in (each.place for each in self._bridges):
            if known.retry_topic == place.retry_topic and known[:2] != place[:2]:
                raise ValueError(
                    f"retry_topic {place.retry_topic} has the records of topic {known.topic} for "
                    f"group {known.group}: name another one for topic {place.topic} and group "
                    f"{place.group}"
                )

    async def _work(
        self,
        worker: Worker,
        end: asyncio.Event,
        grace: timedelta,
        ready: asyncio.Event | None,
    ) -> bool:
        """Run the worker, and Kafka's consumers from when it is ready until the end."""
        ending, ours = asyncio.Event(), ready or asyncio.Event()
        working = asyncio.create_task(worker.run(ending, grace, ours))
        asked = asyncio.create_task(end.wait())
        is_ready = asyncio.create_task(ours.wait())
        tasks = {working, asked, is_ready}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finished = True
            if is_ready.done() and not working.done():
                finished = await self._consume(worker, asked, working, ending, grace)
            ending.set()
            return await working and finished
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for bridge in self._bridges:
                bridge.handler.close()
            await self._republisher.close()

    async def _consume(
        self,
        worker: Worker,
        asked: "asyncio.Task[Any]",
        working: "asyncio.Task[bool]",
        ending: asyncio.Event,
        grace: timedelta,
    ) -> bool:
        """Feed the listeners from Kafka until asked to end; tell whether all was finished."""
        lanes = [self._lanes(bridge) for bridge in self._bridges]
        feeds = [each.feed for each in lanes if each.feed is not None]
        worker.heed(lambda: "; ".join(filter(None, (each.trouble for each in feeds))))
        with ExitStack() as served:
            for (bridge, made), its in zip(self._bridges.items(), lanes, strict=True):
                served.enter_context(made._served(bridge, its))
            finished = await self._feed(lanes, asked, working, ending, grace)
        for each in lanes:
            if each.failure.done():
                each.failure.result()
        return finished

    async def _feed(
        self,
        lanes: Sequence[KafkaLanes],
        asked: "asyncio.Task[Any]",
        working: "asyncio.Task[bool]",
        ending: asyncio.Event,
        grace: timedelta,
    ) -> bool:
        """Have lanes read until asked to end; tell whether what was in hand was finished."""
        finished = False
        try:
            for each in lanes:
                assert each.feed is not None
                each.feed.start()
            failures = [each.failure for each in lanes]
            await asyncio.wait({asked, working, *failures}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.set()  # both sides finish what they have at the same time
            drained = [each.drain(grace.total_seconds()) for each in lanes]
            finished = all(await asyncio.gather(*drained))
            await asyncio.gather(*(each.feed.stop() for each in lanes if each.feed is not None))
            for bridge in self._bridges:
                if bridge.detours is not None:
                    await bridge.detours.close()
        return finished

    def _lanes(self, bridge: Bridge) -> KafkaLanes:
        detours = bridge.detours
        lanes = KafkaLanes(
            bridge.place.group,
            bridge.treat,
            _nothing if detours is None else detours.begin,
            _nothing_to_wait_for if detours is None else detours.known,
        )
        settings = settings_of(self._of_consumers, bridge.place.group)
        lanes.feed = Feed(settings, bridge.place.topic, lanes)
        return lanes


def _nothing() -> None:
    """Learn nothing: order is not asked for."""


async def _nothing_to_wait_for() -> None:
    """Wait for nothing: order is not asked for."""
