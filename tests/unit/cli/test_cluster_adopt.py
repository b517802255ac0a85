"""`latermq cluster adopt`: what is refused, and what is said of a log that was shipped."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner, Result

from latermq_broker.cluster.mark import Mark, write_mark
from latermq_broker.cluster.placement import home_by_name
from latermq_broker.config.config import Config, StoreConfig
from latermq_broker.deferred import Later
from latermq_broker.engine.engine import Engine
from latermq_broker.errors import ConfigError, LogUnavailableError
from latermq_broker.offline import cluster_adopt
from latermq_broker.replication import kafka_log, kafka_topics
from latermq_broker.replication.note import read_note
from latermq_broker.store.directory import LOG_NAME, REPLICA_NAME, SHARD_NAME
from latermq_broker.store.files import RealFiles
from latermq_broker.store.log.segment import segment_name
from latermq_broker.store.store import Store
from latermq_cli.root import latermq
from support.log_in_memory import LogInMemory

STORE: Final = StoreConfig(segment_bytes=17 << 20)
REPLICATION: Final = '[replication]\nkafka = "kafka-1:9092"\ncluster = "shop"\n'


class AtKafka(LogInMemory):
    """What the command finds there. While `away`, it takes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.wanted: Any = None

    def append(self, batch: bytes) -> Later[int]:
        if not self.away:
            return super().append(batch)
        later: Later[int] = Later()
        later.fail(LogUnavailableError("no quorum"))
        return later


@pytest.fixture
def at_kafka(monkeypatch: pytest.MonkeyPatch) -> AtKafka:
    log = AtKafka()
    monkeypatch.setattr(kafka_log, "KafkaLog", lambda *_: log)
    monkeypatch.setattr(
        kafka_topics, "ensure_topics", lambda _, wanted: setattr(log, "wanted", wanted)
    )
    monkeypatch.setattr(kafka_topics, "warn_of_clock", lambda *_: None)
    return log


def opened(directory: Path) -> Engine:
    store = Store.open(directory, STORE, RealFiles(), 5)
    return Engine.open(store, Config(store=STORE), 5)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The directory of a broker that was stopped."""
    engine = opened(tmp_path / "data")
    engine.ensure_topic("orders", 5)
    engine.close(6)
    return tmp_path / "data"


def adopt(directory: Path, *words: str, config: str = REPLICATION) -> Result:
    file = directory.with_name("latermq.toml")
    file.write_text(config)
    line = ["cluster", "adopt", str(directory), "--config", str(file), *words]
    return CliRunner().invoke(latermq, line)


def content(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def require_refused(ended: Result, code: int, said: str) -> None:
    assert (ended.exit_code, said in ended.stderr) == (code, True), ended.stderr


def test_a_log_is_shipped_and_its_directory_is_the_last_owners(
    data: Path, at_kafka: AtKafka
) -> None:
    before = content(data)
    ended = adopt(data, "--json")
    assert ended.exit_code == 0, ended.stderr
    said = json.loads(ended.stdout)
    end, entries = said["end"], len(at_kafka.entries)
    assert said == {"cluster": "shop", "shard": 0, "start": 0, "end": end, "entries": entries}
    assert ended.stderr.startswith("shipped ")
    assert (at_kafka.wanted.cluster, at_kafka.wanted.shards) == ("shop", 1)
    after = content(data)
    note = read_note(RealFiles(), data)
    assert note is not None
    assert note.standing is not None
    assert note.standing.whole_end == end
    del after[data / REPLICA_NAME]
    assert after == before
    require_refused(adopt(data), 2, "is a copy of a replicated log")


def test_people_are_told_what_to_do_then(
    data: Path, at_kafka: AtKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_adopt, "TOLD_BYTES", 1)
    ended = adopt(data)
    assert "shard 0 of shop, positions 0 to" in ended.stdout
    assert "start its broker with [replication]" in ended.stdout
    *_, shipped, _, whole, unit = ended.stderr.split()
    assert (shipped, unit) == (whole, "bytes")


def test_a_log_that_does_not_answer_leaves_all_as_it_was(data: Path, at_kafka: AtKafka) -> None:
    before, at_kafka.away = content(data), True
    require_refused(adopt(data), 1, "no quorum. Nothing of")
    assert content(data) == before
    at_kafka.away = False
    assert adopt(data).exit_code == 0


def test_nothing_is_there(tmp_path: Path, at_kafka: AtKafka) -> None:
    require_refused(adopt(tmp_path / "nowhere"), 3, "holds no log")
    assert not (tmp_path / "nowhere").exists()
    assert not at_kafka.entries


def test_what_the_caller_must_ask_differently(data: Path, at_kafka: AtKafka) -> None:
    require_refused(adopt(data, config=""), 2, "no replicated log is named")
    require_refused(adopt(data, config=REPLICATION + "[cluster]\nshard = 1\n"), 2, "cluster.shards")
    machines = REPLICATION + '[cluster]\nmachines = ["10.0.0.1:8081"]\n'
    require_refused(adopt(data, config=machines), 2, "which shard")
    second = REPLICATION + '[cluster]\nshards = ["10.0.0.1:8081", "10.0.0.1:8082"]\nshard = 1\n'
    require_refused(adopt(data, config=second), 2, "can become shard 0 only")
    (data / SHARD_NAME).write_text('{"shard": 1, "shards": 2, "pins": {}}')
    require_refused(adopt(data), 2, "is a shard of a cluster")
    assert adopt(data, config=second).exit_code == 0
    assert at_kafka.wanted.shards == 2


def test_topics_that_others_would_look_for_elsewhere(data: Path, at_kafka: AtKafka) -> None:
    """What pins them is in the file SHARD, which a standby does not get."""
    first = REPLICATION + '[cluster]\nshards = ["10.0.0.1:8081", "10.0.0.1:8082"]\n'
    require_refused(adopt(data, config=first), 2, "was alone, and would be shard 0 of 2")
    away, here = (
        next(name for name in map(str, range(99)) if home_by_name(name, 2) == home)
        for home in (1, 0)
    )
    write_mark(data, Mark(0, 2, {here: 0, away: 0}))
    require_refused(adopt(data, config=first), 2, f"topic {away} is pinned to shard 0")
    assert not at_kafka.entries
    write_mark(data, Mark(0, 2, {here: 0}))
    assert adopt(data, config=first).exit_code == 0


def test_its_broker_must_be_stopped(data: Path, at_kafka: AtKafka) -> None:
    engine = opened(data)
    require_refused(adopt(data), 2, "is in use by another broker")
    engine.abandon()
    assert not at_kafka.entries


def test_topics_that_are_not_as_they_must_be_are_refused(
    data: Path, at_kafka: AtKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ConfigError("replication.kafka", "the topic has cleanup.policy = compact")

    monkeypatch.setattr(kafka_topics, "ensure_topics", refuse)
    require_refused(adopt(data), 2, "has cleanup.policy = compact")


def test_a_topic_that_has_something_else_is_refused(data: Path, at_kafka: AtKafka) -> None:
    at_kafka.entries.append(b"somebody else's")
    require_refused(adopt(data), 2, "entry 0 is not of this log")


def test_a_damaged_log_is_not_shipped(data: Path, at_kafka: AtKafka) -> None:
    path = data / LOG_NAME / segment_name(0)
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"?" + content[101:])
    require_refused(adopt(data), 1, "`latermq log verify`")
    assert not at_kafka.entries
