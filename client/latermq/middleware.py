"""Code of yours around whatever a client sends and hands to listeners: `App.use`, `Client.use`.

    class Timed(Middleware):
        async def handle(self, delivery: Delivery, call_next: HandleNext) -> ConsumeResult | None:
            began = monotonic()
            try:
                return await call_next(delivery)
            finally:
                print(delivery.topic, delivery.group, monotonic() - began)

What was used first is outermost. What a method does not call through to does not happen; what it
raises counts as raised by what it is around: a send fails, an attempt fails. `call_next` goes on
once: to call it again is an error, but after it raised it tries again.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

from latermq._values import arguments
from latermq._values.failure import exc_info, tell
from latermq.delivery import Delivery, Outcome
from latermq.message import ConsumeResult, Message, SendReceipt

log = logging.getLogger("latermq.client")

__all__ = ["BatchNext", "HandleNext", "Middleware", "Outcome", "SendNext"]

SendNext: TypeAlias = Callable[[str, Sequence[Message]], Awaitable[Sequence[SendReceipt]]]
"""What `Middleware.send` calls with topic and messages, to go on."""
HandleNext: TypeAlias = Callable[[Delivery], Awaitable[ConsumeResult | None]]
"""What `Middleware.handle` calls with the delivery, to go on."""
BatchNext: TypeAlias = Callable[[Sequence[Delivery]], Awaitable[int]]
"""What `Middleware.handle_batch` calls with the deliveries, to go on."""
InThread: TypeAlias = Callable[[Callable[[], Any]], Any]
Settled: TypeAlias = Callable[[Delivery, Outcome], None]

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


class Middleware:
    """What a client calls around its work. Override what you need; the rest costs nothing."""

    async def send(
        self, topic: str, messages: Sequence[Message], call_next: SendNext
    ) -> Sequence[SendReceipt]:
        """Be called around each send: of one message, of a batch, of a transaction's half message.

        Messages are frozen: hand `call_next` others, as many, such as `Message.with_properties` and
        `dataclasses.replace` make.
        """
        return await call_next(topic, messages)

    async def handle(self, delivery: Delivery, call_next: HandleNext) -> ConsumeResult | None:
        """Be called around each call of a listener, before its outcome is told to the broker.

        A loop over a consumer is your own code: nothing is called around that.
        """
        return await call_next(delivery)

    async def handle_batch(self, deliveries: Sequence[Delivery], call_next: BatchNext) -> int:
        """Be called around each call of a batch listener; return how many, from the first, are
        done. Who overrides `handle` and has a batch listener overrides this, too."""
        return await call_next(deliveries)

    def in_thread(self, call_next: Callable[[], Any]) -> Any:
        """Be called around each call of a function that is not `async`, in the call's thread.

        For what belongs to a thread, such as a connection or a `scoped_session`. Inside `handle`
        and `handle_batch`; what it returns or raises is the function's.
        """
        return call_next()

    def settled(self, delivery: Delivery, outcome: Outcome) -> None:
        """Be told once how each delivery left this client, whoever consumed it."""


class Around:
    """The middleware of one client, which its producer and its consumers ask."""

    def __init__(self) -> None:
        self._sends: list[Middleware] = []
        self._handles: list[Middleware] = []
        self._batch_handles: list[Middleware] = []
        self._in_threads: list[InThread] = []
        self._settled: list[Settled] = []

    def use(self, middleware: Middleware) -> None:
        """Have it called inside those used before. Raises TypeError: it is no Middleware."""
        if not isinstance(middleware, Middleware):
            raise arguments.wrong("middleware", "a latermq.middleware.Middleware", middleware)
        kind = type(middleware)
        if kind.send is not Middleware.send:
            self._sends.append(middleware)
        if kind.handle is not Middleware.handle:
            self._handles.append(middleware)
        if kind.handle_batch is not Middleware.handle_batch:
            self._batch_handles.append(middleware)
        if kind.in_thread is not Middleware.in_thread:
            self._in_threads.append(middleware.in_thread)
        if kind.settled is not Middleware.settled:
            self._settled.append(middleware.settled)

    @property
    def sends(self) -> bool:
        """Tell whether anything is called around sends."""
        return bool(self._sends)

    @property
    def in_threads(self) -> Sequence[InThread]:
        """Return what is called in threads, the outermost first."""
        return tuple(self._in_threads)

    async def send(
        self, topic: str, messages: Sequence[Message], last: SendNext
    ) -> list[SendReceipt]:
        """Send with everything around `last`.

        Raises:
            ValueError: not as many messages came out of it as went in, or not as many receipts.
        """

        async def checked(topic: str, changed: Sequence[Message]) -> Sequence[SendReceipt]:
            if len(changed) != len(messages):
                raise ValueError(f"middleware made {len(changed)} messages of {len(messages)}")
            return await last(topic, changed)

        send: SendNext = checked
        for each in reversed(self._sends):
            send = _around(each.send, send)
        receipts = list(await send(topic, messages))
        if len(receipts) != len(messages):
            raise ValueError(f"middleware returned {len(receipts)} receipts of {len(messages)}")
        return receipts

    def handling(self, listener: HandleNext) -> HandleNext:
        """Return `listener` with everything around it that is used by now."""
        for each in reversed(self._handles):
            listener = _around(each.handle, listener)
        return listener

    def handling_batches(self, listener: BatchNext) -> BatchNext:
        """Return `listener` with everything around it that is used by now.

        Raises:
            TypeError: what is done around single deliveries would not be done around batches.
        """
        for each in self._handles:
            if each not in self._batch_handles:
                kind = type(each).__name__
                raise TypeError(f"{kind} has no `handle_batch`, and there is a batch listener")
        for each in reversed(self._batch_handles):
            listener = _around(each.handle_batch, listener)
        return listener

    def settled(self, delivery: Delivery, outcome: Outcome) -> None:
        """Tell all of them; what they raise is logged, and changes nothing."""
        for listener in self._settled:
            try:
                listener(delivery, outcome)
            except KeyboardInterrupt:
                raise  # the program is asked to end
            except BaseException as error:  # noqa: BLE001  the delivery is settled all the same
                name = getattr(listener, "__qualname__", type(listener).__name__)
                tell(log, logging.ERROR, "middleware failed: %s", name, exc_info=exc_info(error))


def _around(
    method: Callable[..., Awaitable[Answer]], inner: Callable[Given, Awaitable[Answer]]
) -> Callable[Given, Awaitable[Answer]]:
    """Return what calls a middleware's method, with `inner` to go on to."""

    def call(*args: Given.args, **kwargs: Given.kwargs) -> Awaitable[Answer]:
        return method(*args, **kwargs, call_next=_Once(method, inner))

    return call


class _Once(Generic[Given, Answer]):
    """What one call of a method goes on with: a second send would be another message."""

    __slots__ = ("_inner", "_is_over", "_method")

    def __init__(
        self, method: Callable[..., object], inner: Callable[Given, Awaitable[Answer]]
    ) -> None:
        self._method = method
        self._inner = inner
        self._is_over = False

    async def __call__(self, *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        """Go on. Raises RuntimeError: it did, and has not failed."""
        if self._is_over:
            raise RuntimeError(
                f"{self._method.__qualname__} calls call_next again, which did not raise: it goes "
                "on once"
            )
        self._is_over = True
        try:
            return await self._inner(*args, **kwargs)
        except BaseException:
            self._is_over = False
            raise
