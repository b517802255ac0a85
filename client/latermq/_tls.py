"""How a client of a broker with TLS checks the broker, and says who it is itself."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Encryption, with these files in PEM.

    Args:
        ca: certificates of whom to trust; None: whom the system trusts.
        certificate, key: our own, for a broker that asks for it; both or none.
        server_name: what the broker's certificate must say; None: the host we connect to.
    """

    ca: str | Path | None = None
    certificate: str | Path | None = None
    key: str | Path | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("a client certificate needs its key, and a key its certificate")

    def context(self) -> ssl.SSLContext:
        """For our own HTTP/2.

        Raises:
            OSError: a file cannot be read, or holds no certificate or key.
        """
        context = ssl.create_default_context(
            cafile=None if self.ca is None else str(self.ca), purpose=ssl.Purpose.SERVER_AUTH
        )
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["h2"])
        if self.certificate is not None and self.key is not None:
            context.load_cert_chain(str(self.certificate), str(self.key))
        return context

    def channel_credentials(self) -> Any:
        """For grpc.aio. Raises OSError: a file cannot be read."""
        return grpc.ssl_channel_credentials(
            root_certificates=_read(self.ca),
            private_key=_read(self.key),
            certificate_chain=_read(self.certificate),
        )


def _read(path: str | Path | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()
