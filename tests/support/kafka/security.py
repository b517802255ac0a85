"""A Kafka that lets in who logs in, over TLS with a certificate of a private authority."""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

MECHANISM: Final = "SCRAM-SHA-512"
DAY: Final = timedelta(days=1)


class Security:
    """Its files, and what a node and its clients are told of them.

    Args:
        directory: for the certificates.
        host: the address that the certificate is for.
    """

    def __init__(self, directory: Path, host: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.user: Final = "shop"
        self.password: Final = "shop-secret-1"
        self.ca: Final = directory / "ca.pem"
        self._node = directory / "node.pem"
        authority, node = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        signed_by = _certificate("an authority", authority.public_key(), "an authority", authority)
        certificate = _certificate(host, node.public_key(), "an authority", authority, host)
        self.ca.write_bytes(_pem(signed_by))
        key = node.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        self._node.write_bytes(key + _pem(certificate))

    @property
    def node_settings(self) -> dict[str, str]:
        """Settings of server.properties, beside the listeners."""
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        login = f'{module} required username="{self.user}" password="{self.password}";'
        return {
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL",
            "inter.broker.listener.name": "SASL_SSL",
            "sasl.enabled.mechanisms": MECHANISM,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": login,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._node),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
        }

    @property
    def scram(self) -> str:
        """Who may come in, as the tool that formats a node's directory takes it."""
        return f"{MECHANISM}=[name={self.user},password={self.password}]"

    def client_settings(
        self, password: str | None = None, ca: Path | None = None
    ) -> dict[str, str]:
        """Librdkafka's; with another password, or who else signs."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": self.user,
            "sasl.password": self.password if password is None else password,
            "ssl.ca.location": str(self.ca if ca is None else ca),
        }


def _certificate(
    subject: str,
    key: ec.EllipticCurvePublicKey,
    issuer: str,
    signer: ec.EllipticCurvePrivateKey,
    host: str = "",
) -> x509.Certificate:
    """Make one; of an authority, where no host is named."""
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
        .add_extension(x509.BasicConstraints(ca=not host, path_length=None), critical=True)
    )
    if host:
        address = x509.IPAddress(ipaddress.ip_address(host))
        builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
    return builder.sign(signer, hashes.SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
