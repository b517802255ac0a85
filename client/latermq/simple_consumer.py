"""A consumer that asks: receive some messages, for so long, then settle each one."""

import asyncio
import itertools
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from types import TracebackType
from typing import Final, Self

from latermq._connection.session import Session
from latermq._consuming.receiver import may_be_lost
from latermq._consuming.settle import LeaseSettler
from latermq._values import arguments
from latermq._values.route import Queue, candidates
from latermq._values.settings import MATCH_ALL
from latermq._wire import messages as wire
from latermq.codes import Code
from latermq.delivery import Delivery
from latermq.errors import (
    ClosedError,
    ForbiddenError,
    IllegalTimeError,
    LaterMQError,
    RequestTimeoutError,
    UnavailableError,
)
from latermq.middleware import Around

INVISIBLE: Final = timedelta(seconds=30)
WAIT: Final = timedelta(seconds=5)
SETTLE_TRIES_MAX: Final = 3
UNANSWERED_MAX: Final = 16
WAIT_AT_ONE: Final = timedelta(seconds=1)  # of several brokers


class AskingConsumer:
    """Receives on demand, and settles; what from is the subclass's to say.

    What is received and not settled within its invisible duration comes again, with one attempt
    more.
    """

    def __init__(self, session: Session, around: Around) -> None:
        self._session = session
        self._settler = LeaseSettler(session, around.settled, SETTLE_TRIES_MAX)
        self._turn = itertools.count()
        # Attempt ids by topic and broker: replies may be lost.
        self._unanswered: dict[tuple[str, str], list[str]] = {}
        self._closed = False

    @property
    def group(self) -> str:
        """Return the consumer group's name."""
        return self._session.profile.group

    @property
    def closed(self) -> bool:
        """Tell whether `close` was called."""
        return self._closed

    async def receive(
        self, max_count: int = 1, *, invisible: timedelta = INVISIBLE, wait: timedelta = WAIT
    ) -> list[Delivery]:
        """Lease up to `max_count` messages for `invisible`; wait for the first up to `wait`.

        With several topics each call asks the next one. Of a topic on several brokers, each is
        asked: while nothing comes, for a second in turns.

        Returns:
            what came, possibly fewer or none. A message whose body cannot be read becomes a dead
            letter, with a WARNING.
        Raises:
            TopicNotFoundError, GroupNotFoundError: and it is not created on use.
            IllegalTimeError: a duration the broker does not allow.
            UnavailableError, RequestTimeoutError: no broker answers.
        """
        self._session.check_loop()
        if self._closed:
            raise ClosedError("this consumer is closed")
        arguments.count("max_count", max_count)
        arguments.duration("invisible", invisible)
        arguments.span("wait", wait)
        topics = list(self._session.profile.topics.items())
        if not topics:
            raise ValueError("subscribe to a topic first")
        turn = next(self._turn)
        topic, tags = topics[turn % len(topics)]
        queues = await self._queues(topic, turn // len(topics))
        if len(queues) == 1:
            return await self._receive(queues[0], tags, max_count, invisible, wait)
        return await self._receive_of_any(queues, tags, max_count, invisible, wait)

    async def _receive_of_any(
        self,
        queues: Sequence[Queue],
        tags: str,
        max_count: int,
        invisible: timedelta,
        wait: timedelta,
    ) -> list[Delivery]:
        """Ask one broker after the other: for what is there, then waiting a moment at each.

        What is not reached is passed over, unless it is all of them.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + wait.total_seconds()
        reached = deque(queues)
        first_round = len(queues)
        part = timedelta(0)
        while True:
            queue = reached.popleft()
            try:
                deliveries = await self._receive(queue, tags, max_count, invisible, part)
            except (UnavailableError, RequestTimeoutError):
                if not reached:
                    raise
                deliveries = []
            else:
                reached.append(queue)
            first_round -= 1
            left = timedelta(seconds=end - loop.time())
            if deliveries or (first_round <= 0 and left <= timedelta(0)):
                return deliveries
            if first_round <= 0:
                part = min(left, WAIT_AT_ONE) if len(reached) > 1 else left

    async def _receive(
        self, queue: Queue, tags: str, max_count: int, invisible: timedelta, wait: timedelta
    ) -> list[Delivery]:
        unanswered = self._unanswered.setdefault((queue.topic, queue.broker_name), [])
        attempt_id = unanswered.pop() if unanswered else str(uuid.uuid4())
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            try:
                return await self._attempt(queue, tags, max_count, invisible, wait, attempt_id)
            except IllegalTimeError:
                spent_s = loop.time() - began_s
                if spent_s < self._session.timeout:
                    raise
                # The broker was away for so long that the wait no longer fits the call's deadline.
                left = max(wait - timedelta(seconds=spent_s), timedelta(0))
                return await self._attempt(queue, tags, max_count, invisible, left, attempt_id)
        except (LaterMQError, asyncio.CancelledError) as error:
            lost = not isinstance(error, LaterMQError) or may_be_lost(error)
            if lost and len(unanswered) < UNANSWERED_MAX:
                unanswered.append(attempt_id)
            raise

    async def _attempt(
        self,
        queue: Queue,
        tags: str,
        max_count: int,
        invisible: timedelta,
        wait: timedelta,
        attempt_id: str,
    ) -> list[Delivery]:
        request = wire.ask_receive(
            self._session.profile,
            queue,
            tags,
            count_max=max_count,
            wait=wait,
            invisible=invisible,
            attempt_id=attempt_id,
        )
        timeout = wait.total_seconds() + self._session.timeout
        answers = self._session.stream(queue.endpoints, wire.RECEIVE_MESSAGE, request, timeout)
        deliveries: list[Delivery] = []
        refusals, call = self._session.refusals, ("receive", queue.topic)
        async with aclosing(answers):
            async for data in answers:
                try:
                    arrival = wire.read_receive(data)
                except wire.GroupDeletedError as error:
                    refusals.failed(call, "receive", error, topic=queue.topic)
                    return deliveries
                if arrival is None:
                    continue
                delivery = Delivery(arrival, queue.endpoints, self._settler)
                if arrival.damage:
                    await self._settler.refuse(delivery, arrival.damage)
                else:
                    deliveries.append(delivery)
                if len(deliveries) > max_count:  # no broker of ours sends more
                    break
        refusals.taken(call)
        return deliveries

    async def ack(self, delivery: Delivery) -> None:
        """Mark a delivery as done. Raises as `Delivery.ack`."""
        await delivery.ack()

    async def nack(
        self,
        delivery: Delivery,
        *,
        after: timedelta | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Give a delivery back for another attempt, after what the group's retry policy says
        unless told otherwise.

        Raises:
            InvalidReceiptHandleError: its invisible duration was over.
        """
        if after is None:
            await delivery.nack(error)
        else:
            await delivery.retry_in(after, error)

    async def change_invisible_duration(self, delivery: Delivery, invisible: timedelta) -> None:
        """Let a delivery's invisible duration end `invisible` from now.

        Raises:
            InvalidReceiptHandleError: it was over before.
            IllegalTimeError: a duration the broker does not allow.
        """
        await delivery.extend(invisible)

    async def dead_letter(
        self, delivery: Delivery, reason: str, error: BaseException | None = None
    ) -> None:
        """Give a delivery up: it moves to the group's dead letters.

        Raises:
            InvalidReceiptHandleError: its invisible duration was over.
        """
        await delivery.dead_letter(reason, error)

    async def close(self) -> None:
        """Leave the group. What was not settled comes again when its invisible duration ends."""
        self._session.check_loop()
        self._closed = True
        await self._session.close()

    async def __aenter__(self) -> Self:
        for topic in list(self._session.profile.topics):
            await self._session.route(topic)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _queues(self, topic: str, turn: int) -> Sequence[Queue]:
        """List one queue of each broker, another first each time."""
        queues = (await self._session.route(topic)).readable
        if not queues:
            raise ForbiddenError(Code.FORBIDDEN, f"no queue of {topic} can be read")
        choices = candidates(queues, turn, None)
        return [
            each for each in choices if not self._session.outages.away(each.endpoints)
        ] or choices


class SimpleConsumer(AskingConsumer):
    """Receives from whole topics, which its group shares. Made by `Client.simple_consumer`."""

    @property
    def subscriptions(self) -> Mapping[str, str]:
        """Return the topics received from, with their tag filters."""
        return dict(self._session.profile.topics)

    async def subscribe(self, topic: str, tags: str = MATCH_ALL) -> None:
        """Receive from `topic`, too; of tags "a || b", an `Sql` or, by default, all.

        Raises:
            TopicNotFoundError: and it is not created on use.
        """
        arguments.name_of("topic", topic)
        arguments.text("tags", tags)
        self._session.check_loop()
        self._session.profile.topics[topic] = tags
        await self._session.route(topic)
        await self._session.announce()

    async def unsubscribe(self, topic: str) -> None:
        """Receive from `topic` no more; what was received stays to be settled."""
        arguments.name_of("topic", topic)
        self._session.check_loop()
        self._session.forget_topic(topic)
        for key in [key for key in self._unanswered if key[0] == topic]:
            del self._unanswered[key]
        await self._session.announce()
