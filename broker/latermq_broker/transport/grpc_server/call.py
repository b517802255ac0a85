"""One call: what its handler sees, and the state its connection keeps."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from latermq_broker.services.seam import MethodKind
from latermq_broker.transport.grpc_server.head import CallHead
from latermq_broker.transport.grpc_server.metadata import (
    BINARY_SUFFIX,
    AnswerExtra,
    binary_values,
    shown,
    text_of,
)
from latermq_h2.hpack.fields import REGULAR, Field
from latermq_h2.http2.stream import Stream
from latermq_h2.messages import Assembly

if TYPE_CHECKING:
    from latermq_broker.transport.grpc_server.serving import GrpcConnection

log = logging.getLogger("latermq.transport")


class LeanCall:
    """A `Call`; over when its stream is."""

    __slots__ = (
        "_callbacks", "_connection", "_fields", "added", "answered", "arrived_ms", "assembly",
        "cancelled", "head", "headers_sent", "inbox", "kept", "request", "room", "stream",
        "timer", "work", "zipped",
    )  # fmt: skip

    def __init__(
        self,
        connection: "GrpcConnection",
        stream: Stream,
        head: CallHead,
        fields: list[Field],
        now_ms: int,
    ) -> None:
        self._connection = connection
        self._fields = fields
        self._callbacks: list[Callable[[], None]] | None = None
        self.stream = stream
        self.head = head
        self.arrived_ms = now_ms
        self.cancelled = False
        self.request: bytes | None = None  # the message, until the request's end is seen
        self.answered = False  # the end of its answer was handed over
        self.headers_sent = False
        self.added: AnswerExtra | None = None  # `extra`, if it was asked for
        self.zipped = False  # its headers announced gzip
        self.assembly: Assembly | None = None
        self.kept = 0  # bytes of an incomplete message, as counted by the connection
        self.inbox: Inbox | None = None
        self.work: asyncio.Future[object] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.room: asyncio.Future[None] | None = None

    @property
    def path(self) -> str:
        return self.head.path

    @property
    def peer(self) -> str:
        return self._connection.peer

    @property
    def local(self) -> str:
        return self._connection.local

    @property
    def connection_id(self) -> str:
        return self._connection.connection_id

    @property
    def certificate_name(self) -> str:
        return self._connection.certificate_name

    def metadata(self, name: str) -> str | None:
        if name.endswith(BINARY_SUFFIX):
            return None
        value = self._value(name)
        return None if value is None else text_of(value)

    def metadata_bin(self, name: str) -> bytes | None:
        if not name.endswith(BINARY_SUFFIX):
            return None
        value = self._value(name)
        if value is None:
            return None
        try:
            return binary_values(value.partition(b",")[0])[0]
        except ValueError:
            return None

    def all_metadata(self) -> list[tuple[str, str | bytes]]:
        return shown(self._fields, REGULAR)

    def remaining_ms(self) -> int | None:
        timeout_ms = self.head.timeout_ms
        if timeout_ms is None:
            return None
        return max(0, self.arrived_ms + timeout_ms - self._connection.now_ms())

    def on_cancel(self, callback: Callable[[], None]) -> None:
        if self.cancelled:
            callback()
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    @property
    def extra(self) -> AnswerExtra:
        if self.added is None:
            self.added = AnswerExtra(headers_sent=self.headers_sent or self.answered)
        return self.added

    def cancel(self) -> None:
        """The answer will not get out whole: stop the work, run what was asked for this case."""
        if self.cancelled:
            return
        self.cancelled = True
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            try:
                callback()
            except Exception:
                log.exception("cancel callback failed", extra={"rpc": self.path})
        if self.work is not None:
            self.work.cancel()

    def release(self) -> None:
        """The stream is over; keep nothing alive."""
        self._callbacks = None
        if self.inbox is not None:
            self.inbox.close()

    def wake(self) -> None:
        """There is room for more output."""
        if self.room is not None and not self.room.done():
            self.room.set_result(None)

    @property
    def is_bidi(self) -> bool:
        return self.head.method.kind is MethodKind.BIDI_STREAM

    def _value(self, name: str) -> bytes | None:
        wanted = name.encode()
        for found, value, _, kind in self._fields:
            if found == wanted and kind == REGULAR:
                return value
        return None


class Inbox:
    """Messages of a bidi call on their way to its handler.

    What they took of the stream's window is given back when the handler has read them all, so a
    handler that does not read stops its caller.

    Args:
        consumed: told how many bytes to give back.
    """

    def __init__(self, consumed: Callable[[int], None]) -> None:
        self._messages: deque[bytes] = deque()
        self._consumed = consumed
        self._owed = 0
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None

    def put(self, messages: Sequence[bytes], bytes_count: int) -> None:
        """Messages for which `bytes_count` is not given back yet."""
        self._messages += messages
        self._owed += bytes_count
        self._wake()

    def close(self) -> None:
        self._ended = True
        self._wake()

    def __aiter__(self) -> "Inbox":
        return self

    async def __anext__(self) -> bytes:
        while not self._messages:
            if self._ended:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        message = self._messages.popleft()
        if not self._messages:
            owed, self._owed = self._owed, 0
            self._consumed(owed)
        return message

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
