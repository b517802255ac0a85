"""The topics of a cluster at Kafka: made as they must be, or refused with what mends them.

    latermq.<cluster>.log      a partition for each shard; kept until the broker trims it
    latermq.<cluster>.canary   likewise; what tells whether the engine takes records

A log whose engine deletes by time, compacts, or answers before a quorum has it, loses messages that
were acknowledged: with such a topic no broker starts.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from latermq_broker.errors import ConfigError

log = logging.getLogger("latermq.replication")

CALL_S: Final = 30.0
SETTING: Final = "replication.kafka"
MESSAGE_BYTES_MIN: Final = 1_000_000
FOR_EVER: Final = "-1"
CANARY_MS: Final = "600000"


class Wanted(NamedTuple):
    """What a cluster's topics must be."""

    cluster: str
    shards: int
    replicas: int
    replicas_min: int

    @property
    def log_topic(self) -> str:
        return f"latermq.{self.cluster}.log"

    @property
    def canary_topic(self) -> str:
        return f"latermq.{self.cluster}.canary"

    @property
    def log_config(self) -> dict[str, str]:
        """Return what the log's topic is made with."""
        return {
            "min.insync.replicas": str(self.replicas_min),
            "retention.ms": FOR_EVER,
            "retention.bytes": FOR_EVER,
            "cleanup.policy": "delete",
            "unclean.leader.election.enable": "false",
            "max.message.bytes": str(MESSAGE_BYTES_MIN),
        }

    @property
    def canary_config(self) -> dict[str, str]:
        return {"min.insync.replicas": str(self.replicas_min), "retention.ms": CANARY_MS}


def ensure_topics(settings: Mapping[str, Any], wanted: Wanted) -> None:
    """Make the topics that are missing, and look at the log's.

    Raises:
        ConfigError: Kafka does not answer, refuses, or the log's topic is not as it must be.
    """
    try:
        admin = AdminClient(dict(settings))
        _create(admin, wanted.log_topic, wanted, wanted.log_config)
        _create(admin, wanted.canary_topic, wanted, wanted.canary_config)
        faults = [
            *_faults_of_place(admin, wanted, settings),
            *_faults_of_config(admin, wanted, settings),
        ]
    except KafkaException as error:
        raise ConfigError(SETTING, f"Kafka says: {error.args[0]}") from error
    if faults:
        raise ConfigError(SETTING, f"topic {wanted.log_topic} " + "; ".join(faults))


def _create(admin: Any, name: str, wanted: Wanted, config: dict[str, str]) -> None:
    topic = NewTopic(name, wanted.shards, wanted.replicas, config=config)
    try:
        admin.create_topics([topic], operation_timeout=CALL_S)[name].result(CALL_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    else:
        log.info("topic %s made: %d partitions, %d replicas", name, wanted.shards, wanted.replicas)


def _faults_of_place(admin: Any, wanted: Wanted, settings: Mapping[str, Any]) -> Iterator[str]:
    name = wanted.log_topic
    partitions = admin.list_topics(name, CALL_S).topics[name].partitions
    if len(partitions) != wanted.shards:
        yield (
            f"has {len(partitions)} partitions for {wanted.shards} shards: their number is fixed "
            "when a cluster is made"
        )
    fewest = min((len(each.replicas) for each in partitions.values()), default=0)
    if fewest < wanted.replicas:
        tool = f"kafka-reassign-partitions.sh --bootstrap-server {_servers(settings)} --execute"
        yield f"has {fewest} replicas, not {wanted.replicas}: `{tool}` with a plan that adds them"


def _faults_of_config(admin: Any, wanted: Wanted, settings: Mapping[str, Any]) -> Iterator[str]:
    name = wanted.log_topic
    resource = ConfigResource(ResourceType.TOPIC, name)
    (future,) = admin.describe_configs([resource], request_timeout=CALL_S).values()
    there = {key: entry.value for key, entry in future.result(CALL_S).items()}
    wrong = {
        key: value
        for key, value in wanted.log_config.items()
        if key in there and not _fits(key, there[key], value)
    }
    if wrong:
        what = ", ".join(f"{key} = {there[key]}" for key in wrong)
        mend = ",".join(f"{key}={value}" for key, value in wrong.items())
        yield (
            f"has {what}: `kafka-configs.sh --bootstrap-server {_servers(settings)} --alter "
            f"--entity-type topics --entity-name {name} --add-config {mend}`"
        )
    if not wrong and there.get("flush.messages", "1") != "1":
        log.warning(
            "topic %s is not synced before it answers: it survives the loss of any one machine, "
            "not of all at once; flush.messages=1 has it synced",
            name,
        )


def _fits(key: str, value: str, wanted: str) -> bool:
    if key in ("min.insync.replicas", "max.message.bytes"):
        return int(value) >= int(wanted)
    return value == wanted


def _servers(settings: Mapping[str, Any]) -> str:
    return str(settings.get("bootstrap.servers", ""))
