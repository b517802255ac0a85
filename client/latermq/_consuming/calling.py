"""Calls a listener with what an inbox holds: one delivery a call, or batches."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Executor
from contextvars import copy_context
from datetime import timedelta
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from latermq._connection.silence import STANDSTILL_S
from latermq._connection.tasks import Tasks
from latermq._consuming.inbox import Inbox
from latermq._consuming.settle import end_all, give_all_back
from latermq._consuming.surroundings import AROUND, surrounded
from latermq._values import arguments
from latermq._values.durations import span_of
from latermq._values.failure import class_name_of, exc_info, tell, text_of
from latermq.backoff import fits_kind
from latermq.delivery import Delivery, Verdict
from latermq.message import ConsumeResult
from latermq.middleware import Around, BatchNext, HandleNext

log = logging.getLogger("latermq.client")

Listener: TypeAlias = HandleNext
BatchListener: TypeAlias = Callable[[list[Delivery]], Awaitable[int | ConsumeResult | None]]
Judge: TypeAlias = Callable[[Exception], Verdict]
Returned = TypeVar("Returned")


class Batch(NamedTuple):
    """How many deliveries a listener gets at a time, and how long the first waits for others."""

    count_max: int
    wait: timedelta


class Pace(Protocol):
    """How often a listener is called."""

    async def turn(self) -> None:
        """Wait until the next call may begin."""

    def begun(self) -> None:
        """Know that one begins."""


SINGLE: Final = Batch(1, timedelta(0))
BATCH_WAIT: Final = timedelta(milliseconds=200)


class Handling(NamedTuple):
    """How a listener is called.

    Fields:
        listener: called with a delivery; None where batches are.
        batch_listener: called with each batch; it returns how many, from the first, are done.
        result_due: returning nothing is no success.
        pace: says when the next call may begin.
        judge: decides on what a call raised.
    """

    listener: Listener | None = None
    batch_listener: BatchNext | None = None
    batch: Batch = SINGLE
    result_due: bool = False
    pace: Pace | None = None
    judge: Judge | None = None


class NotDoneError(Exception):
    """A listener says that it did not come to this message of its batch; told to the broker."""


def batch_of(batch: int, batch_wait: timedelta | str) -> Batch:
    """Check what a batch is to be. Raises TypeError, ValueError."""
    arguments.at_least_one("batch", batch)
    return Batch(batch, span_of("batch_wait", batch_wait))


def refuse_generator(function: Callable[..., object]) -> None:
    """Raises TypeError: calling it would do nothing, for nobody iterates over what it yields."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise _yields(function)


async def result_of(returned: Any) -> Any:
    """Return what a call came to: what it returned, or what that gives when it is awaited, as of a
    decorator that does not await its `async` function.

    Raises TypeError: it is a generator, as `refuse_generator` could not see.
    """
    result = await returned if inspect.isawaitable(returned) else returned
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise _yields(result)
    return result


class HandlerCancelledError(Exception):
    """A handler raised CancelledError, and nobody cancelled its call; told as the failure."""


class HandlerExitedError(Exception):
    """A handler raised what ends a program or a task, such as SystemExit; told as the failure."""


async def failing_if_ended(call: Awaitable[Returned]) -> Returned:
    """Await a call of a user's function, whose own CancelledError, SystemExit or GeneratorExit is a
    failure as any other.

    It comes from what the function awaits, or calls. Passed on, it would be taken for the
    consumer's end: the message would be given back, uncounted, and come again at once, for ever;
    and SystemExit would end one worker after the other. KeyboardInterrupt is passed on, for it may
    be the user's Ctrl+C; a thread gets none.
    """
    task = asyncio.current_task()
    try:
        return await call
    except (Exception, KeyboardInterrupt):
        raise
    except asyncio.CancelledError as error:
        if task is None or task.cancelling():
            raise  # somebody did cancel it
        raise HandlerCancelledError("the handler raised CancelledError") from error
    except GeneratorExit as error:
        if not _runs(task):
            raise  # the coroutine is closed from outside, and cannot wait for anything
        raise exited(error) from error
    except BaseException as error:
        raise exited(error) from error


