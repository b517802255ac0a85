"""Channels to a broker, in clear text or over TLS, as a `Door` says."""

import os
import socket
import ssl
from pathlib import Path
from typing import Any, Final

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # grpc's own log lines are not for users

import grpc
import grpc.aio

from latermq_cli.connection.door import Door
from latermq_cli.terminal.failures import CommandError, RefusedError

HANDSHAKE_S: Final = 5.0
PROBE_S: Final = 2.0

Options = list[tuple[str, Any]]


def open_channel(door: Door, endpoint: str, options: Options) -> grpc.Channel:
    """Raises RefusedError, CommandError."""
    if not door.encrypted:
        return grpc.insecure_channel(endpoint, options=options)
    credentials, more = _trust(door, endpoint)
    return grpc.secure_channel(endpoint, credentials, options=options + more)


def open_aio_channel(door: Door, endpoint: str) -> grpc.aio.Channel:
    """Raises RefusedError, CommandError."""
    if not door.encrypted:
        return grpc.aio.insecure_channel(endpoint)
    credentials, more = _trust(door, endpoint)
    return grpc.aio.secure_channel(endpoint, credentials, options=more)


def _trust(door: Door, endpoint: str) -> tuple[grpc.ChannelCredentials, Options]:
    if door.skip_verify:
        certificate, name = _shown_by(endpoint)
        override: Options = [("grpc.ssl_target_name_override", name)] if name else []
        return grpc.ssl_channel_credentials(certificate), override
    if not door.ca:
        return grpc.ssl_channel_credentials(), []
    return grpc.ssl_channel_credentials(_authorities(door.ca)), []


def _authorities(ca: str) -> bytes:
    """What `--ca` names. Raises RefusedError: nothing that can be trusted."""
    path = Path(ca).expanduser()
    try:
        data = path.read_bytes()
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError:
        raise RefusedError(f"--ca {ca} holds no certificate in PEM") from None
    except OSError as error:
        raise RefusedError(f"cannot read --ca {ca}: {error.strerror or error}") from None
    return data


def speaks_tls(endpoint: str) -> bool:
    """Whether somebody there takes a TLS handshake: for whoever came in clear text in vain."""
    host, port = _address(endpoint)
    try:
        with (
            socket.create_connection((host, port), PROBE_S) as raw,
            _trusting_anybody().wrap_socket(raw, server_hostname=host),
        ):
            return True
    except (OSError, ValueError):
        return False


def _address(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _trusting_anybody() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


def _shown_by(endpoint: str) -> tuple[bytes, str]:
    """The certificate that whoever listens there shows, and a name in it: trusted as it is.

    gRPC has no switch for this. Raises CommandError.
    """
    address = _address(endpoint)
    try:
        with (
            socket.create_connection(address, HANDSHAKE_S) as raw,
            _trusting_anybody().wrap_socket(raw, server_hostname=address[0]) as shown,
        ):
            pem = ssl.DER_cert_to_PEM_cert(shown.getpeercert(binary_form=True) or b"")
        itself = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        itself.check_hostname = False
        itself.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        itself.load_verify_locations(cadata=pem)
        itself.set_alpn_protocols(["h2"])
        with (
            socket.create_connection(address, HANDSHAKE_S) as raw,
            itself.wrap_socket(raw, server_hostname=address[0]) as known,
        ):
            told: Any = known.getpeercert() or {}
    except (OSError, ValueError) as error:
        raise CommandError(f"no TLS at {endpoint}: {error}") from None
    names = [name for kind, name in told.get("subjectAltName", ()) if kind == "DNS"]
    common = [
        value for part in told.get("subject", ()) for key, value in part if key == "commonName"
    ]
    return pem.encode(), next(iter(names + common), "")
