"""The clients of the day: a shop that runs well, and those that are the faults."""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, Self, TypeVar

import latermq
from latermq import admin
from latermq_proto.latermq.v1 import group_pb2
from support.console_story import make_topic
from support.machine import patient

STEADY_TOPIC: Final = "visits"
STEADY_GROUP: Final = "counting"  # nothing is ever wrong with it
TOPIC: Final = "orders"
GROUP: Final = "billing"
BEAT_S: Final = 0.05
SOON: Final = timedelta(seconds=1)

Result = TypeVar("Result")


class CardReaderError(Exception):
    """What the poison message makes of its consumer."""


class Shop:
    """Lives in a thread with a loop of its own; use it as a context manager.

    Its own topic is sent to and read all day, whatever happens to the others.
    """

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self.now(make_topic(self._endpoint, STEADY_TOPIC))
        self.now(make_topic(self._endpoint, TOPIC))
        self.begin(self._send_steadily())
        self.begin(self.work(STEADY_TOPIC, STEADY_GROUP))
        return self

    def __exit__(self, *_: object) -> None:
        self.now(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def now(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do it, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(patient(120))

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let it go on until `leave`, or the end of the day."""

        async def started() -> asyncio.Task[None]:
            task = asyncio.create_task(work)
            self._tasks.add(task)
            return task

        return self.now(started())

    def leave(self, *tasks: asyncio.Task[None]) -> None:
        """Have consumers close in order."""

        async def left() -> None:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._tasks.difference_update(tasks)

        self.now(left())

    async def send(self, *bodies: bytes) -> None:
        async with latermq.connect(self._endpoint) as mq:
            for body in bodies:
                await mq.send(TOPIC, body)

    async def work(self, topic: str = TOPIC, group: str = GROUP, pause_s: float = 0.0) -> None:
        """Do one order after the other, each in `pause_s`; those that are poison fail."""
        async with latermq.connect(self._endpoint) as mq:
            async for delivery in mq.push_consumer(topic, group=group):
                with suppress(CardReaderError):
                    async with delivery:
                        await asyncio.sleep(pause_s)
                        if delivery.body == b"poison":
                            raise CardReaderError("track 2 is empty")

    async def hoard(self, count: int, pause_s: float = 0.0) -> None:
        """Take so many for an hour; then do one after the other, each in `pause_s`; 0: none."""
        async with (
            latermq.connect(self._endpoint) as mq,
            mq.simple_consumer(TOPIC, group=GROUP) as consumer,
        ):
            held: list[latermq.Delivery] = []
            while len(held) < count:
                held += await consumer.receive(32, invisible=timedelta(hours=1), wait=SOON)
            for delivery in held if pause_s else ():
                await asyncio.sleep(pause_s)
                await delivery.ack()
            await asyncio.Event().wait()

    async def done(self) -> None:
        """Wait until nothing of the orders is left to do."""
        broker = admin.connect_async(self._endpoint)
        request = group_pb2.GetGroupRequest(name=GROUP)
        try:
            while True:
                answer = await broker.call(broker.groups.GetGroup, request)
                left = answer.group.progress
                if not left.ready_count + left.in_flight_count + left.backoff_count:
                    return
                await asyncio.sleep(BEAT_S)
        finally:
            await broker.close()

    async def _send_steadily(self) -> None:
        async with latermq.connect(self._endpoint) as mq:
            while True:
                with suppress(latermq.LaterMQError):  # it is killed, its disk is full
                    await mq.send(STEADY_TOPIC, b"visit")
                await asyncio.sleep(BEAT_S)

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
