"""A clock that a test moves, for everything that runs in its event loop.

Time stands still while the loop works or waits, and goes on when the test says so, from one timer
to the next, so that each fires exactly when it is due. Nothing is waited for but what is no timer:
threads that work for listeners, and sockets on which something comes.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final
from weakref import WeakSet

ALIGNED_US: Final = 1_000  # it begins at a whole millisecond, as the broker counts
LOOK_S: Final = 0.001  # between two looks at what is no timer


class HeldClock:
    """Holds the time of a loop from `hold` to `let_go`.

    Args:
        in_hand: the tasks whose next step is worth waiting for, although no timer is set for it.
        patience: how long in real time such a step is waited for.
    """

    def __init__(
        self, in_hand: Callable[[], Iterable[asyncio.Task[Any]]], patience: timedelta
    ) -> None:
        self.patience = patience
        self._in_hand = in_hand
        self._loop: Any = None  # with what a loop of asyncio has inside
        self._began_us = self._now_us = 0
        self._wall_ms = 0
        self._jobs: set[asyncio.Future[Any]] = set()
        self.is_moved = False  # by a task, now
        self._given_up: WeakSet[asyncio.Future[Any]] = WeakSet()  # were waited for in vain

    def hold(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take the loop's clock over.

        Raises:
            RuntimeError: it is no loop of asyncio's own.
        """
        if not isinstance(loop, asyncio.BaseEventLoop):
            kind = f"{type(loop).__module__}.{type(loop).__name__}"
            raise RuntimeError(f"latermq_time needs asyncio's own event loop, not {kind}")
        self._loop = loop
        self._now_us = math.ceil(loop.time() * 1_000_000 / ALIGNED_US) * ALIGNED_US
        self._began_us = self._now_us
        self._wall_ms = int(datetime.now(UTC).timestamp() * 1_000)
        self._loop.time = self._time
        self._loop.run_in_executor = partial(self._run_in_executor, loop.run_in_executor)

    def let_go(self) -> None:
        """Give the loop its own clock again."""
        del self._loop.time, self._loop.run_in_executor

    def monotonic_ns(self) -> int:
        return self._now_us * 1_000

    def wall_ns(self) -> int:
        return self._wall_ms * 1_000_000 + (self._now_us - self._began_us) * 1_000

    def now(self) -> datetime:
        """Return the time of day that it is."""
        return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=self.wall_ns() // 1_000)

    async def advance(self, by: timedelta) -> None:
        """Let so much time pass, and do all that is due until then. Raises as `settle`."""
        end_us = self._now_us + by // timedelta(microseconds=1)
        with self._moving():
            await self._go_on(lambda: False, end_us)
            self._now_us = end_us
            await self._settle()

    async def until(self, ended: Callable[[], bool], within: timedelta) -> bool:
        """Let time pass from timer to timer until `ended` says so; False: not within so much."""
        with self._moving():
            return await self._go_on(ended, self._now_us + within // timedelta(microseconds=1))

    async def settle(self) -> None:
        """Do all that can be done now, until only timers are waited for.

        Raises:
            RuntimeError: another task moves the clock, and waits for this one to do nothing.
        """
        with self._moving():
            await self._settle()

    @contextmanager
    def _moving(self) -> Iterator[None]:
        if self.is_moved:
            raise RuntimeError("the clock is moved by one task at a time, and not by a listener")
        self.is_moved = True
        try:
            yield
        finally:
            self.is_moved = False

    async def _go_on(self, ended: Callable[[], bool], end_us: int) -> bool:
        """Go from timer to timer until `ended` says so; False: it does not, until then."""
        await self._settle()
        while not ended():
            due_us = self._due_us()
            if due_us is None or due_us > end_us:
                return False
            self._now_us = max(self._now_us, due_us)
            await self._settle()
        return True

    async def _settle(self) -> None:
        while True:
            await asyncio.sleep(0)
            if self._loop._ready:
                continue
            due_us = self._due_us()
            if due_us is not None and due_us <= self._now_us:
                continue
            if not await self._something_came():
                return

    async def _something_came(self) -> bool:
        """Wait a while in real time for threads and sockets; tell whether the loop goes on."""
        waited_for = self._waited_for()
        if not waited_for:
            return False
        looks = max(1, int(self.patience.total_seconds() / LOOK_S))
        for _ in range(looks):
            await self._real_pause()
            if any(future.done() for future in waited_for):
                return True
        self._given_up.update(waited_for)
        return False

    def _waited_for(self) -> list[asyncio.Future[Any]]:
        """List what threads do, and what tasks in hand wait for that no timer ends."""
        waiting = [wait for task in self._in_hand() if (wait := _last_wait(task)) is not None]
        if waiting:
            timed = {id(each) for handle in self._loop._scheduled for each in handle._args or ()}
            waiting = [wait for wait in waiting if id(wait) not in timed]
        return [wait for wait in (*self._jobs, *waiting) if wait not in self._given_up]

    async def _real_pause(self) -> None:
        """Have the loop wait for sockets and threads, for a moment of real time."""
        self._loop._process_events(self._loop._selector.select(LOOK_S))
        await asyncio.sleep(0)

    def _due_us(self) -> int | None:
        scheduled = self._loop._scheduled
        if not scheduled:
            return None
        due_s: float = scheduled[0].when()
        return math.ceil(due_s * 1_000_000 - 0.001)

    def _time(self) -> float:
        return self._now_us / 1_000_000

    def _run_in_executor(
        self, run: Callable[..., asyncio.Future[Any]], *args: Any
    ) -> asyncio.Future[Any]:
        job = run(*args)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        return job


def _last_wait(task: asyncio.Task[Any]) -> asyncio.Future[Any] | None:
    """Return the future a task waits for, through other tasks; None: it does not wait."""
    wait: Any = task
    while isinstance(wait, asyncio.Task):
        wait = wait._fut_waiter  # type: ignore[attr-defined]
    return wait if isinstance(wait, asyncio.Future) else None
