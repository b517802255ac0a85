"""The lean transport: our own HTTP/2 and gRPC on the event loop, for the services' handlers.

It makes a connection's parts for each accepted socket, keeps the open ones, and lets them go in
order: stop accepting, tell every peer, wait, then end what is left. Before that it may hold calls:
who is to serve them is not there yet.
"""

import asyncio
import logging
import random
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from latermq_broker.callbacks import do_nothing
from latermq_broker.clock import monotonic_ms
from latermq_broker.config.config import ServerConfig
from latermq_broker.config.server_transport import Http2Config, TlsConfig
from latermq_broker.observability.transport_figures import TransportFigures
from latermq_broker.services.call.handler import MethodTable
from latermq_broker.transport.grpc.counts import CONNECTION, FAULT, Counts
from latermq_broker.transport.grpc.open_calls import Shares
from latermq_broker.transport.grpc.reply_memory import ReplyBudget
from latermq_broker.transport.grpc.server_state import Shared
from latermq_broker.transport.listener import Listener
from latermq_broker.transport.memory import Freed, keep_large_blocks
from latermq_broker.transport.protocol import ShellProtocol
from latermq_broker.transport.slow_readers import EachSecond, Reader, SlowReaders
from latermq_broker.transport.tls import ALPN, CertificateFiles
from latermq_broker.transport.turns import Turns
from latermq_h2.grpc_code import GrpcCode
from latermq_h2.http2.frames import ConnectionFault, ErrorCode

log = logging.getLogger("latermq.transport")

AGE_JITTER: Final = 0.1
TLS_DIRECTORY: Final = "tls"
GOING_DOWN: Final = "the broker is going down"
GREETING_MS_MAX: Final = 1_000  # for connections that were accepted but not looked at yet
QUIET_LOOK_S: Final = 0.005
LAST_WORDS_S: Final = 1.0  # for answers and GOAWAY to get out, after the grace


