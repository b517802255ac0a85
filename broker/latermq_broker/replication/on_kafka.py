"""A broker's part in a log that Kafka keeps, as `[replication]` says."""

from pathlib import Path
from typing import Final

from latermq_broker.clock import monotonic_ms
from latermq_broker.config.config import Config
from latermq_broker.errors import ConfigError
from latermq_broker.replication.replica import Replica, ReplicaPlace
from latermq_broker.store.files import RealFiles

SHARD: Final = 0  # of a broker without `[cluster]`


def replica_on_kafka(config: Config) -> Replica:
    """Make it, in the running loop; its topics are made if they are missing.

    Raises:
        ConfigError: the client is not installed, or Kafka or a topic of it is not as it must be.
    """
    try:
        from latermq_broker.replication.kafka_log import KafkaLog
        from latermq_broker.replication.kafka_topics import Wanted, ensure_topics
    except ImportError as error:
        raise ConfigError(
            "replication.kafka", f"needs pip install 'latermq[broker,kafka]' ({error})"
        ) from error
    chosen = config.replication
    settings = chosen.client_settings()
    wanted = Wanted(chosen.cluster, 1, chosen.replicas, chosen.replicas_min)
    ensure_topics(settings, wanted)
    engine = KafkaLog(settings, wanted.log_topic, SHARD, wanted.canary_topic)
    directory = Path(config.server.data_dir).expanduser().absolute()
    place = ReplicaPlace(cluster=chosen.cluster, shard=SHARD, directory=directory)
    return Replica(place, engine, config.store, RealFiles(), monotonic_ms)
