"""Sends: one message, or a batch that is stored as a whole."""

import asyncio
import itertools
import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeVar

from latermq._connection.batching import Batches, Batching
from latermq._connection.session import Session
from latermq._connection.transport import Metadata
from latermq._values import arguments
from latermq._values.endpoints import Endpoints
from latermq._values.identity import message_ids
from latermq._values.route import Queue, candidates
from latermq._wire import messages as wire
from latermq._wire.transactions import RECALL_MESSAGE, Half, ask_recall, read_half, read_recall
from latermq.backoff import SEND_BACKOFF
from latermq.codes import Code
from latermq.errors import (
    DiskFullError,
    ForbiddenError,
    LaterMQError,
    MessageTooLargeError,
    PartialSendError,
    RequestError,
    RequestTimeoutError,
    ServerError,
    TooManyRequestsError,
    TopicNotFoundError,
    UnavailableError,
)
from latermq.message import Message, SendReceipt
from latermq.transaction import Ends

log = logging.getLogger("latermq.client")

Result = TypeVar("Result")

TRIES: Final = 3
DELAY_LEVEL_MAX: Final = 999_999_999  # as a broker takes it; above its last step it is that step
# Nothing is known about what became of these, or another broker may have room; a repeated send has
# the same message id.
WORTH_ANOTHER_TRY: Final = (UnavailableError, RequestTimeoutError, ServerError, DiskFullError)
NOTES: Final[dict[bool | None, str]] = {
    False: "surely not stored",
    None: "whether it is stored is not known: sending it again may store it twice",
}


def time_of_day() -> datetime:
    """Return what this machine's clock says."""
    return datetime.now(UTC)


class _Lane(NamedTuple):
    """What may share a call: one topic, one kind of message, for ordered ones one queue."""

    topic: str
    queue: Queue | None
    delayed: bool
    delay_level: int | None
    tries: int


