"""Listening sockets that systemd keeps: a broker that is started again refuses no connection.

Protocol: sd_listen_fds(3). `latermq.socket` has systemd bind the port and listen; each start of the
service gets the same sockets, as descriptors from 3 on. While no broker runs, whether it was
stopped or killed, connections wait in the kernel's queue.
"""

import os
import socket
from collections.abc import MutableMapping
from dataclasses import replace as changed
from typing import Final

from latermq_broker.config.addresses import listen_address
from latermq_broker.config.config import Config
from latermq_broker.config.server_transport import Transport
from latermq_broker.errors import ConfigError
from latermq_broker.handover.replacing import LISTEN, METRICS, Sockets
from latermq_broker.services.auth.admin_gate import is_loopback
from latermq_broker.transport.listener import join

PID: Final = "LISTEN_PID"
COUNT: Final = "LISTEN_FDS"
NAMES: Final = "LISTEN_FDNAMES"
FIRST: Final = 3
COUNT_MAX: Final = 32
UNNAMED: Final = "unknown"  # who starts the broker names none
FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)


def take_sockets(environment: MutableMapping[str, str]) -> Sockets:
    """Take the sockets that are for this process, if there are any; a child is told of none.

    Raises:
        ConfigError: they are not what can be served at.
    """
    pid, count, names = (environment.pop(name, "") for name in (PID, COUNT, NAMES))
    if pid != str(os.getpid()):
        return {}
    if not (count.isascii() and count.isdigit() and int(count) <= COUNT_MAX):
        raise ConfigError(COUNT, f"{count!r} is not a number of sockets, 0 to {COUNT_MAX}")
    socket_names = names.split(":") if names else [UNNAMED] * int(count)
    if len(socket_names) != int(count):
        raise ConfigError(NAMES, f"there are {len(socket_names)} names for {count} sockets")
    sockets: Sockets = {}
    try:
        for descriptor, name in enumerate(socket_names, FIRST):
            setting = _setting(name)
            sockets.setdefault(setting, []).append(_listening(descriptor, name))
        for setting, given in sockets.items():
            _require_one_port(setting, given)
    except ConfigError:
        close(sockets)
        raise
    return sockets


def close(sockets: Sockets) -> None:
    for given in sockets.values():
        for each in given:
            each.close()


def at_sockets(config: Config, sockets: Sockets) -> Config:
    """Return the configuration with the addresses of the sockets: they are where it serves.

    Raises:
        ConfigError: it cannot serve at sockets that it did not bind.
    """
    if not sockets:
        return config
    if config.server.transport is not Transport.LEAN:
        raise ConfigError("server.transport", "sockets of systemd need lean: grpcio takes none")
    if LISTEN in sockets:
        listen = _address(sockets[LISTEN])
        config = changed(config, server=changed(config.server, listen=listen))
    if METRICS in sockets:
        listen = _address(sockets[METRICS])
        config = changed(config, metrics=changed(config.metrics, listen=listen))
    return config


def refuse_sockets(environment: MutableMapping[str, str], what: str, why: str) -> None:
    """Raises ConfigError: systemd has handed over sockets, and `what` cannot serve at them."""
    sockets = take_sockets(environment)
    if sockets:
        close(sockets)
        raise ConfigError(COUNT, f"{what} takes no sockets of systemd: {why}")


def _setting(name: str) -> str:
    """Tell which setting a socket serves. Raises ConfigError."""
    if name == METRICS:
        return METRICS
    if name in (LISTEN, UNNAMED) or name.endswith(".socket"):  # a unit's name, where it says none
        return LISTEN
    raise ConfigError(NAMES, f"{name!r} is not known: FileDescriptorName= is {LISTEN} or {METRICS}")


def _listening(descriptor: int, name: str) -> socket.socket:
    """Raises ConfigError."""
    which = f"descriptor {descriptor}, {name!r},"
    try:
        given = socket.socket(fileno=descriptor)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(COUNT, f"{which} is not a socket: {reason}") from None
    wrong = ""
    if given.family not in FAMILIES or given.type != socket.SOCK_STREAM:
        wrong = "is no TCP socket: ListenStream= is to name a port, or ADDRESS:PORT"
    elif not given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        wrong = "does not listen: Accept= is to be no"
    if wrong:
        given.close()
        raise ConfigError(COUNT, f"{which} {wrong}")
    given.set_inheritable(False)
    return given


def _require_one_port(setting: str, sockets: list[socket.socket]) -> None:
    """Raises ConfigError: clients are told one."""
    ports = sorted({each.getsockname()[1] for each in sockets})
    if len(ports) > 1:
        raise ConfigError(setting, f"the sockets of systemd have several ports: {ports}")


def _address(sockets: list[socket.socket]) -> str:
    """Return the address that most can reach: what is asked of a door is asked of the widest."""
    addresses = [join(*each.getsockname()[:2]) for each in sockets]
    return min(addresses, key=lambda each: is_loopback(listen_address(LISTEN, each)[0]))
