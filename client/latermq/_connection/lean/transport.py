"""The transport over our own HTTP/2: one connection to one broker, made anew when it ends.

A call waits for a connection as long as it may take. One that surely nobody looked at (a stream
refused, or left out by a GOAWAY) is made again; any other that breaks off is its caller's to judge.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from typing import Final

from latermq._connection.lean.blocks import Blocks
from latermq._connection.lean.caller import UNENDED, Call
from latermq._connection.lean.dialling import connected
from latermq._connection.lean.limits import ConnectionLimits
from latermq._connection.lean.shell import Shell
from latermq._connection.status import error_of, nobody_answers
from latermq._connection.transport import RESPONSE_BYTES_MAX, Metadata, Stream
from latermq._values.endpoints import Endpoints
from latermq._values.identity import __version__
from latermq._values.tls import Tls, TlsFiles
from latermq.backoff import Pace
from latermq.errors import LaterMQError, UnavailableError
from latermq_h2.grpc_code import GrpcCode

CONNECT_S_MAX: Final = 5.0  # for one address, until the broker has greeted
CONNECT_ONCE_S_MAX: Final = 20.0  # where there is no second try
CLOSE_S_MAX: Final = 1.0
MAYBE_TLS: Final = "if it serves TLS only, connect with tls=True or tls=latermq.Tls(ca=...)"
# A broker that restarts should be found within a second.
REDIAL: Final = Pace(
    initial=timedelta(milliseconds=50),
    multiplier=2,
    limit=timedelta(seconds=2),
    jitter=0.2,
)
YOUNG_S: Final = 0.2  # a connection that ended so soon was no success


class LeanTransport:
    """To be made inside a running event loop.

    Args:
        tls: None: clear text.
        waits: a call waits for a broker until its deadline; False: it fails where none answers.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        tls: Tls | None = None,
        waits: bool = True,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
    ) -> None:
        self._endpoints = endpoints
        self._limits = ConnectionLimits(message_bytes_max=response_bytes_max)
        self._waits = waits
        self._tls = None if tls is None else TlsFiles(tls)
        self._server_name = None if tls is None else tls.server_name
        authority = str(endpoints).partition(";")[0]
        scheme = "http" if tls is None else "https"
        self._blocks = Blocks(scheme, authority, f"latermq/{__version__}")
        self._loop = asyncio.get_running_loop()
        self._shells: set[Shell] = set()
        self._shell: Shell | None = None  # takes calls, or did until a moment ago
        self._dialling: asyncio.Task[None] | None = None
        self._turn = 0  # of the addresses: the one that answered last, until it does not
        self._waiting = 0  # calls that want a connection
        self._under_way = 0  # unary calls that have one
        self._failure = ""
        self._greeted_s = -YOUNG_S
        self._closed = False

    async def unary(
        self, path: str, request: bytes, metadata: Metadata, timeout: float | None
    ) -> bytes:
        end_s = self._end_s(timeout)
        refusals = 0
        while True:
            call = await self._unary_once(path, request, metadata, end_s)
            if call.code == GrpcCode.OK and len(call.messages) == 1:
                return call.messages[0]
            refusals += 1
            await self._pause_or_raise(call, refusals, end_s)

    async def _unary_once(
        self, path: str, request: bytes, metadata: Metadata, end_s: float | None
    ) -> Call:
        """Make a call and return it ended.

        One beside no other is written at once, not in the loop's next turn with what else there is
        by then: see `Batches`.
        """
        shell = self._accepting_now() or await self._accepting(end_s)
        block = self._blocks.block(path, metadata, self._left_ms(end_s))
        done = self._loop.create_future()

        def wake() -> None:
            if call.code != UNENDED and not done.done():
                done.set_result(None)

        call = shell.caller.start(block, request, _in_ms(end_s), wake)
        if self._under_way:
            shell.wake()
        else:
            shell.write()
        self._under_way += 1
        try:
            await done
        except asyncio.CancelledError:
            shell.caller.cancel(call)
            shell.wake()
            raise
        finally:
            self._under_way -= 1
        return call

    async def server_stream(
        self, path: str, request: bytes, metadata: Metadata, timeout: float | None
    ) -> AsyncGenerator[bytes, None]:
        end_s = self._end_s(timeout)
        refusals = 0
        while True:
            shell = await self._accepting(end_s)
            block = self._blocks.block(path, metadata, self._left_ms(end_s))
            news = _News(self._loop)
            call = shell.caller.start(block, request, _in_ms(end_s), news.tell)
            shell.wake()
            try:
                while True:
                    while (message := shell.caller.read(call)) is not None:
                        yield message
                    if call.ended:
                        break
                    await news.wait()
            finally:
                shell.caller.cancel(call)
                shell.wake()
            if call.code == GrpcCode.OK:
                return
            refusals += 1
            await self._pause_or_raise(call, refusals, end_s)

    def bidi_stream(self, path: str, metadata: Metadata) -> Stream:
        return _LeanStream(self, path, metadata)

    async def close(self) -> None:
        self._closed = True
        if self._dialling is not None:
            self._dialling.cancel()
            await asyncio.gather(self._dialling, return_exceptions=True)
        shells = list(self._shells)
        for shell in shells:
            shell.close()
        if shells:
            await asyncio.wait([shell.closed for shell in shells], timeout=CLOSE_S_MAX)

    async def open_stream(
        self, path: str, metadata: Metadata, wake: Callable[[], None]
    ) -> tuple[Shell, Call]:
        """Open a stream in both directions, as soon as there is a connection."""
        shell = await self._accepting(None)
        call = shell.caller.start_stream(self._blocks.block(path, metadata, None), None, wake)
        shell.wake()
        return shell, call

    async def _pause_or_raise(self, call: Call, refusals: int, end_s: float | None) -> None:
        """Return when a refused call may be made again; raise the error of any other."""
        wait_s = REDIAL.wait(refusals, random.random()).total_seconds() if refusals > 1 else 0.0
        late = end_s is not None and self._loop.time() + wait_s >= end_s
        if not call.refused or late or (refusals > 1 and not self._waits):
            raise self._error(call)
        await asyncio.sleep(wait_s)

    def _error(self, call: Call) -> LaterMQError:
        if call.code == GrpcCode.OK:
            text = f"{len(call.messages)} messages in the answer, not one"
            return error_of(GrpcCode.INTERNAL, text, self._endpoints)
        return error_of(call.code, call.details, self._endpoints)

    def _end_s(self, timeout: float | None) -> float | None:
        return None if timeout is None else self._loop.time() + timeout

    def _left_ms(self, end_s: float | None) -> int | None:
        """Count the ms left, for the broker, rounded up: alike for calls that may take as long."""
        return None if end_s is None else -int((self._loop.time() - end_s) * 1_000 // 1)

    # --- the connection ---------------------------------------------------------------------

    def _accepting_now(self) -> Shell | None:
        shell = self._shell
        if shell is not None:
            shell.look()
            if shell.accepts:
                return shell
        return None

    async def _accepting(self, end_s: float | None) -> Shell:
        """Return a connection that takes a call now, waited for until `end_s` of the loop's time.

        Raises:
            UnavailableError: none came to be.
        """
        shell = self._accepting_now()
        if shell is not None:
            return shell
        self._waiting += 1
        try:
            async with asyncio.timeout_at(end_s):
                while True:
                    shell = self._shell
                    if self._closed:
                        raise UnavailableError(f"{self._endpoints}: this client is closed")
                    if shell is None or shell.ends:
                        await asyncio.shield(self._dial_task())
                        if not self._waits and self._failure:
                            raise nobody_answers(self._endpoints, self._failure)
                    elif not shell.accepts:
                        await shell.wait_to_accept()
                    else:
                        return shell
        except TimeoutError:
            raise nobody_answers(self._endpoints, self._failure) from None
        except asyncio.CancelledError:
            if self._closed and not self._cancelling():
                raise UnavailableError(f"{self._endpoints}: this client is closed") from None
            raise
        finally:
            self._waiting -= 1

    def _cancelling(self) -> bool:
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0

    def _dial_task(self) -> asyncio.Task[None]:
        if self._dialling is None or self._dialling.done():
            self._dialling = self._loop.create_task(self._dial(), name="latermq connecting")
        return self._dialling

    async def _dial(self) -> None:
        """Connect, address by address and, if it `waits`, again for as long as a call does."""
        addresses = self._endpoints.addresses
        again = self._waits or len(addresses) > 1
        connect_s_max = CONNECT_S_MAX if again else CONNECT_ONCE_S_MAX
        tries = 0
        young = self._loop.time() - self._greeted_s < YOUNG_S
        while self._waiting and (self._waits or tries < len(addresses)):
            if tries or young:
                wait = REDIAL.wait(max(tries, 1), random.random())
                await asyncio.sleep(wait.total_seconds())
            host, port = addresses[self._turn % len(addresses)]
            tries += 1
            try:
                async with asyncio.timeout(connect_s_max):
                    shell = await self._connected(host, port)
            except TimeoutError:
                self._failure = "no greeting in time"
            except OSError as error:
                self._failure = str(error) or type(error).__name__
            else:
                self._shell, self._failure = shell, ""
                self._greeted_s = self._loop.time()
                return
            self._turn += 1

    async def _connected(self, host: str, port: int) -> Shell:
        """Connect, and wait until the broker has greeted us: it accepts calls. Raises OSError."""
        greeted: asyncio.Future[None] = self._loop.create_future()

        def changed(shell: Shell) -> None:
            if not greeted.done():
                greeted.set_result(None)

        context, name = None, None
        if self._tls is not None:
            self._tls.renew()
            context, name = self._tls.context, self._server_name or host
        # Of several endpoints, the next one's turn comes before a name's next address.
        connection = await connected(host, port, self._turn // len(self._endpoints.addresses))
        try:
            transport, shell = await self._loop.create_connection(
                lambda: Shell(changed, self._limits),
                sock=connection,
                ssl=context,
                server_hostname=name,
            )
        except BaseException:
            connection.close()
            raise
        self._shells.add(shell)
        shell.closed.add_done_callback(lambda _: self._shells.discard(shell))
        try:
            await asyncio.wait((greeted, shell.closed), return_when=asyncio.FIRST_COMPLETED)
            if shell.ends:
                reason = shell.caller.lost_why or shell.caller.connection.farewell
                why = reason or "the broker ended the connection"
                raise ConnectionError(why if name is not None else f"{why}; {MAYBE_TLS}")
        except BaseException:
            transport.abort()
            raise
        return shell


def _in_ms(end_s: float | None) -> int | None:
    return None if end_s is None else int(end_s * 1_000)


class _News:
    """Lets one reader sleep until it is told."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._news = False
        self._waiter: asyncio.Future[None] | None = None

    def tell(self) -> None:
        self._news = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        if not self._news:
            self._waiter = self._loop.create_future()
            await self._waiter
            self._waiter = None
        self._news = False


class _LeanStream:
    """Opened by the first write or read."""

    def __init__(self, transport: LeanTransport, path: str, metadata: Metadata) -> None:
        self._transport = transport
        self._path = path
        self._metadata = metadata
        self._news = _News(asyncio.get_running_loop())
        self._room = asyncio.Event()
        self._opening = asyncio.Lock()
        self._cancelled = False
        self._shell: Shell | None = None
        self._call: Call | None = None

    async def write(self, data: bytes) -> None:
        shell, call = await self._open()
        if call.ended:
            if call.code == GrpcCode.OK:
                raise UnavailableError("the stream has ended")
            raise self._transport._error(call)
        shell.caller.write(call, data)
        shell.wake()
        while not shell.caller.has_room(call):
            self._room.clear()
            shell.caller.want_room(call)
            await self._room.wait()

    async def read(self) -> bytes | None:
        shell, call = await self._open()
        while True:
            if (message := shell.caller.read(call)) is not None:
                shell.wake()
                return message
            if call.ended:
                break
            await self._news.wait()
        if call.code != GrpcCode.OK:
            raise self._transport._error(call)
        return None

    def cancel(self) -> None:
        self._cancelled = True
        if self._shell is not None and self._call is not None:
            self._shell.caller.cancel(self._call)
            self._shell.wake()

    async def _open(self) -> tuple[Shell, Call]:
        if self._shell is not None and self._call is not None:
            return self._shell, self._call
        async with self._opening:
            if self._cancelled:
                raise UnavailableError("the stream was cancelled")
            if self._shell is None or self._call is None:
                opened = await self._transport.open_stream(self._path, self._metadata, self._wake)
                self._shell, self._call = opened
            return self._shell, self._call

    def _wake(self) -> None:
        self._room.set()
        self._news.tell()