class Producer:
    """What `Client.send` and `Client.send_batch` are made of.

    Args:
        now: the time of day from which delays count.
    """

    def __init__(
        self,
        session: Session,
        batching: Batching | None = None,
        now: Callable[[], datetime] = time_of_day,
    ) -> None:
        self._session = session
        self._now = now
        self._batches = None if batching is None else Batches(batching, self._deliver)
        self._ids = message_ids()
        self._turn = itertools.count()
        self.ends = Ends(session)

    @property
    def client_id(self) -> str:
        """Return the id that the broker knows it by."""
        return self._session.profile.client_id

    async def send(
        self,
        topic: str,
        messages: Sequence[Message],
        delay_level: int | None = None,
        tries: int = TRIES,
    ) -> list[SendReceipt]:
        """Store the messages with one call, all or none.

        Tries so many times: at once again where nothing is known about the outcome, so that a
        message may be stored twice; after a second or more where the broker is overloaded.

        Args:
            delay_level: from 1, of the broker's ladder of 18; more is its last step. For all
                messages of the call.
        Raises:
            TopicNotFoundError: and it is not created on use.
            MessageTooLargeError, IllegalMessageError: refused, by us or by the broker.
            PartialSendError: a broker stored some of them only.
            UnavailableError, RequestTimeoutError, TooManyRequestsError: also at the last try.
        """
        arguments.name_of("topic", topic)
        arguments.at_least_one("tries", tries)
        for message in messages:
            if not isinstance(message, Message):
                raise arguments.wrong("each of messages", "a Message", message)
        if delay_level is not None:
            _check_level(delay_level, messages)
        if not messages:
            return []
        queues = await self._writable(topic)
        self._check_sizes(messages)
        now = self._now()
        drafts = [wire.Draft(m, self._ids.next(), now, m.due(now)) for m in messages]
        group = messages[0].message_group if len(messages) == 1 else None
        choices = candidates(queues, next(self._turn), group)
        headers = () if delay_level is None else (wire.delay_level_header(delay_level),)
        try:
            return await self._try(choices, drafts, headers, tries)
        except TopicNotFoundError:
            self._session.forget_route(topic)  # it was deleted; it may come back elsewhere
            raise

    async def send_one(
        self,
        topic: str,
        message: Message,
        delay_level: int | None = None,
        tries: int = TRIES,
    ) -> SendReceipt:
        """Store a message, with others that are sent at the time if sends share calls.

        Raises as `send` does; each message its own error.
        """
        arguments.name_of("topic", topic)
        arguments.at_least_one("tries", tries)
        if self._batches is None:
            (receipt,) = await self.send(topic, [message], delay_level, tries)
            return receipt
        if delay_level is not None:
            _check_level(delay_level, [message])
        queues = await self._writable(topic)
        self._check_sizes([message])
        now = self._now()
        draft = wire.Draft(message, self._ids.next(), now, message.due(now))
        group = message.message_group
        delayed = draft.due is not None or delay_level is not None
        queue = None if group is None else candidates(queues, 0, group)[0]
        key = _Lane(topic, queue, delayed, delay_level, tries)
        return await self._batches.add(key, draft, len(message.body), ordered=group is not None)

    async def _deliver(
        self, key: _Lane, drafts: Sequence[wire.Draft]
    ) -> Sequence[SendReceipt | RequestError]:
        queues = await self._writable(key.topic)
        choices = [key.queue] if key.queue else candidates(queues, next(self._turn), None)
        headers = () if key.delay_level is None else (wire.delay_level_header(key.delay_level),)
        try:
            return await self._try(choices, drafts, headers, key.tries)
        except PartialSendError as error:
            return error.outcomes
        except TopicNotFoundError:
            self._session.forget_route(key.topic)
            raise

    async def send_half(
        self, topic: str, message: Message, check_after: timedelta | None
    ) -> tuple[Half, Endpoints]:
        """Store a half message; (what it is called, the broker that has it).

        Tried again only where it was surely not stored: another one would be asked about later.
        Raises as `send` does.
        """
        queues = await self._writable(topic)
        self._check_sizes([message])
        now = self._now()
        draft = wire.Draft(message, self._ids.next(), now, None, True, check_after)
        choices = self._there_first(candidates(queues, next(self._turn), message.message_group))
        try:
            for retry in range(1, TRIES):
                queue = choices[(retry - 1) % len(choices)]
                try:
                    return await self._send_half_once(queue, draft)
                except TooManyRequestsError as error:
                    await self._slow_down(error, queue, retry)
            return await self._send_half_once(choices[(TRIES - 1) % len(choices)], draft)
        except TopicNotFoundError:
            self._session.forget_route(topic)
            raise

    async def recall(self, topic: str, recall_handle: str) -> str:
        """Take a delayed message back; its id. Raises as `Client.recall` does."""
        queues = await self._writable(topic)
        request = ask_recall(self._session.profile, topic, recall_handle)
        answer = await self._session.call_once(queues[0].endpoints, RECALL_MESSAGE, request)
        return read_recall(answer)

    async def close(self) -> None:
        if self._batches is not None:
            await self._batches.close()
        await self.ends.close()
        await self._session.close()

    async def _writable(self, topic: str) -> tuple[Queue, ...]:
        try:
            route = self._session.known_route(topic) or await self._session.route(topic)
        except LaterMQError as error:
            _tell_stored(error, False)  # it was not sent yet
            raise
        queues = route.writable
        if not queues:
            raise ForbiddenError(Code.FORBIDDEN, f"no queue of {topic} can be written")
        return queues

    def _there_first(self, queues: list[Queue]) -> list[Queue]:
        """Put last the brokers that nobody was reached at; a heartbeat finds them again."""
        if len(queues) == 1:
            return queues
        return sorted(queues, key=lambda queue: self._session.outages.away(queue.endpoints))

    async def _try(
        self, queues: list[Queue], drafts: Sequence[wire.Draft], headers: Metadata, tries: int
    ) -> list[SendReceipt]:
        queues = self._there_first(queues)
        doubtful = False  # an earlier try may have stored it
        for retry in itertools.count(1):
            queue = queues[(retry - 1) % len(queues)]
            try:
                return await self._send_once(queue, drafts, headers)
            except LaterMQError as error:
                for each in (error, *getattr(error, "outcomes", ())):
                    if isinstance(each, LaterMQError):
                        _tell_stored(each, None if doubtful else each.stored)
                doubtful = error.stored is None
                if retry < tries and isinstance(error, TooManyRequestsError):
                    await self._slow_down(error, queue, retry)
                elif retry < tries and isinstance(error, WORTH_ANOTHER_TRY):
                    self._tell(error, queue, 0)
                else:
                    raise
        raise AssertionError("tries end")

    async def _send_once(
        self, queue: Queue, drafts: Sequence[wire.Draft], headers: Metadata
    ) -> list[SendReceipt]:
        profile = self._session.profile
        request = wire.ask_send(profile, queue, drafts, delayed=bool(headers))
        answer = await self._session.call_once(queue.endpoints, wire.SEND_MESSAGE, request, headers)
        outcomes = wire.read_send(answer, queue.topic, [draft.message_id for draft in drafts])
        receipts = [outcome for outcome in outcomes if isinstance(outcome, SendReceipt)]
        if len(receipts) == len(outcomes):
            return receipts
        if len(outcomes) == 1 and isinstance(outcomes[0], RequestError):
            raise outcomes[0]
        raise PartialSendError(outcomes)

    async def _send_half_once(self, queue: Queue, draft: wire.Draft) -> tuple[Half, Endpoints]:
        request = wire.ask_send(self._session.profile, queue, [draft], delayed=False)
        answer = await self._session.call_once(queue.endpoints, wire.SEND_MESSAGE, request)
        return read_half(answer, queue.topic), queue.endpoints

    async def _slow_down(self, error: LaterMQError, queue: Queue, retry: int) -> None:
        pause = error.again_in or SEND_BACKOFF.wait(retry, random.random())
        wait = pause.total_seconds()
        self._tell(error, queue, wait)
        await asyncio.sleep(wait)

    def _check_sizes(self, messages: Sequence[Message]) -> None:
        limit = self._session.settings.body_bytes_max
        for message in messages:
            if len(message.body) > limit:
                raise MessageTooLargeError(
                    Code.MESSAGE_BODY_TOO_LARGE,
                    f"the body has {len(message.body)} bytes, the broker takes {limit}",
                )

    def _tell(self, error: LaterMQError, queue: Queue, wait: float) -> None:
        about = {"topic": queue.topic, "reason": str(error), "wait_s": wait}
        log.info("send to %s is tried again: %s", queue.topic, error, extra=about)


