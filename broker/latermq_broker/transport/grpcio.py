"""Serves a method table with grpc.aio, raw bytes in and out.

The grpcio form of the transport: it adapts contexts to `Call`, the three kinds of handlers to
coroutines, and `CallAborted` to a gRPC status. It knows no service and no message. A handler's
bug reaches the caller as UNKNOWN, and the log with its traceback.

A call counts as cancelled when its coroutine is left before the whole reply was handed to grpc:
by the caller's cancel, its deadline, or a lost connection.
"""

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from inspect import isawaitable
from typing import Any, Final, Self, cast
from urllib.parse import unquote

from latermq_broker.catalog.access import User
from latermq_broker.clock import monotonic_ms
from latermq_broker.config.addresses import listen_address
from latermq_broker.config.config import ServerConfig
from latermq_broker.errors import ConfigError
from latermq_broker.services.call.handler import (
    Admit,
    BidiStream,
    CallAborted,
    Method,
    MethodKind,
    MethodTable,
    ServerStream,
    Unary,
)
from latermq_broker.transport.grpc.metadata import AnswerExtra
from latermq_broker.transport.unconfirmed import give_up
from latermq_h2.grpc_code import GrpcCode
from latermq_text.listening import bound_sockets

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its C core logs to stderr in a form of its own
import grpc
import grpc.aio

log = logging.getLogger("latermq.transport")

UNHEARD_MAX: Final = 16_384  # connections whose last reply may be lost
REPLY_BYTES_MAX: Final = 1 << 30  # it bounds nothing: see docs/transport.md
STATUS_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


