"""The transport over grpc.aio; nothing else of this package imports grpc."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final
from weakref import WeakSet

import grpc
import grpc.aio

from latermq._connection.status import error_of, nobody_answers
from latermq._connection.transport import RESPONSE_BYTES_MAX, Metadata, Stream
from latermq._values.endpoints import Endpoints
from latermq._values.identity import __version__
from latermq._values.tls import Tls, TlsFiles, read
from latermq.errors import LaterMQError, UnavailableError

UNLIMITED: Final = -1
LAST_WORDS_S: Final = 1.0  # at most, for what gRPC has yet to say of calls that were cancelled
CHANNEL_OPTIONS: Final = [
    ("grpc.primary_user_agent", f"latermq/{__version__}"),
    ("grpc.max_send_message_length", UNLIMITED),
    ("grpc.enable_retries", 0),  # what is tried again is decided above
    ("grpc.use_local_subchannel_pool", 1),  # closing this connection closes it
    # A broker that restarts should be found within a second, not within gRPC's two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Finds a peer that vanished without a word; servers allow a ping every 30 s or less.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 10_000),
]


class GrpcTransport:
    """Over one gRPC channel; to be made inside a running event loop.

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
        self._options = [
            *CHANNEL_OPTIONS,
            ("grpc.max_receive_message_length", response_bytes_max),
        ]
        self._waits = waits
        self._tls = tls
        self._files = None if tls is None else TlsFiles(tls)
        self._channel = self._open()
        self._closing: set[asyncio.Task[None]] = set()  # of channels before this one
        self._callables: dict[tuple[str, str], Any] = {}
        self._calls: WeakSet[Any] = WeakSet()
        self._listening: asyncio.Task[None] | None = None  # from the first call on
        self._heard_s = 0.0  # the loop's time of the last answer
        self._closed = False

    def _open(self) -> grpc.aio.Channel:
        target = self._endpoints.target()
        if self._tls is None:
            return grpc.aio.insecure_channel(target, options=self._options)
        name = self._tls.server_name
        named = [] if name is None else [("grpc.ssl_target_name_override", name)]
        options = [*self._options, *named]
        return grpc.aio.secure_channel(target, credentials_of(self._tls), options=options)

    def _renew(self) -> None:
        """Have another channel if there is no connection and the TLS files have changed.

        A channel's credentials are made once. What waits for a connection of the former one breaks
        off, and is made again by its caller.
        """
        if self._files is None:
            return
        if self._channel.get_state() is grpc.ChannelConnectivity.READY or not self._files.renew():
            return
        self._leave_channel()

    def _suspect(self, channel: grpc.aio.Channel, began_s: float) -> None:
        """Have another channel after a call that was not answered, if none was since it began.

        A firewall or a NAT that forgot the connection drops what is sent on it without a word;
        gRPC offers no PING to ask with. What else is under way breaks off, and its caller makes
        it again.
        """
        connected = channel.get_state() is grpc.ChannelConnectivity.READY
        if connected and channel is self._channel and self._heard_s < began_s and not self._closed:
            self._leave_channel()

    def _leave_channel(self) -> None:
        former, self._channel = self._channel, self._open()
        self._callables.clear()
        closing = asyncio.ensure_future(former.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def unary(
        self, path: str, request: bytes, metadata: Metadata, timeout: float | None
    ) -> bytes:
        call = self._begin("unary_unary", path, request, timeout=timeout, metadata=metadata)
        channel, began_s = self._channel, self._now_s()
        try:
            answer: bytes = await call
        except grpc.aio.AioRpcError as error:
            raise self._ended(error, channel, began_s) from error
        except asyncio.CancelledError:
            raise self._cancelled() from None
        self._heard_s = self._now_s()
        return answer

    async def server_stream(
        self, path: str, request: bytes, metadata: Metadata, timeout: float | None
    ) -> AsyncGenerator[bytes, None]:
        call = self._begin("unary_stream", path, request, timeout=timeout, metadata=metadata)
        channel, began_s = self._channel, self._now_s()
        try:
            async for answer in call:
                self._heard_s = self._now_s()
                yield answer
        except grpc.aio.AioRpcError as error:
            raise self._ended(error, channel, began_s) from error
        except asyncio.CancelledError:
            raise self._cancelled() from None
        finally:
            call.cancel()

    def bidi_stream(self, path: str, metadata: Metadata) -> Stream:
        return _GrpcStream(self._begin("stream_stream", path, metadata=metadata), self)

    async def close(self) -> None:
        """End what is under way, also from another event loop than the one that it was made in."""
        self._closed = True
        listening = self._listening
        if listening is not None and listening.get_loop() is asyncio.get_running_loop():
            for call in list(self._calls):  # what they end with comes before what `_listen` asks
                call.cancel()
            if not listening.cancelling():
                listening.cancel()
            await asyncio.wait([listening])
        await self._channel.close()

    async def _listen(self) -> None:
        """Keep the event loop from ending before gRPC has told it of the calls that end with it.

        gRPC has one queue of events for all loops, and prints a traceback in the next one for each
        event of a loop that is closed. `asyncio.run` cancels its tasks and waits for them, and so
        for this one. The call that it makes then fails at once, behind the others in that queue.
        """
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            last = self._callable("unary_unary", "/")(b"", timeout=0)
            await asyncio.wait([asyncio.ensure_future(last.code())], timeout=LAST_WORDS_S)
            raise

    def _begin(self, kind: str, path: str, *request: bytes, **options: Any) -> Any:
        """Make a call, which ends with the transport at the latest."""
        if self._listening is None:
            name = f"latermq grpcio {self._endpoints}"
            self._listening = asyncio.create_task(self._listen(), name=name)
        self._renew()
        call = self._callable(kind, path)(*request, wait_for_ready=self._waits, **options)
        self._calls.add(call)
        return call

    def _callable(self, kind: str, path: str) -> Any:
        key = (kind, path)
        if key not in self._callables:
            make: Callable[[str], Any] = getattr(self._channel, kind)
            self._callables[key] = make(path)
        return self._callables[key]

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def _ended(
        self, error: grpc.aio.AioRpcError, channel: grpc.aio.Channel, began_s: float
    ) -> LaterMQError:
        """Return our error of a call that was made on `channel`, and judge that by it."""
        translated = self._translated(error)
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            self._suspect(channel, began_s)
        return translated

    def _cancelled(self) -> BaseException:
        """Tell our own cancellation from a call that the other side cancelled, which older grpc.aio
        raises alike."""
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            return asyncio.CancelledError()
        return UnavailableError(f"{self._endpoints} cancelled the call")

    def _translated(self, error: grpc.aio.AioRpcError) -> LaterMQError:
        code = error.code()
        late = code is grpc.StatusCode.DEADLINE_EXCEEDED
        if late and self._channel.get_state() is not grpc.ChannelConnectivity.READY:
            return nobody_answers(self._endpoints, stored=None)  # it may have been ready before
        return error_of(code.value[0], error.details() or "", self._endpoints)


def credentials_of(tls: Tls) -> grpc.ChannelCredentials:
    """Return `tls` as gRPC wants it.

    Raises:
        ValueError: `verify` is False, which gRPC cannot be told.
        OSError: a file cannot be read.
    """
    if not tls.verify:
        raise ValueError('verify=False needs the transport "lean"')
    return grpc.ssl_channel_credentials(
        root_certificates=read(tls.ca),
        private_key=read(tls.key),
        certificate_chain=read(tls.certificate),
    )


class _GrpcStream:
    def __init__(self, call: Any, transport: GrpcTransport) -> None:
        self._call = call
        self._transport = transport

    async def write(self, data: bytes) -> None:
        try:
            await self._call.write(data)
        except grpc.aio.AioRpcError as error:
            raise self._transport._translated(error) from error
        except asyncio.InvalidStateError as error:
            raise UnavailableError("the stream has ended") from error
        except asyncio.CancelledError:
            raise self._transport._cancelled() from None

    async def read(self) -> bytes | None:
        try:
            answer = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise self._transport._translated(error) from error
        except asyncio.CancelledError:
            raise self._transport._cancelled() from None
        return None if answer is grpc.aio.EOF else answer

    def cancel(self) -> None:
        self._call.cancel()
