"""gRPC calls over one connection, without I/O: messages, status and deadlines.

    start ─→ request out ─→ head ─→ messages ─→ trailers: the status
    deadline, `cancel`, RST_STREAM, a lost connection ─→ a status of our own

A call ends once; `wake` is called for each piece of news.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from latermq._connection.lean.limits import ConnectionLimits
from latermq_h2.grpc_code import GrpcCode
from latermq_h2.hpack.fields import Field, value_of
from latermq_h2.http2.client_connection import ClientConnection
from latermq_h2.http2.client_streams import ClientStream
from latermq_h2.http2.frames import ErrorCode
from latermq_h2.http2.limits import Keepalive
from latermq_h2.http2.response import ABSENT, ResponseHead
from latermq_h2.messages import ENCODINGS, PREFIX, PREFIX_BYTES, Assembly, Encoding, MessageFault

UNENDED: Final = -1
# Messages of a stream that nobody read yet, before its sender has to wait.
UNREAD_BYTES_MAX: Final = 1 << 20
HTTP_OK: Final = 200
CONTENT_TYPE: Final = b"application/grpc"
_OF_HTTP: Final = {
    400: GrpcCode.INTERNAL,
    401: GrpcCode.UNAUTHENTICATED,
    403: GrpcCode.PERMISSION_DENIED,
    404: GrpcCode.UNIMPLEMENTED,
    429: GrpcCode.UNAVAILABLE,
    502: GrpcCode.UNAVAILABLE,
    503: GrpcCode.UNAVAILABLE,
    504: GrpcCode.UNAVAILABLE,
}
_OF_RESET: Final = {
    int(ErrorCode.REFUSED_STREAM): GrpcCode.UNAVAILABLE,
    int(ErrorCode.CANCEL): GrpcCode.CANCELLED,
    int(ErrorCode.ENHANCE_YOUR_CALM): GrpcCode.RESOURCE_EXHAUSTED,
    int(ErrorCode.INADEQUATE_SECURITY): GrpcCode.PERMISSION_DENIED,
}


class Call:
    """One call.

    Fields:
        code: UNENDED, then its gRPC status; `details` is its text.
        refused: surely nobody looked at it, so that it may be made again.
        messages: what came and was not read.
    """

    __slots__ = (
        "assembly", "code", "deadline_ms", "details", "encoding", "messages", "owed", "refused",
        "stream", "unread_bytes", "wake",
    )  # fmt: skip

    def __init__(self, wake: Callable[[], None], deadline_ms: int | None) -> None:
        self.stream: ClientStream
        self.wake = wake
        self.deadline_ms = deadline_ms
        self.code = UNENDED
        self.details = ""
        self.refused = False
        self.encoding: Encoding | None = None
        self.assembly: Assembly | None = None
        self.messages: deque[bytes] = deque()
        self.unread_bytes = 0
        self.owed = 0  # bytes to give back when everything was read

    @property
    def ended(self) -> bool:
        return self.code != UNENDED


class Caller:
    """All calls of one connection, which it makes."""

    def __init__(self, limits: ConnectionLimits, keepalive: Keepalive, now_ms: int) -> None:
        self._message_bytes_max = limits.message_bytes_max
        self.connection = ClientConnection(self, limits, keepalive, now_ms)
        self.lost_why = ""
        self._deadline_ms: int | None = None  # the earliest of the calls; may be too early

    def start(
        self, block: bytes, request: bytes, deadline_ms: int | None, wake: Callable[[], None]
    ) -> Call:
        """Make a call whose request is this one message. `connection.accepts` holds."""
        call = self._new(deadline_ms, wake)
        size = len(request)
        pieces = (PREFIX.pack(0, size), request)
        stream = self.connection.request(block, pieces, PREFIX_BYTES + size)
        stream.call = call
        call.stream = stream
        return call

    def start_stream(self, block: bytes, deadline_ms: int | None, wake: Callable[[], None]) -> Call:
        """Make a call whose messages are given to `write`. `connection.accepts` holds."""
        call = self._new(deadline_ms, wake)
        stream = self.connection.open_request(block)
        stream.call = call
        call.stream = stream
        return call

    def write(self, call: Call, message: bytes) -> None:
        """Write another message of the call, which has not ended."""
        outbound = self.connection.outbound
        outbound.data(call.stream, PREFIX.pack(0, len(message)))
        outbound.data(call.stream, message)

    def has_room(self, call: Call) -> bool:
        """Tell whether its messages leave as they are written; else its `wake` tells."""
        return call.ended or self.connection.outbound.has_room(call.stream)

    def want_room(self, call: Call) -> None:
        self.connection.outbound.want_room(call.stream)

    def read(self, call: Call) -> bytes | None:
        """Take the next message, None when there is none now."""
        if not call.messages:
            return None
        message = call.messages.popleft()
        call.unread_bytes -= len(message)
        if call.owed and not call.messages:
            owed, call.owed = call.owed, 0
            self.connection.streams.consume(call.stream, owed)
        return message

    def cancel(self, call: Call) -> None:
        """End a call that nobody waits for any more."""
        if not call.ended:
            self.connection.streams.reset(call.stream, ErrorCode.CANCEL)
            self._end(call, GrpcCode.CANCELLED, "cancelled")

    def next_deadline(self) -> int | None:
        """Return when to call `on_timer`; too early does no harm."""
        of_calls, of_line = self._deadline_ms, self.connection.next_deadline()
        if of_calls is None or (of_line is not None and of_line < of_calls):
            return of_line
        return of_calls

    def on_timer(self, now_ms: int) -> None:
        """End the calls whose time is up, and do what the connection has due."""
        if self._deadline_ms is not None and self._deadline_ms <= now_ms:
            self._deadline_ms = None
            unanswered = False
            for stream in list(self.connection.open.values()):
                call: Call = stream.call
                if call.deadline_ms is None:
                    continue
                if call.deadline_ms <= now_ms:
                    self.connection.streams.reset(stream, ErrorCode.CANCEL)
                    self._end(call, GrpcCode.DEADLINE_EXCEEDED, "deadline exceeded")
                    unanswered = True
                else:
                    self._watch(call.deadline_ms)
            if unanswered:
                self.connection.suspect(now_ms)
        self.connection.on_timer(now_ms)

    # --- what the connection tells ----------------------------------------------------------

    def headed(
        self, stream: ClientStream, head: ResponseHead, fields: list[Field], ended: bool
    ) -> None:
        call: Call = stream.call
        if head.status != HTTP_OK and head.grpc_status == ABSENT:
            status = _OF_HTTP.get(head.status, GrpcCode.UNKNOWN)
            self._end_early(call, status, f"HTTP status {head.status}")
        elif not head.content_type.startswith(CONTENT_TYPE):
            self._end_early(call, GrpcCode.UNKNOWN, "the answer is not gRPC")
        elif ended:
            self.ended(stream, head, fields)
        else:
            call.encoding = ENCODINGS.get(head.encoding)

    def received(self, stream: ClientStream, data: bytes) -> None:
        call: Call = stream.call
        if call.code != UNENDED:
            return
        if call.assembly is None and len(data) >= PREFIX_BYTES:
            flag, length = PREFIX.unpack_from(data)
            if flag == 0 and length == len(data) - PREFIX_BYTES:  # the usual answer
                self._arrived(call, [data[PREFIX_BYTES:]], length, len(data))
                return
        assembly = call.assembly
        if assembly is None:
            assembly = call.assembly = Assembly(self._message_bytes_max, call.encoding)
        try:
            messages = assembly.feed(data)
        except MessageFault as fault:
            self._end_early(call, GrpcCode(fault.code), str(fault))
            return
        self._arrived(call, messages, sum(map(len, messages)), len(data))

    def ended(
        self, stream: ClientStream, trailers: ResponseHead | None, fields: list[Field]
    ) -> None:
        call: Call = stream.call
        if trailers is None or trailers.grpc_status == ABSENT:
            self._end(call, GrpcCode.UNKNOWN, "an answer without a status")
        elif trailers.grpc_status != GrpcCode.OK:
            self._end(call, trailers.grpc_status, _text(fields))
        elif call.assembly is not None and call.assembly.bytes_kept:
            self._end(call, GrpcCode.INTERNAL, "the answer ends inside a message")
        else:
            self._end(call, GrpcCode.OK, "")

    def reset(self, stream: ClientStream, code: int) -> None:
        call: Call = stream.call
        if code == ErrorCode.REFUSED_STREAM and not stream.headed:
            call.refused = True
            self._end(call, GrpcCode.UNAVAILABLE, self.connection.farewell or "refused")
            return
        if self.connection.over:
            why = self.lost_why or self.connection.farewell or "the connection broke"
            if (fault := self.connection.fault) is not None:
                silent = fault.code is ErrorCode.NO_ERROR  # the keepalive's, or of a late answer
                why = "not even a PING is answered" if silent else str(fault)
            self._end(call, GrpcCode.UNAVAILABLE, why)
            return
        name = ErrorCode(code).name if code in set(ErrorCode) else str(code)
        self._end(call, _OF_RESET.get(code, GrpcCode.INTERNAL), f"the stream was reset: {name}")

    def roomy(self, stream: Any) -> None:
        stream.call.wake()

    # --- inside ------------------------------------------------------------------------------

    def _new(self, deadline_ms: int | None, wake: Callable[[], None]) -> Call:
        if deadline_ms is not None:
            self._watch(deadline_ms)
        return Call(wake, deadline_ms)

    def _watch(self, deadline_ms: int) -> None:
        if self._deadline_ms is None or deadline_ms < self._deadline_ms:
            self._deadline_ms = deadline_ms

    def _arrived(
        self, call: Call, messages: list[bytes], messages_bytes: int, bytes_count: int
    ) -> None:
        """Take messages, and the bytes of window that they and the next one's beginning took."""
        call.messages += messages
        call.unread_bytes += messages_bytes
        if call.unread_bytes > UNREAD_BYTES_MAX:
            call.owed += bytes_count
        else:
            self.connection.streams.consume(call.stream, bytes_count)
        if messages:
            call.wake()

    def _end_early(self, call: Call, status: GrpcCode, details: str) -> None:
        self.connection.streams.reset(call.stream, ErrorCode.CANCEL)
        self._end(call, status, details)

    def _end(self, call: Call, code: int, details: str) -> None:
        if call.code == UNENDED:
            call.code = int(code)
            call.details = details
            call.wake()


def _text(fields: list[Field]) -> str:
    for entry in fields:
        if entry.name == b"grpc-message":
            return unquote_to_bytes(value_of(entry)).decode("utf-8", "replace")
    return ""
