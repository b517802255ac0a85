"""From a typed answer function to a raw handler: parse, require the client id, translate errors.

The one place where an error becomes a status. `RequestError.code` is the RocketMQ code; a failing
store is INTERNAL_SERVER_ERROR, a full one in its own words; anything else is our bug:
INTERNAL_ERROR, the traceback in the log, nothing of it in the response. `CallAborted` and
cancellation pass through.

    async def ack_message(self, request: AckMessageRequest, caller: Caller) -> AckMessageResponse

An answer function returns its response or raises; or it is an `async def` that does. It is called
inside the coroutine that awaits it, so a call that is cancelled before its task ran leaves no
coroutine behind that nobody awaits. Where the bytes are already made (a hot reply) it may return
`bytes` in place of a message, or a `Later` of bytes: then no task is made for the call.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Final, TypeAlias, TypeVar, cast

from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from latermq_broker.background.jobs import Job
from latermq_broker.deferred import Later
from latermq_broker.errors import (
    BadRequestError,
    ClientIdRequiredError,
    InternalServerError,
    InvalidReceiptHandleError,
    RequestError,
    StoreError,
    StoreFullError,
)
from latermq_broker.services.call.field_counts import FieldCount
from latermq_broker.services.call.handler import Call, CallAborted, Method, Reader
from latermq_broker.services.call.late_elements import encoded
from latermq_broker.services.call.namespaces import (
    NAMESPACE_HEADER,
    NamespaceError,
    Namespaces,
)
from latermq_proto.apache.rocketmq.v2 import definition_pb2

log = logging.getLogger("latermq.services")

MESSAGING: Final = "/apache.rocketmq.v2.MessagingService"
ADMIN: Final = "/apache.rocketmq.v2.Admin"
CLIENT_ID_HEADER: Final = "x-mq-client-id"
CLIENT_ID_CHARACTERS_MAX: Final = 512  # kept wherever clients are remembered
OK_CODE: Final = 20000
MULTIPLE_RESULTS_CODE: Final = 30000
INTERNAL_ERROR_CODE: Final = 50000
ANSWERED: Final = (RequestError, StoreFullError)  # in words that the client is told; not logged
_INVALID_HANDLE: Final = "INVALID_RECEIPT_HANDLE"

Answered = TypeVar("Answered")
Encoded: TypeAlias = Message | bytes


class Caller:
    """Who asks: the client id (`""` only where none is required), the call, the request's bytes.

    Attributes:
        job: of a call that lasts, which asks it for each turn; None: of a call answered at once.
    """

    __slots__ = ("call", "client_id", "data", "job")

    def __init__(self, client_id: str, call: Call, data: bytes = b"") -> None:
        self.client_id = client_id
        self.call = call
        self.data = data
        self.job: Job | None = None

    @property
    def lasting(self) -> Job:
        """Return the job of a call whose RPC is among the lasting ones of `NEEDS`."""
        assert self.job is not None, f"{self.call.path} is not among the calls that last"
        return self.job


UnaryAnswer: TypeAlias = Encoded | Later[bytes]
StreamAnswer: TypeAlias = Sequence[Encoded] | Later[list[bytes]] | AsyncIterator[Encoded]


def status(code: int, message: str) -> definition_pb2.Status:
    # The stub types enum values as a class that does not exist at run time.
    return definition_pb2.Status(code=cast(definition_pb2.Code, code), message=message)


def ok_status() -> definition_pb2.Status:
    return status(OK_CODE, "OK")


def status_of(error: BaseException) -> definition_pb2.Status:
    """Give the status a client gets for `error`; says nothing about what is not meant for it."""
    if isinstance(error, InvalidReceiptHandleError):  # clients' tests look for the code's name
        return status(error.code, f"{_INVALID_HANDLE}: {error}")
    if isinstance(error, RequestError):
        return status(error.code, str(error))
    if isinstance(error, StoreFullError):
        return status(InternalServerError.code, str(error))
    if isinstance(error, StoreError):
        return status(InternalServerError.code, "the store failed; see the broker's log")
    return status(INTERNAL_ERROR_CODE, "internal error of the broker")


def common_status(statuses: Sequence[definition_pb2.Status]) -> definition_pb2.Status:
    """Give the first of several results' statuses when all have its code, else MULTIPLE_RESULTS."""
    if len({each.code for each in statuses}) == 1:
        return statuses[0]
    return status(MULTIPLE_RESULTS_CODE, "the results differ; see each status")


