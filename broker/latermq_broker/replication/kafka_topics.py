"""The topics of a cluster at Kafka: made as they must be, or refused with what mends them.

    latermq.<cluster>.log      a partition for each shard; kept until the broker trims it
    latermq.<cluster>.canary   likewise; what tells whether Kafka takes records
    latermq.<cluster>.members  one partition; the last that each broker said of itself, for an hour

A log topic that deletes by time, compacts, or answers before a quorum has it, loses messages that
were acknowledged: with such a topic no broker starts. Of the members topic it is only warned.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Event
from typing import Any, Final, NamedTuple

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from latermq_broker.errors import ConfigError, UnansweredError

log = logging.getLogger("latermq.replication")

CALL_S: Final = 30.0
# Kafka gives up first, then its client, both before whoever waits does.
REQUEST_S: Final = 25.0
OPERATION_S: Final = 20.0
LOGIN_S: Final = 1.0  # then what its client said is looked at
LOGINS_MAX: Final = 25
SILENCE: Final = frozenset(
    [
        KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._TRANSPORT,
        KafkaError.REQUEST_TIMED_OUT,
    ]
)  # fmt: skip
SETTING: Final = "replication.kafka"
MESSAGE_BYTES_MIN: Final = 1_000_000
FOR_EVER: Final = "-1"
CANARY_MS: Final = "600000"
MEMBERS_MS: Final = "3600000"
MEMBERS_SEGMENT_MS: Final = "600000"  # so that it is compacted before it is long
LOOK_S: Final = 0.1
LOOKS_MAX: Final = 50  # at a topic whose partitions have no leader yet
CLOCK_S: Final = 5.0
APART_MS: Final = 1_000  # clocks that say so much else


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
        return {
            "min.insync.replicas": str(self.replicas_min),
            "retention.ms": CANARY_MS,
            "message.timestamp.type": "LogAppendTime",  # Kafka's clock: `warn_of_clock`
        }

    @property
    def members_config(self) -> dict[str, str]:
        return {
            "cleanup.policy": "compact,delete",
            "retention.ms": MEMBERS_MS,
            "segment.ms": MEMBERS_SEGMENT_MS,
            "message.timestamp.type": "LogAppendTime",  # by which it is told how old an entry is
        }


def members_topic(cluster: str) -> str:
    """Name the topic in which a cluster's brokers tell of themselves."""
    return f"latermq.{cluster}.members"


def ensure_topics(settings: Mapping[str, Any], wanted: Wanted) -> None:
    """Make the topics that are missing, and look at the log's.

    Raises:
        UnansweredError: Kafka does not answer.
        ConfigError: it refuses, or who answers is not to be trusted, or the log's topic is not as
            it must be.
    """
    try:
        said: list[Any] = []  # by Kafka's client, of its connections
        admin = AdminClient({**settings, "error_cb": said.append})
        _log_in(admin, said)
        _create(admin, wanted.log_topic, wanted.shards, wanted.replicas, wanted.log_config)
        _create(admin, wanted.canary_topic, wanted.shards, wanted.replicas, wanted.canary_config)
        there = _config_of(admin, wanted.log_topic)
        faults = [
            *_faults_of_place(admin, wanted, settings),
            *_faults_of_config(there, wanted.log_topic, wanted.log_config, settings),
        ]
    except TimeoutError as error:
        raise UnansweredError(SETTING, f"Kafka did not answer within {CALL_S:.0f} s") from error
    except KafkaException as error:
        kind = UnansweredError if error.args[0].code() in SILENCE else ConfigError
        raise kind(SETTING, f"Kafka says: {error.args[0]}") from error
    if faults:
        raise ConfigError(SETTING, f"topic {wanted.log_topic} " + "; ".join(faults))
    if there.get("flush.messages", "1") != "1":
        log.warning(
            "topic %s is not synced before it answers: it survives the loss of any one machine, "
            "not of all at once; flush.messages=1 has it synced",
            wanted.log_topic,
        )
    _ensure_members(admin, wanted, settings)


def _log_in(admin: Any, said: list[Any]) -> None:
    """Have a node answer, as whom the settings say; its client would try for ever.

    Raises:
        ConfigError: the login is refused, or its certificate is of nobody known.
        UnansweredError: nobody answers.
    """
    for _ in range(LOGINS_MAX):
        try:
            admin.list_topics(timeout=LOGIN_S)
        except KafkaException:
            admin.poll(0)  # what it has to say
            for error in said:
                if _is_refusal(error):
                    raise ConfigError(SETTING, f"Kafka cannot be used: {error.str()}") from None
        else:
            return
    why = f": {said[-1].str()}" if said else ""
    raise UnansweredError(SETTING, f"Kafka did not answer within {LOGINS_MAX * LOGIN_S:.0f} s{why}")


def _is_refusal(error: Any) -> bool:
    """Tell what somebody has to mend from a node that is starting, or away."""
    strange = error.code() == KafkaError._SSL and "certificate" in error.str()
    return strange or error.code() == KafkaError._AUTHENTICATION


