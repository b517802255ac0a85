"""A broker's part in a log that Kafka keeps, as `[replication]` says."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from latermq_broker.clock import SystemClock, monotonic_ms
from latermq_broker.config.config import Config
from latermq_broker.errors import ConfigError
from latermq_broker.replication.replica import Replica, ReplicaPlace
from latermq_broker.services.v1.first_admin import warn_of_open_files
from latermq_broker.store.files import RealFiles

if TYPE_CHECKING:
    from latermq_broker.replication.kafka_log import KafkaLog

SHARD: Final = 0  # of a broker without `[cluster]`


def replica_on_kafka(config: Config) -> Replica:
    """Make it, in the running loop; its topics are made if they are missing.

    Raises:
        ConfigError: the client is not installed, or Kafka or a topic of it is not as it must be.
    """
    engine = engine_on_kafka(config, make_topics=True)
    directory = Path(config.server.data_dir).expanduser().absolute()
    place = ReplicaPlace(cluster=config.replication.cluster, shard=SHARD, directory=directory)
    return Replica(place, engine, config, RealFiles(), monotonic_ms)


def engine_on_kafka(config: Config, *, make_topics: bool) -> "KafkaLog":
    """Make what speaks to Kafka, in the running loop.

    Args:
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
    wanted = Wanted(chosen.cluster, 1, chosen.replicas, chosen.replicas_min)
    if make_topics:
        ensure_topics(settings, wanted)
        warn_of_clock(settings, wanted, SystemClock().now_ms)
    return KafkaLog(settings, wanted.log_topic, SHARD, wanted.canary_topic)
