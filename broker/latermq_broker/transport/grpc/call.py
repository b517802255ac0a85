"""One call: what its handler sees, and the state its connection keeps."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from latermq_broker.catalog.access import User
from latermq_broker.services.call.handler import CallAborted, MethodKind
from latermq_broker.transport.grpc.head import CallHead
from latermq_broker.transport.grpc.metadata import (
    BINARY_SUFFIX,
    AnswerExtra,
    binary_values,
    shown,
    text_of,
)
from latermq_broker.transport.grpc.one_by_one import OneByOne
from latermq_broker.transport.grpc.reply_memory import ConnectionReplies
from latermq_h2.grpc_code import GrpcCode
from latermq_h2.hpack.fields import REGULAR, Field, value_of
from latermq_h2.http2.stream import Stream
from latermq_h2.messages import Assembly, MessageFault, SingleMessage, grown_bytes

log = logging.getLogger("latermq.transport")

CALL_BYTES: Final = 2_048  # a stream, a call, its buffer and its places in dictionaries
FIELD_BYTES: Final = 192  # a header field, beside its text


class Origin:
    """Where calls come from: what those of one connection know of it, and count together.

    Args:
        peer, local: `host:port`.
    """

    replies: ConnectionReplies
    give_up: Callable[["LeanCall", GrpcCode, str], None]
    """Ends a call whose request is not taken, and keeps nothing of it."""

    def __init__(
        self, peer: str, local: str, connection_id: str, now_ms: Callable[[], int]
    ) -> None:
        self.peer = peer
        self.local = local
        self.connection_id = connection_id
        self.certificate_name = ""
        self.now_ms = now_ms
        self.held_bytes = 0  # for its requests and what came of the next frame


class LeanCall:
    """A `Call`; over when its stream is."""

    __slots__ = (
        "_callbacks", "_fields", "added", "admitted", "answered", "arrived_ms", "cancelled",
        "head", "headers_sent", "held_bytes", "inbox", "is_apart", "is_started", "known",
        "lost", "origin", "own_bytes", "refused", "request", "reserved", "room", "stream",
        "timeout_ms", "timer", "unheard", "user", "work", "zipped",
    )  # fmt: skip

    def __init__(
        self,
        origin: Origin,
        stream: Stream,
        head: CallHead,
        fields: list[Field],
        now_ms: int,
        timeout_ms: int | None,
    ) -> None:
        self._fields = fields
        self._callbacks: list[Callable[[], None]] | None = None
        self.lost: Callable[[], None] | None = None  # to be done if its whole answer is
        self.unheard: Callable[[], None] | None = None  # if the peer never proves to have it
        self.origin = origin
        self.stream = stream
        self.head = head
        self.arrived_ms = now_ms
        self.timeout_ms = timeout_ms
        self.cancelled = False
        self.user: User | None = None
        self.admitted = False  # its method was asked whether its request may be kept
        self.refused = False  # it may not, and nothing more is; its answer may be kept back
        self.request: SingleMessage | None = None  # what came of it, if not all came at once
        self.own_bytes = 0  # what it takes without its request, once it was admitted
        self.held_bytes = 0  # for its request, as `RequestMemory` counts
        self.answered = False  # the end of its answer was handed over
        self.headers_sent = False
        self.added: AnswerExtra | None = None  # `extra`, if it was asked for
        self.zipped = False  # its headers announced gzip
        self.known = False  # it has said what it wants
        self.is_started = False  # the handler of a stream was called
        self.is_apart = False  # counted apart, because it has not
        self.reserved = 0  # bytes gathered for the answer, as counted by the connection
        self.inbox: Inbox | None = None
        self.work: asyncio.Future[object] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.room: asyncio.Future[None] | None = None

    @property
    def path(self) -> str:
        return self.head.path

    @property
    def peer(self) -> str:
        return self.origin.peer

    @property
    def local(self) -> str:
        return self.origin.local

    @property
    def connection_id(self) -> str:
        return self.origin.connection_id

    @property
    def certificate_name(self) -> str:
        return self.origin.certificate_name

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

    def all_metadata(self, prefixes: tuple[str, ...] = ("",)) -> list[tuple[str, str | bytes]]:
        return shown(self._fields, prefixes)

    def remaining_ms(self) -> int | None:
        if self.timeout_ms is None:
            return None
        return max(0, self.arrived_ms + self.timeout_ms - self.origin.now_ms())

    def on_cancel(self, callback: Callable[[], None]) -> None:
        if self.cancelled:
            callback()
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def on_lost(self, callback: Callable[[], None]) -> None:
        self.lost = callback

    def on_unheard(self, callback: Callable[[], None]) -> None:
        self.unheard = callback

    @property
    def extra(self) -> AnswerExtra:
        if self.added is None:
            self.added = AnswerExtra(headers_sent=self.headers_sent or self.answered)
        return self.added

    def reply_room(self) -> int:
        return self.origin.replies.check()

    def reserve_reply(self, bytes_count: int) -> None:
        if self.stream.call is not self:
            return  # it is over
        self.reserved += bytes_count
        self.origin.replies.reserve(bytes_count)

    def release_reply(self) -> None:
        """Let go of what was reserved: it is output from now on, or nothing at all."""
        self.origin.replies.release(self.reserved)
        self.reserved = 0

    async def more_room(self) -> None:
        """Return when there may be room for more output, or the call is cancelled."""
        self.room = asyncio.get_running_loop().create_future()
        await self.room

    def cancel(self) -> None:
        """Stop the work, as the answer will not get out whole; run what was asked for this case."""
        if self.cancelled:
            return
        self.cancelled = True
        callbacks, self._callbacks = self._callbacks, None
        self.lost = self.unheard = None  # its answer, if it has one, says that it failed
        for callback in callbacks or ():
            try:
                callback()
            except Exception:
                log.exception("cancel callback failed", extra={"rpc": self.path})
        if self.work is not None:
            self.work.cancel()

    def release(self) -> None:
        """Keep nothing alive: the stream is over."""
        self._callbacks = None
        self.drop_input()
        self.inbox = None

    def drop_input(self) -> None:
        """Keep nothing of the request; a handler that reads on finds its end."""
        self.request = None
        if self.inbox is not None:
            self.inbox.clear()

    def weighed(self) -> int:
        """Estimate what it takes in memory without its request."""
        texts = sum([len(name) + len(value) for name, value, _, _ in self._fields])
        return CALL_BYTES + FIELD_BYTES * len(self._fields) + texts

    def wake(self) -> None:
        """Wake who waits for room for more output."""
        if self.room is not None and not self.room.done():
            self.room.set_result(None)

    @property
    def is_bidi(self) -> bool:
        return self.head.method.kind is MethodKind.BIDI_STREAM

    def _value(self, name: str) -> bytes | None:
        wanted = name.encode()
        for entry in self._fields:
            if entry[0] == wanted and entry[3] <= REGULAR:
                return value_of(entry)
        return None


class Inbox:
    """Messages of a bidi call on their way to its handler, who takes them one at a time.

    They wait as they came, compressed if they were; only the one that the handler has is inflated.
    What they took of the stream's window is given back when the handler has read them all, so a
    handler that does not read stops its caller.

    Args:
        consumed: told how many bytes of the window to give back.
        holds: told how many bytes are held now, and whether a message waits for its rest; may
            raise CallAborted.
        turns: of the server's long messages, each of which is milliseconds of work.
    """

    def __init__(
        self,
        assembly: Assembly,
        consumed: Callable[[int], None],
        holds: Callable[[int, bool], None],
        turns: OneByOne,
    ) -> None:
        self._turns = turns
        self._assembly = assembly
        self._consumed = consumed
        self._holds = holds
        self._owed = 0
        self._taken_bytes = 0  # of the message that the handler has
        self._waits = False  # the handler, for the rest of a message
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None

    def put(self, data: bytes) -> None:
        """Keep what came. Raises CallAborted: it is too much."""
        self._assembly.put(data)
        self._owed += len(data)
        self._holds(self._held_bytes(), self._waits)
        self._wake()

    @property
    def has_message(self) -> bool:
        """Tell whether something of a message came."""
        return self._assembly.bytes_kept > 0

    def close(self) -> None:
        """Close the inbox: nothing more comes."""
        self._ended = True
        self._wake()

    def clear(self) -> None:
        """Drop what waits and close the inbox: nothing more is wanted."""
        self._assembly.clear()
        self._owed = 0
        self.close()

    def __aiter__(self) -> "Inbox":
        return self

    async def __anext__(self) -> bytes:
        """Wait for the next message and return it.

        Raises:
            CallAborted: it is none, too large, or not whole when the client ends its stream.
        """
        while True:
            if self._assembly.is_long:
                await self._turns.turn()
            message = self._take()
            if message is not None:
                return message
            if self._ended:
                if self._assembly.bytes_kept:
                    raise CallAborted(GrpcCode.INTERNAL, "the request ends inside a message")
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def _take(self) -> bytes | None:
        self._taken_bytes = 0
        try:
            message = self._assembly.take(self._grow)
        except MessageFault as fault:
            raise CallAborted(fault.code, str(fault)) from None
        if message is not None:
            self._taken_bytes = len(message)
            self._waits = False
            self._holds(self._held_bytes(), False)
            return message
        self._waits = self._assembly.bytes_kept > 0 and not self._ended
        self._holds(self._held_bytes(), self._waits)
        if self._owed:
            owed, self._owed = self._owed, 0
            self._consumed(owed)
        return None

    def _grow(self, bytes_count: int) -> None:
        self._taken_bytes = bytes_count
        self._holds(self._held_bytes(), False)

    def _held_bytes(self) -> int:
        return grown_bytes(self._assembly.bytes_kept) + self._taken_bytes

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
