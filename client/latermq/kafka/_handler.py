"""Calls of a handler: at Kafka, and when LaterMQ brings a record back."""

import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Final, TypeAlias

from latermq._consuming.calling import (
    failing_if_ended,
    in_thread,
    in_time,
    refuse_generator,
    result_of,
)
from latermq._values.arguments import wrong
from latermq.kafka._record import Record

HandlerFunction: TypeAlias = Callable[[Record], Any]

THREADS_MAX: Final = 64  # of a handler that is not `async`


class Handler:
    """Calls a function that takes a record; one that is not `async` in a thread.

    Args:
        timeout: after it a call is cancelled, and its attempt has failed.
    Raises:
        TypeError: no function of one argument, or one that yields.
        ValueError: a timeout, and a thread cannot be stopped.
    """

    def __init__(self, function: HandlerFunction, timeout: timedelta | None) -> None:
        if not callable(function):
            raise wrong("a handler", "a function", function)
        refuse_generator(function)
        parameters = list(inspect.signature(function).parameters.values())
        if len(parameters) != 1:
            raise TypeError(f"{function!r} must take a Record, and nothing else")
        self._waits = inspect.iscoroutinefunction(function)
        if timeout is not None and not self._waits:
            raise ValueError("timeout needs an `async def` function: a thread cannot be stopped")
        self._function = function
        self._timeout_s = None if timeout is None else timeout.total_seconds()
        self._threads: ThreadPoolExecutor | None = None

    async def __call__(self, record: Record) -> None:
        """Call the function. Raises what it raises, TimeoutError, HandlerCancelledError and
        HandlerExitedError."""
        await failing_if_ended(in_time(self._timeout_s, self._run(record)))

    def close(self) -> None:
        """Begin no more calls in threads; those that run cannot be stopped."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, record: Record) -> None:
        if self._waits:
            await result_of(await self._function(record))
            return
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="latermq-kafka")
        await in_thread(self._threads, self._function, record)
