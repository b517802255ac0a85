"""What a test asks a broker and tells it, whichever broker it is."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from latermq._values.arguments import wrong
from latermq.admin import AsyncAdmin, Method
from latermq.app import App
from latermq.client import Client
from latermq.errors import GroupNotFoundError, TopicNotFoundError
from latermq.push_consumer import GRACE
from latermq_proto.latermq.v1 import dead_letter_pb2, message_pb2, pending_pb2
from latermq_text.bodies import DamagedBodyError, unpacked

PAGE_SIZE: Final = 1_000
_KINDS: Final[Mapping[int, str]] = {
    pending_pb2.DELAYED: "delayed",
    pending_pb2.BACKOFF: "backoff",
    pending_pb2.IN_FLIGHT: "in flight",
    pending_pb2.HALF: "half",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An attempt that failed.

    Fields:
        outcome: "nack", "expired", "client_gone", "forwarded", "rejected".
        kind: the exception's class, as the consumer told it; "" if it did not.
        backoff: the wait after it; 0 after the last.
    """

    attempt: int
    began_at: datetime
    ended_at: datetime
    outcome: str
    kind: str
    text: str
    backoff: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message that died in a group, and of what.

    Fields:
        reason: "attempts_exhausted", "forwarded", "rejected", "filtered".
        attempts: how many there were.
        kind, text: the last failure's exception class and message.
    """

    message_id: str
    topic: str
    body: bytes
    keys: tuple[str, ...]
    properties: Mapping[str, str] = field(repr=False)
    reason: str
    attempts: int
    kind: str
    text: str
    died_at: datetime
    failures: tuple[Failure, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A message that waits for its time, or for its consumer.

    Fields:
        state: "delayed", "backoff", "in flight", "half".
        group: "" for what no group has had yet.
        attempt: deliveries so far.
        kind, text: the last failure's exception class and message, if there was one.
    """

    message_id: str
    topic: str
    group: str
    state: str
    due_at: datetime
    attempt: int
    keys: tuple[str, ...]
    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A message of a topic, whoever has consumed it.

    Fields:
        due_at: the time it was delayed to; None: it was not.
    """

    message_id: str
    topic: str
    body: bytes
    tag: str
    keys: tuple[str, ...]
    properties: Mapping[str, str] = field(repr=False)
    message_group: str
    due_at: datetime | None


class Desk(ABC):
    """A broker of a test's own: what it holds, and a way to have an app work with it."""

    @abstractmethod
    def connect(self) -> Client:
        """Return a client of this broker; the test closes it."""

    @abstractmethod
    def call(self, method: Method[Any], request: Any) -> Any:
        """Return what a service of the broker answers, e.g. `AsyncAdmin.groups.GetGroup`.

        Raises:
            RequestError: a status other than OK.
        """

    @abstractmethod
    def stream(self, method: Method[Any], request: Any) -> AsyncGenerator[Any, None]:
        """Yield what a service answers piece by piece, as
        `AsyncAdmin.dead_letters.RedriveDeadLetters` does.

        Raises:
            RequestError: a status other than OK.
        """

    @abstractmethod
    async def _until(self, ended: Callable[[], bool], task: "asyncio.Task[Any]") -> None:
        """Let the task go on until `ended` says so, or the task ends."""

    @contextmanager
    def using(self, app: App) -> Iterator[App]:
        """Have what the app sends go to this broker, for as long as the block lasts.

        Raises:
            ValueError: the app has been used elsewhere and was not closed.
        """
        if not isinstance(app, App):
            raise wrong("app", "a latermq.App", app)
        with app._connecting(self.connect):
            yield app

    @asynccontextmanager
    async def working(
        self, app: App, *, grace: timedelta = GRACE, concurrency: int | None = None
    ) -> AsyncIterator[App]:
        """Run the app's listeners on this broker, as a worker does, for as long as the block lasts.

        They receive when the block begins. When it ends, the worker drains and the app is closed.
        Args: as `App.serve`, which says what is raised, too.
        """
        with self.using(app):
            end, ready = asyncio.Event(), asyncio.Event()
            serving = app.serve(end, grace=grace, concurrency=concurrency, ready=ready)
            task = asyncio.create_task(serving, name="latermq worker")
            try:
                await self._until(lambda: ready.is_set() or task.done(), task)
                yield app
            finally:
                end.set()
                await self._until(task.done, task)
                await task

    def dead(self, group: str) -> list[DeadLetter]:
        """List the dead letters of a group, the oldest first: neither redriven nor dropped."""
        try:
            listed = self._each(
                AsyncAdmin.dead_letters.ListDeadLetters,
                dead_letter_pb2.ListDeadLettersRequest(group=group, include_body=True),
                "letters",
            )
        except GroupNotFoundError:
            return []
        return [_letter(each) for each in listed]

    def pending(self, topic: str = "", group: str = "") -> list[Pending]:
        """List what waits or is being worked on, by when it is due: of one topic or group, or all.

        What no group was given yet, and may be received, is not listed.
        """
        listed = self._each(
            AsyncAdmin.pending.ListPending,
            pending_pb2.ListPendingRequest(
                filter=pending_pb2.PendingFilter(topic=topic, group=group)
            ),
            "messages",
        )
        return [_pending(each) for each in sorted(listed, key=lambda each: int(each.due_at_ms))]

    def sent(self, topic: str) -> list[Sent]:
        """List what was sent to a topic, done or not, the oldest first; what is delayed is not
        there before its time: `pending` has it."""
        try:
            listed = self._each(
                AsyncAdmin.messages.FindMessages,
                message_pb2.FindMessagesRequest(topic=topic, begin_ms=1, with_body=True),
                "messages",
            )
        except TopicNotFoundError:
            return []
        return [_sent(each) for each in sorted(listed, key=lambda each: int(each.stored_at_ms))]

    def _each(self, method: Method[Any], request: Any, field: str) -> list[Any]:
        items: list[Any] = []
        request.page_size = PAGE_SIZE
        while True:
            answer = self.call(method, request)
            items += getattr(answer, field)
            request.page_token = answer.next_page_token
            if not request.page_token:
                return items


