"""Every error this package raises on purpose: one class per answer a caller treats differently.

    LaterMQError
    ├ ClosedError         the connection or consumer was closed
    ├ UnavailableError    no broker answers; the request may or may not have arrived
    ├ UntrustedHostError  a broker named another host, where nothing proves who answers
    └ RequestError        a broker answered, and refused
      └ one class per kind of refusal, listed in `_CLASSES`

`code` is the RocketMQ status (`latermq.Code`), 0 where no broker gave one. `stored` says of a send
that failed whether the message is stored all the same: False, surely not; None, nobody knows, and
sending it again may store it twice. Arguments that make no
sense on their own raise ValueError or TypeError, as anywhere in Python.
"""

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from latermq.codes import Code

if TYPE_CHECKING:
    from latermq.message import SendReceipt

__all__ = [
    "BadRequestError",
    "ClosedError",
    "DiskFullError",
    "ForbiddenError",
    "GroupNotFoundError",
    "IllegalFilterError",
    "IllegalGroupError",
    "IllegalMessageError",
    "IllegalTimeError",
    "IllegalTopicError",
    "InvalidReceiptHandleError",
    "InvalidTransactionError",
    "LaterMQError",
    "LiteQuotaError",
    "MessageTooLargeError",
    "NotFoundError",
    "PartialSendError",
    "RequestError",
    "RequestTimeoutError",
    "ServerError",
    "TooManyRequestsError",
    "TopicNotFoundError",
    "UnauthorizedError",
    "UnavailableError",
    "UnsupportedError",
    "UntrustedHostError",
]


# What a broker says of a rate that is used up.
AGAIN_IN: Final = re.compile(r"\bagain in ([0-9]{1,9}) ms\b")
AGAIN_IN_MAX: Final = timedelta(minutes=2)


class LaterMQError(Exception):
    """Root of the tree.

    Fields:
        grpc_code, grpc_text: how gRPC ended the call; 0 where a broker answered, or none was asked.
        again_in: how long to wait before the next try, where the broker says so; else 0.
        stored: of a send: False: it is surely not stored, by none of its tries. None: not known.
    """

    stored: bool | None = None
    code: int = 0
    again_in: timedelta = timedelta(0)
    grpc_code: int = 0
    grpc_text: str = ""


class ClosedError(LaterMQError):
    """Used after it was closed."""

    stored = False


class UnavailableError(LaterMQError):
    """No connection to the broker, or it broke during the call."""


class UntrustedHostError(LaterMQError):
    """A route names a host that the user did not, and TLS does not check who answers there.

    Only of calls that are signed; nothing was sent there.
    """

    stored = False


class RequestError(LaterMQError):
    """The broker refused; this class itself is raised for codes nobody treats on their own.

    Fields:
        code: the status.
        message: the broker's sentence about it.
    """

    stored: bool | None = False

    def __init__(self, code: int, message: str) -> None:
        name = Code(code).name if code in set(Code) else "status"
        super().__init__(f"{message} [{name} {code}]")
        self.code = code
        self.message = message
        if hint := AGAIN_IN.search(message):
            self.again_in = min(timedelta(milliseconds=int(hint[1])), AGAIN_IN_MAX)

    def __reduce__(self) -> tuple[type["RequestError"], tuple[Any, ...], dict[str, Any]]:
        return type(self), (self.code, self.message), vars(self)


class BadRequestError(RequestError):
    """The request is wrong in itself and will be refused again."""


class IllegalTopicError(RequestError):
    """A topic's name breaks the rules or is reserved."""


class IllegalGroupError(RequestError):
    """A consumer group's name breaks the rules or is reserved."""


class IllegalMessageError(RequestError):
    """A tag, key, property, group, id or type of the message is refused; `code` says which."""


class MessageTooLargeError(RequestError):
    """The body, or the properties together, exceed the broker's limit."""


class IllegalFilterError(RequestError):
    """The tag filter cannot be read."""


class IllegalTimeError(RequestError):
    """A delivery time, invisible duration or poll is outside the broker's bounds."""


class InvalidReceiptHandleError(RequestError):
    """The lease ended or was replaced: the message may be with someone else. Do not retry."""


class InvalidTransactionError(RequestError):
    """No such transaction, or it has ended the other way: by the broker, or by an operator."""


class UnauthorizedError(RequestError):
    """Credentials are missing or wrong."""


class ForbiddenError(RequestError):
    """Known, but not allowed; or no queue with the permission needed."""


class NotFoundError(RequestError):
    """A thing that is neither a topic nor a group does not exist."""


class TopicNotFoundError(RequestError):
    """The topic does not exist and is not created on use."""


class GroupNotFoundError(RequestError):
    """The consumer group does not exist and is not created on use."""


class RequestTimeoutError(RequestError):
    """No answer in time, here or inside the broker; a send may or may not have been stored."""

    stored = None


