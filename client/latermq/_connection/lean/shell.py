"""Between an asyncio transport and one connection: feeds bytes, writes what comes out, keeps time.

What is called in one turn of the loop leaves in one write.
"""

import asyncio
import select
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

from latermq._connection.lean.caller import Caller
from latermq._connection.lean.limits import ConnectionKeepalive, ConnectionLimits

WRITE_BUFFER_BYTES: Final = 256 << 10  # in the asyncio transport, before it pauses us
LOOK_S: Final = 0.02  # without a read: the loop may have been elsewhere
CAN_LOOK: Final = hasattr(select, "poll")  # Windows has none: such a call fails, and is tried again
HUNG_UP: Final = (
    select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0) if CAN_LOOK else 0
)
LIMITS: Final = ConnectionLimits()
KEEPALIVE: Final = ConnectionKeepalive()


class Shell(asyncio.Protocol):
    """One connection.

    Args:
        changed: told when it begins or ceases to accept calls.
    """

    def __init__(
        self,
        changed: Callable[["Shell"], None],
        limits: ConnectionLimits = LIMITS,
        keepalive: ConnectionKeepalive = KEEPALIVE,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.caller = Caller(limits, keepalive, self.now_ms())
        self.closed = self._loop.create_future()
        self._connection = self.caller.connection
        self._changed = changed
        self._accepted = False
        self._transport: Any = None
        self._flush_asked = False
        self._write_paused = False
        self._read_paused = False
        self._closing = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._looked_s = self._loop.time()
        self._waiting: deque[asyncio.Future[None]] = deque()

    def now_ms(self) -> int:
        return int(self._loop.time() * 1_000)

    @property
    def ends(self) -> bool:
        """Tell whether it takes no more calls, ever."""
        return self._connection.ends

    @property
    def accepts(self) -> bool:
        """Tell whether a call may be made now."""
        return self._connection.accepts and not self._connection.congested

    def look(self) -> None:
        """See whether the broker hung up while the loop was kept busy by others.

        A call that is written to a connection whose end was not read yet would fail, though
        nobody ever looked at it.
        """
        if not CAN_LOOK or self._closing or self._loop.time() - self._looked_s < LOOK_S:
            return
        self._looked_s = self._loop.time()
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), HUNG_UP)
        if any(events & HUNG_UP for _, events in poll.poll(0)):
            self._connection.leave("the broker closed the connection")
            self.write()

    async def wait_to_accept(self) -> None:
        """Wait until `accepts` may hold, or the connection ends."""
        waiter = self._loop.create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            self.wake()  # another one may have its turn
            raise

    def wake(self) -> None:
        """Write soon: output was made outside of a read."""
        if not self._flush_asked:
            self._flush_asked = True
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Say GOAWAY and close; every call ends."""
        self.caller.lost_why = "this client is closed"
        self._connection.close()
        self.write()

    # --- asyncio calls ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(Any, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        ssl_object = transport.get_extra_info("ssl_object")
        if ssl_object is not None and ssl_object.selected_alpn_protocol() != "h2":
            self._lost("the server does not speak HTTP/2")
            self._transport.abort()
            return
        self.write()

    def data_received(self, data: bytes) -> None:
        if not self._closing:
            self._looked_s = self._loop.time()
            self._connection.receive(data, int(self._looked_s * 1_000))
            self.write()

    def eof_received(self) -> bool:
        self._lost("the server closed the connection")
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._lost(str(error) if error else "the server closed the connection")
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self.write()

    # --- the work ---------------------------------------------------------------------------

    def _flush(self) -> None:
        self._flush_asked = False
        self.write()

    def write(self) -> None:
        """Write what there is, then see what else the connection needs."""
        connection, transport = self._connection, self._transport
        if transport is None or self._closing:
            return
        while not self._write_paused:
            data = connection.take()
            if not data:
                break
            transport.write(data)
        self._tell()
        if connection.over:
            self._closing = True
            self._stop_timer()
            transport.close()
            return
        pause = connection.congested
        if pause != self._read_paused:
            self._read_paused = pause
            if pause:
                transport.pause_reading()
            else:
                transport.resume_reading()
        due_ms = self.caller.next_deadline()
        if due_ms is not None and (self._timer is None or due_ms < self._timer_ms):
            self._set_timer(due_ms)

    def _tell(self) -> None:
        """Let waiting calls look again; tell of the beginning and the end."""
        if self._waiting and (self.accepts or self.ends):
            turns = len(self._waiting) if self.ends else self._connection.room
            while turns and self._waiting:
                waiter = self._waiting.popleft()
                if not waiter.done():
                    waiter.set_result(None)
                    turns -= 1
        accepted = self._connection.greeted and not self.ends
        if accepted != self._accepted:
            self._accepted = accepted
            self._changed(self)

    def _set_timer(self, due_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = due_ms
        # One more: now_ms() is cut to whole milliseconds, and early would be for nothing.
        self._timer = self._loop.call_at((due_ms + 1) / 1_000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.caller.on_timer(self.now_ms())
        self.write()

    def _lost(self, why: str) -> None:
        if not self._closing:
            self._closing = True
            self.caller.lost_why = self.caller.lost_why or why
            self._connection.lost()
            self._stop_timer()
        self._tell()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
