"""Sockets of the console: accepted here, served by uvicorn's HTTP/1.1, bounded by `Connections`.

uvicorn has no deadline for a head, a body or a reader, and one count of connections for everybody.
So connections are accepted here, counted before their TLS handshake, and given to uvicorn's
protocol, which tells `Connections` the phase that each is in.
"""

import asyncio
import errno
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Sequence
from socket import MSG_PEEK, socket
from typing import Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from latermq_console import clock
from latermq_console.serving.connections import (
    DEADLINES_S,
    SESSION,
    Connection,
    Connections,
    Phase,
)
from latermq_text.places import network_of

SWEEP_S: Final = 0.5
LEFT_AT_ONCE_MAX: Final = 32
TLS_BUFFER_BYTES: Final = 16 << 10  # one TLS record; asyncio's 256 KiB for each would be 256 MiB
AGAIN_S: Final = 0.05  # until the next accept after one that failed
NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
TOO_LATE: Final = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Protocol(H11Protocol):
    """HTTP/1.1 on one accepted connection, its phase told to `Connections`."""

    def __init__(
        self, server: uvicorn.Server, connections: Connections, connection: Connection
    ) -> None:
        super().__init__(config=server.config, server_state=server.server_state, app_state={})
        self._all = connections
        self._own = connection
        self._began = False  # a first byte has come

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._own.close, self._own.look = self._end, self._look
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.leave(self._own)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._began = True
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        scope: Any = self.scope
        session, stays = scope.get(SESSION), True
        if session is not None:
            stays = self._all.sign(self._own, session, clock.monotonic_s())
        super().on_response_complete()
        if not stays and not self.transport.is_closing():
            self.shutdown()
        self._look()

    def _look(self) -> None:
        self._own.enter(self._phase(), clock.monotonic_s())

    def _phase(self) -> Phase:
        ours, theirs = self.conn.our_state, self.conn.their_state
        if theirs is h11.SEND_BODY:
            return Phase.BODY
        if self.flow.write_paused or self.transport.get_write_buffer_size():
            return Phase.REPLY
        if ours in (h11.SEND_RESPONSE, h11.SEND_BODY):
            return Phase.WORK
        if ours is h11.IDLE:
            begun = self.cycle is None or self.conn.trailing_data[0]
            return Phase.HEAD if begun else Phase.IDLE
        return Phase.REPLY  # it closes

    def _end(self) -> None:
        """Close at once, with a word to a peer whose request did not come in time."""
        waits = self._own.phase in (Phase.HEAD, Phase.BODY) and self._began
        answered = self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE)
        if waits and not answered and not self.transport.get_write_buffer_size():
            self.transport.write(TOO_LATE)
            if not self.transport.get_write_buffer_size():
                self.transport.close()
                return
        if self._own.phase is Phase.IDLE:
            self.transport.close()
        else:
            self.transport.abort()


def _has_left(accepted: socket) -> bool:
    """Tell whether the peer has closed a connection before it was accepted, without a word."""
    try:
        return not accepted.recv(1, MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


class Server(uvicorn.Server):
    """uvicorn's server, whose connections come from `Accepting`."""

    async def startup(self, sockets: Sequence[socket] | None = None) -> None:
        await super().startup(sockets=[])
        SSLProtocol.max_size = TLS_BUFFER_BYTES
        accepting: Any = Accepting(self, list(sockets or ()))
        self.servers = [accepting]


class Accepting:
    """Accepts at each socket; stands for the asyncio servers that uvicorn's drain closes."""

    def __init__(self, server: uvicorn.Server, sockets: list[socket]) -> None:
        self._server = server
        self._connections = Connections()
        self._serving: set[asyncio.Task[None]] = set()
        self._tasks = [asyncio.ensure_future(self._accept(each)) for each in sockets]
        self._tasks.append(asyncio.ensure_future(self._sweep()))

    def close(self) -> None:
        """Accept nothing any more."""
        for task in [*self._tasks, *self._serving]:
            task.cancel()

    async def wait_closed(self) -> None:
        """Return when nothing of it runs any more."""
        await asyncio.gather(*self._tasks, *self._serving, return_exceptions=True)

    async def _accept(self, listening: socket) -> None:
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        left = 0  # accepted since the others had their turn of the loop, and gone already
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:  # no descriptor is left, or the peer has gone already
                if error.errno in NO_ROOM:
                    self._connections.make_room(clock.monotonic_s())
                await asyncio.sleep(AGAIN_S)
                continue
            if _has_left(accepted) and left < LEFT_AT_ONCE_MAX:
                left += 1
                accepted.close()
                continue
            self._welcome(accepted, network_of(str(address[0])))
            left = 0
            await asyncio.sleep(0)  # one that waits already is accepted without a turn of the loop

    def _welcome(self, accepted: socket, address: str) -> None:
        connection = self._connections.admit(address, clock.monotonic_s())
        if connection is None:
            accepted.close()
            return
        task = asyncio.ensure_future(self._serve(accepted, connection))
        connection.close = task.cancel
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, accepted: socket, connection: Connection) -> None:
        """Hand a connection on to its protocol, after the handshake of TLS."""
        protocol = Protocol(self._server, self._connections, connection)
        context = self._server.config.ssl
        limit_s = DEADLINES_S[Phase.OPENING] if context else None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol, accepted, ssl=context, ssl_handshake_timeout=limit_s,
                ssl_shutdown_timeout=limit_s,
            )  # fmt: skip
        except (OSError, ssl.SSLError):  # a peer that speaks no TLS, or left
            self._connections.leave(connection)
        except asyncio.CancelledError:
            self._connections.leave(connection)
            raise

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self._connections.sweep(clock.monotonic_s())