class LeanServer:
    """One listening address. Made in a running loop; started once, drained once.

    Args:
        plain: paths answered without gRPC; only conformance tools need any.

    Raises:
        ConfigError: the certificate cannot be used.
    """

    def __init__(
        self,
        methods: MethodTable,
        config: ServerConfig,
        http2: Http2Config | None = None,
        tls: TlsConfig | None = None,
        plain: dict[bytes, bytes] | None = None,
    ) -> None:
        http2 = http2 or Http2Config()
        tls = tls or TlsConfig()
        self._config = config
        self._http2 = http2
        self._shared = Shared(
            methods={path.encode(): method for path, method in methods.items()},
            calls_max=config.calls_max,
            message_bytes_max=config.request_bytes_max,
            other_bytes_max=config.other_request_bytes_max,
            assembly_bytes_max=http2.assembly_bytes_max,
            inflated_bytes_max=http2.inflated_bytes_max,
            requests_bytes_max=http2.requests_bytes_max,
            request_ms_max=http2.request_ms_max,
            streams_max=http2.streams_max,
            gzip_from_bytes=http2.gzip_reply_bytes_min,
            now_ms=monotonic_ms,
            plain=plain or {},
            replies=ReplyBudget(config.reply_bytes_max, http2.reply_bytes_max),
            shares=Shares(
                begun_percent=config.calls_begun_percent,
                public_percent=config.calls_public_percent,
                per_address_percent=config.calls_per_address_percent,
                public_ms_max=config.public_call_ms_max,
            ),
        )
        self._slow_readers = SlowReaders(
            self._shared.replies, http2.stall_scarce_ms, monotonic_ms, self._unread
        )
        counts = self._shared.counts
        freed = Freed(
            (self._shared.replies, self._shared.memory), lambda: counts.calls, monotonic_ms
        )
        self._each_second = EachSecond(
            self._slow_readers.look, self._shared.replies.tell_all, self._end_old, freed.look
        )
        self.turns = Turns()
        self._connections: set[ShellProtocol] = set()
        self._connection_count = 0
        self._holds = False
        self._draining = False
        self.on_drop: Callable[[], None] = do_nothing  # told that answers may not have gone out
        self._cut_off = False  # while it holds or drains, a connection was
        self._away = False
        self._all_left = asyncio.Event()
        self._all_left.set()
        self._contexts = contexts = None
        if tls.enabled:
            self._contexts = contexts = CertificateFiles(
                tls, config.directory / TLS_DIRECTORY, monotonic_ms()
            )
        self._listener = Listener(
            config, http2, tls, contexts, self._protocol_of, self._shared.counts, self.turns
        )

    @property
    def address(self) -> str:
        """Return `HOST:PORT` as bound; the port is known after `start`."""
        return self._listener.address

    @property
    def calls_begun(self) -> int:
        """Count the calls begun since the start."""
        return self._shared.counts.calls

    @property
    def calls(self) -> int:
        """Count the calls open now, on all connections."""
        return self._shared.calls

    @property
    def connections(self) -> int:
        """Count the connections open now."""
        return len(self._connections)

    @property
    def counts(self) -> Counts:
        """Return what was served and what was refused since the start."""
        return self._shared.counts

    def figures(self) -> TransportFigures:
        """Gather the counts, and what is open now."""
        counts = self._shared.counts
        return TransportFigures(
            calls=counts.calls,
            connections=counts.connections,
            calls_open=self._shared.calls,
            connections_open=len(self._connections),
            deadline_timers=counts.deadline_timers,
            tasks=len(asyncio.all_tasks()),
            others=counts.others,
        )

    @property
    def sockets(self) -> list[socket.socket]:
        """Return the sockets that listen now."""
        return self._listener.sockets

    async def start(self, sockets: Sequence[socket.socket] = (), *, kept: bool = False) -> None:
        """Serve at `sockets`, which are bound to the address, or bind it.

        Args:
            kept: somebody else has them, too, and has them open when this process ends.

        Raises:
            ConfigError: the address cannot be bound.
        """
        keep_large_blocks()
        if not self._away:
            self._listener.start(sockets, kept=kept)
        self._each_second.start()

    def reconfigure(self, http2: Http2Config) -> None:
        """Go on with other limits for connections, and certificates as their files are now."""
        self._listener.reconfigure(http2)
        if self._contexts is not None:
            self._contexts.look(monotonic_ms())

    def leave_port(self) -> None:
        """Accept nothing more; what waits at the port is for the process that has it now."""
        self._listener.leave()

    def go_away(self) -> None:
        """Close the port and end every connection without a word: nobody may be answered now."""
        self._away = True
        self._listener.leave()
        self.drop()

    def come_back(self) -> None:
        """Serve again at the port. Raises ConfigError: somebody else has it."""
        if self._away and not (self._holds or self._draining):
            self._away = False
            self._listener.start()

    def drop(self) -> None:
        """End every connection without a word: what their calls wait for is too late."""
        dropped = list(self._connections)
        for connection in dropped:
            connection.abort()
        if dropped:  # without one, no answer can have been lost
            self.on_drop()

    async def hold(self, grace_ms: int) -> bool:
        """Begin no more calls, and let those that were begun finish for `grace_ms`, then end them.

        Port and connections stay open, and what comes waits until `drain` says that it was not
        begun: so it may be sent again to whoever serves then.
        Returns whether all that was answered went out.
        """
        self._holds = True
        for connection in self._connections:
            connection.connection.begin_no_more()
        if not await self._quiet(grace_ms / 1_000):
            for connection in list(self._connections):
                connection.serving.abort_all(GrpcCode.UNAVAILABLE, GOING_DOWN)
            await self._quiet(LAST_WORDS_S)
        for connection in list(self._connections):
            if not connection.is_quiet:
                connection.abort()
                self._cut_off |= connection.cut_off
        return not self._cut_off

    async def _quiet(self, wait_s: float) -> bool:
        """Wait until nothing that was begun is left; tell whether that came to be."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while not all(each.is_quiet for each in self._connections):
                    await asyncio.sleep(QUIET_LOOK_S)
                return True
        return False

    async def drain(self, grace_ms: int) -> bool:
        """Accept nothing new, let calls finish for `grace_ms`, then end the rest.

        Returns whether all that was answered went out; calls that were not answered were told so.
        """
        self._draining = True
        self._listener.stop()
        for connection in list(self._connections):
            connection.shut_down()
        await self._listener.greeted(min(grace_ms, GREETING_MS_MAX))
        try:
            async with asyncio.timeout(grace_ms / 1_000):
                await self._all_left.wait()
        except TimeoutError:
            await self._end_all()
        finally:
            self._each_second.stop()
            log.info("transport counts", extra=self.counts.facts())
        return not self._cut_off

    async def _end_all(self) -> None:
        for connection in list(self._connections):
            connection.serving.abort_all(GrpcCode.UNAVAILABLE, GOING_DOWN)
            connection.connection.fail(ConnectionFault(ErrorCode.NO_ERROR, "going down"))
            connection.wake()
        try:
            async with asyncio.timeout(LAST_WORDS_S):
                await self._all_left.wait()
        except TimeoutError:
            for connection in list(self._connections):
                connection.abort()
                self._cut_off |= connection.cut_off

    def joined(self, protocol: ShellProtocol) -> None:
        self._connections.add(protocol)
        self._all_left.clear()
        if self._holds:
            protocol.connection.begin_no_more()
        if self._draining:
            asyncio.get_running_loop().call_soon(protocol.shut_down)
        elif self._away:  # it was being greeted
            asyncio.get_running_loop().call_soon(protocol.abort)

    def left(self, protocol: ShellProtocol) -> None:
        self._connections.discard(protocol)
        self._cut_off |= (self._holds or self._draining) and protocol.cut_off
        if protocol.seat is not None:
            protocol.seat.leave()
        fault = protocol.connection.fault
        if fault is not None and fault.code is not ErrorCode.NO_ERROR:
            self.counts.add(FAULT, f"{fault.code.name}: {fault.reason}")
            self._listener.complain("connection ended", protocol.peer, str(fault))
        if not self._connections:
            self._all_left.set()

    def speaks_no_http2(self, protocol: ShellProtocol) -> None:
        """Count and log a client whose TLS did not agree on HTTP/2 by ALPN."""
        reason = f"TLS without {ALPN} by ALPN: a gRPC client asks for it"
        self.counts.add(CONNECTION, reason)
        self._listener.complain("connection refused", protocol.peer, reason)

    def _end_old(self) -> None:
        self._shared.open.end_old(monotonic_ms())

    def behind(self, protocol: ShellProtocol) -> None:
        self._slow_readers.watch(protocol)

    def _unread(self, reader: Reader) -> None:
        self.counts.add(FAULT, "CANCEL: answers that were not read, and room for others was short")
        peer = reader.peer if isinstance(reader, ShellProtocol) else ""
        self._listener.complain("answers ended", peer, "not read, and room for others was short")

    def _protocol_of(self, peer: str, local: str) -> ShellProtocol:
        self._connection_count += 1
        age_ms = self._http2.age_ms_max
        if age_ms:
            age_ms = round(age_ms * random.uniform(1 - AGE_JITTER, 1 + AGE_JITTER))
        return ShellProtocol(
            self, self._shared, self._http2, self._config, peer, local,
            f"{peer}#{self._connection_count}", age_ms,
        )  # fmt: skip
