"""How a client of a broker with TLS checks the broker, and says who it is itself."""

import logging
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from latermq._values import arguments

log = logging.getLogger("latermq.client")

TLS_VARIABLE: Final = "LATERMQ_TLS"
CA_VARIABLE: Final = "LATERMQ_CA"
SKIP_VERIFY_VARIABLE: Final = "LATERMQ_INSECURE_SKIP_VERIFY"

_OFF: Final = frozenset({"", "0", "false", "no", "off"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Encryption, with these files in PEM; read again for new connections when they have changed.

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


class TlsFiles:
    """What a `Tls` stands for, read again for a new connection when its files have changed.

    Files that cannot be used, or a certificate and a key that do not fit, as between two writes,
    keep what was read before, with a WARNING.

    Raises:
        OSError: a file cannot be read.
        ValueError: it holds no certificate or key in PEM, or they do not fit.
    """

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._stamps = self._look()
        self.context = tls.context()

    def renew(self) -> bool:
        """Read the files if they have changed; tell whether there is another context now."""
        stamps = self._look()
        if stamps == self._stamps:
            return False
        self._stamps = stamps
        try:
            self.context = self._tls.context()
        except (OSError, ValueError) as error:
            log.warning("TLS files have changed; going on with those before: %s", error)
            return False
        log.info("TLS files have changed: read again")
        return True

    def _look(self) -> tuple[tuple[int, ...], ...]:
        """Return what changes when a file is written or replaced; of one that is away: nothing."""
        return tuple(
            _stamp(path)
            for path in (self._tls.ca, self._tls.certificate, self._tls.key)
            if isinstance(path, str | Path)
        )


def _stamp(path: str | Path) -> tuple[int, ...]:
    try:
        about = os.stat(path)
    except OSError:
        return ()
    return about.st_mtime_ns, about.st_size, about.st_ino, about.st_dev


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
