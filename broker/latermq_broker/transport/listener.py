"""Listening sockets: binds them, accepts within limits, looks at the first bytes of a connection.

accept ─→ over a limit: closed ─→ PROXY header, from trusted addresses ─→ its turn at the door
                                             first byte 0x16: TLS, else: clear text ←─┘

What was accepted and says nothing has a deadline, and is closed sooner where others want its place:
at the limit of connections the oldest of its address, in a full house the oldest of the address
that has most. A TLS handshake begins when the client's first message is whole and it is its turn.
While the door is full, connections wait in the kernel's backlog.
"""

import asyncio
import errno
import ipaddress
import logging
import resource
import socket
from collections.abc import Callable, Sequence
from typing import Final

from latermq_broker.clock import monotonic_ms
from latermq_broker.config.addresses import listen_address
from latermq_broker.config.config import ServerConfig
from latermq_broker.config.server_transport import Http2Config, TlsConfig
from latermq_broker.errors import ConfigError
from latermq_broker.observability.complaints import Complaints
from latermq_broker.transport.door import Door, Rates
from latermq_broker.transport.greetings import (
    EXCUSED_S,
    TLS_HANDSHAKE,
    Greeting,
    Greetings,
    first_byte,
    has_left,
    hello_came,
    read_proxy_header,
    watch,
)
from latermq_broker.transport.grpc.counts import CONNECTION, Counts
from latermq_broker.transport.handshakes import Handshakes
from latermq_broker.transport.protocol import ShellProtocol
from latermq_broker.transport.proxy_protocol import ProxyError
from latermq_broker.transport.seats import Seats
from latermq_broker.transport.tls import CertificateFiles
from latermq_broker.transport.turns import Turns
from latermq_broker.transport.waiting_room import LEFT, WaitingRoom
from latermq_text.listening import bound_sockets
from latermq_text.places import network_of

log = logging.getLogger("latermq.transport")

BACKLOG: Final = 1_024
ACCEPTS_MAX: Final = 32  # in one turn of the loop: a third of a millisecond
WELCOMES_MAX: Final = 4  # of them, those whose clients are still there: another half
ACCEPT_PAUSE_S: Final = 0.1  # when the process has no file descriptor left
TOO_MANY: Final = "too many connections"
FD_HEADROOM: Final = 256  # for the log, queues and everything else
_OF_NOBODY: Final = ":0"  # a complaint that is about no caller
NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


ProtocolOf = Callable[[str, str], ShellProtocol]  # peer, local → what serves it


