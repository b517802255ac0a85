"""Sockets at every address of a host: broker, metrics, console and a worker's health bind alike.

`[::]` and `*` take IPv6 and IPv4 in one socket. An address that the resolver gives twice is bound
once. A machine without IPv6 does without it where a name has an IPv4 address, too.
"""

import errno
import socket
from collections.abc import Iterable
from typing import Any, Final

PORTS_TRIED_MAX: Final = 10  # of port 0 with several addresses: a free one at the first
NO_FAMILY: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT})
Address = tuple[str, int, int, int]  # host, port, flow and scope; the last two are IPv6's


def bound_sockets(host: str, port: int) -> list[socket.socket]:
    """Bind a socket at each address of `host`, not listening yet; port 0: a free one, of all.

    Raises OSError: one of them cannot be bound, or the host is not known; none is left open.
    """
    for attempt in range(PORTS_TRIED_MAX):
        try:
            return _bound(host, port)
        except OSError as error:
            if port or error.errno != errno.EADDRINUSE or attempt == PORTS_TRIED_MAX - 1:
                raise
    raise AssertionError("unreachable: the last attempt raises")


def addresses_to_bind(
    resolved: Iterable[tuple[int, int, int, str, tuple[Any, ...]]], port: int
) -> list[tuple[int, Address]]:
    """List what getaddrinfo resolved with each address once: (family, address).

    Beside the IPv6 wildcard, which takes IPv4 too, there is no IPv4 one.
    """
    rows: dict[tuple[int, Address], None] = {}
    for family, _, _, _, address in resolved:
        if family in (socket.AF_INET, socket.AF_INET6):
            flow, scope = (*address[2:], 0, 0)[:2]
            rows[family, (str(address[0]), port, int(flow), int(scope))] = None
    if any(address[0] == "::" for _, address in rows) and socket.has_dualstack_ipv6():
        return [row for row in rows if row[1][0] != "0.0.0.0"]
    return list(rows)


def _bound(host: str, port: int) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    rows = addresses_to_bind(resolved, port)
    try:
        for family, address in rows:
            try:
                listener = socket.socket(family, socket.SOCK_STREAM)
                sockets.append(listener)
                _bind(listener, family, address, port)
            except OSError as error:
                if family != socket.AF_INET6 or error.errno not in NO_FAMILY or len(rows) == 1:
                    raise
                if sockets and sockets[-1].family == family:
                    sockets.pop().close()
                continue
            port = listener.getsockname()[1]
        if not sockets:
            raise OSError(errno.EADDRNOTAVAIL, f"{host} has no address of this machine")
    except OSError:
        for listener in sockets:
            listener.close()
        raise
    return sockets


def _bind(listener: socket.socket, family: int, address: Address, port: int) -> None:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((address[0], port, *address[2:]))
    else:
        listener.bind((address[0], port))
