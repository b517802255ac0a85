"""SIGHUP: the settings are read again, and what may change while the broker runs does.

One line says what came of it. Settings with an error change nothing: the broker runs on as it was.
"""

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from latermq_broker.config.config import Config
from latermq_broker.config.reloading import LIVE, Settings
from latermq_broker.engine.engine import Engine
from latermq_broker.errors import ConfigError
from latermq_broker.observability import log as logs
from latermq_broker.observability.service_manager import ServiceNotices
from latermq_broker.pump.event_loop import Ending
from latermq_broker.pump.pump import Pump
from latermq_broker.transport.lean import LeanServer

if TYPE_CHECKING:
    from latermq_broker.transport.grpcio import GrpcioServer

log = logging.getLogger("latermq.runtime")


def taking_on(
    engine: Engine, pump: Pump, server: "GrpcioServer | LeanServer", ending: Ending
) -> Callable[[Config], None]:
    """Return what has the rooms of a broker that serves go on with another configuration."""

    def take_on(config: Config) -> None:
        engine.reconfigure(config)
        ending.reconfigure(config.server)
        if isinstance(server, LeanServer):
            server.reconfigure(config.http2)
        pump.look_again()

    return take_on


class Reload:
    """Called at each SIGHUP.

    Args:
        running: the configuration now.
        take_on: have the rooms go on with another.
        live: what of it may differ.
    """

    def __init__(
        self,
        settings: Settings,
        running: Config,
        manager: ServiceNotices,
        take_on: Callable[[Config], None],
        live: Collection[str] = LIVE,
    ) -> None:
        self._settings = settings
        self._running = running
        self._manager = manager
        self._take_on = take_on
        self._live = live

    def __call__(self) -> None:
        self._manager.reloading()
        try:
            reread = self._settings.reread(self._running, self._live)
        except ConfigError as error:
            log.error("settings not reloaded, nothing was changed", extra={"reason": str(error)})
        else:
            self._running = reread.config
            if {"log.level", "log.json"} & set(reread.changed):
                logs.set_up(reread.config.log)
            self._take_on(reread.config)
            facts: dict[str, object] = dict(reread.changed)
            if reread.waiting:
                facts["needs_restart"] = ", ".join(reread.waiting)
            said = "settings reloaded" if reread.changed else "settings reloaded, none changed"
            log.info(said, extra=facts)
        self._manager.reloaded()