class Listener:
    """All listening sockets of one address."""

    def __init__(
        self,
        config: ServerConfig,
        http2: Http2Config,
        tls: TlsConfig,
        contexts: CertificateFiles | None,
        protocol_of: ProtocolOf,
        counts: Counts,
        turns: Turns | None = None,
    ) -> None:
        self.host, self.port = listen_address("server.listen", config.listen)
        self._complaints = Complaints()
        self._http2 = http2
        self._tls = tls
        self._contexts = contexts
        self._protocol_of = protocol_of
        self._counts = counts
        self._trusted = trusted_networks(http2.proxy_from)
        self._sockets: list[socket.socket] = []
        self._kept = False
        self._greetings = Greetings()
        self._passing: set[Greeting] = set()  # at the door, or to their protocols
        turns = turns or Turns()
        self._handshakes: Handshakes[Greeting] = Handshakes(tls.handshakes_max)
        self._shaking = WaitingRoom(self._handshakes, turns, "handshake given up for another")
        self._door: Door[Greeting] = Door(Rates.of(http2), lambda each: has_left(each.accepted))
        self._at_door = WaitingRoom(self._door, turns, LEFT, self._open)
        self._is_shut = False  # the door is full: nothing is accepted
        self.seats = Seats()
        self._connections_max = http2.connections_max

    @property
    def address(self) -> str:
        return join(self.host, self.port)

    @property
    def sockets(self) -> list[socket.socket]:
        """Return the sockets that listen now."""
        return list(self._sockets)

    def start(self, sockets: Sequence[socket.socket] = (), *, kept: bool = False) -> None:
        """Accept: at `sockets`, which are bound, or at sockets of our own. Raises ConfigError.

        Args:
            kept: somebody else has them, too, and has them open when this process ends.
        """
        self._kept = kept
        self._sockets += sockets or bound("server.listen", self.host, self.port)
        try:
            for listening in self._sockets:
                listening.setblocking(False)
                listening.listen(BACKLOG)
        except OSError as error:  # another process was faster, between bind and here
            raise _unbindable("server.listen", self.host, self.port, error) from error
        self.port = self._sockets[0].getsockname()[1]
        self._connections_max = room_for_connections(self._http2.connections_max)
        self._listen()

    def reconfigure(self, http2: Http2Config) -> None:
        """Go on with other limits for connections."""
        if http2 != self._http2:
            self._http2 = http2
            self._door.rates = Rates.of(http2)
            self._connections_max = room_for_connections(http2.connections_max)

    def stop(self) -> None:
        """Accept nothing more, but what the kernel accepted already, if nobody else could."""
        for listening in () if self._kept else self._sockets:
            for _ in range(ACCEPTS_MAX // WELCOMES_MAX):
                self._accept(listening)
        self.leave()

    def leave(self) -> None:
        """Accept nothing more: what waits at the sockets is for who else has them."""
        self._shut()
        for listening in self._sockets:
            listening.close()
        self._sockets.clear()

    async def greeted(self, wait_ms: int) -> None:
        """Let those that are being greeted be handed over, after `stop`; then drop them."""
        greetings = [*self._greetings, *self._passing]
        if greetings:
            tasks = [greeting.task for greeting in greetings if greeting.task is not None]
            await asyncio.wait(tasks, timeout=wait_ms / 1_000)
        for greeting in greetings:
            greeting.end("the broker stops")

    def complain(self, text: str, peer: str, reason: str) -> None:
        """Log it, unless there was a line about this address, or were many, in the last minute."""
        if self._complaints.due(peer, "connection", monotonic_ms()):
            log.warning(text, extra={"peer": peer, "reason": reason})

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._is_shut = False
        for listening in self._sockets:
            loop.add_reader(listening, self._accept, listening)

    def _shut(self) -> None:
        """Accept nothing for now: what comes waits in the kernel's backlog."""
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            loop.remove_reader(listening)

    def _open(self) -> None:
        """Accept again, if the door was full and has room."""
        if self._is_shut and not self._door.is_full:
            self._listen()

    def _accept(self, listening: socket.socket) -> None:
        welcomes_left = WELCOMES_MAX
        for _ in range(ACCEPTS_MAX):
            if self._door.is_full and not self._make_way():
                return
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR:
                    raise
                self._pause(error)
                return
            if self._door.is_crowded and has_left(accepted):
                accepted.close()
                self._counts.add(CONNECTION, LEFT)
                self._counts.connections += 1  # it was taken, and came to nothing
                continue
            host = str(address[0])
            if self._make_room(network_of(host)):
                self._welcome(accepted, host, join(host, address[1]))
            else:
                accepted.close()
                self._counts.add(CONNECTION, TOO_MANY)
                self.complain("connection refused", join(host, address[1]), TOO_MANY)
            welcomes_left -= 1
            if not welcomes_left:
                return

    def _make_way(self) -> bool:
        """Tell whether the full door may have one more; if not, nothing is accepted for now."""
        crowded = self._door.make_room(monotonic_ms())
        if crowded is not None:
            crowded.end("too many wait")
            return True
        self._is_shut = True
        self._shut()
        return False

    def _pause(self, error: OSError) -> None:
        if self._complaints.due(_OF_NOBODY, "no descriptor", monotonic_ms()):
            log.error("no more connections for a moment", extra={"reason": error.strerror})
        self._shut()
        asyncio.get_running_loop().call_later(ACCEPT_PAUSE_S, self._listen)

    def _welcome(self, accepted: socket.socket, host: str, peer: str) -> None:
        """Count it, and find out what it is."""
        loop = asyncio.get_running_loop()
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        patience_s = self._tls.handshake_ms_max / 1_000
        seat = self.seats.take(network_of(host))
        greeting = Greeting(accepted, seat, peer, loop.time() + patience_s, patience_s)
        self._greetings.add(greeting)
        greeting.task = loop.create_task(self._greet(greeting))
        greeting.task.add_done_callback(lambda _: self._never_begun(greeting))
        watch(greeting, loop)

    def _never_begun(self, greeting: Greeting) -> None:
        """Close what was given up before its task had its first turn."""
        self._greetings.drop(greeting)
        if not greeting.begun:
            greeting.accepted.close()
            greeting.seat.leave()

    def _make_room(self, host: str) -> bool:
        """Tell whether one more from `host` may come; if need be, its oldest silent one goes."""
        if self.seats.of(host) >= self._http2.connections_per_address_max:
            oldest = self._greetings.oldest(host) or self._door.make_room(monotonic_ms(), host)
        elif self.seats.count < self._connections_max:
            return True
        else:
            oldest = self._greetings.oldest("") or self._door.make_room(monotonic_ms())
        if oldest is None:
            return False
        self._greetings.drop(oldest)
        oldest.seat.leave()
        oldest.end(TOO_MANY)
        return True

    def _move(self, greeting: Greeting, host: str) -> None:
        """Count it at the address that its PROXY header names. Raises ProxyError: too many are."""
        if host == greeting.seat.host:
            return
        self._greetings.remove(greeting)
        greeting.seat.leave()
        if not self._make_room(host):
            raise ProxyError(TOO_MANY)
        greeting.seat = self.seats.take(host)
        self._greetings.add(greeting)

    async def _greet(self, greeting: Greeting) -> None:
        """Find out what comes in, and give it its protocol; on any failure close it."""
        made: list[ShellProtocol] = []
        why, is_served = "", False
        greeting.begun = True
        try:
            await self._serve(greeting, made)
        except asyncio.CancelledError:
            why = greeting.why_ended
            if not why:
                raise
        except (OSError, ProxyError) as error:
            why = TOO_MANY if str(error) == TOO_MANY else type(error).__name__
            greeting.why_ended = str(error)
        else:
            is_served = True
            if greeting.why_ended:  # given up, and served in the same moment
                why = greeting.why_ended
                made[0].abort()
        finally:
            self._greetings.drop(greeting)
            self._passing.discard(greeting)
            if not (made and made[0].made):
                greeting.accepted.close()
                greeting.seat.leave()
            elif not is_served:  # the loop has closed it, and says so later
                made[0].lost()
        if why:
            self._counts.add(CONNECTION, why)
        if why == LEFT:
            self._counts.connections += 1  # it was taken, and came to nothing
        elif why:
            self.complain("connection not accepted", greeting.peer, greeting.why_ended or why)

    async def _serve(self, greeting: Greeting, made: list[ShellProtocol]) -> None:
        """Serve what the peer says. Raises OSError, ProxyError: it says nothing that is served."""
        accepted, peer = greeting.accepted, greeting.peer
        name = accepted.getsockname()
        local = join(name[0], name[1])
        if self._trusted and is_trusted(host_of(peer), self._trusted):
            header = await read_proxy_header(accepted)
            peer, local = header.source or peer, header.destination or local
            self._move(greeting, network_of(host_of(peer)))
        address = greeting.seat.host
        self._greetings.remove(greeting)  # it is not silent: it waits for us
        self._passing.add(greeting)
        try:
            await self._at_door.turn(greeting, address)
        finally:
            self._door.leave(address, greeting)
        self._passing.discard(greeting)
        self._greetings.add(greeting)
        is_tls = self._contexts is not None and await first_byte(accepted) == TLS_HANDSHAKE
        if self._contexts is not None and not is_tls and not self._tls.clear_text:
            raise ProxyError("clear text where only TLS is served")
        protocol = self._protocol_of(peer, local)
        protocol.seat = greeting.seat
        protocol.accepted = accepted
        if is_tls:
            await hello_came(accepted)
            await self._shake_hands(greeting, address, protocol, made)
            return
        made.append(protocol)
        self._counts.connections += 1
        # Cancelled here, uvloop's transport would be closed without a word to its protocol.
        greeting.passing = True
        self._greetings.drop(greeting)
        self._passing.add(greeting)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, accepted)

    async def _shake_hands(
        self, greeting: Greeting, address: str, protocol: ShellProtocol, made: list[ShellProtocol]
    ) -> None:
        """Begin TLS when it is its turn. Raises OSError."""
        assert self._contexts is not None
        loop = asyncio.get_running_loop()
        try:
            await self._shaking.turn(greeting, address)
            made.append(protocol)
            self._counts.connections += 1
            patience_s = 2 * (self._tls.handshake_ms_max / 1_000 + EXCUSED_S)  # `watch` is sooner
            await loop.connect_accepted_socket(
                lambda: protocol,
                greeting.accepted,
                ssl=self._contexts.current(monotonic_ms()),
                ssl_handshake_timeout=patience_s,
                ssl_shutdown_timeout=1.0,
            )
        finally:
            self._handshakes.leave(address, greeting)
            if self._handshakes.waiting:
                self._shaking.look()


