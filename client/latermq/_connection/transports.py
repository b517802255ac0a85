"""Which transport a client uses."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Final

from latermq._connection.lean.transport import LeanTransport
from latermq._connection.transport import Transport
from latermq._values.endpoints import Endpoints
from latermq._values.tls import Tls

TRANSPORT_VARIABLE: Final = "LATERMQ_TRANSPORT"
TRANSPORT: Final = "lean"


def _lean(endpoints: Endpoints, tls: Tls | None, waits: bool) -> Transport:
    return LeanTransport(endpoints, tls, waits)


def _grpcio(endpoints: Endpoints, tls: Tls | None, waits: bool) -> Transport:
    from latermq._connection.grpcio import GrpcTransport  # 100 ms that few need

    return GrpcTransport(endpoints, tls, waits)


_TRANSPORTS: Final = {"lean": _lean, "grpcio": _grpcio}


def chosen(
    name: str | None = None, tls: bool | Tls = False, *, waits: bool = True
) -> Callable[[Endpoints], Transport]:
    """Return what opens connections.

    Args:
        waits: a call waits for a broker until its deadline; False: it fails where none answers.
    Raises:
        ValueError: no such transport.
        OSError: a file of `tls` cannot be read.
        ImportError: grpcio is not installed.
    """
    name = name or TRANSPORT
    if name not in _TRANSPORTS:
        known = " or ".join(repr(known_name) for known_name in _TRANSPORTS)
        raise ValueError(f"transport must be {known}, not {name!r}")
    if name == "grpcio" and find_spec("grpc") is None:
        raise ImportError("this transport needs grpcio: pip install 'latermq[grpcio]'")
    make = _TRANSPORTS[name]
    security = (Tls() if tls else None) if isinstance(tls, bool) else tls
    if security is not None:
        security.context()  # so that a file that cannot be used is told of here
    return lambda endpoints: make(endpoints, security, waits)