def exited(error: BaseException) -> HandlerExitedError:
    """Return the failure of a function that raised what is no Exception."""
    return HandlerExitedError(f"the handler raised {class_name_of(error)}: {text_of(error)}")


def _runs(task: object) -> bool:
    """Tell whether this is called by the task."""
    try:
        return asyncio.current_task() is task
    except RuntimeError:  # there is no loop any more
        return False


async def in_time(limit_s: float | None, call: Awaitable[Returned]) -> Returned:
    """Await a call of a user's function, which is cancelled after `limit_s` seconds.

    Raises:
        TimeoutError: it was cancelled so, whatever it raised or returned then.
    """
    if limit_s is None:
        return await call
    limit = asyncio.timeout(limit_s)
    try:
        async with limit:
            result = await call
    except Exception as error:
        if not limit.expired():
            raise
        raise _too_late(limit_s) from (None if fits_kind(error, TimeoutError) else error)
    if limit.expired():
        raise _too_late(limit_s)
    return result


def _too_late(limit_s: float) -> TimeoutError:
    return TimeoutError(f"not done after {limit_s:g} s, its time limit")


def _yields(given: object) -> TypeError:
    name = getattr(given, "__name__", repr(given))
    return TypeError(f"{name} yields, and nobody would iterate over it: a listener returns")


async def in_thread(threads: Executor | None, function: Callable[..., Any], *given: object) -> Any:
    """Call a function in a thread; what it returns to be awaited is awaited in this loop.

    What it raises is raised here; StopIteration, which no future can carry, as a RuntimeError, as a
    coroutine does, and what is no Exception as HandlerExitedError: signals reach the main thread
    only.
    """
    run = copy_context().run  # a trace, for example
    loop = asyncio.get_running_loop()
    return await result_of(await loop.run_in_executor(threads, run, _called_in, function, given))


def _called_in(function: Callable[..., Any], given: tuple[object, ...]) -> Any:
    try:
        return surrounded(function, given)
    except StopIteration as error:
        raise RuntimeError("the handler raised StopIteration") from error
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as error:
        raise exited(error) from error


def result_is_due(listener: Callable[..., object]) -> bool:
    """Tell whether the function says it returns a ConsumeResult, so that None is none."""
    returns = inspect.signature(listener).return_annotation
    return returns is ConsumeResult or str(returns).endswith("ConsumeResult")


def done_reader(listener: Callable[..., object]) -> Callable[[object, int], int]:
    """Return what reads how many of a batch, from the first, are done, as the listener says.

    It raises ValueError: what was returned is no number of messages of this batch.
    """
    name, result_due = getattr(listener, "__name__", repr(listener)), result_is_due(listener)

    def done(result: object, count: int) -> int:
        if result is ConsumeResult.RECONSUME_LATER or (result is None and result_due):
            return 0
        if result is None or result is ConsumeResult.SUCCESS:
            return count
        if isinstance(result, int) and not isinstance(result, bool) and 0 <= result <= count:
            return result
        raise ValueError(f"{name} returns None, or how many of its {count} are done: {result!r}")

    return done


async def _called(listener: Listener, delivery: Delivery) -> Any:
    return await result_of(await listener(delivery))


