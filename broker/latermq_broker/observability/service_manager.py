"""Tells systemd how the broker is: ready, reloading, stopping, alive. Silent where nobody asked.

Protocol: sd_notify(3). A unit of `Type=notify` hands over a socket in NOTIFY_SOCKET, and with
`WatchdogSec=` the longest silence in WATCHDOG_USEC.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from typing import Final

from latermq_broker.clock import monotonic_us

log = logging.getLogger("latermq.runtime")

READY: Final = "READY=1"
RELOADING: Final = "RELOADING=1"
STOPPING: Final = "STOPPING=1"
ALIVE: Final = "WATCHDOG=1"


class ServiceNotices:
    """Who started the broker, if it wants to know.

    Args:
        environment: has NOTIFY_SOCKET, or nobody is told.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        path = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        self._watches = bool(self._address) and environment.get("WATCHDOG_USEC", "").isdigit()
        self._is_ready = False
        self._untold: tuple[str, ...] = ()  # what was not heard, and still holds

    def ready(self, address: str) -> None:
        """Say that calls are served there."""
        self._is_ready = True
        self._tell(READY, f"STATUS=serving on {address}")

    def reloading(self) -> None:
        """Say that settings are read again, if it is ready; it is followed by `reloaded`."""
        if self._is_ready:
            self._tell(RELOADING, f"MONOTONIC_USEC={monotonic_us()}")

    def reloaded(self) -> None:
        """Say that it is ready again."""
        if self._is_ready:
            self._tell(READY)

    async def standing_by(self, could_serve: Callable[[], bool]) -> None:
        """Say each second, for ever, that it lives; it is ready when it could serve."""
        while self._address:
            if could_serve():
                self._is_ready = True
                self._tell(READY, "STATUS=standing by")
            self.alive()
            await asyncio.sleep(1)

    def stopping(self) -> None:
        """Say that calls are answered that have begun, and no further ones."""
        self._is_ready = False
        self._tell(STOPPING, "STATUS=draining")

    def alive(self) -> None:
        """Say that the event loop goes round: called once a second, often enough for a watchdog."""
        if self._watches or self._untold:
            self._tell(ALIVE)

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        heard = not self._untold
        # Each once, where it was said last: of READY and RELOADING the later one holds.
        lines = tuple(dict.fromkeys((*reversed(lines), *reversed(self._untold))))[::-1]
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one_way:
                one_way.setblocking(False)
                one_way.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            # As of one that is busy or made anew: who says nothing more is killed by its watchdog.
            if heard:
                log.warning("the service manager is not told", extra={"reason": str(error)})
            self._untold = lines
        else:
            self._untold = ()
