"""The logins and ACLs of compose.cluster.yaml, on a node of Kafka that is told the same.

They suffice for owners and standbys, and nobody else gets at the log, which has all secrets.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from latermq_broker.runtime import REFUSED
from support.broker_process import BrokerProcess
from support.kafka.cluster import JARS, KafkaCluster, UnavailableError
from support.kafka.replicas import config_of, take_over
from support.machine import patient

COMPOSE: Final = Path(__file__).parents[2] / "docker" / "compose.cluster.yaml"
OF_A_MACHINE: Final = {
    "KAFKA_HEAP_OPTS", "KAFKA_CONTROLLER_QUORUM_VOTERS", "KAFKA_LISTENERS", "KAFKA_LOG_DIRS",
}  # fmt: skip
STRANGER: Final = {
    "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
    "sasl.username": "stranger", "sasl.password": "somebody-else",
}  # fmt: skip
LOG_TOPIC: Final = "latermq.shop.log"
TOOL: Final = "/opt/kafka/bin/kafka-acls.sh"
DENIED: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC,
)  # fmt: skip


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    text = COMPOSE.read_text(encoding="utf-8")
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text).replace("$$", "$")
    content = yaml.safe_load(text)
    assert isinstance(content, dict)
    return content


@pytest.fixture(scope="module")
def kafka(room: Path, compose: dict[str, Any]) -> Iterator[KafkaCluster]:
    settings = {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value
        for name, value in compose["x-kafka-environment"].items()
        if name.startswith("KAFKA_") and name not in OF_A_MACHINE
    }
    users = "listener.name.clients.plain.sasl.jaas.config"  # and one more, whom no ACL names
    settings[users] = settings[users].replace(";", ' user_stranger="somebody-else";')
    try:
        cluster = KafkaCluster(room / "acls", settings=settings, listener="CLIENTS")
    except UnavailableError as reason:
        pytest.skip(str(reason))
    with cluster:
        yield cluster.start()


def allow(directory: Path, kafka: KafkaCluster, compose: dict[str, Any]) -> None:
    """Run what the service `kafka-acls` runs, here."""
    tool = directory / "kafka-acls.sh"
    command = "org.apache.kafka.tools.AclCommand"
    tool.write_text(f"exec java -Xmx128m -cp '{JARS}/lib/*' {command} \"$@\"\n")
    service = compose["services"]["kafka-acls"]
    (script,) = service["command"]
    script = script.replace("/dev/shm/", f"{directory}/").replace("kafka-1:9092", kafka.bootstrap)
    script = script.replace(TOOL, f"bash {tool}")
    environment = {"LOG_LOGIN": service["environment"]["LOG_LOGIN"]}
    words = [*service["entrypoint"], script]
    subprocess.run(
        words, env={"PATH": "/usr/bin:/bin", **environment}, check=True, timeout=patient(60)
    )


def test_the_acls_let_brokers_at_the_log_and_nobody_else(
    tmp_path: Path, kafka: KafkaCluster, compose: dict[str, Any]
) -> None:
    broker = compose["x-broker-environment"]
    cluster, login = broker["LATERMQ_REPLICATION_CLUSTER"], broker["LOG_LOGIN"]
    config = config_of(tmp_path, kafka, cluster, login)
    with BrokerProcess(tmp_path / "early", config=config) as early:
        early.spawn()
        ended = early.wait_end()  # no ACL yet
    assert ended.code == REFUSED
    assert "authoriz" in ended.stderr.lower()
    (tmp_path / "admin").mkdir()
    allow(tmp_path / "admin", kafka, compose)
    with (
        BrokerProcess(tmp_path / "a", config=config) as a,
        BrokerProcess(tmp_path / "b", config=config) as b,
    ):
        take_over(a, b)
        assert written(kafka) in DENIED
        assert read(kafka) in DENIED
        seen = AdminClient({"bootstrap.servers": kafka.bootstrap, **STRANGER}).list_topics(
            timeout=patient(10)
        )
        assert not [name for name in seen.topics if name.startswith("latermq.")]


def written(kafka: KafkaCluster) -> int | None:
    """Write to the log as a stranger; why that failed, None: it did not."""
    codes: list[int | None] = []
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "message.timeout.ms": 10_000, **STRANGER}
    )
    producer.produce(
        LOG_TOPIC, b"forged", on_delivery=lambda error, _: codes.append(error and error.code())
    )
    producer.flush(patient(20))
    (code,) = codes
    return code


def read(kafka: KafkaCluster) -> int | None:
    """Look for the log's records as a stranger; why that failed, None: it did not."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g", **STRANGER})
    try:
        consumer.get_watermark_offsets(TopicPartition(LOG_TOPIC, 0), timeout=patient(10))
    except KafkaException as error:
        code: int = error.args[0].code()
        return code
    finally:
        consumer.close()
    return None
