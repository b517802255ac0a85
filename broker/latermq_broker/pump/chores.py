"""The engine's own work that lasts, in turns of the background: retention, gaps of the index."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from latermq_broker.background.jobs import OWN, Background, Job
from latermq_broker.engine.engine import Chore, Engine

log = logging.getLogger("latermq.pump")

LOOK_MS_MAX: Final = 1_000  # between two looks whether something became due
BEHIND_MS: Final = 100  # between two looks whether less waits to be synced


class Chores:
    """Does an engine's chores from `start` to `stop`, each in a task of its own.

    Args:
        now_ms: the broker's clock.
        is_behind: more is written than may be: nothing is done.
        appended: called after each part, which may have appended to the log.
        on_failure: called with what a chore failed with; it is not done again.
    """

    def __init__(
        self,
        engine: Engine,
        now_ms: Callable[[], int],
        is_behind: Callable[[], bool],
        appended: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._engine = engine
        self._now_ms = now_ms
        self._is_behind = is_behind
        self._appended = appended
        self._on_failure = on_failure
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, background: Background) -> None:
        """Begin."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._do(chore, background)) for chore in self._engine.chores
        ]

    def cancel(self) -> None:
        """Begin no part any more."""
        for task in self._tasks:
            task.cancel()

    async def stop(self) -> None:
        """Do nothing more, and wait for the tasks."""
        self.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _do(self, chore: Chore, background: Background) -> None:
        while True:
            due_ms = chore.next_deadline_ms()
            wait_ms = LOOK_MS_MAX if due_ms is None else due_ms - self._now_ms()
            if self._is_behind():
                wait_ms = BEHIND_MS
            if wait_ms > 0:
                await asyncio.sleep(min(wait_ms, LOOK_MS_MAX) / 1_000)
                continue
            try:
                async with background.job(OWN, chore.kind) as job:
                    await self._slice(chore, job)
            except Exception as error:
                log.exception("a chore failed", extra={"kind": chore.kind})
                self._on_failure(error)
                return

    async def _slice(self, chore: Chore, job: Job) -> None:
        while not self._is_behind():
            goes_on = chore.part(self._now_ms())
            self._appended()
            if not goes_on:
                return
            await job.turn()
