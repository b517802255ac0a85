"""How a client of a broker with TLS checks the broker, and says who it is itself."""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from latermq._values import arguments

TLS_VARIABLE: Final = "LATERMQ_TLS"
CA_VARIABLE: Final = "LATERMQ_CA"
SKIP_VERIFY_VARIABLE: Final = "LATERMQ_INSECURE_SKIP_VERIFY"

_OFF: Final = frozenset({"", "0", "false", "no", "off"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Encryption, with these files in PEM.

    Args:
        ca: certificates of whom to trust, a file or its content; None: whom the system trusts.
        certificate, key: our own, for a broker that asks for it; both or none.
        server_name: what the broker's certificate must say; None: the host we connect to.
        verify: False: trust whoever answers, perhaps the wrong one; not with grpcio.
    """

    ca: str | Path | bytes | None = None
    certificate: str | Path | None = None
    key: str | Path | None = None
    server_name: str | None = None
    verify: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.ca, str | Path | bytes | None):
            raise arguments.wrong("ca", "a path, bytes or None", self.ca)
        for name in ("certificate", "key"):
            if not isinstance(path := getattr(self, name), str | Path | None):
                raise arguments.wrong(name, "a path or None", path)
        for name in ("ca", "certificate", "key"):
            if getattr(self, name) in ("", b""):
                raise ValueError(f"{name} must not be empty")
        arguments.optional_text("server_name", self.server_name)
        arguments.truth("verify", self.verify)
        if (self.certificate is None) != (self.key is None):
            raise ValueError("a client certificate needs its key, and a key its certificate")

    def context(self) -> ssl.SSLContext:
        """Make the context for our own HTTP/2.

        Raises:
            OSError: a file cannot be read.
            ValueError: it holds no certificate or key in PEM.
        """
        for path in (self.ca, self.certificate, self.key):
            read(path)  # ssl tells of a file without its name
        file, data = (str(self.ca) if self.ca is not None else None), None
        if isinstance(self.ca, bytes):
            file, data = None, self.ca.decode("ascii", "replace")
        with _named("ca", file or "as given"):
            context = ssl.create_default_context(cafile=file, cadata=data)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["h2"])
        if not self.verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if self.certificate is not None and self.key is not None:
            with _named("certificate and key", self.certificate, self.key):
                context.load_cert_chain(str(self.certificate), str(self.key))
        return context


def tls_of(given: bool | Tls | None) -> bool | Tls:
    """Return what is given, or, for None, what the environment says; False: clear text."""
    if not isinstance(given, bool | Tls | None):
        raise arguments.wrong("tls", "True, False, a Tls or None", given)
    if given is not None:
        return given
    said = os.environ.get
    ca = said(CA_VARIABLE) or None
    verify = said(SKIP_VERIFY_VARIABLE, "").lower() in _OFF
    if ca is None and verify:
        return said(TLS_VARIABLE, "").lower() not in _OFF
    return Tls(ca=ca, verify=verify)


@contextmanager
def _named(what: str, *paths: str | Path | None) -> Iterator[None]:
    """Name the files in what OpenSSL says of them. Raises ValueError."""
    try:
        yield
    except ssl.SSLError as error:
        names = " and ".join(str(path) for path in paths)
        reason = error.reason or "not in PEM"
        raise ValueError(f"{what} {names}: cannot be used ({reason})") from error


def read(given: str | Path | bytes | None) -> bytes | None:
    """Return a file's content, given by name or as it is; None for None. Raises OSError."""
    return Path(given).read_bytes() if isinstance(given, str | Path) else given
