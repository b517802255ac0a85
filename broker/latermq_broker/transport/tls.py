"""Certificates: read from files, made when there are none, read again when they change.

A context is built once and used for all handshakes until a file has changed. Files that cannot be
read then are complained about, and the old context goes on.
"""

import datetime
import ipaddress
import logging
import os
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from latermq_broker.clock import SystemClock
from latermq_broker.config.server_transport import ClientCertificates, TlsConfig
from latermq_broker.errors import ConfigError

log = logging.getLogger("latermq.transport")

LOOK_MS: Final = 1_000  # between two looks at the files
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"  # of TLS 1.2, those that HTTP/2 does not forbid
ALPN: Final = "h2"
PEM_MARK: Final = b"-----BEGIN "
OWN_DAYS: Final = 3_650
OWN_CERTIFICATE: Final = "certificate.pem"
OWN_KEY: Final = "key.pem"

_VERIFY: Final = {
    ClientCertificates.NONE: ssl.CERT_NONE,
    ClientCertificates.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientCertificates.REQUIRED: ssl.CERT_REQUIRED,
}


class CertificateFiles:
    """The contexts of one server.

    Args:
        own_directory: where a certificate of our own is kept when none is configured.

    Raises:
        ConfigError: the files cannot be used, or one cannot be made.
    """

    def __init__(self, config: TlsConfig, own_directory: Path, now_ms: int) -> None:
        self._config = config
        if config.certificate:
            self._certificate = Path(config.certificate).expanduser()
            self._key = Path(config.key).expanduser()
        else:
            self._certificate = own_directory / OWN_CERTIFICATE
            self._key = own_directory / OWN_KEY
            if not (self._certificate.exists() and self._key.exists()):
                _make_own(self._certificate, self._key)
        self._looked_ms = now_ms
        self._seen = self._stamps()
        self._context = self._load()

    def current(self, now_ms: int) -> ssl.SSLContext:
        """Return the context for the next handshake."""
        if now_ms - self._looked_ms >= LOOK_MS:
            self.look(now_ms)
        return self._context

    def look(self, now_ms: int) -> None:
        """Read the files again, if one has changed."""
        self._looked_ms = now_ms
        stamps = self._stamps()
        if stamps != self._seen:
            self._seen = stamps
            self._reload()

    def _reload(self) -> None:
        try:
            self._context = self._load()
        except ConfigError as error:
            log.error("the changed certificate is not used", extra={"reason": str(error)})
        else:
            log.info("certificate reloaded", extra={"file": str(self._certificate)})

    def _stamps(self) -> tuple[int, ...]:
        """Return what changes when a file does; 0 for one that is not there just now."""
        files = [self._certificate, self._key]
        if self._config.client_ca:
            files.append(Path(self._config.client_ca).expanduser())
        return tuple(file.stat().st_mtime_ns if file.exists() else 0 for file in files)

    def _load(self) -> ssl.SSLContext:
        """Load the certificates into a context. Raises ConfigError, with the file's name."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(CIPHERS)
        context.set_alpn_protocols([ALPN])
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        _require_pem("tls.certificate", self._certificate)
        _require_pem("tls.key", self._key)
        try:
            context.load_cert_chain(self._certificate, self._key)
        except (OSError, ssl.SSLError) as error:
            why = f"{self._certificate} and {self._key} cannot be used together: {error}"
            raise ConfigError("tls.certificate", why) from error
        context.verify_mode = _VERIFY[self._config.client_certificates]
        if self._config.client_ca:
            trusted = Path(self._config.client_ca).expanduser()
            _require_pem("tls.client_ca", trusted)
            try:
                context.load_verify_locations(trusted)
            except (OSError, ssl.SSLError) as error:
                raise ConfigError("tls.client_ca", f"{trusted} cannot be used: {error}") from error
        return context


def _require_pem(setting: str, path: Path) -> None:
    """Check a PEM file. Raises ConfigError: it cannot be read, or is of another kind."""
    try:
        data = path.read_bytes()
    except OSError as error:
        why = f"{path} cannot be read: {error.strerror or error}"
        raise ConfigError(setting, why) from error
    if PEM_MARK not in data:
        raise ConfigError(setting, f"{path} is not a PEM file")


def common_name(certificate: Mapping[str, Any] | None) -> str:
    """Read the common name of a peer's certificate, as `getpeercert` tells a verified one."""
    subject = (certificate or {}).get("subject", ())
    names = [value for part in subject for key, value in part if key == "commonName"]
    return str(names[0]) if len(names) == 1 else ""


def _make_own(certificate_path: Path, key_path: Path) -> None:
    """Make a self-signed certificate for this host's names. Raises ConfigError."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise ConfigError(
            "tls.certificate",
            "none is given, and making one needs cryptography: pip install 'latermq[tls]'",
        ) from None
    key = ec.generate_private_key(ec.SECP256R1())
    host = socket.gethostname()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host[:64])])
    names: list[x509.GeneralName] = [x509.DNSName(n) for n in dict.fromkeys((host, "localhost"))]
    names += [x509.IPAddress(ipaddress.ip_address(a)) for a in ("127.0.0.1", "::1")]
    began = datetime.datetime.fromtimestamp(SystemClock().now_ms() / 1_000, datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(began - datetime.timedelta(days=1))
        .not_valid_after(began + datetime.timedelta(days=OWN_DAYS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    try:
        certificate_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_whole(key_path, private, 0o600)
        _write_whole(certificate_path, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    except OSError as error:
        raise ConfigError("tls.certificate", f"cannot keep one of our own: {error}") from error
    log.info("made a certificate of our own", extra={"file": str(certificate_path)})


def _write_whole(path: Path, data: bytes, mode: int) -> None:
    """Write a file whole or not at all, never readable by more than `mode` says."""
    temporary = path.with_suffix(".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    temporary.rename(path)
