"""An event loop whose time passes only when nothing else is left to do, and then at once.

A test that "waits" an hour takes no time, and every timer fires exactly when it is due. Threads are
replaced by `InlineThreads`, because nothing would wait for a real one.
"""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

START_MS = 1_700_000_000_000


class _Selector(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.elapsed_us = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "everything waits and no timer is set"
            self.elapsed_us += round(timeout * 1_000_000) or timeout > 0
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.elapsed_us / 1_000_000

    def stand_still(self, lasting_ms: int) -> None:
        """Let time pass in which no timer fires."""
        self._virtual.elapsed_us += lasting_ms * 1_000

    def now_ms(self) -> int:
        """The clock of the code under test."""
        return START_MS + self._virtual.elapsed_us // 1_000


class VirtualClock:
    """Milliseconds of the running virtual loop."""

    def __init__(self) -> None:
        self.wall_offset_ms = 0

    def now_ms(self) -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        return loop.now_ms()


class InlineThreads(Executor):
    """Does the work at once; or, while `held`, when `release` is called."""

    def __init__(self) -> None:
        self.held = False
        self._waiting: list[Callable[[], None]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()

        def work() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001  as a real executor does
                future.set_exception(error)

        if self.held:
            self._waiting.append(work)
        else:
            work()
        return future

    def release(self) -> None:
        """Do what waits; later work is done at once again."""
        self.held = False
        waiting, self._waiting = self._waiting, []
        for work in waiting:
            work()

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)


def run_virtually(main: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


def virtually(
    test: Callable[Arguments, Coroutine[Any, Any, None]],
) -> Callable[Arguments, None]:
    """Decorates an `async def` test: it runs on a virtual loop of its own."""

    @functools.wraps(test)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        run_virtually(lambda: test(*args, **kwargs))

    return run
