"""Receives from one assigned queue for as long as there is room, and survives the broker."""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import aclosing
from datetime import timedelta
from typing import Final

from latermq._connection.session import Session
from latermq._connection.silence import nobody_answered
from latermq._consuming.inbox import Window
from latermq._values.route import Queue
from latermq._wire import messages as wire
from latermq.backoff import RECONNECT_BACKOFF, Pace
from latermq.errors import (
    LaterMQError,
    RequestTimeoutError,
    ServerError,
    TooManyRequestsError,
    UnavailableError,
)

log = logging.getLogger("latermq.client")

# A broker that answers "nothing" at once instead of waiting must not make us spin.
EMPTY_S_MIN: Final = 0.1
# A reply that is on its way comes within this time, and so does more of one that has begun; a
# receive that is older waits at the broker.
ON_ITS_WAY_S: Final = 0.25
FLOW_CONTROL: Final = Pace(
    initial=timedelta(milliseconds=20), multiplier=2, limit=timedelta(seconds=1), jitter=0.2
)


class Receiver:
    """One queue's receive loop; `window` also counts what came from it and is still unsettled.

    Args:
        arrived: told of each message as soon as it is read.
        broken: told of a receive whose reply may be lost: it broke off, none came in time, or none
            could be read.
    """

    def __init__(
        self,
        session: Session,
        queue: Queue,
        tags: str,
        window: Window,
        arrived: Callable[[wire.Arrival, "Receiver"], None],
        broken: Callable[[], None],
    ) -> None:
        self.queue = queue
        self.window = window
        self._session = session
        self._call = ("receive", queue)
        self._tags = tags
        self._arrived = arrived
        self._broken = broken
        self._heard_s: float | None = None  # when the one under way began, or its reply went on
        self._ending = False
        self.began_s = 0.0  # of the receive under way, by the loop's clock

    def end(self) -> float:
        """Receive no more; return for how many seconds a reply may still be on its way.

        What is in it is leased to us: who does not read it burns an attempt of each message.
        """
        self._ending = True
        if self._heard_s is None:
            return 0.0
        return self._heard_s + ON_ITS_WAY_S - asyncio.get_running_loop().time()

    async def run(self) -> None:
        """Receive until cancelled, or told to end."""
        try:
            await self._run()
        finally:
            self._session.refusals.taken(self._call)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            room = await self.window.wait_for_room()
            if self._ending:
                return
            self._heard_s = self.began_s = began = loop.time()
            try:
                count = await self._receive(room)
            except LaterMQError as error:
                self._heard_s = None
                failures += 1
                never_sent = isinstance(error, UnavailableError) and error.stored is False
                if nobody_answered(error):
                    self._session.silence.failed(self.queue.endpoints)
                if may_be_lost(error) and not never_sent:
                    self._broken()
                await self._pause(error, failures)
                continue
            self._heard_s = None
            self._session.refusals.taken(self._call)
            failures = 0
            if not count and loop.time() - began < EMPTY_S_MIN:
                await asyncio.sleep(EMPTY_S_MIN)

    async def _receive(self, room: int) -> int:
        """Receive once; messages count as ours as soon as they are read off the stream.

        In an ordered group all of a reply are handed on together: when the first one fails, what
        came with it must be there to be returned.
        """
        settings = self._session.settings
        wait = settings.long_polling_timeout
        request = wire.ask_receive(
            self._session.profile,
            self.queue,
            self._tags,
            count_max=min(room, settings.receive_count_max),
            wait=wait,
            invisible=None,
        )
        timeout = wait.total_seconds() + self._session.timeout
        answers = self._session.stream(self.queue.endpoints, wire.RECEIVE_MESSAGE, request, timeout)
        count = 0
        behind: list[wire.Arrival] = []
        try:
            async with aclosing(answers):
                async for data in answers:
                    self._heard_s = asyncio.get_running_loop().time()
                    if (arrival := wire.read_receive(data)) is not None:
                        count += 1
                        if settings.fifo:
                            behind.append(arrival)
                        else:
                            self._arrived(arrival, self)
        finally:
            for arrival in behind:
                self._arrived(arrival, self)
        return count

    async def _pause(self, error: LaterMQError, failures: int) -> None:
        slow_down = isinstance(error, TooManyRequestsError)
        self._session.refusals.failed(self._call, "receive", error, topic=self.queue.topic)
        backoff = FLOW_CONTROL if slow_down else RECONNECT_BACKOFF
        wait = max(backoff.wait(failures, random.random()), error.again_in)
        await asyncio.sleep(wait.total_seconds())


def may_be_lost(error: LaterMQError) -> bool:
    """Tell whether a broker may have answered a receive with messages that were not read."""
    if isinstance(error, RequestTimeoutError | ServerError):
        return error.grpc_code != 0  # else it is the answer
    return isinstance(error, UnavailableError)
