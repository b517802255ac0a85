"""Between an asyncio transport and one connection: feeds bytes, writes what comes out, keeps time.

One write answers one read. Output made elsewhere is written by one `call_soon` for all of it. When
more is ready than the peer takes, reading pauses; so it does while a bounded piece of work is
continued in later turns of the loop, or while a user who has had much of them waits. All input of a
connection on which no user has called yet waits for its turn (`turns.py`); in a crowd it is dropped
if the client has left by then.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol, cast

from latermq_broker.transport.greetings import has_left
from latermq_broker.transport.grpc.reply_memory import SMALL_BYTES
from latermq_broker.transport.grpc.server_state import Shared
from latermq_broker.transport.grpc.serving import GrpcConnection
from latermq_broker.transport.seats import Seat
from latermq_broker.transport.tls import ALPN, common_name
from latermq_broker.transport.turns import Turns
from latermq_broker.transport.unconfirmed import Unconfirmed, UnconfirmedUnderTls
from latermq_broker.transport.unheard import Unheard
from latermq_h2.http2.connection import UNREAD, Connection
from latermq_h2.http2.frames import ConnectionFault, ErrorCode
from latermq_h2.http2.limits import Keepalive, ServerLimits

LINGER_S: Final = 1.0  # for the peer to read why it ends
WRITE_BUFFER_BYTES: Final = 64 << 10  # in the asyncio transport, before it pauses us


class Owner(Protocol):
    """Who keeps the open connections."""

    def joined(self, protocol: "ShellProtocol") -> None: ...

    def left(self, protocol: "ShellProtocol") -> None: ...

    def speaks_no_http2(self, protocol: "ShellProtocol") -> None:
        """Log a client whose TLS did not agree on HTTP/2 by ALPN."""

    def behind(self, protocol: "ShellProtocol") -> None:
        """Watch a connection: it holds more than a small answer that its peer has not read."""

    @property
    def turns(self) -> Turns:
        """Return where a connection waits that has input left."""


class ShellProtocol(asyncio.Protocol):
    """One connection.

    Args:
        peer, local: `host:port`, as PROXY told or as the socket says.
    """

    connection: Connection
    serving: GrpcConnection
    _unconfirmed: Unconfirmed | UnconfirmedUnderTls
    _unheard: Unheard

    def __init__(
        self,
        owner: Owner,
        shared: Shared,
        limits: ServerLimits,
        keepalive: Keepalive,
        peer: str,
        local: str,
        connection_id: str,
        age_ms_max: int,
    ) -> None:
        self.peer = peer
        self.seat: Seat | None = None  # among the listener's connections
        self.accepted: socket.socket | None = None
        self.made = False
        self._proofs = 0  # of the connection, when it was last looked at
        self.cut_off = False  # it was ended with output that was not with the kernel yet
        self._owner = owner
        self._now_ms: Callable[[], int] = shared.now_ms
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._flush_asked = False
        self._go_on_asked = False
        self._write_paused = False
        self._read_paused = False
        self._closing = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._turns = owner.turns
        self._shared = shared
        self._limits = limits
        self._keepalive = keepalive
        self._local = local
        self._connection_id = connection_id
        self._age_ms_max = age_ms_max

    # --- asyncio calls ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Its deadlines count from here, not from before a handshake.
        ssl_object = transport.get_extra_info("ssl_object")
        if ssl_object is None:
            self._unconfirmed = Unconfirmed(self.accepted)
        else:
            self._unconfirmed = UnconfirmedUnderTls(self.accepted, self._loop.call_later)
        self.serving = GrpcConnection(
            self._shared, self.peer, self._local, self._connection_id, self.wake,
            self._unconfirmed.add,
        )  # fmt: skip
        self.connection = Connection(
            self.serving, self._limits, self._keepalive, self._now_ms(), self._age_ms_max
        )
        self.serving.serve(self.connection)
        self._unheard = Unheard(self._loop.call_later, self.serving.ask_proof)
        self.serving.sent_unproved = self._unheard.add
        self.made = True
        self._transport = cast(Any, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._owner.joined(self)
        if ssl_object is not None and ssl_object.selected_alpn_protocol() != ALPN:
            self._owner.speaks_no_http2(self)
            self.abort()
            return
        if ssl_object is not None:
            self.serving.origin.certificate_name = common_name(ssl_object.getpeercert())
        self._settle()

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        serving, users = self.serving, self._turns.users
        if serving.is_known and users.goes_on(self._user):
            users.do(self._user, serving.receive, data)
        else:
            serving.receive(data, later=True)
        self._settle()

    @property
    def _user(self) -> str:
        """Name whose turns its input has."""
        return self.serving.user or self._connection_id

    def eof_received(self) -> bool:
        self.lost()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        if self.made:  # else a handshake failed
            self.lost()
            self._owner.left(self)
        self._transport = None  # it holds this, and 256 KiB for TLS: no circle

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self.serving.replies.buffered = 0
        self._settle()

    # --- the server and the calls ask -------------------------------------------------------

    def wake(self) -> None:
        """Write output soon that was made outside of a read."""
        if not self._flush_asked:
            self._flush_asked = True
            self._loop.call_soon(self._flush_soon)

    def shut_down(self) -> None:
        self._unheard.ask()  # before the peer may leave because of it
        self.connection.shut_down(self._now_ms())
        self._settle()

    @property
    def is_quiet(self) -> bool:
        """Return whether all that was begun is answered, and with the kernel."""
        connection, transport = self.connection, self._transport
        unwritten = transport is not None and transport.get_write_buffer_size()
        return not (connection.open or connection.outbound.size or unwritten)

    def abort(self) -> None:
        """Close without a word."""
        self._give_up()
        if self.made:
            self.lost()

    @property
    def held_bytes(self) -> int:
        """Count the bytes of answers that wait to be read; 0 when it is over."""
        return 0 if self._closing else self.serving.replies.held

    @property
    def taken_bytes(self) -> int:
        """Count the bytes written so far."""
        return self.connection.outbound.taken

    def end_unread(self) -> None:
        """Reset what waits to be read, or end all if nothing can be written."""
        if self._write_paused:
            self.connection.fail(ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, UNREAD))
        else:
            self.connection.end_unread()
        self._settle()

    # --- the work ---------------------------------------------------------------------------

    def _flush_soon(self) -> None:
        self._flush_asked = False
        self._settle()

    def _go_on(self) -> None:
        self._go_on_asked = False
        if self._closing:
            return
        if self._turns.is_crowded and not self.serving.is_known and has_left(self.accepted):
            self.abort()
            return
        if self.serving.is_known:
            self._turns.users.do(self._user, self.serving.receive, b"")
        else:
            self.serving.receive(b"")
        self._settle()

    def _settle(self) -> None:
        """Write, then see what else the connection needs."""
        connection, transport = self.connection, self._transport
        if transport is None or self._closing:
            return
        if connection.proofs != self._proofs:
            self._proofs = connection.proofs
            self._unheard.heard()
        while not self._write_paused:
            data = connection.take()
            if not data:
                break
            transport.write(data)
        replies = self.serving.replies
        if self._write_paused:
            replies.buffered = transport.get_write_buffer_size()
        if replies.tell() > SMALL_BYTES:
            self._owner.behind(self)
        if connection.over:
            self._close()
            return
        held, congested = connection.input_left, connection.congested
        if held and not congested and not self._go_on_asked:
            self._go_on_asked = True
            address = "" if self.seat is None else self.seat.host
            user = self._user if self.serving.is_known else ""
            self._turns.ask(self._go_on, user=user, address=address)
        pause = held or congested
        if pause != self._read_paused:
            self._read_paused = pause
            if pause:
                transport.pause_reading()
            else:
                transport.resume_reading()
        due_ms = connection.next_deadline()
        if due_ms is not None and (self._timer is None or due_ms < self._timer_ms):
            self._set_timer(due_ms)

    def _set_timer(self, due_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = due_ms
        delay_s = max(0, due_ms - self._now_ms()) / 1_000
        self._timer = self._loop.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.connection.on_timer(self._now_ms())
        self._settle()

    def _close(self) -> None:
        """Close, as all is written or cannot be; let the peer read it first."""
        if self._closing:
            return
        self._closing = True
        self._stop_timer()
        transport = self._transport
        fault = self.connection.fault
        if fault is not None and transport.can_write_eof() and not self._write_paused:
            if self._read_paused:
                transport.resume_reading()  # what still comes is dropped
            with suppress(OSError):  # the peer was faster
                transport.write_eof()
            self._timer = self._loop.call_later(LINGER_S, self._give_up)
        else:
            if fault is None:
                self._unconfirmed.confirm_all()
                self._unheard.forget()
            transport.close()
            self._timer = self._loop.call_later(LINGER_S, self._give_up)

    def _give_up(self) -> None:
        """Close the socket with whatever waits to be written."""
        transport = self._transport
        if transport is not None:
            if self.connection.outbound.size or transport.get_write_buffer_size():
                self.cut_off = True
            transport.abort()

    def lost(self) -> None:
        """Use the transport no more: it is closed, and `connection_lost` follows or came."""
        self._closing = True
        self._stop_timer()
        self.serving.lost()
        self._unconfirmed.lose()  # while the socket is still there to be asked
        self._unheard.lose()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
