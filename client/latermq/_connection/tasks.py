"""Background tasks that somebody answers for: an unexpected end is logged, closing awaits all."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from latermq._values.failure import class_name_of, exc_info, text_of
from latermq.errors import ClosedError

Result = TypeVar("Result")

log = logging.getLogger("latermq.client")


class Tasks:
    """The background tasks of one owner."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self.cancelled = False  # `cancel` was called

    def start(
        self, work: Coroutine[Any, Any, Result], name: str, *, awaited: bool = False
    ) -> asyncio.Task[Result]:
        """Run `work`; `awaited`: whoever starts it awaits it, and so hears of its failure."""
        task = asyncio.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended_awaited if awaited else self._ended)
        return task

    async def cancel(self, wait_s: float | None = None) -> set[asyncio.Task[Any]]:
        """Cancel what runs and wait for its end, for so many seconds at most; return the tasks that
        have not ended."""
        self.cancelled = True
        running = list(self._running)
        for task in running:
            task.cancel()
        if not running:
            return set()
        _, late = await asyncio.wait(running, timeout=wait_s)
        return late

    async def wait(self) -> None:
        """Wait until what runs now has ended."""
        if self._running:
            await asyncio.wait(list(self._running))

    def _ended_awaited(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # seen, even if everyone who awaited it was cancelled

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            name = task.get_name()
            text = f"{class_name_of(error)}: {text_of(error)}"
            log.error("%s failed: %s", name, text, exc_info=exc_info(error), extra={"task": name})


async def outcome_of(task: asyncio.Task[Result]) -> Result:
    """Wait for a task, which goes on when the caller is cancelled.

    Raises:
        ClosedError: the task was cancelled by its owner's end.
    """
    caller = asyncio.current_task()
    before = 0 if caller is None else caller.cancelling()
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if task.cancelled() and (caller is None or caller.cancelling() == before):
            raise ClosedError("this client is closed") from None
        raise
