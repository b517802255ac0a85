"""gRPC status codes, and the error of this package for each; whichever transport reports them."""

from typing import Final, TypeVar

from latermq._values.endpoints import Endpoints
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
from latermq_h2.grpc_code import GrpcCode

Failed = TypeVar("Failed", bound=LaterMQError)

_REFUSALS: Final = {
    GrpcCode.INVALID_ARGUMENT: (BadRequestError, Code.BAD_REQUEST),
    GrpcCode.UNAUTHENTICATED: (UnauthorizedError, Code.UNAUTHORIZED),
    GrpcCode.PERMISSION_DENIED: (ForbiddenError, Code.FORBIDDEN),
    GrpcCode.UNIMPLEMENTED: (UnsupportedError, Code.NOT_IMPLEMENTED),
}
_STATUSES: Final = {int(status): status for status in GrpcCode}


def error_of(code: int, details: str, endpoints: Endpoints) -> LaterMQError:
    """Return the error of a call that ended with a status other than OK."""
    status = _STATUSES.get(code, GrpcCode.UNKNOWN)
    return _ended(_error_of(status, details, endpoints), status, details)


def nobody_answers(
    endpoints: Endpoints, why: str = "", *, stored: bool | None = False
) -> UnavailableError:
    """Return the error of a connection that did not come to be, so that nothing was sent on it."""
    error = UnavailableError(f"no broker answers at {endpoints}{why and f': {why}'}")
    error.stored = stored
    return _ended(error, GrpcCode.UNAVAILABLE, why)


def _ended(error: Failed, status: GrpcCode, details: str) -> Failed:
    error.grpc_code, error.grpc_text = int(status), details
    return error


def _error_of(status: GrpcCode, details: str, endpoints: Endpoints) -> LaterMQError:
    if status in (GrpcCode.UNAVAILABLE, GrpcCode.CANCELLED):
        return UnavailableError(f"{endpoints}: {details or status.name}")
    if status is GrpcCode.DEADLINE_EXCEEDED:
        return RequestTimeoutError(Code.REQUEST_TIMEOUT, f"no answer from {endpoints} in time")
    if status in _REFUSALS:
        refusal, refused_as = _REFUSALS[status]
        return refusal(refused_as, details or status.name)
    return ServerError(Code.INTERNAL_ERROR, f"{status.name}: {details or status.name}")
