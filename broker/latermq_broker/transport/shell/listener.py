"""Listening sockets: binds them, accepts within limits, looks at the first bytes of a connection.

accept ─→ over a limit: closed ─→ PROXY header, from trusted addresses ─→ first byte 0x16: TLS
                                                                          else: clear text
"""

import asyncio
import errno
import ipaddress
import logging
import resource
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from latermq_broker.clock import monotonic_ms
from latermq_broker.config import ServerConfig, listen_address
from latermq_broker.config_transport import Http2Config, TlsConfig
from latermq_broker.errors import ConfigError
from latermq_broker.transport.grpc_server.counts import CONNECTION, Counts
from latermq_broker.transport.shell import proxy_protocol
from latermq_broker.transport.shell.protocol import ShellProtocol
from latermq_broker.transport.shell.proxy_protocol import ProxyError, ProxyHeader

log = logging.getLogger("latermq.transport")

BACKLOG: Final = 1_024
ACCEPTS_MAX: Final = 32  # in one turn of the loop
ACCEPT_PAUSE_S: Final = 0.1  # when the process has no file descriptor left
FD_HEADROOM: Final = 256  # for the log, queues and everything else
COMPLAIN_MS: Final = 60_000  # one line per address in so long
COMPLAINTS_MAX: Final = 1_000
TLS_HANDSHAKE: Final = 0x16  # first byte of a TLS connection
NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class TlsContexts(Protocol):
    """Where the context for the next handshake comes from."""

    def current(self, now_ms: int) -> Any: ...


ProtocolOf = Callable[[str, str], ShellProtocol]  # peer, local → what serves it


class Listener:
    """All listening sockets of one address."""

    def __init__(
        self,
        config: ServerConfig,
        http2: Http2Config,
        tls: TlsConfig,
        contexts: TlsContexts | None,
        protocol_of: ProtocolOf,
        counts: Counts,
    ) -> None:
        self.host, self.port = listen_address("server.listen", config.listen)
        self.complaints: dict[str, int] = {}
        self._http2 = http2
        self._tls = tls
        self._contexts = contexts
        self._protocol_of = protocol_of
        self._counts = counts
        self._trusted = trusted_networks(http2.proxy_from)
        self._sockets: list[socket.socket] = []
        self._greetings: set[asyncio.Task[None]] = set()
        self._handshakes = asyncio.Semaphore(tls.handshakes_max)
        self._open: Counter[str] = Counter()  # by address
        self._count = 0
        self._connections_max = http2.connections_max

    @property
    def address(self) -> str:
        return join(self.host, self.port)

    @property
    def sockets(self) -> list[socket.socket]:
        """Those that listen now."""
        return list(self._sockets)

    def start(self, sockets: Sequence[socket.socket] = ()) -> None:
        """Accept: at `sockets`, which are bound, or at sockets of our own. Raises ConfigError."""
        self._sockets += sockets or bound("server.listen", self.host, self.port)
        for listening in self._sockets:
            listening.setblocking(False)
            listening.listen(BACKLOG)
            self.port = listening.getsockname()[1]
        self._connections_max = min(
            self._http2.connections_max, room_for_connections(self._http2.connections_max)
        )
        self._listen()

    def stop(self) -> None:
        """Accept nothing more, but what the kernel accepted already."""
        for listening in self._sockets:
            self._accept(listening)
        self.leave()

    def leave(self) -> None:
        """Accept nothing more: what waits at the sockets is for who else has them."""
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()

    async def greeted(self, wait_ms: int) -> None:
        """After `stop`: let those that are being greeted be handed over; then drop them."""
        greetings = list(self._greetings)
        if greetings:
            await asyncio.wait(greetings, timeout=wait_ms / 1_000)
        for greeting in greetings:
            greeting.cancel()

    def left(self, host: str) -> None:
        """A connection from `host` is gone."""
        self._count -= 1
        self._open[host] -= 1
        if self._open[host] <= 0:
            del self._open[host]

    def complain(self, text: str, peer: str, reason: str) -> None:
        """Log, but once per address and minute."""
        host = peer.rpartition(":")[0]
        now_ms = monotonic_ms()
        if now_ms - self.complaints.get(host, -COMPLAIN_MS) < COMPLAIN_MS:
            return
        if len(self.complaints) >= COMPLAINTS_MAX:
            self.complaints.clear()
        self.complaints[host] = now_ms
        log.warning(text, extra={"peer": peer, "reason": reason})

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_MAX):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR:
                    raise
                self._pause(error)
                return
            host = str(address[0])
            if (
                self._count >= self._connections_max
                or self._open[host] >= self._http2.connections_per_address_max
            ):
                accepted.close()
                self._counts.add(CONNECTION, "too many connections")
                self.complain("connection refused", join(host, address[1]), "too many connections")
                continue
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._count += 1
            self._open[host] += 1
            greeting = asyncio.get_running_loop().create_task(
                self._greet(accepted, host, join(host, address[1]))
            )
            self._greetings.add(greeting)
            greeting.add_done_callback(self._greetings.discard)

    def _pause(self, error: OSError) -> None:
        log.error("no more connections for a moment", extra={"reason": error.strerror})
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            loop.remove_reader(listening)
        loop.call_later(ACCEPT_PAUSE_S, self._listen)

    async def _greet(self, accepted: socket.socket, host: str, peer: str) -> None:
        """Find out what comes in, and give it its protocol; on any failure close it."""
        name = accepted.getsockname()
        local = join(name[0], name[1])
        protocol: ShellProtocol | None = None
        try:
            async with asyncio.timeout(self._tls.handshake_ms_max / 1_000):
                if self._trusted and is_trusted(host, self._trusted):
                    header = await _read_proxy_header(accepted)
                    peer, local = header.source or peer, header.destination or local
                is_tls = self._contexts is not None and await _first_byte(accepted) == TLS_HANDSHAKE
                if self._contexts is not None and not is_tls and not self._tls.clear_text:
                    raise ProxyError("clear text where only TLS is served")
            protocol = self._protocol_of(peer, local)
            protocol.counted_host = host
            self._counts.connections += 1
            await self._hand_over(accepted, protocol, is_tls)
        except asyncio.CancelledError:
            if protocol is None or not protocol.made:
                accepted.close()
                self.left(host)
            raise
        except (OSError, ProxyError, TimeoutError) as error:
            if protocol is None or not protocol.made:
                accepted.close()
                self.left(host)
            self._counts.add(CONNECTION, type(error).__name__)
            self.complain("connection not accepted", peer, str(error) or type(error).__name__)

    async def _hand_over(
        self, accepted: socket.socket, protocol: ShellProtocol, is_tls: bool
    ) -> None:
        loop = asyncio.get_running_loop()
        if not is_tls:
            await loop.connect_accepted_socket(lambda: protocol, accepted)
            return
        assert self._contexts is not None
        async with self._handshakes:
            await loop.connect_accepted_socket(
                lambda: protocol,
                accepted,
                ssl=self._contexts.current(monotonic_ms()),
                ssl_handshake_timeout=self._tls.handshake_ms_max / 1_000,
                ssl_shutdown_timeout=1.0,
            )


