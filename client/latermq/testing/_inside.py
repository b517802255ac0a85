"""A transport to a broker in the same loop: its handlers are called, and nothing is on a wire.

What travels are the bytes that would travel, so client and broker are what they are anywhere else.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager
from inspect import isawaitable
from typing import Any, Final, cast

from latermq._connection.status import error_of
from latermq._connection.transport import Metadata
from latermq._values.endpoints import Endpoints
from latermq.errors import LaterMQError, UnavailableError
from latermq_broker.catalog.access import User
from latermq_broker.services.call.handler import CallAborted, Method, MethodTable
from latermq_broker.transport.grpc.metadata import AnswerExtra
from latermq_h2.grpc_code import GrpcCode

log = logging.getLogger("latermq.testing")

ADDRESS: Final = "127.0.0.1:8081"  # where nobody listens: all that clients ask for comes here
REPLY_BYTES_MAX: Final = 32 << 20


class InsideCall:
    """A `latermq_broker.services.call.handler.Call`, made by a program of the same loop."""

    user: User | None = None
    peer = local = ADDRESS
    connection_id = "inside"
    certificate_name = ""

    def __init__(self, path: str, metadata: Metadata, timeout: float | None) -> None:
        self.path = path
        self.cancelled = False
        self.extra = AnswerExtra()
        self._metadata = list(metadata)
        self._loop = asyncio.get_running_loop()
        self._end_s = None if timeout is None else self._loop.time() + timeout
        self._callbacks: list[Callable[[], None]] = []

    def metadata(self, name: str) -> str | None:
        value = self._value(name)
        return value if isinstance(value, str) else None

    def metadata_bin(self, name: str) -> bytes | None:
        value = self._value(name)
        return value if isinstance(value, bytes) else None

    def all_metadata(self, prefixes: tuple[str, ...] = ("",)) -> list[tuple[str, str | bytes]]:
        return [pair for pair in self._metadata if pair[0].startswith(prefixes)]

    def remaining_ms(self) -> int | None:
        if self._end_s is None:
            return None
        return max(0, int((self._end_s - self._loop.time()) * 1_000))

    def on_cancel(self, callback: Callable[[], None]) -> None:
        if self.cancelled:
            callback()
        else:
            self._callbacks.append(callback)

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Keep nothing: what is answered here arrives."""

    def on_unheard(self, callback: Callable[[], None]) -> None:
        """Keep nothing: what is answered here arrives."""

    def cancel(self) -> None:
        """Have the caller go away, before it has the whole answer."""
        self.cancelled = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def reply_room(self) -> int:
        return REPLY_BYTES_MAX

    def reserve_reply(self, bytes_count: int) -> None:
        """Keep no account: nothing waits to be read."""

    @contextmanager
    def served(self) -> Generator[None]:
        """Turn what a handler raises into what a client is told."""
        try:
            yield
        except CallAborted as error:
            self.cancel()
            raise status_error(error.code, error.message) from error
        except LaterMQError:
            self.cancel()
            raise
        except Exception as error:
            self.cancel()
            log.exception("handler failed: %s", self.path)
            raise status_error(GrpcCode.UNKNOWN, "internal error") from error
        except BaseException:  # cancelled, or nobody iterates any more
            self.cancel()
            raise

    def _value(self, name: str) -> str | bytes | None:
        return next((value for key, value in self._metadata if key == name), None)


def status_error(code: GrpcCode, details: str) -> LaterMQError:
    """Return the error of a call that ends with this status."""
    return error_of(int(code), details, Endpoints.parse(ADDRESS))


class InsideTransport:
    """A `latermq._connection.transport.Transport` to the handlers of `methods`."""

    def __init__(self, methods: MethodTable) -> None:
        self._methods = methods
        self._streams: set[InsideStream] = set()

    async def unary(
        self, path: str, request: bytes, metadata: Metadata, timeout: float | None
    ) -> bytes:
        method, call = self._method(path), InsideCall(path, metadata, timeout)
        with call.served():
            if method.admit is not None and (refusal := method.admit(call)) is not None:
                (answer,) = await _value(refusal)
                return cast(bytes, answer)
            return cast(bytes, await _in_time(_value(_handled(method, request, call)), timeout))

    async def server_stream(
        self, path: str, request: bytes, metadata: Metadata, timeout: float | None
    ) -> AsyncGenerator[bytes, None]:
        method, call = self._method(path), InsideCall(path, metadata, timeout)
        with call.served():
            elements: Any = method.admit(call) if method.admit is not None else None
            if elements is None:
                elements = _handled(method, request, call)
            if isinstance(elements, AsyncIterator):
                async for element in elements:
                    yield element
                return
            for element in await _in_time(_value(elements), timeout):
                yield element

    def bidi_stream(self, path: str, metadata: Metadata) -> "InsideStream":
        stream = InsideStream(self._method(path), InsideCall(path, metadata, None))
        self._streams.add(stream)
        return stream

    async def close(self) -> None:
        for stream in self._streams:
            stream.cancel()
        await asyncio.gather(*(stream.task for stream in self._streams), return_exceptions=True)
        self._streams.clear()

    def _method(self, path: str) -> Method:
        method = self._methods.get(path)
        if method is None:
            raise status_error(GrpcCode.UNIMPLEMENTED, f"no method {path}")
        return method


class InsideStream:
    """A stream in both directions; `task` is its handler."""

    def __init__(self, method: Method, call: InsideCall) -> None:
        self._asked: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._answers: asyncio.Queue[bytes | LaterMQError | None] = asyncio.Queue()
        self._call = call
        self.task = asyncio.create_task(self._serve(method), name=f"latermq inside {call.path}")

    async def write(self, data: bytes) -> None:
        if self.task.done():
            raise UnavailableError("the stream has ended")
        self._asked.put_nowait(data)

    async def read(self) -> bytes | None:
        answer = await self._answers.get()
        if isinstance(answer, LaterMQError):
            raise answer
        return answer

    def cancel(self) -> None:
        self.task.cancel()

    async def _serve(self, method: Method) -> None:
        end: LaterMQError | None = UnavailableError("the stream was cancelled")
        try:
            with self._call.served():
                async for answer in _handled(method, self._requests(), self._call):
                    self._answers.put_nowait(answer)
            end = None
        except LaterMQError as error:
            end = error
        finally:
            self._answers.put_nowait(end)

    async def _requests(self) -> AsyncIterator[bytes]:
        while (request := await self._asked.get()) is not None:
            yield request


def _handled(method: Method, request: Any, call: InsideCall) -> Any:
    return method.handler(request, call)


async def _value(result: Any) -> Any:
    return await result if isawaitable(result) else result


async def _in_time(answer: Awaitable[Any], timeout: float | None) -> Any:
    try:
        async with asyncio.timeout(timeout) as limit:
            return await answer
    except TimeoutError:
        if not limit.expired():
            raise
        raise status_error(GrpcCode.DEADLINE_EXCEEDED, "") from None
