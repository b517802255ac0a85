"""Which transport a client uses."""

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Final

from latermq._connection.lean.transport import LeanTransport
from latermq._connection.transport import RESPONSE_BYTES_MAX, Transport
from latermq._values.endpoints import Endpoints
from latermq._values.tls import Tls

TRANSPORT_VARIABLE: Final = "LATERMQ_TRANSPORT"
RESPONSE_VARIABLE: Final = "LATERMQ_RESPONSE_BYTES_MAX"
TRANSPORT: Final = "lean"
_BYTES_LEAST: Final = 1 << 20
_BYTES_MOST: Final = (1 << 31) - 1  # what a protobuf message can have


def _lean(endpoints: Endpoints, tls: Tls | None, waits: bool, bytes_max: int) -> Transport:
    return LeanTransport(endpoints, tls, waits, bytes_max)


def _grpcio(endpoints: Endpoints, tls: Tls | None, waits: bool, bytes_max: int) -> Transport:
    from latermq._connection.grpcio import GrpcTransport  # 100 ms that few need

    return GrpcTransport(endpoints, tls, waits, bytes_max)


_TRANSPORTS: Final = {"lean": _lean, "grpcio": _grpcio}


def chosen(
    name: str | None = None, tls: bool | Tls = False, *, waits: bool = True
) -> Callable[[Endpoints], Transport]:
    """Return what opens connections.

    Args:
        waits: a call waits for a broker until its deadline; False: it fails where none answers.
    Raises:
        ValueError: no such transport, or LATERMQ_RESPONSE_BYTES_MAX is no bound.
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
    bytes_max = response_bytes_max(os.environ.get(RESPONSE_VARIABLE, ""))
    return lambda endpoints: make(endpoints, security, waits, bytes_max)


def response_bytes_max(text: str) -> int:
    """Read the bytes that one message of an answer may have; "" means RESPONSE_BYTES_MAX.

    Raises:
        ValueError: it is no whole number of bytes from 1 MiB to 2 GiB - 1.
    """
    if not text:
        return RESPONSE_BYTES_MAX
    bytes_max = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0
    if not _BYTES_LEAST <= bytes_max <= _BYTES_MOST:
        raise ValueError(
            f"{RESPONSE_VARIABLE} is {text[:40]!r}, not a number of bytes from {_BYTES_LEAST} to "
            f"{_BYTES_MOST}"
        )
    return bytes_max
