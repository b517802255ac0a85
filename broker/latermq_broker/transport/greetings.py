"""What a connection says first, looked at and left in its socket; and for how long it may not."""

import asyncio
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from latermq_broker.transport import proxy_protocol
from latermq_broker.transport.proxy_protocol import ProxyError, ProxyHeader
from latermq_broker.transport.seats import Seat

TLS_HANDSHAKE: Final = 0x16  # first byte of a TLS connection
TLS_MAJOR: Final = 3
RECORD_HEAD_BYTES: Final = 5
RECORD_BYTES_MAX: Final = 16_384  # in clear text, which a first message is
LATE_S_MAX: Final = 0.25  # a timer that fires later than this says that the loop stood still
EXCUSED_S: Final = 1.0  # to look then at what has come in time
ESTABLISHED: Final = 1  # tcpi_state, the first byte of struct tcp_info
AGAIN_S: Final = 0.05  # a socket that is readable without more in it is looked at once more


@dataclass(eq=False, slots=True)
class Greeting:
    """A connection that was accepted and is not served yet."""

    accepted: socket.socket
    seat: Seat
    peer: str
    due_s: float  # when it must be over, by the loop's clock
    patience_s: float = 10.0  # how long it may take, but for the time that it waits for us
    excused: bool = False
    task: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None
    turn: asyncio.Future[None] | None = None  # while it waits to begin a handshake
    why_ended: str = ""  # by us
    begun: bool = False  # its task is in `_greet`, which cleans up
    passing: bool = False  # to its protocol, in clear text: that takes no time and is not stopped

    @property
    def waits(self) -> bool:
        """Tell whether it waits for its turn: for us, not for its client."""
        return self.turn is not None and not self.turn.done()

    def go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let it go on: it is its turn, and its client has all its time."""
        if self.turn is not None and not self.turn.done():
            self.due_s = loop.time() + self.patience_s
            self.turn.set_result(None)

    def end(self, why: str) -> None:
        """Stop it where it is; one that is passing goes on, and its protocol is ended then."""
        assert self.task is not None
        self.why_ended = why
        if not self.passing:
            self.task.cancel()


class Greetings:
    """Connections that are being greeted, by address, the oldest first: each may be given up."""

    def __init__(self) -> None:
        self._of_host: dict[str, dict[Greeting, None]] = {}

    def __len__(self) -> int:
        return len(self._of_host)

    def __iter__(self) -> Iterator[Greeting]:
        return iter([greeting for of_host in self._of_host.values() for greeting in of_host])

    def add(self, greeting: Greeting) -> None:
        self._of_host.setdefault(greeting.seat.host, {})[greeting] = None

    def remove(self, greeting: Greeting) -> None:
        """Forget a connection for now: it waits for us, or is counted at another address."""
        of_host = self._of_host.get(greeting.seat.host, {})
        of_host.pop(greeting, None)
        if not of_host:
            self._of_host.pop(greeting.seat.host, None)

    def drop(self, greeting: Greeting) -> None:
        """Forget a connection and its deadline: it is served, or over."""
        if greeting.timer is not None:
            greeting.timer.cancel()
            greeting.timer = None
        self.remove(greeting)

    def oldest(self, host: str) -> Greeting | None:
        """Find the oldest connection of an address; "": of the address that has most."""
        if host:
            crowd = self._of_host.get(host)
        else:
            crowd = max(self._of_host.values(), key=len, default=None)
        return next(iter(crowd)) if crowd else None


def watch(greeting: Greeting, loop: asyncio.AbstractEventLoop) -> None:
    """End it when it is due; a little later, once, when it was us who were late to look.

    While it waits for its turn it is not due.
    """
    if greeting.task is None or greeting.task.done():
        return
    if greeting.waits:
        greeting.due_s = loop.time() + greeting.patience_s
    late_s = loop.time() - greeting.due_s
    if late_s > LATE_S_MAX and not greeting.excused:
        greeting.excused = True
        greeting.due_s = loop.time() + EXCUSED_S
    elif late_s >= 0:
        greeting.end("TimeoutError")
        return
    greeting.timer = loop.call_at(greeting.due_s, watch, greeting, loop)


def has_left(accepted: socket.socket | None) -> bool:
    """Tell whether a client has closed its connection, by the kernel; False where it is unknown."""
    if accepted is None or sys.platform != "linux":
        return False
    try:
        return accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != ESTABLISHED
    except OSError:  # it is closed here
        return True


async def first_byte(accepted: socket.socket) -> int:
    """Peek at the first byte. Raises ProxyError: it was closed."""
    return (await _peek(accepted, 1))[0]


async def hello_came(accepted: socket.socket) -> None:
    """Wait for the whole first record of a TLS client; what is none is for OpenSSL to refuse.

    Raises ProxyError: it was closed.
    """
    head = await _peek(accepted, RECORD_HEAD_BYTES)
    length = int.from_bytes(head[3:5])
    if head[1] == TLS_MAJOR and length <= RECORD_BYTES_MAX:
        await _peek(accepted, RECORD_HEAD_BYTES + length)


async def read_proxy_header(accepted: socket.socket) -> ProxyHeader:
    """Take a PROXY header out of the socket. Raises ProxyError."""
    data = await _peek(accepted, 1, proxy_protocol.HEADER_BYTES_MAX)
    while (header := proxy_protocol.parse(data)) is None:
        data = await _peek(accepted, len(data) + 1, proxy_protocol.HEADER_BYTES_MAX)
    if header.size:
        accepted.recv(header.size)
    return header


async def _peek(accepted: socket.socket, least: int, most: int = 0) -> bytes:
    """Peek at bytes left in the socket, at least so many. Raises ProxyError at its end."""
    known = -1
    while True:
        try:
            data = accepted.recv(max(least, most), socket.MSG_PEEK)
        except BlockingIOError:
            data = b""
        else:
            if not data:
                raise ProxyError("closed before it said anything")
        if len(data) >= least:
            return data
        if known >= 0:
            if len(data) == known:
                raise ProxyError("closed before it said who it is")
            await asyncio.sleep(AGAIN_S)
        known = len(data) if data else -1
        await _readable(accepted, least)


async def _readable(accepted: socket.socket, least: int) -> None:
    """Wait until so many bytes are there, or the end: nobody is woken for each byte."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)
    loop.add_reader(accepted, lambda: None if waiter.done() else waiter.set_result(None))
    try:
        await waiter
    finally:
        loop.remove_reader(accepted)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
