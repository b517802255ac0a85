"""Settings of `[replication]`, and librdkafka's that are passed through."""

from pathlib import Path
from typing import Any

import pytest

from latermq_broker.config.replication import SERVERS, ReplicationConfig
from latermq_broker.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "setting"),
    [
        ({"kafka": "kafka-1"}, "kafka"),
        ({"kafka": "kafka-1:9092,"}, "kafka"),
        ({"kafka_file": "kafka.properties"}, "kafka"),
        ({"cluster": ""}, "cluster"),
        ({"cluster": "a.b"}, "cluster"),
        ({"replicas": 0}, "replicas"),
        ({"replicas": 16}, "replicas"),
        ({"replicas_min": 0}, "replicas_min"),
        ({"replicas": 2, "replicas_min": 3}, "replicas_min"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given: dict[str, Any], setting: str) -> None:
    with pytest.raises(ConfigError, match=f"replication.{setting}"):
        ReplicationConfig(**given)


def test_a_file_has_what_tls_and_sasl_need(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("# ours\nsecurity.protocol = SASL_SSL\n\nsasl.password=a=b\n")
    config = ReplicationConfig(kafka="kafka-1:9092,kafka-2:9092", kafka_file=str(file))
    assert config.client_settings() == {
        SERVERS: "kafka-1:9092,kafka-2:9092",
        "security.protocol": "SASL_SSL",
        "sasl.password": "a=b",
    }


@pytest.mark.parametrize("line", ["no sign", "=x", "acks=1", "bootstrap.servers=x:1", "group.id=x"])
def test_a_file_that_says_otherwise_is_refused(tmp_path: Path, line: str) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text(line)
    config = ReplicationConfig(kafka="kafka-1:9092", kafka_file=str(file))
    with pytest.raises(ConfigError, match=r"replication\.kafka_file.*line 1"):
        config.client_settings()
    file.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        config.client_settings()
