"""How the calls of one connection are answered: at once, later, or element by element.

Whatever a handler does, its call ends with exactly one status, or with the reset that its caller
sent; an answer that was handed over is not taken back.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from typing import Any, Final

from latermq_broker.deferred import Later
from latermq_broker.services.call.handler import CallAborted, MethodKind
from latermq_broker.services.call.late_elements import then_closed
from latermq_broker.transport.grpc import status
from latermq_broker.transport.grpc.call import LeanCall
from latermq_broker.transport.grpc.counts import STATUS, Counts
from latermq_broker.transport.grpc.reply_memory import ConnectionReplies
from latermq_h2.grpc_code import GrpcCode
from latermq_h2.http2.connection import Connection
from latermq_h2.http2.frames import ConnectionFault, ErrorCode
from latermq_h2.http2.stream import Stream
from latermq_h2.messages import PREFIX, PREFIX_BYTES, framed

log = logging.getLogger("latermq.transport")

INTERNAL: Final = "internal error"
pack: Final = PREFIX.pack


class Answers:
    """Answers the calls of one connection.

    Args:
        gzip_from_bytes: messages from here on are compressed, if the caller takes it; 0: none.
        wake: output was made outside of `Connection.receive`.
        ended: told of a stream that was reset here.
    """

    def __init__(
        self,
        connection: Connection,
        replies: ConnectionReplies,
        gzip_from_bytes: int,
        counts: Counts,
        wake: Callable[[], None],
        ended: Callable[[Stream, int], None],
    ) -> None:
        self.running: set[asyncio.Future[Any]] = set()
        self._connection = connection
        self._outbound = connection.outbound
        self._streams = connection.streams
        self._replies = replies
        self._gzip_from_bytes = gzip_from_bytes
        self._counts = counts
        self._wake = wake
        self._ended = ended
        self._loop = asyncio.get_running_loop()

    def answer(self, call: LeanCall, message: bytes) -> None:
        """Send a whole answer of one message."""
        gzip_from = self._gzip_from(call)
        prefix, body = framed(message, gzip_from)
        if call.added is None:  # nearly always
            headers = status.HEADERS_GZIP if gzip_from else status.HEADERS
            trailers = status.TRAILERS_OK
        else:
            headers, trailers = self._headers(call, gzip_from), self._trailers(call)
        call.answered = True
        if call.reserved:
            call.release_reply()
        self._outbound.send_whole(
            call.stream, headers, (prefix, body), PREFIX_BYTES + len(body), trailers
        )

    def answer_all(self, call: LeanCall, messages: Iterable[bytes]) -> None:
        """Send a whole answer of these messages."""
        gzip_from = self._gzip_from(call)
        headers, trailers = self._headers(call, gzip_from), self._trailers(call)
        pieces: list[bytes] = []
        for message in messages:
            pieces += framed(message, gzip_from) if gzip_from else (pack(0, len(message)), message)
        size = sum(map(len, pieces))
        call.answered = True
        if call.reserved:
            call.release_reply()
        self._outbound.send_whole(call.stream, headers, pieces, size, trailers)

    def _gzip_from(self, call: LeanCall) -> int:
        if not call.head.accepts_gzip:
            return 0
        return 1 if call.added is not None and call.added.compress else self._gzip_from_bytes

    def _headers(self, call: LeanCall, gzip_from: int) -> bytes:
        block = status.HEADERS_GZIP if gzip_from else status.HEADERS
        return block if call.added is None else block + call.added.header_block()

    def _trailers(self, call: LeanCall) -> bytes:
        block = status.TRAILERS_OK
        return block if call.added is None else block + call.added.trailer_block()

    def abort(self, call: LeanCall, code: GrpcCode, message: str) -> None:
        """End the call with a status, whatever it is at."""
        if call.answered or not call.stream.output_open:
            return
        call.answered = True
        self._counts.add(STATUS, code.name)
        stream = call.stream
        if call.added is not None and call.added.headers and not call.headers_sent:
            self.send_headers(call)
        block = status.trailers(code, message) if call.headers_sent else status.only(code, message)
        if call.added is not None:
            block += call.added.trailer_block()
        call.cancel()
        self._outbound.end(stream, block)

    def failed(self, call: LeanCall, error: BaseException) -> None:
        """End a call whose handler raised: with the status of a CallAborted, or UNKNOWN."""
        if isinstance(error, CallAborted):
            if error.ends_connection:
                fault = ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, error.message)
                self._connection.fail(fault)
                self._wake()
            else:
                self.abort(call, error.code, error.message)
            return
        if not call.cancelled:
            log.error("handler failed", extra={"rpc": call.path}, exc_info=error)
        self.abort(call, GrpcCode.UNKNOWN, INTERNAL)

    def later(self, call: LeanCall, later: Later[Any]) -> None:
        """Answer with what it is settled with; whoever settles it answers, without a task."""
        later.listen(partial(self._settled, call))

    def awaited(self, call: LeanCall, future: asyncio.Future[Any]) -> None:
        """Answer with the future's result, once it has it."""
        self._work(call, future)
        future.add_done_callback(partial(self._done, call))

    def each(self, call: LeanCall, elements: AsyncIterator[bytes]) -> None:
        """Answer with the elements, as they come."""
        send = partial(self._send_each, call, elements)
        self._work(call, self._loop.create_task(then_closed(send, elements)))

    def _work(self, call: LeanCall, work: asyncio.Future[Any]) -> None:
        call.work = work
        self.running.add(work)
        work.add_done_callback(self.running.discard)
        if call.cancelled:
            work.cancel()

    def _settled(self, call: LeanCall, later: Later[Any]) -> None:
        self._answer_late(call, later.error, later.value)

    def _done(self, call: LeanCall, future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            self._answer_late(call, CallAborted(GrpcCode.CANCELLED, "cancelled"), None)
        elif (error := future.exception()) is not None:
            self._answer_late(call, error, None)
        else:
            self._answer_late(call, None, future.result())

    def _answer_late(self, call: LeanCall, error: BaseException | None, value: Any) -> None:
        """Answer when a handler ended after it was called; its call may be over."""
        if call.stream.call is not call or call.answered:
            if error is not None and not isinstance(error, CallAborted):
                log.error("handler failed", extra={"rpc": call.path}, exc_info=error)
            return
        if error is not None:
            self.failed(call, error)
        elif call.head.method.kind is MethodKind.UNARY and not call.refused:
            self.answer(call, value)
        else:
            self.answer_all(call, value)
        self._wake()

    async def _send_each(self, call: LeanCall, elements: AsyncIterator[bytes]) -> None:
        """Send what the handler yields; its headers at once, or before the first."""
        outbound, stream = self._outbound, call.stream
        if call.head.method.headers_first and not call.headers_sent:
            self.send_headers(call)
        reply_bytes = call.head.method.reply_bytes
        try:
            if reply_bytes:
                await self._replies.wait(call, reply_bytes)
            async for element in elements:
                if call.cancelled:
                    break
                if not call.headers_sent:
                    self.send_headers(call)
                if call.reserved:
                    call.release_reply()
                for piece in framed(element, self._gzip_from(call) if call.zipped else 0):
                    outbound.data(stream, piece)
                self._wake()
                while not outbound.has_room(stream) and not call.cancelled:
                    outbound.want_room(stream)
                    await call.more_room()
                if reply_bytes:
                    await self._replies.wait(call, reply_bytes)
        except asyncio.CancelledError:
            if not call.cancelled:
                self.abort(call, GrpcCode.CANCELLED, "cancelled")
                self._wake()
            raise
        except Exception as error:  # noqa: BLE001  whatever a handler raises ends its call only
            call.work = None  # it ends by itself
            self.failed(call, error)
        else:
            if not call.cancelled:
                if not call.headers_sent:
                    self.send_headers(call)
                call.answered = True
                outbound.end(stream, self._trailers(call))
        finally:
            self._wake()

    def send_headers(self, call: LeanCall) -> None:
        gzip_from = self._gzip_from(call)
        call.zipped = gzip_from > 0
        self._outbound.headers(call.stream, self._headers(call, gzip_from))
        call.headers_sent = True
        if call.added is not None:
            call.added.headers_sent = True
        self._wake()

    def reset(self, stream: Stream) -> None:
        """End a call whose answer was handed over and is not read."""
        self._streams.reset(stream, ErrorCode.CANCEL)
        self._ended(stream, ErrorCode.CANCEL)
