"""Which transport a client uses."""

from collections.abc import Callable
from typing import Final

from latermq._connection.lean.transport import LeanTransport
from latermq._connection.transport import GrpcTransport, Transport
from latermq._values.endpoints import Endpoints
from latermq._values.tls import Tls

TRANSPORT_VARIABLE: Final = "LATERMQ_TRANSPORT"
TRANSPORT: Final = "lean"
_TRANSPORTS: Final[dict[str, Callable[[Endpoints, Tls | None], Transport]]] = {
    "lean": LeanTransport,
    "grpcio": GrpcTransport,
}


def chosen(name: str | None = None, tls: bool | Tls = False) -> Callable[[Endpoints], Transport]:
    """What opens connections.

    Raises:
        ValueError: no such transport.
        OSError: a file of `tls` cannot be read.
    """
    name = name or TRANSPORT
    if name not in _TRANSPORTS:
        known = " or ".join(repr(one) for one in _TRANSPORTS)
        raise ValueError(f"transport must be {known}, not {name!r}")
    make = _TRANSPORTS[name]
    security = (Tls() if tls else None) if isinstance(tls, bool) else tls
    if security is not None:
        security.context()  # so that a file that cannot be used is told of here
    return lambda endpoints: make(endpoints, security)