def refusal_of(rpc: Any) -> Callable[[definition_pb2.Status], Message]:
    """Give what builds an RPC's response that carries nothing but an error's status."""
    response_class = GetMessageClass(rpc.output_type)
    if "status" in response_class.DESCRIPTOR.fields_by_name:
        return lambda status: response_class(status=status)
    return lambda status: response_class(remark=status.message)  # ChangeLogLevel


def reader(request_class: type[Message]) -> Reader:
    """Make the reader of requests that protobuf parses."""
    count = FieldCount(request_class.DESCRIPTOR)
    namespaces = Namespaces(request_class.DESCRIPTOR)

    def read(data: bytes, call: Call) -> Message:
        request = request_class()
        parse(request, data, count)
        namespaces.check(request)
        return request

    return read


def unary(
    read: Reader,
    answer: Callable[[Any, Caller], UnaryAnswer | Coroutine[Any, Any, Encoded]],
    refuse: Callable[[definition_pb2.Status, Any], Encoded],
    *,
    client_id_required: bool = True,
    large: bool = False,
    reply_bytes: int = 0,
) -> Method:
    """Make a unary method of an answer function.

    Args:
        large, reply_bytes: as in `Method`.
        refuse: builds the response that carries an error's status; the request is an empty one
            when it could not be read.
        client_id_required: every RPC of apache.rocketmq.v2; not ours (a probe has none).
    """

    def refused(request: Any, call: Call, error: BaseException) -> bytes:
        return _bytes_of(refuse(status_for(error, call), request))

    is_async = iscoroutinefunction(answer)

    async def awaited(request: Any, caller: Caller) -> bytes:
        try:
            return _bytes_of(await cast(Awaitable[Encoded], answer(request, caller)))
        except Exception as error:  # noqa: BLE001  `status_for` logs what is not the caller's
            return refused(request, caller.call, error)

    def parsed(request: Any, data: bytes, call: Call) -> bytes | Later[bytes] | Awaitable[bytes]:
        try:
            caller = _caller(call, data, client_id_required)
            if is_async:
                return awaited(request, caller)
            result = cast(UnaryAnswer, answer(request, caller))
            if isinstance(result, Later):
                if result.settled:
                    return result.result()
                result.rescue(partial(refused, request, call))
                return result
            return _bytes_of(result)
        except Exception as error:  # noqa: BLE001  `status_for` logs what is not the caller's
            return refused(request, call, error)

    handler = _reading(read, parsed, refused)
    return Method.unary(handler, large=large, reply_bytes=reply_bytes, parsed=parsed, read=read)


