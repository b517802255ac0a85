"""gRPC status codes, and the error of this package for each; whichever transport reports them."""

from enum import IntEnum
from typing import Final

from latermq._endpoints import Endpoints
from latermq.codes import Code
from latermq.errors import (
    BadRequestError,
    ForbiddenError,
    LaterMQError,
    RequestTimeoutError,
    ServerError,
    UnauthorizedError,
    UnavailableError,
    UnsupportedError,
)


class GrpcStatus(IntEnum):
    """How a call ended (not the codes inside an answer)."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


_REFUSALS: Final = {
    GrpcStatus.INVALID_ARGUMENT: (BadRequestError, Code.BAD_REQUEST),
    GrpcStatus.UNAUTHENTICATED: (UnauthorizedError, Code.UNAUTHORIZED),
    GrpcStatus.PERMISSION_DENIED: (ForbiddenError, Code.FORBIDDEN),
    GrpcStatus.UNIMPLEMENTED: (UnsupportedError, Code.NOT_IMPLEMENTED),
}
_STATUSES: Final = {int(status): status for status in GrpcStatus}


def error_of(code: int, details: str, endpoints: Endpoints) -> LaterMQError:
    """The error of a call that ended with a status other than OK."""
    status = _STATUSES.get(code, GrpcStatus.UNKNOWN)
    if status in (GrpcStatus.UNAVAILABLE, GrpcStatus.CANCELLED):
        return UnavailableError(f"{endpoints}: {details or status.name}")
    if status is GrpcStatus.DEADLINE_EXCEEDED:
        return RequestTimeoutError(Code.REQUEST_TIMEOUT, f"no answer from {endpoints} in time")
    if status in _REFUSALS:
        refusal, refused_as = _REFUSALS[status]
        return refusal(refused_as, details or status.name)
    return ServerError(Code.INTERNAL_ERROR, f"{status.name}: {details or status.name}")


def nobody_answers(endpoints: Endpoints, why: str = "") -> UnavailableError:
    """No connection came to be in time."""
    return UnavailableError(f"no broker answers at {endpoints}{why and f': {why}'}")