def warn_of_clock(settings: Mapping[str, Any], wanted: Wanted, now_ms: Callable[[], int]) -> None:
    """Hold this machine's clock against that of the node that leads the canary.

    All brokers do, so two of them are not farther apart than they say. A lease that an owner gave
    is ended by the clock of the next one, and a delay that a producer asked for by either's.
    """
    stamps_ms: list[int] = []

    def on_delivery(error: Any, sent: Any) -> None:
        kind, at_ms = sent.timestamp()
        if error is None and kind == TIMESTAMP_LOG_APPEND_TIME:
            stamps_ms.append(at_ms)

    producer = Producer(dict(settings))
    before_ms = now_ms()
    producer.produce(wanted.canary_topic, b"clock", partition=0, on_delivery=on_delivery)
    producer.flush(CLOCK_S)
    gap_ms = clock_gap_ms(before_ms, stamps_ms[0], now_ms()) if stamps_ms else 0
    if abs(gap_ms) > APART_MS:
        log.warning(
            "the clocks of Kafka and of this machine are apart by %+.1f s: set them by NTP",
            gap_ms / 1_000,
        )


def clock_gap_ms(before_ms: int, told_ms: int, after_ms: int) -> int:
    """Return how far another clock, read between two looks at ours, is surely ahead of it."""
    return max(told_ms - after_ms, 0) + min(told_ms - before_ms, 0)


def _ensure_members(admin: Any, wanted: Wanted, settings: Mapping[str, Any]) -> None:
    """Make the members topic, and look at it; a broker does without."""
    name, config = members_topic(wanted.cluster), wanted.members_config
    try:
        _create(admin, name, 1, wanted.replicas, config)
        faults = "; ".join(_faults_of_config(_config_of(admin, name), name, config, settings))
    except TimeoutError:
        faults = "cannot be used: Kafka does not answer"
    except KafkaException as error:
        faults = f"cannot be used: {error.args[0]}"
    if faults:
        log.warning("brokers may not hear of each other: topic %s %s", name, faults)


def _create(admin: Any, name: str, partitions: int, replicas: int, config: dict[str, str]) -> None:
    topic = NewTopic(name, partitions, replicas, config=config)
    try:
        futures = admin.create_topics(
            [topic], request_timeout=REQUEST_S, operation_timeout=OPERATION_S
        )
        futures[name].result(CALL_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    else:
        log.info("topic %s made: %d partitions, %d replicas", name, partitions, replicas)


def _faults_of_place(admin: Any, wanted: Wanted, settings: Mapping[str, Any]) -> Iterator[str]:
    name = wanted.log_topic
    partitions = _partitions(admin, name)
    if len(partitions) != wanted.shards:
        yield (
            f"has {len(partitions)} partitions for {wanted.shards} shards: their number is fixed "
            "when a cluster is made"
        )
    fewest = min((len(each.replicas) for each in partitions.values()), default=0)
    if fewest < wanted.replicas:
        tool = f"kafka-reassign-partitions.sh --bootstrap-server {_servers(settings)} --execute"
        yield f"has {fewest} replicas, not {wanted.replicas}: `{tool}` with a plan that adds them"
    warn_of_few_in_sync(wanted, partitions.values())


def _partitions(admin: Any, name: str) -> Mapping[int, Any]:
    """List a topic's partitions; what another broker is just making is waited for."""
    for _ in range(LOOKS_MAX):
        partitions: Mapping[int, Any] = admin.list_topics(name, CALL_S).topics[name].partitions
        if partitions and all(each.leader >= 0 for each in partitions.values()):
            break
        Event().wait(LOOK_S)
    return partitions


def warn_of_few_in_sync(wanted: Wanted, partitions: Iterable[Any]) -> None:
    """Say if replicas of the log are behind now: one more that fails may stop everything."""
    in_sync = min((len(each.isrs) for each in partitions), default=0)
    if in_sync < wanted.replicas:
        log.warning(
            "topic %s has %d of %d replicas in sync, and takes nothing with fewer than %d: see "
            "`kafka-topics.sh --describe --under-replicated-partitions`",
            wanted.log_topic, in_sync, wanted.replicas, wanted.replicas_min,
        )  # fmt: skip


def _config_of(admin: Any, name: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, name)
    (future,) = admin.describe_configs([resource], request_timeout=REQUEST_S).values()
    return {key: entry.value for key, entry in future.result(CALL_S).items()}


def _faults_of_config(
    there: Mapping[str, str], name: str, wanted: Mapping[str, str], settings: Mapping[str, Any]
) -> Iterator[str]:
    wrong = {
        key: value
        for key, value in wanted.items()
        if key in there and not _fits(key, there[key], value)
    }
    if wrong:
        what = ", ".join(f"{key} = {there[key]}" for key in wrong)
        mend = ",".join(f"{key}={_argument(value)}" for key, value in wrong.items())
        yield (
            f"has {what}: `kafka-configs.sh --bootstrap-server {_servers(settings)} --alter "
            f"--entity-type topics --entity-name {name} --add-config {mend}`"
        )


def _fits(key: str, value: str, wanted: str) -> bool:
    if key in ("min.insync.replicas", "max.message.bytes"):
        return int(value) >= int(wanted)
    return set(value.split(",")) == set(wanted.split(","))


def _argument(value: str) -> str:
    """Write a value as `kafka-configs.sh` takes it, which has commas between settings."""
    return f"[{value}]" if "," in value else value


def _servers(settings: Mapping[str, Any]) -> str:
    return str(settings.get("bootstrap.servers", ""))
