"""What a broker looks at before it asks Kafka anything (`latermq_broker.replication.on_kafka`)."""

from pathlib import Path

import pytest

from latermq_broker.config.config import Config, ServerConfig
from latermq_broker.config.replication import ReplicationConfig
from latermq_broker.errors import ConfigError
from latermq_broker.replication import kafka_log, kafka_topics
from latermq_broker.replication.members import kafka_members
from latermq_broker.replication.on_kafka import replica_on_kafka
from support.log_in_memory import LogInMemory, MembersInMemory


def unreachable(*_: object) -> None:
    raise ConfigError("replication.kafka", "no node answers")


@pytest.mark.parametrize(("mode", "said"), [(0o600, False), (0o640, True), (0o604, True)])
def test_secrets_that_others_may_read_are_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    mode: int,
    said: bool,
) -> None:
    monkeypatch.setattr(kafka_topics, "ensure_topics", unreachable)
    file = tmp_path / "kafka.properties"
    file.write_text("sasl.password=secret\n")
    file.chmod(mode)
    chosen = ReplicationConfig(kafka="kafka-1:9092", kafka_file=str(file))
    with pytest.raises(ConfigError, match="no node answers"):
        replica_on_kafka(Config(replication=chosen), False)
    assert ("others on this machine may read" in caplog.text) == said
    assert "sasl" not in caplog.text


async def test_who_stands_by_again_does_not_need_an_answer_at_that_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has handed over is not to end as if its settings were wrong."""
    for name in ("ensure_topics", "warn_of_clock"):
        monkeypatch.setattr(kafka_topics, name, unreachable)
    monkeypatch.setattr(kafka_log, "KafkaLog", lambda *_: LogInMemory())
    monkeypatch.setattr(kafka_members, "KafkaMembers", lambda *_: MembersInMemory())
    config = Config(
        server=ServerConfig(data_dir=str(tmp_path)),
        replication=ReplicationConfig(kafka="kafka-1:9092"),
    )
    with pytest.raises(ConfigError, match="no node answers"):
        replica_on_kafka(config, False)
    replica = replica_on_kafka(config, True)
    assert not replica.ready
    await replica.close()