def _tell_stored(error: LaterMQError, stored: bool | None) -> None:
    """Have an error say whether what was sent is stored, below its traceback, too."""
    error.stored = stored
    if not isinstance(error, PartialSendError):  # each of its outcomes says
        error.__notes__ = [NOTES[stored]]


async def within(limit: timedelta, work: Coroutine[Any, Any, Result]) -> Result:
    """Return what a send does, if it is done in time.

    Raises:
        RequestTimeoutError: it is not; what it sent may have arrived.
        ValueError, TypeError: no time at all, or no duration.
    """
    try:
        arguments.duration("timeout", limit)
        if limit <= timedelta(0):
            raise ValueError(f"timeout must be positive, not {limit}")
    except BaseException:
        work.close()  # never begun
        raise
    try:
        async with asyncio.timeout(limit.total_seconds()) as bound:
            return await work
    except TimeoutError:
        if not bound.expired():
            raise
        why = f"no answer within {limit.total_seconds():g} s; it may be stored"
        raise RequestTimeoutError(Code.REQUEST_TIMEOUT, why) from None


def _check_level(level: int, messages: Sequence[Message]) -> None:
    arguments.whole("delay_level", level)
    if not 1 <= level <= DELAY_LEVEL_MAX:
        raise ValueError(f"delay_level must be 1 to {DELAY_LEVEL_MAX}, not {level}")
    if any(m.deliver_at is not None or m.delay is not None for m in messages):
        raise ValueError("give delay_level or a time, not both")
