"""Listeners, and what makes them of functions: by message, by batch, by the ticks of a schedule."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypedDict, Unpack, overload

from latermq._connection.loop_thread import BorrowedLoop
from latermq._consuming.inbox import Prefetch
from latermq._values import arguments
from latermq._worker.calls import Function, Shape
from latermq._worker.declared import Attempts
from latermq._worker.payload_types import name_of
from latermq._worker.payloads import CONTENT_TYPE, TEXT, Payload
from latermq._worker.schedules import TICK, of_ticks
from latermq._worker.verdicts import Rules
from latermq._worker.worker import Listening
from latermq.backoff import Backoff, Kinds, WaitOf
from latermq.delivery import Delivery
from latermq.message import Message, SendReceipt
from latermq.producer import TRIES, within
from latermq.push_consumer import PushConsumer

if TYPE_CHECKING:  # it brings every consumer for threads
    from latermq import sync
    from latermq.sync import Client


class Bounds(TypedDict, total=False):
    """What `Client.push_consumer` takes, too: how much a consumer holds for a queue, and how much
    it asks for at a time, how often."""

    cached_count_max: int
    cached_bytes_max: int
    receive_max: int | None
    receive_pause: timedelta


class ListenerFields(Bounds, total=False):
    """What `App.listener` takes, of single messages and of batches."""

    tags: str
    concurrency: int
    broadcast: bool
    timeout: timedelta | None
    lease_max: timedelta | None
    rate: str | None
    retry: Backoff | str | None
    max_attempts: Attempts | None
    retry_on: Kinds | None
    dead_letter_on: Kinds
    give_back_on: Kinds
    retry_in: WaitOf


class MessageFields(TypedDict, total=False):
    """What `Message` takes beside the body."""

    tag: str | None
    keys: Sequence[str]
    properties: Mapping[str, str]
    message_group: str | None
    lite_topic: str | None
    priority: int | None
    deliver_at: datetime | None
    delay: timedelta | None
    dedup_id: str | None


class Listener(Generic[Payload]):
    """A function that is called for each message of a topic, and the way to send it one.

    Made by `App.listener`. Calling it calls the function, with a payload that a test made.
    """

    def __init__(self, app: Any, listening: Listening) -> None:
        self.topic = listening.topic
        self.group = listening.group
        self.tags = listening.tags
        self.listening = listening
        self._app = app
        self._consumer: PushConsumer | None = None
        self._loop: BorrowedLoop | None = None
        function = listening.function
        self.__name__ = name_of(function)
        self.__doc__ = function.__doc__

    def __call__(self, *given: Any) -> Any:
        return self.listening.function(*given)

    def __repr__(self) -> str:
        """Say all that it does, as `latermq worker --show` prints it."""
        return f"{self.topic} for {self.group}: {self.__name__}, {self.listening}"

    @property
    def consumer(self) -> PushConsumer:
        """Return what consumes for it in this process, to pause, to resume, and for its `stats`.

        Raises:
            ValueError: no worker of this process serves it.
        """
        if self._consumer is None:
            raise ValueError(f"no worker serves {self.__name__} in this process, now")
        return self._consumer

    @property
    def consumer_for_threads(self) -> "sync.PushConsumer":
        """Return `consumer` for a thread, such as that of a listener which is not `async`.

        Raises:
            ValueError: no worker of this process serves it.
        """
        from latermq.sync import PushConsumer as ForThreads

        consumer, loop = self.consumer, self._loop
        assert loop is not None  # they come and go together
        return ForThreads(loop, consumer, self.listening.concurrency)

    def message(self, payload: Payload, **fields: Unpack[MessageFields]) -> Message:
        """Make the message that carries `payload`, for any client to send to `topic`.

        Raises:
            TypeError: the function takes deliveries, or the payload is not what it takes.
            ValueError: the payload would not arrive as it is, and its field is named; or as
                `Message` says.
        """
        codec = self.listening.shape.codec
        if codec is None:
            raise TypeError(f"{self.__name__} takes deliveries, not payloads: send bytes")
        if codec.content_type:
            properties = {**fields.get("properties", {}), CONTENT_TYPE: codec.content_type}
            fields = {**fields, "properties": properties}
        return Message(codec.body(payload, check=self._app.checks_payloads), **fields)

    async def send(
        self,
        payload: Payload,
        *,
        tries: int = TRIES,
        timeout: timedelta | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendReceipt:
        """Send `payload` to the topic; it is safe with the broker when this returns.

        Tries, time and errors: as `Client.send_batch`; and as `message`.
        """
        message = self.message(payload, **fields)
        work = self._app.client._send_one(self.topic, message, None, tries)
        receipt: SendReceipt = await (work if timeout is None else within(timeout, work))
        return receipt

    def send_with(
        self,
        client: "Client",
        payload: Payload,
        *,
        tries: int = TRIES,
        timeout: timedelta | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendReceipt:
        """Send as `send` does, with a client for threads: in programs that do not await.

        Args:
            client: made by `latermq.sync.connect`, once in a process; the app's own is not used.
        """
        message = self.message(payload, **fields)
        (receipt,) = client.send_batch(self.topic, [message], tries=tries, timeout=timeout)
        return receipt


@contextmanager
def served(listeners: Sequence[Listener[Any]], consumers: Sequence[PushConsumer]) -> Iterator[None]:
    """Have each listener know what consumes for it, in this loop, as long as the block lasts."""
    loop = BorrowedLoop(asyncio.get_running_loop(), threading.current_thread())
    for listener, consumer in zip(listeners, consumers, strict=True):
        listener._consumer, listener._loop = consumer, loop
    try:
        yield
    finally:
        for listener in listeners:
            listener._consumer = listener._loop = None


def check_listener(
    topic: str, tags: str, concurrency: int, timeout: timedelta | None, rules: Rules
) -> None:
    """Raises TypeError, ValueError: something is not what a listener takes."""
    arguments.name_of("topic", topic)
    arguments.text("tags", tags)
    arguments.at_least_one("concurrency", concurrency)
    arguments.optional_duration("timeout", timeout)
    if timeout is not None and timeout <= timedelta(0):
        raise ValueError(f"timeout must be positive, not {timeout}")
    rules.check()


def prefetch_of(bounds: Mapping[str, Any]) -> Prefetch:
    """Check a listener's bounds, the only arguments that are not named in `App.listener`.

    Raises:
        TypeError, ValueError: no bounds, or there is no such argument.
    """
    for name in bounds:
        if name not in Prefetch._fields:
            raise TypeError(f"listener() got an unexpected keyword argument {name!r}")
    prefetch = Prefetch(**bounds)
    prefetch.check()
    return prefetch


class Decorator:
    """Makes a listener of the function it is given; typed by the function's payload."""

    def __init__(self, app: Any, **about: Any) -> None:
        self._app = app
        self._about = about

    @overload
    def __call__(self, function: Callable[[Payload], Any]) -> Listener[Payload]: ...

    @overload
    def __call__(self, function: Callable[[Payload, Delivery], Any]) -> Listener[Payload]: ...

    def __call__(self, function: Function) -> Listener[Any]:
        return self.listen(function)

    def listen(self, function: Function, shape: Shape | None = None) -> Listener[Any]:
        """Make it of a function that takes this; None: what its annotations say."""
        made: Listener[Any] = self._app._listen(function, shape, **self._about)
        return made