class GrpcioCall:
    """A `Call` over a grpc.aio context; entered for the time its handler runs."""

    def __init__(self, path: str, context: Any, local: str, replies: "_UnheardReplies") -> None:
        self._path = path
        self._context = context
        self._local = local
        self._metadata: dict[str, str | bytes] | None = None
        self._cancelled = False
        self._on_cancel: list[Callable[[], None]] = []
        self._unheard: Callable[[], None] | None = None
        self._replies = replies
        replies.heard(self.connection_id)
        self.user: User | None = None
        self.extra = AnswerExtra()

    @property
    def path(self) -> str:
        return self._path

    @property
    def peer(self) -> str:
        scheme, _, address = self._context.peer().partition(":")
        return unquote(address) if scheme in ("ipv4", "ipv6") else ""

    @property
    def local(self) -> str:
        return self._local

    @property
    def connection_id(self) -> str:
        return cast(str, self._context.peer())

    @property
    def certificate_name(self) -> str:
        return ""  # no TLS on this transport

    def metadata(self, name: str) -> str | None:
        value = self._value(name)
        return value if isinstance(value, str) else None

    def metadata_bin(self, name: str) -> bytes | None:
        value = self._value(name)
        return value if isinstance(value, bytes) else None

    def all_metadata(self, prefixes: tuple[str, ...] = ("",)) -> list[tuple[str, str | bytes]]:
        pairs = self._context.invocation_metadata() or ()
        return [(key, value) for key, value in pairs if key.startswith(prefixes)]

    def remaining_ms(self) -> int | None:
        remaining = self._context.time_remaining()
        return None if remaining is None else max(0, int(remaining * 1000))

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def on_cancel(self, callback: Callable[[], None]) -> None:
        if self._cancelled:
            callback()
        else:
            self._on_cancel.append(callback)

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Keep nothing: gRPC does not tell what arrived."""

    def on_unheard(self, callback: Callable[[], None]) -> None:
        self._unheard = callback

    def reply_room(self) -> int:
        return REPLY_BYTES_MAX

    def reserve_reply(self, bytes_count: int) -> None:
        """Do nothing: grpc does not say what it has queued."""

    @property
    def has_headers(self) -> bool:
        """Tell whether there is more to say before the answer than grpc says by itself."""
        return self.extra.compress or bool(self.extra.headers)

    async def send_headers(self) -> None:
        """Send the headers, once, before anything else."""
        if self.extra.headers_sent:
            return
        self.extra.headers_sent = True
        if self.extra.compress:
            self._context.set_compression(grpc.Compression.Gzip)
        await self._context.send_initial_metadata(tuple(self.extra.headers))

    async def write(self, element: bytes) -> None:
        """Write an element of a stream, after the headers."""
        if self.has_headers:
            await self.send_headers()
        await self._context.write(element)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if self.extra.trailers:
            self._context.set_trailing_metadata(tuple(self.extra.trailers))
        if error is None:
            if self._unheard is not None:
                self._replies.sent(self.connection_id, self._unheard)
            return
        if isinstance(error, asyncio.CancelledError):
            self._replies.lose(self.connection_id)
        if self.extra.headers and not self._context.cancelled():
            await self.send_headers()
        self._cancel()
        if isinstance(error, CallAborted):
            await self._context.abort(STATUS_CODES[error.code], error.message)
        if isinstance(error, Exception) and not self._context.cancelled():
            log.error("handler failed", extra={"rpc": self._path}, exc_info=error)
            await self._context.abort(STATUS_CODES[GrpcCode.UNKNOWN], "internal error")

    def _cancel(self) -> None:
        """Run what was asked for a reply that did not get out whole, each once."""
        self._cancelled = True
        callbacks, self._on_cancel = self._on_cancel, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                log.exception("cancel callback failed", extra={"rpc": self._path})

    def _value(self, name: str) -> str | bytes | None:
        if self._metadata is None:
            self._metadata = {}
            for key, value in self._context.invocation_metadata() or ():
                self._metadata.setdefault(key, value)
        return self._metadata.get(name)


class _UnheardReplies:
    """Replies of each connection after which no call came on it.

    gRPC tells neither what arrived nor of a connection's end. A call that is cancelled stands for
    that: a client that lives, and gave up one call, has called again since its reply.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[str, list[Callable[[], None]]] = OrderedDict()

    def sent(self, connection_id: str, unheard: Callable[[], None]) -> None:
        """Keep what is to be done if a connection breaks before it is heard from again."""
        self._kept.setdefault(connection_id, []).append(unheard)
        self._kept.move_to_end(connection_id)
        if len(self._kept) > UNHEARD_MAX:
            self._kept.popitem(last=False)

    def heard(self, connection_id: str) -> None:
        """Take what was sent for proved: a call came on the connection."""
        self._kept.pop(connection_id, None)

    def lose(self, connection_id: str) -> None:
        """Do what is to be done: a call on the connection was cancelled."""
        for unheard in self._kept.pop(connection_id, ()):
            give_up(unheard)


class GrpcioServer:
    """One listening port. Made in a running loop; started once, drained once."""

    def __init__(self, methods: MethodTable, config: ServerConfig) -> None:
        self._host, self._port = listen_address("server.listen", config.listen)
        self.replies = _UnheardReplies()
        self.calls_begun = 0  # since the start
        self._server = grpc.aio.server(
            handlers=(_Methods(methods, self),),
            maximum_concurrent_rpcs=config.calls_max,
            options=(
                ("grpc.so_reuseport", 0),  # a port in use is refused, not shared
                ("grpc.max_receive_message_length", config.request_bytes_max),
                ("grpc.max_send_message_length", -1),
                ("grpc.keepalive_time_ms", config.keepalive_interval_ms),
                ("grpc.keepalive_timeout_ms", config.keepalive_timeout_ms),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_ping_interval_without_data_ms", config.ping_interval_ms_min),
                # Our own pings go on without data too, as those of the C++ client do.
                ("grpc.http2.max_pings_without_data", 0),
            ),
        )

    @property
    def address(self) -> str:
        """Return `HOST:PORT` as bound; the port is known after `start`."""
        return _join(self._host, self._port)

    async def start(self) -> None:
        """Bind and serve.

        Raises:
            ConfigError: the address cannot be bound.
        """
        _refuse_unbindable(self._host, self._port)
        try:
            self._port = self._server.add_insecure_port(self.address)
        except RuntimeError as error:
            raise ConfigError("server.listen", f"cannot listen on {self.address}") from error
        await self._server.start()

    async def drain(self, grace_ms: int) -> bool:
        """Accept nothing new, let calls finish for `grace_ms`, then cancel the rest.

        Returns whether all finished: grpc does not say which answers went out.
        """
        began_ms = monotonic_ms()
        await self._server.stop(grace_ms / 1000)
        return monotonic_ms() - began_ms < grace_ms


