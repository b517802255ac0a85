"""A broker's part in a log that Kafka keeps, as `[replication]` says."""

from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Final

from latermq_broker.clock import SystemClock, boot_ms, monotonic_ms
from latermq_broker.config.addresses import listen_address
from latermq_broker.config.config import Config
from latermq_broker.errors import ConfigError
from latermq_broker.replication.members.announcing import Members
from latermq_broker.replication.replica import Replica, ReplicaPlace
from latermq_broker.services.v1.first_admin import warn_of_open_files
from latermq_broker.store.files import RealFiles

if TYPE_CHECKING:
    from latermq_broker.replication.kafka_log import KafkaLog

EVERYWHERE: Final = ("0.0.0.0", "::")  # where a broker listens, not where it is found


def replica_on_kafka(config: Config, again: bool) -> Replica:
    """Make it, in the running loop; its topics are made if they are missing.

    Args:
        again: this process has looked at them before, and Kafka need not answer now.
    Raises:
        ConfigError: the client is not installed, or Kafka or a topic of it is not as it must be.
    """
    shard = config.cluster.shard  # 0 without `[cluster]`
    replicated_log = log_on_kafka(config, shard, make_topics=not again)
    place = ReplicaPlace(
        cluster=config.replication.cluster, shard=shard, directory=config.server.directory
    )
    members = _members_on_kafka(config, place)
    return Replica(place, replicated_log, config, RealFiles(), boot_ms, members)


def _members_on_kafka(config: Config, place: ReplicaPlace) -> Members:
    """Make what tells the brokers of a cluster of each other; the client is installed."""
    from latermq_broker.replication.kafka_topics import members_topic
    from latermq_broker.replication.members.kafka_members import KafkaMembers

    topic = KafkaMembers(config.replication.client_settings(), members_topic(place.cluster))
    cluster = config.cluster
    address = cluster.addresses[cluster.machine] if cluster.shards else config.server.listen
    host, port = listen_address("server.listen", address)
    if host in EVERYWHERE:
        address = f"{gethostname()}:{port}"
    name = f"{gethostname()}:{place.directory}"
    return Members(topic, name, address, place.shard, monotonic_ms)


def log_on_kafka(config: Config, shard: int, *, make_topics: bool) -> "KafkaLog":
    """Make what speaks to Kafka, in the running loop.

    Args:
        shard: whose log it is, a partition of the cluster's topic.
        make_topics: and those topics that are missing; look at those that are there.
    Raises:
        ConfigError: as `replica_on_kafka`.
    """
    try:
        from latermq_broker.replication.kafka_log import KafkaLog
        from latermq_broker.replication.kafka_topics import (
            Wanted,
            ensure_topics,
            warn_of_clock,
        )
    except ImportError as error:
        raise ConfigError(
            "replication.kafka", f"needs pip install 'latermq[broker,kafka]' ({error})"
        ) from error
    chosen = config.replication
    settings = chosen.client_settings()
    if chosen.kafka_file:
        warn_of_open_files(Path(chosen.kafka_file).expanduser())
    shards = max(len(config.cluster.shards), 1)
    wanted = Wanted(chosen.cluster, shards, chosen.replicas, chosen.replicas_min)
    if make_topics:
        ensure_topics(settings, wanted)
        warn_of_clock(settings, wanted, SystemClock().now_ms)
    return KafkaLog(settings, wanted.log_topic, shard, wanted.canary_topic)