def _instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1_000, UTC)


def _body(given: Any) -> bytes:
    body: bytes = given.body
    try:
        return unpacked(body, given.body_encoding)
    except DamagedBodyError:  # as it is stored; the failure of a dead letter says so
        return body


def _sent(given: message_pb2.FoundMessage) -> Sent:
    return Sent(
        message_id=given.message_id,
        topic=given.topic,
        body=_body(given),
        tag=given.tag,
        keys=tuple(given.keys),
        properties=dict(given.properties),
        message_group=given.message_group,
        due_at=_instant(given.due_at_ms) if given.due_at_ms else None,
    )


def _letter(given: dead_letter_pb2.DeadLetter) -> DeadLetter:
    return DeadLetter(
        message_id=given.message_id,
        topic=given.origin_topic,
        body=_body(given),
        keys=tuple(given.keys),
        properties=dict(given.properties),
        reason=given.reason,
        attempts=given.attempt_count,
        kind=given.failure_class,
        text=given.failure_text,
        died_at=_instant(given.dead_at_ms),
        failures=tuple(
            Failure(
                attempt=each.attempt,
                began_at=_instant(each.started_at_ms),
                ended_at=_instant(each.ended_at_ms),
                outcome=each.outcome,
                kind=each.failure_class,
                text=each.failure_text,
                backoff=timedelta(milliseconds=each.backoff_ms),
            )
            for each in given.attempts
        ),
    )


def _pending(given: pending_pb2.PendingMessage) -> Pending:
    return Pending(
        message_id=given.message_id,
        topic=given.topic,
        group=given.group,
        state=_KINDS[given.kind],
        due_at=_instant(given.due_at_ms),
        attempt=given.attempt,
        keys=tuple(given.keys),
        kind=given.last_failure_class,
        text=given.last_failure_text,
    )
