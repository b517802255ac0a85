"""How a worker is told to end: the first signal asks, the second one ends it as it is."""

import asyncio
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, Final

log = logging.getLogger("latermq.worker")

# Windows has Ctrl+Break, too: the one that another process can send to a group.
NUMBERS: Final = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGBREAK") if hasattr(signal, name)
)


class Asked:
    """What hears the first of some signals; of several of a program each one hears it.

    Args:
        end: called in the handler, so it must not wait.
    """

    def __init__(self, end: Callable[[], object], numbers: tuple[int, ...]) -> None:
        self.over = False
        self._end = end
        self._before: dict[int, Any] = {number: signal.getsignal(number) for number in numbers}
        self._left: dict[int, Any] = {}  # what it had signals do once it was asked
        for number in numbers:
            signal.signal(number, self)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.over:  # put back by somebody who heard signals after it
            signal.signal(number, self.before(number))
            signal.raise_signal(number)
            return
        self.over = True
        for each in self._before:
            if not isinstance(signal.getsignal(each), Asked):
                continue  # the program has one of its own by now
            # asyncio.run has a handler of its own for SIGINT, which would only cancel its task.
            is_int = each is signal.SIGINT
            self._left[each] = signal.SIG_DFL if is_int else self.before(each)
            signal.signal(each, self._left[each])
        log.info("%s: ending", signal.Signals(number).name)
        self._end()
        if isinstance(other := self.before(number), Asked):
            other(number, frame)

    def before(self, number: int) -> Any:
        """Return who heard a signal before this one, and still does."""
        handler = self._before.get(number)
        while isinstance(handler, Asked) and handler.over:
            handler = handler.before(number)
        return handler

    def leave(self) -> None:
        """Have signals do again what they did, once nobody else hears them."""
        self.over = True
        for number in self._before:
            now = signal.getsignal(number)
            if now is self or (number in self._left and now == self._left[number]):
                signal.signal(number, self.before(number))


@contextmanager
def asked_to_end(end: Callable[[], object]) -> Iterator[None]:
    """Call `end` at the first SIGTERM or SIGINT, and SIGBREAK of Windows; it must not wait.

    From then on, and after the block, signals do again what they did before: without handlers of
    the program's own the second one ends the process. In the main thread only; on Windows SIGTERM
    comes only where the process raises it.

    Raises:
        RuntimeError: in another thread.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "`run` waits for signals, which only the main thread gets: in another thread say "
            "`asyncio.run(app.serve(asyncio.Event()))`"
        )
    asked = Asked(end, NUMBERS)
    try:
        yield
    finally:
        asked.leave()


async def until_signalled(serve: Callable[[asyncio.Event], Awaitable[bool]]) -> bool:
    """Serve until `asked_to_end` says so; return what `serve` does: whether all was finished.

    Raises RuntimeError: as `asked_to_end`.
    """
    end, loop = asyncio.Event(), asyncio.get_running_loop()
    with asked_to_end(partial(loop.call_soon_threadsafe, end.set)):
        finished = await serve(end)
    if not finished:  # `asyncio.run` would wait for threads of `asyncio.to_thread`
        loop.set_default_executor(ThreadPoolExecutor(1))
    return finished


@contextmanager
def asked_if_nobody_hears(end: Callable[[], object]) -> Iterator[None]:
    """Call `end` as `asked_to_end` does, for signals that the program has no handlers for.

    In other threads than the main one nothing is heard.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = Asked(end, tuple(filter(_nobody_hears, NUMBERS)))
    try:
        yield
    finally:
        asked.leave()


def _nobody_hears(number: int) -> bool:
    handler = signal.getsignal(number)
    if handler in (signal.SIG_DFL, signal.default_int_handler) or isinstance(handler, Asked):
        return True
    # Of `asyncio.run`, which would cancel its task.
    return isinstance(getattr(getattr(handler, "func", None), "__self__", None), asyncio.Runner)