def bound(setting: str, host: str, port: int) -> list[socket.socket]:
    """Sockets at every address of `host`, not listening yet. Raises ConfigError."""
    sockets: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in found:
            one = socket.socket(family, kind, protocol)
            sockets.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            one.bind((address[0], port, *address[2:]))
            port = one.getsockname()[1]
    except OSError as error:
        for one in sockets:
            one.close()
        reason = error.strerror or str(error)
        raise ConfigError(setting, f"cannot listen on {join(host, port)}: {reason}") from error
    return sockets


def room_for_connections(wanted: int) -> int:
    """How many the limit of open files allows, after raising it as far as that may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + FD_HEADROOM
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if raised > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    room = max(raised - FD_HEADROOM, raised // 2)
    if room < wanted:
        log.info(
            "fewer connections than configured: the limit of open files",
            extra={"connections_max": room, "files_max": raised},
        )
    return room


def join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def trusted_networks(text: str) -> list[Network]:
    """Raises ConfigError."""
    try:
        return [ipaddress.ip_network(word.strip()) for word in text.split(",") if word.strip()]
    except ValueError as error:
        raise ConfigError("http2.proxy_from", str(error)) from None


def is_trusted(host: str, networks: list[Network]) -> bool:
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return any((mapped or address) in network for network in networks)


async def _readable(accepted: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    loop.add_reader(accepted, lambda: None if waiter.done() else waiter.set_result(None))
    try:
        await waiter
    finally:
        loop.remove_reader(accepted)


async def _peek(accepted: socket.socket, count: int, known: int = 0) -> bytes:
    """Up to `count` bytes, more than `known`, left in the socket. Raises ProxyError at its end."""
    while True:
        try:
            data = accepted.recv(count, socket.MSG_PEEK)
        except BlockingIOError:
            await _readable(accepted)
            continue
        if not data:
            raise ProxyError("closed before it said anything")
        if len(data) > known:
            return data
        await asyncio.sleep(0.01)  # readable stays true while the rest is on its way


async def _first_byte(accepted: socket.socket) -> int:
    return (await _peek(accepted, 1))[0]


async def _read_proxy_header(accepted: socket.socket) -> ProxyHeader:
    data = await _peek(accepted, proxy_protocol.HEADER_BYTES_MAX)
    while (header := proxy_protocol.parse(data)) is None:
        data = await _peek(accepted, proxy_protocol.HEADER_BYTES_MAX, len(data))
    if header.size:
        accepted.recv(header.size)
    return header
