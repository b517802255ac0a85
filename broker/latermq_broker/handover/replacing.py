"""`latermq serve --replace`: from a broker that serves this directory to having its ports and LOCK.

What can fail is tried before the other broker is told to go; until then it serves as if nobody had
asked. From then on the ports are open here; nobody accepts until this process has the directory.

No port of a replica passes: its log is handed over to another machine, so it has to be closed.
"""

import errno
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Final, TypeVar

from latermq_broker.clock import monotonic_ms
from latermq_broker.config.addresses import listen_address
from latermq_broker.config.config import Config
from latermq_broker.config.server_transport import Transport
from latermq_broker.errors import ConfigError, HandoverError, StoreLockedError
from latermq_broker.handover.passing import Port, Predecessor
from latermq_broker.store.directory import LOCK_NAME, REPLICA_NAME, has_file, take_lock
from latermq_broker.store.files import RealFiles
from latermq_broker.transport.lean import TLS_DIRECTORY
from latermq_broker.transport.listener import bound
from latermq_broker.transport.tls import CertificateFiles

log = logging.getLogger("latermq.runtime")

LISTEN: Final = "server.listen"
METRICS: Final = "metrics.listen"
LOOK_AGAIN_S: Final = 0.01
SAY_MS: Final = 5_000  # between two lines that say what is waited for

Sockets = dict[str, list[socket.socket]]  # by the setting they serve
Opened = TypeVar("Opened")


def open_replacing(
    config: Config, directory: Path, open_store: Callable[[], Opened]
) -> tuple[Opened, Sockets]:
    """Open the store, once the broker of this directory, if there is one, has gone.

    With it come the sockets of its ports, or new ones where the configuration names other
    addresses; none when nobody was there, or only one that was going down and is waited for.

    Raises:
        ConfigError: nothing was changed, the other broker runs on.
        HandoverError: likewise.
        StoreLockedError: the other one has not gone in `server.replace_ms_max` ms.
    """
    if config.server.transport is not Transport.LEAN:
        raise ConfigError("server.transport", "--replace needs lean: grpcio takes no open port")
    predecessor = Predecessor.meet(directory / LOCK_NAME)
    if predecessor is None:
        return _opened(config, None, open_store), {}
    sockets: Sockets = {}
    asked = _asked(config)
    taken: set[str] = set()
    try:
        _try_certificate(config, directory)
        for setting, wanted in asked.items():
            if same := predecessor.take(setting, wanted):
                taken.add(setting)
            sockets[setting] = same or bound(setting, *listen_address(setting, wanted))
        _tell(predecessor)
        for setting, port in predecessor.ports.items():
            if setting not in taken:
                log.warning(
                    "the old address is refused from now on",
                    extra={"setting": setting, "old": port.address, "new": asked.get(setting, "")},
                )
        return _opened(config, predecessor, open_store), sockets
    except BaseException:
        for each in sockets.values():
            for listener in each:
                listener.close()
        raise
    finally:
        predecessor.close()


def closed_ports(config: Config) -> dict[str, Port]:
    """Name the addresses that a replica may have open: their sockets do not pass."""
    return {setting: Port(wanted, wanted, ()) for setting, wanted in _asked(config).items()}


def end_replica(config: Config, directory: Path, stopped: Callable[[], bool]) -> None:
    """Have the replica of this directory, if there is one, end as by a signal; wait until it did.

    Args:
        stopped: this process is to end, too, and waits no longer.
    Raises:
        ConfigError, HandoverError, StoreLockedError: as `open_replacing`.
    """
    until_ms = monotonic_ms() + config.server.replace_ms_max
    predecessor = Predecessor.meet(directory / LOCK_NAME)
    try:
        if predecessor is not None:
            if any(port.sockets for port in predecessor.ports.values()):
                raise HandoverError(_why_not(predecessor, directory))
            _try_certificate(config, directory)
            _try_addresses(config, predecessor)
            _tell(predecessor)
        _opened(config, predecessor, lambda: _require_free(directory, stopped))
        while predecessor is not None and not stopped() and monotonic_ms() < until_ms:
            if predecessor.wait(LOOK_AGAIN_S):
                break  # and what else it had open is closed
    finally:
        if predecessor is not None:
            predecessor.close()