class _Methods(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Looks a path up and gives grpc the coroutine for it; an unknown path is UNIMPLEMENTED."""

    def __init__(self, methods: MethodTable, server: GrpcioServer) -> None:
        self._methods = methods
        self._server = server

    def service(self, details: Any) -> Any:
        path: str = details.method
        method = self._methods.get(path)
        if method is None:
            return None

        def call(context: Any) -> GrpcioCall:
            self._server.calls_begun += 1
            return GrpcioCall(path, context, self._server.address, self._server.replies)

        if method.admit is not None:
            return grpc.stream_stream_rpc_method_handler(_admitted(method, method.admit, call))
        match method.kind:
            case MethodKind.UNARY:
                return grpc.unary_unary_rpc_method_handler(
                    _unary(cast(Unary, method.handler), call)
                )
            case MethodKind.SERVER_STREAM:
                return grpc.unary_stream_rpc_method_handler(
                    _server_stream(cast(ServerStream, method.handler), call)
                )
            case MethodKind.BIDI_STREAM:
                return grpc.stream_stream_rpc_method_handler(
                    _bidi_stream(cast(BidiStream, method.handler), call, method.headers_first)
                )


CallOf = Callable[[Any], GrpcioCall]


def _unary(handler: Unary, call_of: CallOf) -> Callable[[bytes, Any], Awaitable[bytes]]:
    async def serve(request: bytes, context: Any) -> bytes:
        async with call_of(context) as call:
            result = handler(request, call)
            answer = await result if isawaitable(result) else result
            if call.has_headers:
                await call.send_headers()
            return answer

    return serve


def _admitted(
    method: Method, admit: Admit, call_of: CallOf
) -> Callable[[AsyncIterator[bytes], Any], Awaitable[None]]:
    """Make a method that receives, and inflates, its one request only if the call may come in."""

    async def serve(requests: AsyncIterator[bytes], context: Any) -> None:
        async with call_of(context) as call:
            refusal = admit(call)
            if refusal is not None:
                await _write_all(refusal, call)
                return
            request = await anext(aiter(requests), None)
            if request is None:
                raise CallAborted(GrpcCode.UNIMPLEMENTED, "no message in the request")
            if method.kind is MethodKind.UNARY:
                answer = cast(Unary, method.handler)(request, call)
                await call.write(await answer if isawaitable(answer) else answer)
            else:
                await _write_all(cast(ServerStream, method.handler)(request, call), call)

    return serve


async def _write_all(result: Any, call: GrpcioCall) -> None:
    """Write whatever a handler of a server stream made."""
    if isinstance(result, AsyncIterator):
        async for element in result:
            await call.write(element)
    else:
        for element in await result if isawaitable(result) else result:
            await call.write(element)


def _server_stream(
    handler: ServerStream, call_of: CallOf
) -> Callable[[bytes, Any], Awaitable[None]]:
    async def serve(request: bytes, context: Any) -> None:
        async with call_of(context) as call:
            await _write_all(handler(request, call), call)

    return serve


def _bidi_stream(
    handler: BidiStream, call_of: CallOf, headers_first: bool
) -> Callable[[AsyncIterator[bytes], Any], Awaitable[None]]:
    async def serve(requests: AsyncIterator[bytes], context: Any) -> None:
        async with call_of(context) as call:
            if headers_first:
                await call.send_headers()
            async for element in handler(requests, call):
                await call.write(element)

    return serve


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _refuse_unbindable(host: str, port: int) -> None:
    """Try the address with a plain socket: grpc does not say why it cannot have it."""
    try:
        for probe in bound_sockets(host, port):
            probe.close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError("server.listen", f"cannot listen on {_join(host, port)}: {reason}") from (
            error
        )
