"""From bytes to whole requests: what one connection keeps of them until their handlers have them.

Before anything is kept, the method is asked whether the call may come in at all. A unary request is
gathered in one buffer; the messages of a stream wait as they came. All of it is counted by the
server's `RequestMemory`, which may refuse it.
"""

from collections.abc import Callable
from functools import partial

from latermq_broker.deferred import Later
from latermq_broker.services.call.handler import CallAborted
from latermq_broker.transport.grpc.answering import Answers
from latermq_broker.transport.grpc.call import Inbox, LeanCall
from latermq_broker.transport.grpc.counts import REFUSED
from latermq_broker.transport.grpc.open_calls import ConnectionCalls
from latermq_broker.transport.grpc.request_memory import SHORT_BYTES
from latermq_broker.transport.grpc.server_state import Shared
from latermq_h2.grpc_code import GrpcCode
from latermq_h2.http2.connection import Connection
from latermq_h2.messages import Assembly, MessageFault, SingleMessage, grown_bytes


class Arrivals:
    """Collects the requests of one connection until they are whole, then calls their handlers.

    Args:
        run: calls the handler of a call with its request.
        start_stream: calls the handler of a stream; again does nothing.
        wake: output was made.
    """

    def __init__(
        self,
        connection: Connection,
        shared: Shared,
        answers: Answers,
        calls: ConnectionCalls,
        run: Callable[[LeanCall, bytes], None],
        start_stream: Callable[[LeanCall], None],
        wake: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._shared = shared
        self._answers = answers
        self._calls = calls
        self._run = run
        self._start_stream = start_stream
        self._wake = wake

    def put(self, call: LeanCall, data: bytes, ended: bool) -> None:
        """Keep a piece of a request that did not come at once; give up what may not be kept."""
        try:
            self._keep(call, data, ended)
        except CallAborted as error:
            self.give_up(call, error.code, error.message)
        except MessageFault as fault:
            self.give_up(call, fault.code, str(fault))
        else:
            if ended and not (call.answered or call.refused):
                self.ended(call)

    def inbox_of(self, call: LeanCall) -> Inbox:
        """Make the inbox in which the messages of a stream wait for its handler."""
        assembly = Assembly(self._shared.bytes_max(call.head.method), call.head.encoding)
        holds = partial(self._holds, call)
        return Inbox(assembly, partial(self._consumed, call), holds, self._shared.long_messages)

    def give_up(self, call: LeanCall, code: GrpcCode, message: str) -> None:
        """End a call whose request is not taken; keep nothing of it."""
        self._shared.memory.forget(call)
        call.drop_input()
        if call.answered:  # and that is not read: nobody waits for more
            self._answers.reset(call.stream)
        else:
            self._answers.abort(call, code, message)
        self._wake()

    def unknown(self, call: LeanCall) -> None:
        """Set apart a call that had not said what it wants when a read ended, or that is public."""
        if not (call.is_bidi or self._admit(call)):
            return
        refused = self._calls.set_apart(call, self._shared.now_ms())
        if refused is not None:
            self.give_up(call, GrpcCode.RESOURCE_EXHAUSTED, refused.message)
        elif call.is_bidi and not self._shared.open.begun.is_crowded:
            self._start_stream(call)
        elif call.is_bidi and call.head.method.headers_first and not call.headers_sent:
            self._answers.send_headers(call)  # some clients wait for them
        elif call.stream.input_open and not call.is_bidi:
            self._incomplete(call)

    def _incomplete(self, call: LeanCall) -> None:
        have = 0 if call.request is None else call.request.bytes_kept
        try:
            self._shared.memory.waits(call, call.own_bytes + grown_bytes(have))
        except CallAborted as error:
            self.give_up(call, error.code, error.message)

    def _admit(self, call: LeanCall) -> bool:
        """Ask the method once whether the call's request may be kept; else it is answered, perhaps
        later."""
        if call.admitted:
            return not call.refused
        call.admitted = True
        admit = call.head.method.admit
        try:
            refusal = None if admit is None else admit(call)
        except Exception as error:  # noqa: BLE001  whatever it raises ends its call only
            call.refused = True
            self._answers.failed(call, error)
            return False
        if refusal is None:
            call.own_bytes = call.weighed()
            return True
        call.refused = True
        self._shared.counts.add(REFUSED, "not admitted")
        if isinstance(refusal, Later):
            self._answers.later(call, refusal)
        else:
            self._answers.answer_all(call, refusal)
        return False

    def _keep(self, call: LeanCall, data: bytes, ended: bool) -> None:
        """Keep a piece of a request that did not come at once. Raises CallAborted, MessageFault."""
        if call.inbox is not None:
            call.inbox.put(data)
            if not call.known and call.inbox.has_message:
                self._calls.know(call)
                self._start_stream(call)
            return
        request = call.request
        if request is None:
            if not self._admit(call):
                return
            request = call.request = SingleMessage(
                self._shared.bytes_max(call.head.method),
                call.head.encoding,
                self._shared.inflated_bytes_max,
            )
        request.put(data)
        self._connection.streams.consume(call.stream, len(data))
        kept_bytes = request.bytes_kept
        if not ended and call.own_bytes + kept_bytes >= call.held_bytes:  # ahead of what comes
            self._shared.memory.waits(call, call.own_bytes + grown_bytes(kept_bytes))

    def ended(self, call: LeanCall) -> None:
        """Take the end of a request: the caller sends no more."""
        request = call.request
        if call.inbox is not None:
            call.inbox.close()
            self._start_stream(call)
        elif request is None or not request.is_begun:
            self._answers.abort(call, GrpcCode.UNIMPLEMENTED, "no message in the request")
        elif not request.is_whole:
            self._answers.abort(call, GrpcCode.INTERNAL, "the request ends inside a message")
        else:
            self._run_gathered(call, request)

    def _run_gathered(self, call: LeanCall, request: SingleMessage) -> None:
        """Run a call whose request came in pieces, or compressed."""
        memory = self._shared.memory
        packed_bytes = grown_bytes(request.bytes_kept)
        call.request = None
        memory.stops_waiting(call)
        try:
            message = request.take(lambda size: memory.holds(call, packed_bytes + size))
        except CallAborted as error:
            self.give_up(call, error.code, error.message)
            self._connection.hold()  # inflating was work: others get their turn
        except MessageFault as fault:
            self.give_up(call, fault.code, str(fault))
            self._connection.hold()
        else:
            self.run_counted(call, message)

    def run_counted(self, call: LeanCall, message: bytes) -> None:
        """Run a call and count its request until it is answered."""
        try:
            kept_bytes = len(message) if len(message) > SHORT_BYTES else 0
            self._shared.memory.holds(call, kept_bytes)
        except CallAborted as error:
            self.give_up(call, error.code, error.message)
        else:
            self._run(call, message)

    def _consumed(self, call: LeanCall, bytes_count: int) -> None:
        if call.stream.call is call:
            self._connection.streams.consume(call.stream, bytes_count)
            self._wake()

    def _holds(self, call: LeanCall, bytes_count: int, waits: bool) -> None:
        """Count what the call's inbox holds. Raises CallAborted."""
        if call.stream.call is not call or call.answered:
            return
        memory = self._shared.memory
        if waits:
            memory.waits(call, bytes_count)
        else:
            memory.stops_waiting(call)
            memory.holds(call, bytes_count)
