"""Reads every queue of the topics by position, as each process that broadcasts are for does.

The broker knows nothing of it: no lease, no attempt, no progress, so nothing has to be tidied up
when the process dies. It begins with what is sent once it reads; an outage loses nothing, unless
retention takes messages meanwhile, of which there is a warning.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import aclosing
from datetime import timedelta

from latermq._connection.session import Session
from latermq._connection.tasks import Tasks
from latermq._consuming.assignment import ASSIGNMENT_S
from latermq._consuming.inbox import Window
from latermq._consuming.receiver import EMPTY_S_MIN
from latermq._consuming.verbs import require_held
from latermq._values.failure import Failure
from latermq._values.route import Queue
from latermq._wire import pulls as wire
from latermq._wire.messages import Arrival
from latermq.backoff import RECONNECT_BACKOFF, RetryPolicy
from latermq.delivery import Delivery, Outcome
from latermq.errors import LaterMQError, TopicNotFoundError

log = logging.getLogger("latermq.client")

_Place = tuple[str, str, int]  # a queue's topic, broker and number, whatever its address


class _Nobody:
    """The `Settler` of what no broker waits for: every end is the end."""

    def __init__(self, session: Session, left: Callable[[Delivery, Outcome], None]) -> None:
        self.group = session.profile.group
        self._session = session
        self._left = left

    @property
    def retry(self) -> RetryPolicy:
        return self._session.settings.retry

    async def ack(self, delivery: Delivery) -> None:
        if delivery._outcome is not Outcome.ACKNOWLEDGED:
            require_held(delivery)
        self._settle(delivery, Outcome.ACKNOWLEDGED)

    async def nack(
        self, delivery: Delivery, after: timedelta | None, failure: Failure | None
    ) -> None:
        require_held(delivery)
        self._settle(delivery, Outcome.FAILED)

    async def forward(self, delivery: Delivery, failure: Failure) -> None:
        require_held(delivery)
        self._settle(delivery, Outcome.FAILED)

    async def extend(self, delivery: Delivery, invisible: timedelta) -> None:
        """Change nothing: there is no lease, and nobody else is given it."""
        require_held(delivery)

    async def give_back(self, delivery: Delivery) -> bool:
        self._settle(delivery, Outcome.RETURNED)
        return True

    def leave(self, delivery: Delivery) -> None:
        self._settle(delivery, Outcome.RETURNED)

    async def return_it(self, delivery: Delivery, *, quietly: bool = False) -> None:
        self._settle(delivery, Outcome.RETURNED)

    async def end(
        self, delivery: Delivery, error: Exception | None, *, later: bool = False
    ) -> None:
        failed = error is not None or later
        self._settle(delivery, Outcome.FAILED if failed else Outcome.ACKNOWLEDGED)

    def _settle(self, delivery: Delivery, outcome: Outcome) -> None:
        if delivery._outcome is None:
            delivery._outcome = outcome
            self._left(delivery, outcome)


class Pulling:
    """A loop for each queue of the session's topics.

    Args:
        arrived: told of each message.
        left: told of each that was handled, or failed.
    """

    stands_still = False  # it has one identity

    def held(self) -> list[Delivery]:
        """List what has to be given back: nothing."""
        return []

    def look(self) -> None:
        """Do nothing: there are no leases."""

    def __init__(
        self,
        session: Session,
        window: Callable[[], Window],
        arrived: Callable[[Delivery], None],
        left: Callable[[Delivery, Outcome], None],
    ) -> None:
        self.session = session
        self._window = window
        self._arrived = arrived
        self._tell_left = left
        self._settler = _Nobody(session, self._left)
        self._held: dict[Delivery, Window] = {}
        self._tasks = Tasks()
        self._queues: dict[_Place, Queue] = {}  # as the route was last

    @property
    def held_count(self) -> int:
        """Return how many deliveries were read and not handled."""
        return len(self._held)

    @property
    def present(self) -> "Pulling":
        """Return itself: it never needs another identity."""
        return self

    async def start(self) -> None:
        """Read from here on.

        Raises:
            TopicNotFoundError: and it is not created on use.
            UnavailableError: no broker answers.
        """
        for topic in list(self.session.profile.topics):
            for queue in (await self.session.route(topic)).readable:
                self._read(queue, await self._end_of(queue))
        if not self._tasks.cancelled:
            self._tasks.start(self._follow(), "latermq queues")

    async def stop(self) -> None:
        """Read no more, also by a `start` under way."""
        await self._tasks.cancel()

    async def leave(self) -> None:
        """Say farewell."""
        await self.session.close()

    async def _end_of(self, queue: Queue) -> int:
        request = wire.ask_end(self.session.profile, queue)
        answer = await self.session.call(queue.endpoints, wire.QUERY_OFFSET, request)
        try:
            return wire.read_end(answer)
        except TopicNotFoundError:  # it has a route, so the first send makes it
            return 0

    def _read(self, queue: Queue, offset: int) -> None:
        if self._tasks.cancelled:
            return
        place = (queue.topic, queue.broker_name, queue.id)
        is_new = place not in self._queues
        self._queues[place] = queue
        if is_new:
            name = f"latermq pull {queue.topic} {queue.id}"
            self._tasks.start(self._pull_all(place, offset), name)

    async def _follow(self) -> None:
        """Read the queues that topics get, from their beginning; the others, where they are now."""
        while True:
            await asyncio.sleep(ASSIGNMENT_S)
            for topic in list(self.session.profile.topics):
                try:
                    queues = (await self.session.route(topic)).readable
                except LaterMQError as error:
                    self.session.refusals.failed(
                        ("route", topic), "route query", error, topic=topic
                    )
                    continue
                self.session.refusals.taken(("route", topic))
                for queue in queues:
                    self._read(queue, 0)

    async def _pull_all(self, place: _Place, offset: int) -> None:
        window = self._window()
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            room = await window.wait_for_room()
            began_s = loop.time()
            queue = self._queues[place]
            try:
                next_offset = await self._pull(queue, offset, room, window)
            except LaterMQError as error:
                failures += 1
                if isinstance(error, TopicNotFoundError):
                    offset = 0  # where a topic that is made anew begins
                self.session.refusals.failed(place, "pull", error, topic=queue.topic)
                wait = max(RECONNECT_BACKOFF.wait(failures, random.random()), error.again_in)
                await asyncio.sleep(wait.total_seconds())
                continue
            failures = 0
            self.session.refusals.taken(place)
            if next_offset == offset and loop.time() - began_s < EMPTY_S_MIN:
                await asyncio.sleep(EMPTY_S_MIN)
            offset = next_offset

    async def _pull(self, queue: Queue, offset: int, room: int, window: Window) -> int:
        """Pull once; return where to go on. What comes is handed on when all of it is here."""
        session = self.session
        wait = session.settings.long_polling_timeout
        tags = session.profile.topics.get(queue.topic, "*")
        request = wire.ask_pull(
            session.profile, queue, tags, offset,
            count_max=min(room, session.settings.receive_count_max), wait=wait,
        )  # fmt: skip
        timeout = wait.total_seconds() + session.timeout
        arrivals: list[Arrival] = []
        next_offset, is_there = offset, True
        answers = session.stream(queue.endpoints, wire.PULL_MESSAGE, request, timeout)
        async with aclosing(answers):
            async for data in answers:
                part = wire.read_pull(data)
                if isinstance(part, Arrival):
                    arrivals.append(part)
                elif isinstance(part, bool):
                    is_there = part
                else:
                    next_offset = part
        if not is_there:
            if next_offset < offset:  # the topic was made anew: the queue ends before where it was
                next_offset = 0
            log.warning(
                "topic %s, queue %d: nothing at offset %d any more; on from %d",
                queue.topic, queue.id, offset, next_offset,
            )  # fmt: skip
        for arrival in arrivals:
            self._hand_on(arrival, queue, window)
        return next_offset

    def _hand_on(self, arrival: Arrival, queue: Queue, window: Window) -> None:
        if arrival.damage:
            log.warning(
                "message %s of topic %s left out: %s",
                arrival.received.message_id, queue.topic, arrival.damage,
            )  # fmt: skip
            return
        delivery = Delivery(arrival, queue.endpoints, self._settler)
        window.enter(len(delivery.body))
        self._held[delivery] = window
        self._arrived(delivery)

    def _left(self, delivery: Delivery, outcome: Outcome) -> None:
        self._held.pop(delivery).leave(len(delivery.body))
        self._tell_left(delivery, outcome)
