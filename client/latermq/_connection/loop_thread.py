"""An event loop for callers that have none."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from latermq._connection.log_aside import LogAside
from latermq.errors import ClosedError

Result = TypeVar("Result")


class LoopThread:
    """An event loop in a daemon thread; `call` runs a coroutine there and waits for its result."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="latermq", daemon=True)
        self._pid = os.getpid()
        self._log = LogAside()
        self._log.begin(self._thread)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run it and wait for its result.

        Raises:
            ClosedError: there is no loop any more, or a fork left it in the parent process.
            RuntimeError: called in the loop, as by middleware, which would wait for itself for
                ever.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("called in the client's own event loop, which would wait for itself")
        if not self.running:
            work.close()
            raise ClosedError(self._over())
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # interrupted while waiting; without effect once it is done
            raise

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call it there, without waiting for it: a signal's handler may do so."""
        self._loop.call_soon_threadsafe(function)

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def lent(self) -> "BorrowedLoop":
        """Return it for others to call in, who will not stop it."""
        return BorrowedLoop(self._loop, self._thread)

    def leave(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Stop after `last`, without waiting for it; in a forked child there is nothing to stop."""

        async def run() -> None:
            try:
                await last()
            finally:
                self._loop.stop()

        if self.running:
            asyncio.run_coroutine_threadsafe(run(), self._loop)

    def _over(self) -> str:
        if self._pid == os.getpid():
            return "this client is closed"
        return (
            f"this client was made in process {self._pid}, before the fork that began process "
            f"{os.getpid()}: make a client in each process, after the fork"
        )

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()
            self._log.end()


class BorrowedLoop(LoopThread):
    """An event loop that somebody else runs: callers in other threads call in it, and leave it.

    Args:
        thread: that it runs in.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        self._loop = loop
        self._thread = thread
        self._pid = os.getpid()

    @property
    def running(self) -> bool:
        return self._loop.is_running()

    def stop(self) -> None:
        """Leave it as it is."""

    def leave(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Leave it as it is: whoever runs it does what is last."""
