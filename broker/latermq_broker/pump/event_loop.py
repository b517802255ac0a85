"""The event loop of a process: which one, what signals do, and why a broker in it stops."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Sequence
from typing import Final

from latermq_broker.config.config import ServerConfig

log = logging.getLogger("latermq.runtime")

FAILED_DRAIN_MS: Final = 1_000  # for the answers that say so
DISK_S: Final = 3.0  # for a sync at which the disk is, when the process is to end
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Ending:
    """Why a broker stops, and what is left to it. Made in its loop.

    Args:
        waited_for: another broker is to go on where it stops.
    """

    def __init__(self, config: ServerConfig, *, waited_for: bool) -> None:
        self.stop = asyncio.Event()
        self.failure: BaseException | None = None
        self.goes_on = False  # the process does, and stands by
        self.drain_ms_max = config.drain_ms_max
        self._over = False
        self._waited_for = waited_for
        self._replace_drain_ms_max = 0
        self.reconfigure(config)

    def reconfigure(self, config: ServerConfig) -> None:
        """Leave another time to the calls that are open, unless it runs already."""
        if self.stop.is_set():
            return
        self._replace_drain_ms_max = config.replace_drain_ms_max
        self.drain_ms_max = self._replace_drain_ms_max if self._waited_for else config.drain_ms_max

    def signalled(self) -> None:
        """Stop in order."""
        self.goes_on = False
        self.stop.set()

    def replaced(self) -> None:
        """Stop, as another process has the ports."""
        self.drain_ms_max = self._replace_drain_ms_max
        self.stop.set()

    def handed_over(self) -> None:
        """Stop, for others to take the log; then stand by, unless something else was to end it."""
        self.goes_on = self.goes_on or not self.stop.is_set()
        self.stop.set()

    def let_go(self) -> None:
        """Have nothing more fail: what is not in the replicated log by now is void."""
        self._over = True

    def failed(self, error: BaseException) -> None:
        """Stop at once: the store failed. The first failure says why, others follow from it."""
        if self._over or self.failure is not None:
            return
        log.critical("the store failed, going down", extra={"reason": str(error)})
        self.failure = error
        self.drain_ms_max = FAILED_DRAIN_MS
        self.stop.set()

    async def join(
        self, work: Coroutine[object, object, None], syncs: Sequence[int], code: int
    ) -> None:
        """Wait for threads that wait for the disk; who is waited for ends without one that hangs.

        In order the process never would: the interpreter waits for all threads, too.

        Args:
            syncs: that the disk is at, as they change.
            code: the exit code then.
        """
        waiting = asyncio.ensure_future(work)
        while not waiting.done():
            before = next(iter(syncs), None)
            await asyncio.wait((waiting,), timeout=DISK_S if self._waited_for else None)
            if not waiting.done() and before is not None and before in syncs:
                log.critical("the disk does not answer: the process ends without it")
                logging.shutdown()
                os._exit(code)
        await waiting


class Signals:
    """SIGTERM and SIGINT, and whether one came, in whichever of a process's loops; and SIGHUP.

    Made before the store is opened, in the main thread: a SIGHUP that comes too early to be heeded
    is remembered. It would end the process, which systemd takes for an end in order.
    """

    def __init__(self) -> None:
        self.came = False
        self._stop: Callable[[], None]
        self._ends_with_terminal = ends_with_terminal()
        self._hung_up = False
        self.between_loops()

    def between_loops(self) -> None:
        """Remember a SIGHUP for the next loop; but end by one that says the terminal is gone."""

        def on_hang_up(number: int, _: object) -> None:
            self._hung_up = True
            if self._ends_with_terminal and not has_terminal():
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)

        signal.signal(signal.SIGHUP, on_hang_up)

    def reload_by(self, reload: Callable[[], None]) -> None:
        """Have each SIGHUP call it; but one that says that the terminal is gone stops in order."""

        def on_hang_up() -> None:
            if self.came:
                return
            if self._ends_with_terminal and not has_terminal():
                self.come()
            else:
                reload()

        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, on_hang_up)
        hung_up, self._hung_up = self._hung_up, False
        if hung_up:
            on_hang_up()

    def stop_by(self, stop: Callable[[], None]) -> None:
        """Have the first one stop in order, now if it came; a second ends the process as it is.

        One way to stop takes the place of another without a moment in which a signal is lost.
        """
        self._stop = stop
        if self.came:
            stop()
            return
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._on_signal)

    def come(self) -> None:
        """Stop in order, as if one came: another process wants to be in this one's place."""
        self.came = True
        self._stop()

    def _on_signal(self) -> None:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        self.come()


def ends_with_terminal() -> bool:
    """Tell, before SIGHUP has a handler, whether the process is to end when its terminal does."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # by `nohup`
    return not ignored and has_terminal()


def has_terminal() -> bool:
    """Tell whether a terminal is this process's, and not hung up."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's, where it is installed: it is faster, not different."""
    try:
        import uvloop
    except ImportError:
        log.warning("uvloop is not installed: the slower loop of asyncio serves")
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
