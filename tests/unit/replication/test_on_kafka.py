"""What a broker looks at before it asks Kafka anything (`latermq_broker.replication.on_kafka`)."""

from pathlib import Path

import pytest

from latermq_broker.config.config import Config
from latermq_broker.config.replication import ReplicationConfig
from latermq_broker.errors import ConfigError
from latermq_broker.replication import kafka_topics
from latermq_broker.replication.on_kafka import replica_on_kafka


@pytest.mark.parametrize(("mode", "said"), [(0o600, False), (0o640, True), (0o604, True)])
def test_secrets_that_others_may_read_are_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    mode: int,
    said: bool,
) -> None:
    def unreachable(*_: object) -> None:
        raise ConfigError("replication.kafka", "no node answers")

    monkeypatch.setattr(kafka_topics, "ensure_topics", unreachable)
    file = tmp_path / "kafka.properties"
    file.write_text("sasl.password=secret\n")
    file.chmod(mode)
    chosen = ReplicationConfig(kafka="kafka-1:9092", kafka_file=str(file))
    with pytest.raises(ConfigError, match="no node answers"):
        replica_on_kafka(Config(replication=chosen))
    assert ("others on this machine may read" in caplog.text) == said
    assert "sasl" not in caplog.text
