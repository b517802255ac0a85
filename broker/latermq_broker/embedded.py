"""A broker in an event loop that is somebody else's: for tests, with a clock that they hold.

The engine, the pump and every service are those of `latermq serve`; there is no port, no signal and
no thread, and it keeps nothing once it is closed. Calls reach the handlers of `methods` through a
transport of whoever made it.
"""

import tempfile
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, Final

from latermq_broker.clock import SystemClock
from latermq_broker.config.config import Config, Flush, StoreConfig
from latermq_broker.engine.engine import Engine
from latermq_broker.pump.disk_work import DiskWork
from latermq_broker.pump.pump import Pump
from latermq_broker.services.registry import assemble
from latermq_broker.store.files import RealFiles
from latermq_broker.store.store import Store

HOUSEKEEPING_MS: Final = 5_000  # an hour should not take 3,600 looks
SEGMENT_BYTES: Final = 17 << 20  # the smallest that takes the largest body


class Inline(Executor):
    """Does what is submitted at once: what a thread did would come at a time nobody holds."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001  as a real executor does
            future.set_exception(error)
        return future


class Unsynced(RealFiles):
    """Files whose syncs, half of a test's time, are left out: they do not outlive the process."""

    def datasync(self, fd: int) -> None:
        """Leave it to the system."""

    def sync_directory(self, path: Path, *, everything: bool = False) -> None:
        """Leave it to the system."""


class Embedded:
    """An empty broker; made, started and stopped in the running loop, and closed anywhere.

    Args:
        wall_ns, monotonic_ns: the clocks it reads, in place of the system's.
    """

    def __init__(self, wall_ns: Callable[[], int], monotonic_ns: Callable[[], int]) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="latermq-")
        self._failures: list[BaseException] = []
        config = Config(
            store=StoreConfig(
                segment_bytes=SEGMENT_BYTES,
                flush=Flush.NONE,
                disk_low_percent=0,
                disk_full_percent=0,
                scrub_pause_ms=0,
            ),
        )
        clock = SystemClock(wall_ns, monotonic_ns)
        began_ms = clock.now_ms()
        path = Path(self._directory.name) / "data"
        store = Store.open(path, config.store, Unsynced(), began_ms)
        self._engine = Engine.open(store, config, began_ms)
        disk = DiskWork(self._engine, clock, config.store, Inline())
        self._pump = Pump(
            self._engine, clock, config, disk, self._failures.append,
            housekeeping_ms=HOUSEKEEPING_MS,
        )  # fmt: skip
        self._services = assemble(self._engine, self._pump, config)
        self._services.background.at_once = True  # who asks may run no loop meanwhile
        self._pump.on_ready = self._services.parked.wake
        self._pump.on_second = self._services.on_second
        self.methods = self._services.methods

    def start(self) -> None:
        """Write, tick and keep house from now on."""
        self._pump.start()
        self._services.health.set_serving(True)

    def turn(self) -> None:
        """Write now, rather than in the loop's next turn; who waits for a write is answered."""
        self._pump._turn()

    async def stop(self) -> None:
        """Answer who waits for messages, and write what is left.

        Raises:
            BaseException: what failed while it ran.
        """
        self._services.parked.drain()
        await self._pump.stop()
        if self._failures:
            raise self._failures[0]

    def close(self) -> None:
        """Give up its files; without `stop` before, too."""
        self._engine.store.abandon()
        self._directory.cleanup()
