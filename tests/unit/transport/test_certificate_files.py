"""Files of TLS that cannot be used: which one, and why, in the line that a start ends with."""

from pathlib import Path

import pytest

from latermq_broker.config.server_transport import ClientCertificates, TlsConfig
from latermq_broker.errors import ConfigError
from latermq_broker.transport.tls import CertificateFiles


def test_a_certificate_of_our_own_lies_where_only_we_look(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    own = tmp_path / "data" / "tls"
    CertificateFiles(TlsConfig(enabled=True), own, 0)
    assert own.stat().st_mode & 0o777 == 0o700
    assert (own / "key.pem").stat().st_mode & 0o777 == 0o600


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    own = tmp_path / "tls"
    CertificateFiles(TlsConfig(enabled=True), own, 0)
    good, key, notes = str(own / "certificate.pem"), str(own / "key.pem"), str(tmp_path / "notes")
    Path(notes).write_text("no certificate")
    empty = tmp_path / "empty.pem"
    empty.write_text("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")
    cases = (
        (("/nope.pem", key, ""), "tls.certificate: /nope.pem cannot be read: No such file or dir"),
        ((good, "/nope.pem", ""), "tls.key: /nope.pem cannot be read: No such file or directory"),
        ((notes, key, ""), f"tls.certificate: {notes} is not a PEM file"),
        ((good, str(tmp_path), ""), f"tls.key: {tmp_path} cannot be read: Is a directory"),
        ((str(empty), key, ""), f"tls.certificate: {empty} and {key} cannot be used together: "),
        ((good, key, "/nope.pem"), "tls.client_ca: /nope.pem cannot be read: No such file or dir"),
        ((good, key, str(empty)), f"tls.client_ca: {empty} cannot be used: "),
    )
    for (certificate, private, authority), said in cases:
        asks = ClientCertificates.REQUIRED if authority else ClientCertificates.NONE
        config = TlsConfig(
            enabled=True,
            certificate=certificate,
            key=private,
            client_ca=authority,
            client_certificates=asks,
        )
        with pytest.raises(ConfigError) as refused:
            CertificateFiles(config, own, 0)
        assert str(refused.value).startswith(said)