class TooManyRequestsError(RequestError):
    """Flow control: try again later, and slower."""


class LiteQuotaError(RequestError):
    """Too many lite topics: of one parent, or for one client to read; `code` says which."""


class UnsupportedError(RequestError):
    """The broker does not offer the operation."""


class ServerError(RequestError):
    """The broker failed; nothing is known about the outcome."""

    stored = None


class DiskFullError(RequestError):
    """The broker's disk is full. What it has goes on; sends are taken again when there is room."""


class PartialSendError(RequestError):
    """Some messages of a batch were stored, others not.

    Fields:
        outcomes: for each message of the batch, in order, its receipt or its error, which says
            whether that one is stored.
    """

    stored = None

    def __init__(self, outcomes: "list[SendReceipt | RequestError]") -> None:
        failed = sum(isinstance(outcome, RequestError) for outcome in outcomes)
        super().__init__(
            Code.MULTIPLE_RESULTS, f"{failed} of {len(outcomes)} messages were not stored"
        )
        self.outcomes = outcomes

    def __reduce__(self) -> tuple[type["RequestError"], tuple[Any, ...], dict[str, Any]]:
        return type(self), (self.outcomes,), vars(self)


_CLASSES: Final[dict[int, type[RequestError]]] = {
    Code.ILLEGAL_TOPIC: IllegalTopicError,
    Code.ILLEGAL_CONSUMER_GROUP: IllegalGroupError,
    Code.ILLEGAL_MESSAGE_TAG: IllegalMessageError,
    Code.ILLEGAL_MESSAGE_KEY: IllegalMessageError,
    Code.ILLEGAL_MESSAGE_GROUP: IllegalMessageError,
    Code.ILLEGAL_MESSAGE_PROPERTY_KEY: IllegalMessageError,
    Code.ILLEGAL_MESSAGE_ID: IllegalMessageError,
    Code.ILLEGAL_LITE_TOPIC: IllegalMessageError,
    Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE: IllegalMessageError,
    Code.MESSAGE_CORRUPTED: IllegalMessageError,
    Code.MESSAGE_BODY_EMPTY: IllegalMessageError,
    Code.PAYLOAD_TOO_LARGE: MessageTooLargeError,
    Code.MESSAGE_BODY_TOO_LARGE: MessageTooLargeError,
    Code.MESSAGE_PROPERTIES_TOO_LARGE: MessageTooLargeError,
    Code.ILLEGAL_FILTER_EXPRESSION: IllegalFilterError,
    Code.ILLEGAL_INVISIBLE_TIME: IllegalTimeError,
    Code.ILLEGAL_DELIVERY_TIME: IllegalTimeError,
    Code.ILLEGAL_POLLING_TIME: IllegalTimeError,
    Code.INVALID_RECEIPT_HANDLE: InvalidReceiptHandleError,
    Code.INVALID_TRANSACTION_ID: InvalidTransactionError,
    Code.UNAUTHORIZED: UnauthorizedError,
    Code.FORBIDDEN: ForbiddenError,
    Code.NOT_FOUND: NotFoundError,
    Code.MESSAGE_NOT_FOUND: NotFoundError,
    Code.OFFSET_NOT_FOUND: NotFoundError,
    Code.TOPIC_NOT_FOUND: TopicNotFoundError,
    Code.CONSUMER_GROUP_NOT_FOUND: GroupNotFoundError,
    Code.REQUEST_TIMEOUT: RequestTimeoutError,
    Code.PROXY_TIMEOUT: RequestTimeoutError,
    Code.MASTER_PERSISTENCE_TIMEOUT: RequestTimeoutError,
    Code.SLAVE_PERSISTENCE_TIMEOUT: RequestTimeoutError,
    Code.TOO_MANY_REQUESTS: TooManyRequestsError,
    Code.LITE_TOPIC_QUOTA_EXCEEDED: LiteQuotaError,
    Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED: LiteQuotaError,
    Code.NOT_IMPLEMENTED: UnsupportedError,
    Code.UNSUPPORTED: UnsupportedError,
    Code.VERSION_UNSUPPORTED: UnsupportedError,
    Code.VERIFY_FIFO_MESSAGE_UNSUPPORTED: UnsupportedError,
}
BAD_REQUESTS: Final = range(40000, 40100)
SERVER_FAILURES: Final = range(50000, 50100)
FULL: Final = "disk full:"  # the protocol has no code of its own for it


def error_for(code: int, message: str) -> RequestError:
    """Return the error for a status that is not OK; a code from the future has a class too."""
    if code == Code.INTERNAL_SERVER_ERROR and message.startswith(FULL):
        return DiskFullError(code, message)
    if code in _CLASSES:
        return _CLASSES[code](code, message)
    if code in BAD_REQUESTS:
        return BadRequestError(code, message)
    if code in SERVER_FAILURES:
        return ServerError(code, message)
    return RequestError(code, message)