def bound(setting: str, host: str, port: int) -> list[socket.socket]:
    """Bind sockets at every address of `host`, not listening yet. Raises ConfigError."""
    try:
        return bound_sockets(host, port)
    except OSError as error:
        raise _unbindable(setting, host, port, error) from error


def _unbindable(setting: str, host: str, port: int, error: OSError) -> ConfigError:
    reason = error.strerror or str(error)
    return ConfigError(setting, f"cannot listen on {join(host, port)}: {reason}")


def room_for_connections(wanted: int) -> int:
    """Count how many of `wanted` the limit of open files allows, raised as far as may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + FD_HEADROOM
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if raised > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    room = min(wanted, max(raised - FD_HEADROOM, raised // 2))
    if room < wanted:
        log.info(
            "fewer connections than configured: the limit of open files",
            extra={"connections_max": room, "files_max": raised},
        )
    return room


def join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_of(peer: str) -> str:
    """Return the host of `host:port`, without brackets."""
    return peer.rpartition(":")[0].strip("[]")


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def trusted_networks(text: str) -> list[Network]:
    """Parse the networks that are trusted, separated by commas. Raises ConfigError."""
    try:
        return [ipaddress.ip_network(word.strip()) for word in text.split(",") if word.strip()]
    except ValueError as error:
        raise ConfigError("http2.proxy_from", str(error)) from None


def is_trusted(host: str, networks: list[Network]) -> bool:
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return any((mapped or address) in network for network in networks)
