"""Serves the calls of one connection from a method table.

    HEADERS ─→ opened ─→ body in pieces ─→ the message ─→ handler ─┬─ a value: answered now, no task
                                                                  ├─ a Later: who settles it answers
                                                                  ├─ a coroutine: a task, likewise
                                                                  └─ an iterator: a task that sends
    RST_STREAM, deadline, lost connection ─→ the call is cancelled: callbacks run, its work stops

A call with a deadline gets a timer only if it is not answered soon.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from inspect import isawaitable
from typing import Any, Final, cast

from latermq_broker.deferred import Later
from latermq_broker.services.call.handler import Method, MethodKind
from latermq_broker.transport.grpc import status
from latermq_broker.transport.grpc.answering import Answers
from latermq_broker.transport.grpc.arrivals import Arrivals
from latermq_broker.transport.grpc.call import LeanCall, Origin
from latermq_broker.transport.grpc.call_deadlines import Deadlines
from latermq_broker.transport.grpc.counts import REFUSED
from latermq_broker.transport.grpc.head import (
    BAD_TIMEOUT,
    EXPIRED,
    TOO_LARGE,
    CallHead,
    Meaning,
    Plain,
    Refusal,
    read,
    timeout_ms_of,
)
from latermq_broker.transport.grpc.open_calls import ConnectionCalls
from latermq_broker.transport.grpc.reply_memory import ConnectionReplies
from latermq_broker.transport.grpc.request_memory import SHORT_BYTES
from latermq_broker.transport.grpc.server_state import Shared
from latermq_broker.transport.grpc.turn import Turn
from latermq_h2.grpc_code import GrpcCode
from latermq_h2.hpack.encoder import encode
from latermq_h2.hpack.fields import Field
from latermq_h2.http2.connection import Connection
from latermq_h2.http2.frames import ConnectionFault, ErrorCode
from latermq_h2.http2.request import OVERSIZED, RequestHead
from latermq_h2.http2.stream import Stream
from latermq_h2.messages import (
    PREFIX,
    PREFIX_BYTES,
)

log = logging.getLogger("latermq.transport")

RUNNING_PER_STREAM_MAX: Final = 2  # handlers that still run, for each stream that may be open

INTERNAL: Final = "internal error"
TOO_MUCH: Final = "too much is sent at once"
_PLAIN_HEADERS: Final = encode([(b":status", b"200"), (b"content-type", b"text/plain")])
_PLAIN_TRAILERS: Final = encode([(b"x-end", b"1")])


class GrpcConnection:
    """The sink of one connection.

    Args:
        peer, local: `host:port`.
        wake: output was made outside of `Connection.receive`.
        sent: told what is to be done if a whole answer is lost, and with which byte of the
            connection that ends.
    """

    connection: Connection
    answers: Answers
    replies: ConnectionReplies
    _arrivals: Arrivals
    _deadlines: Deadlines

    def __init__(
        self,
        shared: Shared,
        peer: str,
        local: str,
        connection_id: str,
        wake: Callable[[], None],
        sent: Callable[[Callable[[], None], int], None],
    ) -> None:
        self.sent_unproved: Callable[[Callable[[], None]], None] | None = None
        """Told what is to be done if a connection breaks before its client has a whole answer."""
        self.origin = Origin(peer, local, connection_id, shared.now_ms)
        self.user = ""  # who called last; "": nobody, or none is asked for
        self.is_known = False  # a user has called on it, or anybody whom no user is asked for
        self._shared = shared
        self._sent = sent
        self._wake = wake
        self._turn = Turn(shared)
        self._now_ms = 0
        self._input_bytes = 0  # what came of the next frame
        self.calls = ConnectionCalls(shared.open, peer)

    def serve(self, connection: Connection) -> None:
        """Serve this connection; call once, before anything is received."""
        self.connection = connection
        shared = self._shared
        self.replies = ConnectionReplies(shared.replies, connection.outbound)
        self.answers = Answers(
            connection, self.replies, shared.gzip_from_bytes, shared.counts, self._wake, self.reset
        )
        self._arrivals = Arrivals(
            connection, shared, self.answers, self.calls, self._run, self._start_stream, self._wake
        )
        self._deadlines = Deadlines(self.answers, shared.counts, self._arrivals.unknown, self._wake)
        self.origin.replies, self.origin.give_up = self.replies, self._arrivals.give_up

    def receive(self, data: bytes, *, later: bool = False) -> None:
        """Handle input for the connection; the work it causes is bounded.

        Args:
            later: keep it for the next call: a stranger's is handled in its turn only.
        """
        now_ms = self._shared.now_ms()
        if later:
            self.connection.keep(data, now_ms)
        else:
            self._now_ms = now_ms
            self._turn.begin(now_ms)
            self.connection.receive(data, now_ms)
            if self._deadlines.opened:
                self._deadlines.look()
        self._turn.end(is_behind=self.connection.input_left)
        while self.connection.input_bytes != self._input_bytes:  # again, if that ended it
            self._count_input(self.connection.input_bytes)

    def lost(self) -> None:
        """Reset every call: the peer is lost, and what came is of no use any more."""
        self.connection.lost()
        self._count_input(0)
        self._turn.end(is_behind=False)
        self.replies.forget()
        self.calls.leave()

    def ask_proof(self) -> None:
        """Ask the peer whether it has read what was sent so far: `Connection.proofs` grows then."""
        self.connection.ask_proof()
        self._wake()

    def abort_all(self, code: GrpcCode, message: str) -> None:
        """End every call with this status."""
        for stream in list(self.connection.open.values()):
            if stream.call is not None and not stream.call.answered:
                self.answers.abort(stream.call, code, message)
        self._wake()

    # --- what the connection tells ----------------------------------------------------------

    def opened(self, stream: Stream, head: RequestHead, fields: list[Field], ended: bool) -> None:
        meaning = cast(Meaning | None, head.meaning)
        if meaning is None:
            meaning = TOO_LARGE if head is OVERSIZED else self._read(head)
        if not isinstance(meaning, CallHead):
            self._open_other(stream, meaning, ended)
            return
        timeout_ms = timeout_ms_of(fields)
        if timeout_ms is not None and timeout_ms <= 0:
            self._open_other(stream, BAD_TIMEOUT if timeout_ms < 0 else EXPIRED, ended)
            return
        shared = self._shared
        if len(self.answers.running) > RUNNING_PER_STREAM_MAX * shared.streams_max:
            shared.counts.add(REFUSED, "too many handlers still run")
            self.connection.streams.reset(stream, ErrorCode.REFUSED_STREAM)
            return
        refused = self.calls.open()
        if refused is not None:
            block = status.only(GrpcCode.RESOURCE_EXHAUSTED, refused.message)
            self.connection.outbound.end(stream, block)
            return
        shared.counts.calls += 1
        call = LeanCall(self.origin, stream, meaning, fields, self._now_ms, timeout_ms)
        stream.call = call
        if timeout_ms is not None or not ended:
            self._deadlines.opened.append(call)
        if call.is_bidi:
            call.inbox = self._arrivals.inbox_of(call)
        if ended:
            self._arrivals.ended(call)

    def received(self, stream: Stream, data: bytes, ended: bool) -> None:
        call = cast(LeanCall | Plain | None, stream.call)
        if not isinstance(call, LeanCall):
            self.connection.streams.consume(stream, len(data))
            if ended and call is not None:
                self._answer_plain(stream, call)
            return
        if call.answered or call.refused:  # its answer is not out yet; no window is given for this
            return
        if ended and call.request is None and not call.is_bidi and len(data) >= PREFIX_BYTES:
            flag, length = PREFIX.unpack_from(data)
            fits = length <= self._shared.bytes_max(call.head.method)
            if flag == 0 and fits and length == len(data) - PREFIX_BYTES:
                if length > SHORT_BYTES:
                    self._arrivals.run_counted(call, data[PREFIX_BYTES:])
                else:
                    self._run(call, data[PREFIX_BYTES:])
                return
        self._arrivals.put(call, data, ended)

    def reset(self, stream: Stream, code: int) -> None:
        call, stream.call = stream.call, None
        if isinstance(call, LeanCall):
            call.cancel()
            self._release(call)

    def roomy(self, stream: Stream) -> None:
        if isinstance(stream.call, LeanCall):
            stream.call.wake()

    def completed(self, stream: Stream) -> None:
        call, stream.call = stream.call, None
        if isinstance(call, LeanCall):
            self._release(call)
            if call.lost is not None:
                outbound = self.connection.outbound
                self._sent(call.lost, outbound.taken + outbound.size)
            if call.unheard is not None and self.sent_unproved is not None:
                self.sent_unproved(call.unheard)

    # --- from bytes to the handler ----------------------------------------------------------

    def _read(self, head: RequestHead) -> Meaning:
        meaning = head.meaning = read(head, self._shared.methods, self._shared.plain)
        return meaning

    def _open_other(self, stream: Stream, meaning: Refusal | Plain, ended: bool) -> None:
        if isinstance(meaning, Refusal):
            if meaning.why:
                self._shared.counts.add(REFUSED, meaning.why)
            self.connection.outbound.end(stream, meaning.block)
        elif ended:
            self._answer_plain(stream, meaning)
        else:
            stream.call = meaning

    def _answer_plain(self, stream: Stream, plain: Plain) -> None:
        self.connection.outbound.send_whole(
            stream, _PLAIN_HEADERS, (plain.body,), len(plain.body), _PLAIN_TRAILERS
        )

    def _run(self, call: LeanCall, request: bytes) -> None:
        """Call a handler that takes one message; answer now if it did."""
        if self._turn.is_over():
            self.connection.hold()
        method = call.head.method
        self.calls.know(call)
        if not self._may_answer(call, method):
            return
        try:
            result: Any = method.handler(request, call)  # type: ignore[arg-type]
            if call.user is not None or (method.admit is None and not method.public):
                self.is_known = True
                if call.user is not None:
                    self.user = call.user.access_key
            if type(result) is Later:
                self.answers.later(call, result)
            elif type(result) is bytes and method.kind is MethodKind.UNARY:
                self.answers.answer(call, result)
            elif type(result) is list and method.kind is MethodKind.SERVER_STREAM:
                self.answers.answer_all(call, result)
            else:
                self._run_on(call, result)
        except Exception as error:  # noqa: BLE001  whatever a handler raises ends its call only
            self.answers.failed(call, error)

    def _may_answer(self, call: LeanCall, method: Method) -> bool:
        """Refuse a call whose answer would wait behind too much that its caller does not read."""
        if method.public and method.kind is not MethodKind.UNARY:
            refused = self.calls.set_apart(call, self._now_ms)
            if refused is not None:
                self.answers.abort(call, GrpcCode.RESOURCE_EXHAUSTED, refused.message)
                return False
        replies = self.replies
        gathers = method.reply_bytes and method.kind is MethodKind.UNARY  # a stream waits for room
        if replies.full or (gathers and replies.room() <= 0):
            self.answers.abort(call, GrpcCode.RESOURCE_EXHAUSTED, replies.why())
            return False
        if gathers:
            call.reserve_reply(method.reply_bytes)
        return True

    def _run_on(self, call: LeanCall, result: Any) -> None:
        """Answer for a handler that does so later, or with something rarer than a list."""
        if isinstance(result, AsyncIterator):
            self.answers.each(call, result)
        elif isawaitable(result):
            self.answers.awaited(call, asyncio.ensure_future(result))
        elif call.head.method.kind is MethodKind.UNARY:
            self.answers.answer(call, bytes(result))
        else:
            self.answers.answer_all(call, result)

    def _start_stream(self, call: LeanCall) -> None:
        """Call a handler of a stream, once something of it came; again does nothing."""
        if call.is_started:
            return
        call.is_started = True
        if self._turn.is_over():
            self.connection.hold()
        if not self._may_answer(call, call.head.method):
            return
        try:
            elements = cast(Any, call.head.method.handler)(call.inbox, call)
        except Exception as error:  # noqa: BLE001  whatever a handler raises ends its call only
            self.answers.failed(call, error)
        else:
            self.answers.each(call, elements)

    def _count_input(self, bytes_count: int) -> None:
        """Count what came of a frame, or of a header block, that is not whole."""
        more, self._input_bytes = bytes_count - self._input_bytes, bytes_count
        self.origin.held_bytes += more
        if not self._shared.memory.add_input(more):
            self.connection.fail(ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, TOO_MUCH))

    def _release(self, call: LeanCall) -> None:
        self.calls.close(call)
        self._shared.memory.forget(call)
        if call.reserved:
            call.release_reply()
        self._deadlines.disarm(call)
        call.release()