def _why_not(predecessor: Predecessor, directory: Path) -> str:
    """Say why a broker that would hand its ports over is not replaced by a replica."""
    who = f"the broker, process {predecessor.pid}, "
    if has_file(directory, REPLICA_NAME):
        return (
            f"{who}owns a replicated log, and is of a version that cannot be replaced: end it by "
            "SIGTERM, which hands the log over, and start this one"
        )
    return f"{who}serves a log that is its own, and cannot be replaced by one with [replication]"


def _try_certificate(config: Config, directory: Path) -> None:
    if config.tls.enabled:
        CertificateFiles(config.tls, directory / TLS_DIRECTORY, monotonic_ms())


def _try_addresses(config: Config, predecessor: Predecessor) -> None:
    """Raises ConfigError: an address cannot be had, and not because the predecessor may have it."""
    held = {listen_address(name, port.wanted)[1] for name, port in predecessor.ports.items()}
    for setting, wanted in _asked(config).items():
        try:
            require_address(setting, wanted)
        except ConfigError as error:
            in_use = getattr(error.__cause__, "errno", None) == errno.EADDRINUSE
            if not in_use or listen_address(setting, wanted)[1] not in held:
                raise


def require_address(setting: str, wanted: str) -> None:
    """Find out that an address could be listened at now. Raises ConfigError."""
    for probe in bound(setting, *listen_address(setting, wanted)):
        probe.close()


def _asked(config: Config) -> dict[str, str]:
    """List the addresses that the configuration wants."""
    asked = {LISTEN: config.server.listen, METRICS: config.metrics.listen}
    return {setting: wanted for setting, wanted in asked.items() if wanted}


def _tell(predecessor: Predecessor) -> None:
    predecessor.go()
    log.info("told the broker that runs to go", extra={"pid": predecessor.pid})


def _require_free(directory: Path, stopped: Callable[[], bool]) -> None:
    """Raises StoreLockedError: a process has the directory, and is waited for."""
    files = RealFiles()
    if not stopped() and has_file(directory, LOCK_NAME):
        files.close(take_lock(files, directory))


def _opened(
    config: Config, predecessor: Predecessor | None, open_store: Callable[[], Opened]
) -> Opened:
    """Open the store, once nobody else has the directory.

    Tried every LOOK_AGAIN_S; who is waited for is logged, every SAY_MS.

    Args:
        predecessor: was told to go; None: who has the directory, if anybody, was not.

    Raises:
        StoreLockedError: somebody else has it, and had it for `server.replace_ms_max` ms.
    """
    began_ms = monotonic_ms()
    said_ms = began_ms if predecessor else began_ms - SAY_MS
    ended = predecessor is None
    while True:
        try:
            return open_store()
        except StoreLockedError as error:
            locked = error
        if not ended and predecessor is not None:
            ended = predecessor.wait(LOOK_AGAIN_S)
        else:
            Event().wait(LOOK_AGAIN_S)  # its descriptors are closed one after the other
        now_ms = monotonic_ms()
        if now_ms - began_ms >= config.server.replace_ms_max:
            raise StoreLockedError(_still_there(config, predecessor, locked, now_ms - began_ms))
        if now_ms - said_ms >= SAY_MS:
            said_ms = now_ms
            pid = {"pid": predecessor.pid} if predecessor else {}
            log.info(
                "waiting for the broker that has the directory",
                extra=pid | {"ms": now_ms - began_ms},
            )


def _still_there(
    config: Config, predecessor: Predecessor | None, locked: StoreLockedError, waited_ms: int
) -> str:
    after = f"after {waited_ms} ms (server.replace_ms_max)"
    if predecessor is None:
        return f"{locked}; still so {after}, and it was not told to go: it hands over no port"
    return (
        f"the broker, process {predecessor.pid}, was told to go and still has "
        f"{config.server.data_dir} {after}: see its log, and start again when it has ended"
    )