def server_stream(
    read: Reader,
    answer: Callable[[Any, Caller], StreamAnswer | Coroutine[Any, Any, Sequence[Encoded]]],
    refuse: Callable[[definition_pb2.Status, Any], Sequence[Encoded]],
    *,
    client_id_required: bool = True,
    reply_bytes: int = 0,
    small: bool = False,
) -> Method:
    """Make a method that answers with a list, an awaitable list, or an async iterator of responses.

    `refuse` builds the elements that end the stream with an error's status, also after some were
    sent. `small` is as in `Method`.
    """

    def refused(request: Any, call: Call, error: BaseException) -> list[bytes]:
        return [_bytes_of(element) for element in refuse(status_for(error, call), request)]

    is_async = iscoroutinefunction(answer)

    async def awaited(request: Any, caller: Caller) -> list[bytes]:
        try:
            elements = await cast(Awaitable[Sequence[Encoded]], answer(request, caller))
            return [_bytes_of(element) for element in elements]
        except Exception as error:  # noqa: BLE001  `status_for` logs what is not the caller's
            return refused(request, caller.call, error)

    def parsed(
        request: Any, data: bytes, call: Call
    ) -> Sequence[bytes] | Later[list[bytes]] | Awaitable[Sequence[bytes]] | AsyncIterator[bytes]:
        try:
            caller = _caller(call, data, client_id_required)
            if is_async:
                return awaited(request, caller)
            result = cast(StreamAnswer, answer(request, caller))
            if isinstance(result, Later):
                if result.settled:
                    return result.result()
                result.rescue(partial(refused, request, call))
                return result
            if isinstance(result, AsyncIterator):
                return encoded(result, _bytes_of, partial(refused, request, call))
            return [_bytes_of(element) for element in result]
        except Exception as error:  # noqa: BLE001  `status_for` logs what is not the caller's
            return refused(request, call, error)

    handler = _reading(read, parsed, refused)
    return Method.server_stream(
        handler, small=small, reply_bytes=reply_bytes, parsed=parsed, read=read
    )


def _reading(
    read: Reader,
    parsed: Callable[[Any, bytes, Call], Answered],
    refused: Callable[[Any, Call, BaseException], Answered],
) -> Callable[[bytes, Call], Answered]:
    """Make a handler of bytes out of one of requests, which refuses bytes that are none."""

    def handler(data: bytes, call: Call) -> Answered:
        try:
            request = read(data, call)
        except Exception as error:  # noqa: BLE001  `status_for` logs what is not the caller's
            # One clause, not two: compiled, `error` would have the type of the first one, and
            # errors of other types would stay in memory, with the request.
            known = error.request if isinstance(error, NamespaceError) else read(b"", call)
            return refused(known, call, error)
        return parsed(request, data, call)

    return handler


def client_id_of(call: Call) -> str:
    """Read the caller's `x-mq-client-id`.

    Raises:
        ClientIdRequiredError: missing or blank.
        NamespaceError: the caller is in a namespace.
        BadRequestError: too long.
    """
    namespace = call.metadata(NAMESPACE_HEADER)
    if namespace:
        raise NamespaceError(namespace)
    client_id = (call.metadata(CLIENT_ID_HEADER) or "").strip()
    if not client_id:
        raise ClientIdRequiredError("the header x-mq-client-id is required")
    if len(client_id) > CLIENT_ID_CHARACTERS_MAX:
        raise BadRequestError(
            f"the client id in x-mq-client-id has {len(client_id)} characters, at most "
            f"{CLIENT_ID_CHARACTERS_MAX} are allowed"
        )
    return client_id


def _caller(call: Call, data: bytes, client_id_required: bool) -> Caller:
    if client_id_required:
        return Caller(client_id_of(call), call, data)
    return Caller(call.metadata(CLIENT_ID_HEADER) or "", call, data)


def status_for(error: BaseException, call: Call) -> definition_pb2.Status:
    """Give the status of an error; what is not the caller's fault is in the log too.

    Raises CallAborted: the error itself, which is a status of its own.
    """
    if isinstance(error, CallAborted):
        raise error
    if not isinstance(error, ANSWERED):
        log.error("request failed", extra={"rpc": call.path}, exc_info=error)
    return status_of(error)


def parse(request: Message, data: bytes, count: FieldCount) -> None:
    """Parse a request of not too many fields.

    Raises:
        BadRequestError: not such a message, or one of too many fields; `request` is empty.
    """
    count.check(data)
    try:
        request.ParseFromString(data)
    except DecodeError as error:
        request.Clear()
        name = request.DESCRIPTOR.name
        raise BadRequestError(f"the request is not a valid {name}") from error


def _bytes_of(response: Encoded) -> bytes:
    return response if isinstance(response, bytes) else response.SerializeToString()
