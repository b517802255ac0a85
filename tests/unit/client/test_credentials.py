"""How the SDK signs, and where it takes credentials and TLS from."""

import hmac
from pathlib import Path

import pytest

import latermq
from latermq._connection.grpcio import credentials_of as grpc_credentials_of
from latermq._values.credentials import Credentials, credentials_of
from latermq._values.endpoints import Endpoints
from latermq._values.settings import ClientKind, Profile
from latermq._values.tls import Tls, tls_of
from latermq._wire import session_calls as wire
from latermq_broker.config.server_transport import TlsConfig
from latermq_broker.transport.tls import CertificateFiles

VARIABLES = (
    "LATERMQ_ACCESS_KEY",
    "LATERMQ_SECRET_KEY",
    "LATERMQ_TLS",
    "LATERMQ_CA",
    "LATERMQ_INSECURE_SKIP_VERIFY",
)


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)


def test_every_call_is_signed() -> None:
    profile = Profile(
        kind=ClientKind.PRODUCER,
        client_id="c",
        access_point=Endpoints.parse("127.0.0.1:1"),
        credentials=Credentials("shop", "a-secret"),
    )
    headers = dict(wire.ClientHeaders(profile).next(()))
    date = headers["x-mq-date-time"]
    assert isinstance(date, str)
    signature = hmac.new(b"a-secret", date.encode(), "sha1").hexdigest()
    assert headers["authorization"] == (
        f"MQv2-HMAC-SHA1 Credential=shop, SignedHeaders=x-mq-date-time, Signature={signature}"
    )
    assert "a-secret" not in repr(profile)


def test_a_signature_serves_for_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    credentials = Credentials("shop", "a-secret")
    now_s = 1_706_745_599.9
    monkeypatch.setattr("latermq._values.credentials.time.time", lambda: now_s)
    first = credentials.headers()
    assert first[0] == ("x-mq-date-time", "2024-01-31T23:59:59Z")
    assert credentials.headers() is first
    now_s += 0.2
    assert credentials.headers()[0] == ("x-mq-date-time", "2024-02-01T00:00:00Z")


def test_credentials_are_given_or_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert credentials_of(None, None) is None
    assert credentials_of("", "") is None
    for half in (("shop", None), (None, "a-secret"), ("shop", "")):
        with pytest.raises(ValueError, match="given together"):
            credentials_of(*half)
    monkeypatch.setenv("LATERMQ_ACCESS_KEY", "env")
    monkeypatch.setenv("LATERMQ_SECRET_KEY", "env-secret")
    assert credentials_of(None, None) == Credentials("env", "env-secret")
    assert credentials_of("shop", "a-secret") == Credentials("shop", "a-secret")
    assert credentials_of("", "") is None  # said to be none


def test_tls_is_given_or_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tls_of(None) is False
    monkeypatch.setenv("LATERMQ_TLS", "1")
    assert tls_of(None) is True
    assert tls_of(False) is False
    monkeypatch.setenv("LATERMQ_TLS", "off")
    assert tls_of(None) is False
    monkeypatch.setenv("LATERMQ_CA", "/ca.pem")
    assert tls_of(None) == Tls(ca="/ca.pem")
    monkeypatch.setenv("LATERMQ_INSECURE_SKIP_VERIFY", "true")
    assert tls_of(None) == Tls(ca="/ca.pem", verify=False)


def test_grpc_cannot_trust_anybody() -> None:
    with pytest.raises(ValueError, match="needs the transport"):
        grpc_credentials_of(Tls(verify=False))


async def test_half_of_the_credentials_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="given together"):
        latermq.connect("127.0.0.1:1", access_key="shop")


def test_authorities_are_a_file_or_its_content(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    CertificateFiles(TlsConfig(enabled=True), tmp_path, 0)
    file = tmp_path / "certificate.pem"
    for ca in (file.read_bytes(), file, str(file)):
        assert len(Tls(ca=ca).context().get_ca_certs()) == 1
    for nothing in (b"no certificate", b"\n"):
        with pytest.raises(ValueError, match="ca as given: cannot be used"):
            Tls(ca=nothing).context()
    for empty in ("", b""):
        with pytest.raises(ValueError, match="ca must not be empty"):
            Tls(ca=empty)


@pytest.mark.parametrize(("number", "name"), [(0, "access_key"), (1, "secret")])
@pytest.mark.parametrize("given", [True, False])
def test_a_key_that_has_no_bytes_is_named_and_not_told(
    number: int, name: str, given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = ["shop", "a-secret"]
    keys[number] += "\udcff"  # what is in the environment and no UTF-8
    if not given:
        name = VARIABLES[number]
        for variable, value in zip(VARIABLES, keys, strict=False):
            monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=f"^{name} must be text that UTF-8 can hold$") as e:
        credentials_of(*keys) if given else credentials_of(None, None)
    assert type(e.value) is ValueError
    assert e.value.__cause__ is None