class Calls:
    """The calls of one consumer's listener, `concurrency` at a time.

    Args:
        in_hand: what is being worked on, and by which task.
        workers: the tasks.
    Raises:
        TypeError: some middleware cannot be around batches.
    """

    def __init__(
        self,
        handling: Handling,
        around: Around,
        inbox: Inbox,
        in_hand: dict[Delivery, object],
        workers: Tasks,
        concurrency: int,
    ) -> None:
        self._handling = handling
        self._inbox = inbox
        self._in_hand = in_hand
        self._workers = workers
        self._free = asyncio.Semaphore(concurrency)
        self._listener: Listener | None = None
        self._batch_listener: BatchNext | None = None
        self._in_threads = around.in_threads
        if handling.listener is not None:
            self._listener = around.handling(handling.listener)
        if handling.batch_listener is not None:
            self._batch_listener = around.handling_batches(handling.batch_listener)

    async def run(self) -> None:
        """Call until the inbox is closed."""
        AROUND.set(self._in_threads)
        if self._listener is not None:
            await self._call_each(self._listener)
        if self._batch_listener is not None:
            await self._call_batches(self._batch_listener)

    async def _call_each(self, listener: Listener) -> None:
        while True:
            await self._turn()
            delivery = await self._inbox.take()
            if delivery is None:
                return
            self._start(self._consume(listener, delivery), [delivery])

    async def _call_batches(self, listener: BatchNext) -> None:
        count_max, wait = self._handling.batch
        while True:
            await self._turn()
            deliveries = await self._inbox.take_several(count_max, wait.total_seconds())
            if not deliveries:
                return
            self._start(self._consume_batch(listener, deliveries), deliveries)

    async def _turn(self) -> None:
        """Wait until a call may begin. Nothing is taken for it before: what waits may still be
        given back, by a pause, the end or an outage."""
        await self._free.acquire()
        if self._handling.pace is not None:
            await self._handling.pace.turn()

    def _start(self, work: Coroutine[Any, Any, None], deliveries: Sequence[Delivery]) -> None:
        if self._handling.pace is not None:
            self._handling.pace.begun()
        task = self._workers.start(work, "latermq listener")
        now_s = asyncio.get_running_loop().time()
        for delivery in deliveries:
            self._in_hand[delivery] = task
            delivery._taken_s = now_s
        task.add_done_callback(lambda _: self._free.release())

    def _refuse_if_cancelled(self, outcome: Exception | None = None) -> None:
        """Raises CancelledError: the consumer's end cancelled the call, so it was not finished,
        whatever it returned or raised then."""
        if self._workers.cancelled:
            raise asyncio.CancelledError from outcome

    async def _too_late(self, deliveries: Sequence[Delivery]) -> bool:
        """Give back what was handed out before this process stood still; tell whether it did."""
        now_s = asyncio.get_running_loop().time()
        if now_s - deliveries[0]._taken_s <= STANDSTILL_S:
            return False
        for each in deliveries:
            await each._settler.return_it(each, quietly=True)
        return True

    async def _consume(self, listener: Listener, delivery: Delivery) -> None:
        async with delivery:
            if await self._too_late((delivery,)):
                return
            try:
                result = await failing_if_ended(_called(listener, delivery))
            except Exception as error:
                self._refuse_if_cancelled(error)
                if self._handling.judge is not None:
                    delivery._verdict = self._handling.judge(error)
                raise
            self._refuse_if_cancelled()
            later = result is None and self._handling.result_due
            if (later or result is ConsumeResult.RECONSUME_LATER) and not delivery.settled:
                await delivery._settler.end(delivery, None, later=True)

    async def _consume_batch(self, listener: BatchNext, deliveries: list[Delivery]) -> None:
        count, topic = len(deliveries), deliveries[0].topic
        began_s = asyncio.get_running_loop().time()
        try:
            try:
                if await self._too_late(deliveries):
                    return
                done = await failing_if_ended(listener(deliveries))
                self._refuse_if_cancelled()
                if done < count:
                    why = f"{done} of the {count} of its batch were done before it"
                    left = count - done
                    tell(
                        log, logging.WARNING,
                        "%d of a batch of %d not done, topic %s", left, count, topic,
                    )  # fmt: skip
                    await end_all(deliveries, done, NotDoneError(why))
                else:
                    await end_all(deliveries, done, None)
                for delivery in deliveries:
                    delivery._tell_done(began_s, f", in a batch of {count}")
            except Exception as error:  # noqa: BLE001  its messages have to end
                self._refuse_if_cancelled(error)
                verdict = Verdict() if self._handling.judge is None else self._handling.judge(error)
                for delivery in deliveries:
                    delivery._verdict = verdict
                tell(
                    log, logging.WARNING, "a batch of %d failed, topic %s: %s: %s",
                    count, topic, class_name_of(error), text_of(error), exc_info=exc_info(error),
                )  # fmt: skip
                await end_all(deliveries, 0, error)
        except BaseException:
            await give_all_back(each for each in deliveries if not each.settled)
            raise