class BatchDecorator:
    """Makes a listener of a function that takes lists; typed by their payload."""

    def __init__(self, app: Any, **about: Any) -> None:
        self._app = app
        self._about = about

    @overload
    def __call__(self, function: Callable[[list[Payload]], Any]) -> Listener[Payload]: ...

    @overload
    def __call__(
        self, function: Callable[[list[Payload], list[Delivery]], Any]
    ) -> Listener[Payload]: ...

    def __call__(self, function: Function) -> Listener[Any]:
        made: Listener[Any] = self._app._listen(function, **self._about)
        return made


class Ticking:
    """Has what it is given called at the ticks of a schedule; see `App.every`."""

    def __init__(
        self, app: Any, name: str | None, about: Mapping[str, Any], payload: Any, fields: Any
    ) -> None:
        self._app = app
        self._name = name
        self._about = about
        self._payload = payload
        self._fields = fields

    @overload
    def __call__(self, function: Listener[Payload]) -> Listener[Payload]: ...

    @overload
    def __call__(self, function: Callable[..., Any]) -> Listener[Any]: ...

    def __call__(self, function: Any) -> Listener[Any]:
        own = function.__name__ if isinstance(function, Listener) else name_of(function)
        # A function's name has no "-": those of two apps never make one.
        name = self._name or (own if self._app.name is None else f"{self._app.name}-{own}")
        self._app._declared.check_schedule(name)
        listener = function if isinstance(function, Listener) else self._listener(function, name)
        message = self._message(listener)
        self._app.schedule(name, listener.topic, message=message, **self._about)
        return listener

    def _listener(self, function: Function, name: str) -> Listener[Any]:
        """Make a listener with a topic and a group of its own, named as the schedule."""
        ticking = of_ticks(function)
        decorator = self._app.listener(name, group=name)
        made: Listener[Any] = decorator(function) if ticking is None else decorator.listen(*ticking)
        return made

    def _message(self, listener: Listener[Any]) -> Message:
        codec = listener.listening.shape.codec
        if self._payload is None:
            if codec is None or codec.content_type in ("", TEXT):
                return Message(b"", **self._fields)  # the broker has it be the tick's time
            raise ValueError(f"{listener.__name__} takes a payload: say payload=")
        if codec is TICK:
            raise ValueError(f"{listener.__name__} takes no payload")
        if codec is None:
            return Message(self._payload, **self._fields)
        return listener.message(self._payload, **self._fields)
