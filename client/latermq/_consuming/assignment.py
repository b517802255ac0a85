"""Which queues a push consumer receives from: what the broker assigns, asked every 5 seconds."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from latermq._connection.session import Session
from latermq._connection.tasks import Tasks
from latermq._consuming.inbox import Window
from latermq._consuming.receiver import Receiver
from latermq._values.route import Queue
from latermq._wire import session_calls as wire
from latermq._wire.messages import Arrival
from latermq.errors import LaterMQError, TopicNotFoundError

log = logging.getLogger("latermq.client")

ASSIGNMENT_S: Final = 5.0


class Assignment:
    """One receive loop for each assigned queue of the session's topics."""

    def __init__(
        self,
        session: Session,
        window: Callable[[], Window],
        arrived: Callable[[Arrival, Receiver], None],
        broken: Callable[[], None],
    ) -> None:
        self._session = session
        self._window = window
        self._arrived = arrived
        self._broken = broken
        self._tasks = Tasks()
        self._following = Tasks()  # ended first: what is being ended is not assigned again
        self._loops: dict[Queue, asyncio.Task[None]] = {}
        self._receivers: dict[asyncio.Task[None], Receiver] = {}  # of queues taken away, too

    async def start(self) -> None:
        """Begin to receive from what is assigned now, and follow the changes.

        Raises:
            TopicNotFoundError, GroupNotFoundError, UnavailableError: nothing is received then.
        """
        for topic in list(self._session.profile.topics):
            await self._session.route(topic)
            await self.refresh(topic)
        if not self._following.cancelled:
            self._following.start(self._follow(), "latermq assignments")

    async def refresh(self, topic: str) -> None:
        """Receive from exactly the topic's queues that the broker assigns; after `cancel`, from
        none: the answer may come after it."""
        session = self._session
        request = wire.ask_assignment(session.profile, topic)
        answer = await session.ask_any(wire.QUERY_ASSIGNMENT, request)
        assigned = {queue for queue in wire.read_assignment(answer) if queue.readable}
        if self._following.cancelled:
            return
        self._drop(topic, keep=assigned)
        for queue in assigned - self._loops.keys():
            tags = session.profile.topics[topic]
            receiver = Receiver(session, queue, tags, self._window(), self._arrived, self._broken)
            name = f"latermq receive {topic} {queue.id}"
            self._loops[queue] = loop = self._tasks.start(receiver.run(), name)
            self._receivers[loop] = receiver

    async def cancel(self) -> None:
        """Receive no more, also by a `start` under way; what is on its way is still read."""
        await self._following.cancel()
        running = list(self._receivers.items())
        await asyncio.gather(*(self._end(loop, receiver) for loop, receiver in running))
        await self._tasks.cancel()

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(ASSIGNMENT_S)
            for topic in list(self._session.profile.topics):
                call, refusals = ("assignment", topic), self._session.refusals
                try:
                    await self.refresh(topic)
                except LaterMQError as error:
                    refusals.failed(call, "assignment", error, topic=topic)
                    if isinstance(error, TopicNotFoundError):
                        self._drop(topic, keep=set())
                else:
                    refusals.taken(call)

    def _drop(self, topic: str, keep: set[Queue]) -> None:
        for queue in [q for q in self._loops if q.topic == topic and q not in keep]:
            loop = self._loops.pop(queue)
            end = self._end(loop, self._receivers[loop])
            self._tasks.start(end, f"latermq end of {queue.topic} {queue.id}")

    async def _end(self, loop: asyncio.Task[None], receiver: Receiver) -> None:
        """Receive no more there, once what is on its way was read."""
        while (late_s := receiver.end()) > 0 and not loop.done():
            await asyncio.wait((loop,), timeout=late_s)
        loop.cancel()
        self._receivers.pop(loop, None)  # it may have been closed meanwhile
