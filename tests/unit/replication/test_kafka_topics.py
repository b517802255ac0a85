"""What is wrong with Kafka's topics or its clock, as far as it needs no Kafka to see it."""

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError, KafkaException

from latermq_broker import runtime
from latermq_broker.errors import ConfigError, UnansweredError
from latermq_broker.replication import kafka_topics
from latermq_broker.replication.kafka_topics import (
    Wanted,
    clock_gap_ms,
    ensure_topics,
    warn_of_few_in_sync,
)
from latermq_cli.root import latermq

WANTED = Wanted("shop", 1, replicas=3, replicas_min=2)


@pytest.mark.parametrize(
    ("told_ms", "gap_ms"), [(1_000, 0), (1_050, 0), (1_100, 0), (3_100, 2_000), (400, -600)]
)
def test_clocks_are_apart_by_what_the_way_does_not_explain(told_ms: int, gap_ms: int) -> None:
    assert clock_gap_ms(1_000, told_ms, 1_100) == gap_ms


def test_replicas_that_are_behind_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    whole = SimpleNamespace(isrs=[1, 2, 3])
    warn_of_few_in_sync(WANTED, [whole])
    assert not caplog.text
    warn_of_few_in_sync(WANTED, [whole, SimpleNamespace(isrs=[1])])
    assert "has 1 of 3 replicas in sync, and takes nothing with fewer than 2" in caplog.text


class Silent:
    """An administrator whom nobody answers; or with an error of Kafka's client."""

    asked: ClassVar[dict[str, float]] = {}
    code: ClassVar[int | None] = None

    def __init__(self, _: dict[str, Any]) -> None: ...

    def list_topics(self, **_: float) -> None: ...

    def create_topics(self, topics: list[Any], **timeouts: float) -> dict[str, Future[None]]:
        Silent.asked = timeouts
        answer = Future[None]()
        if Silent.code is not None:
            answer.set_exception(KafkaException(KafkaError(Silent.code)))
        return {topic.topic: answer for topic in topics}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (None, UnansweredError),
        (KafkaError._TIMED_OUT, UnansweredError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, ConfigError),
    ],
)
def test_who_is_not_answered_is_told_so(
    monkeypatch: pytest.MonkeyPatch, code: int | None, kind: type[ConfigError]
) -> None:
    """It was told of a bug; and where Kafka is not up yet, a start is to be tried again."""
    monkeypatch.setattr(Silent, "code", code)
    monkeypatch.setattr(kafka_topics, "AdminClient", Silent)
    monkeypatch.setattr(kafka_topics, "CALL_S", 0.01)
    with pytest.raises(ConfigError) as raised:
        ensure_topics({}, WANTED)
    assert type(raised.value) is kind
    assert 0 < Silent.asked["operation_timeout"] < Silent.asked["request_timeout"] < 30


class Refusing:
    """One that gets nowhere, for what its client says once it has tried a few times."""

    said: ClassVar[KafkaError]
    tries: ClassVar[int] = 0

    def __init__(self, settings: dict[str, Any]) -> None:
        self._on_error = settings["error_cb"]

    def list_topics(self, **_: float) -> None:
        Refusing.tries += 1
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def poll(self, _: float) -> None:
        if Refusing.tries > 2:
            self._on_error(Refusing.said)


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (KafkaError._AUTHENTICATION, "SASL authentication error: no", ConfigError),
        (KafkaError._SSL, "SSL handshake failed: certificate verify failed", ConfigError),
        (KafkaError._SSL, "SSL handshake failed: Disconnected", UnansweredError),
        (KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down", UnansweredError),
    ],
)
def test_who_is_not_let_in_is_told_so_at_once(
    monkeypatch: pytest.MonkeyPatch, code: int, text: str, kind: type[ConfigError]
) -> None:
    """It was told that nobody answers, after half a minute, and to try again."""
    monkeypatch.setattr(Refusing, "said", KafkaError(code, text), raising=False)
    monkeypatch.setattr(Refusing, "tries", 0)
    monkeypatch.setattr(kafka_topics, "AdminClient", Refusing)
    with pytest.raises(ConfigError, match=text) as raised:
        ensure_topics({}, WANTED)
    assert type(raised.value) is kind
    assert Refusing.tries == (3 if kind is ConfigError else kafka_topics.LOGINS_MAX)


def test_brokers_that_do_not_hear_of_each_other_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Silent, "code", None)
    monkeypatch.setattr(kafka_topics, "CALL_S", 0.01)
    kafka_topics._ensure_members(Silent({}), WANTED, {})
    assert "Kafka does not answer" in caplog.text


def test_a_start_that_kafka_does_not_answer_is_to_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By exit code 4, which the unit for systemd does not take for a person's to mend."""

    def silent(*_: object, **__: object) -> int:
        raise UnansweredError("replication.kafka", "Kafka did not answer")

    monkeypatch.setattr(runtime, "run_replica", silent)
    file = tmp_path / "latermq.toml"
    file.write_text('[replication]\nkafka = "kafka-1:9092"\n')
    words = ["serve", "--data-dir", str(tmp_path / "data"), "--config", str(file)]
    ended = CliRunner().invoke(latermq, words)
    assert (ended.exit_code, "did not answer" in ended.output) == (runtime.TRY_AGAIN, True)
