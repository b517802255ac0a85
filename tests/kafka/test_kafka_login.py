"""Replicas whose Kafka asks for a login, over TLS with a certificate of a private authority."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from latermq_broker.runtime import REFUSED
from support.broker_process import BrokerProcess
from support.kafka.cluster import HOST, KafkaCluster, UnavailableError
from support.kafka.replicas import config_of, take_over
from support.kafka.security import Security


@pytest.fixture(scope="module")
def security(room: Path) -> Security:
    return Security(room / "certificates", HOST)


@pytest.fixture(scope="module")
def secure_kafka(room: Path, security: Security) -> Iterator[KafkaCluster]:
    try:
        cluster = KafkaCluster(room / "secure", security=security)
    except UnavailableError as reason:
        pytest.skip(str(reason))
    with cluster:
        yield cluster.start()


def with_settings(directory: Path, kafka: KafkaCluster, settings: dict[str, str]) -> str:
    login = "".join(f"{name}={value}\n" for name, value in settings.items())
    return config_of(directory, kafka, "login", login)


def test_a_log_is_kept_and_taken_over_where_brokers_log_in(
    tmp_path: Path, secure_kafka: KafkaCluster, security: Security
) -> None:
    """Producer, reader, canary, members and what asks for the end: each has a connection."""
    config = with_settings(tmp_path, secure_kafka, security.client_settings())
    with (
        BrokerProcess(tmp_path / "a", config=config) as a,
        BrokerProcess(tmp_path / "b", config=config) as b,
    ):
        received = take_over(a, b)
        assert len(received) == len(set(received))
        assert "others on this machine may read" not in b.log_path.read_text(encoding="utf-8")


@pytest.mark.parametrize("wrong", ["password", "authority"])
def test_a_start_that_kafka_does_not_let_in_says_why(
    tmp_path: Path, secure_kafka: KafkaCluster, security: Security, wrong: str
) -> None:
    """Not that Kafka does not answer, which is to be tried again for ever."""
    if wrong == "password":
        settings, why = security.client_settings(password="not-this-one"), "SASL authentication"
    else:
        stranger = Security(tmp_path / "stranger", HOST)
        settings, why = security.client_settings(ca=stranger.ca), "certificate verify failed"
    config = with_settings(tmp_path, secure_kafka, settings)
    with BrokerProcess(tmp_path / "a", config=config) as a:
        a.spawn()
        ended = a.wait_end()
    assert ended.code == REFUSED
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("latermq: ")]
    assert "Kafka cannot be used" in line
    assert why in line
    assert "not-this-one" not in ended.stderr
