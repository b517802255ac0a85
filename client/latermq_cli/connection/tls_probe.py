"""Whether a broker that does not answer in clear text would answer over TLS."""

import socket
import ssl
from typing import Final

PROBE_S: Final = 2.0


def speaks_tls(host: str, port: int) -> bool:
    """Tell whether somebody there takes a TLS handshake: for whoever came in clear text in vain."""
    try:
        with (
            socket.create_connection((host, port), PROBE_S) as raw,
            _trusting_anybody().wrap_socket(raw, server_hostname=host),
        ):
            return True
    except (OSError, ValueError):
        return False


def _trusting_anybody() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context
