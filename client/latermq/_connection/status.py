"""gRPC status codes, and the error of this package for each; whichever transport reports them."""

from typing import Final

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

_REFUSALS: Final = {
    GrpcCode.INVALID_ARGUMENT: (BadRequestError, Code.BAD_REQUEST),
    GrpcCode.UNAUTHENTICATED: (UnauthorizedError, Code.UNAUTHORIZED),
    GrpcCode.PERMISSION_DENIED: (ForbiddenError, Code.FORBIDDEN),
    GrpcCode.UNIMPLEMENTED: (UnsupportedError, Code.NOT_IMPLEMENTED),
}
_STATUSES: Final = {int(status): status for status in GrpcCode}


def error_of(code: int, details: str, endpoints: Endpoints) -> LaterMQError:
    """The error of a call that ended with a status other than OK."""
    status = _STATUSES.get(code, GrpcCode.UNKNOWN)
    if status in (GrpcCode.UNAVAILABLE, GrpcCode.CANCELLED):
        return UnavailableError(f"{endpoints}: {details or status.name}")
    if status is GrpcCode.DEADLINE_EXCEEDED:
        return RequestTimeoutError(Code.REQUEST_TIMEOUT, f"no answer from {endpoints} in time")
    if status in _REFUSALS:
        refusal, refused_as = _REFUSALS[status]
        return refusal(refused_as, details or status.name)
    return ServerError(Code.INTERNAL_ERROR, f"{status.name}: {details or status.name}")


def nobody_answers(endpoints: Endpoints, why: str = "") -> UnavailableError:
    """No connection came to be in time."""
    return UnavailableError(f"no broker answers at {endpoints}{why and f': {why}'}")
