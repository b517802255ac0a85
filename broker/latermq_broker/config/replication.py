"""Settings of the room `[replication]`: what keeps the logs of a cluster's shards."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from latermq_broker.config.addresses import listen_address
from latermq_broker.errors import ConfigError

CLUSTER: Final = re.compile(r"[a-zA-Z0-9_-]{1,100}")
REPLICAS_MAX: Final = 15
SERVERS: Final = "bootstrap.servers"
OURS: Final = ("acks", "enable.idempotence", "group.id", "transactional.id", SERVERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationConfig:
    """Without `kafka` nothing is replicated."""

    kafka: str = ""  # HOST:PORT,… of some of its nodes
    kafka_file: str = ""  # librdkafka's settings, NAME=VALUE a line: TLS, SASL
    cluster: str = "latermq"  # in the names of its topics
    replicas: int = 3  # of each partition
    replicas_min: int = 2  # that have what is acknowledged

    def __post_init__(self) -> None:
        if self.kafka:
            for server in self.kafka.split(","):
                listen_address("replication.kafka", server)
        elif self.kafka_file:
            raise ConfigError("replication.kafka", "is empty, yet replication.kafka_file is set")
        if not CLUSTER.fullmatch(self.cluster):
            raise ConfigError("replication.cluster", "must be 1 to 100 of a-z A-Z 0-9 _ -")
        if not 1 <= self.replicas <= REPLICAS_MAX:
            raise ConfigError("replication.replicas", f"must be 1 to {REPLICAS_MAX}")
        if not 1 <= self.replicas_min <= self.replicas:
            raise ConfigError("replication.replicas_min", "must be 1 to replication.replicas")

    def client_settings(self) -> dict[str, str]:
        """Return librdkafka's settings, for every client. Raises ConfigError: of the file."""
        settings = {SERVERS: self.kafka}
        if not self.kafka_file:
            return settings
        try:
            lines = Path(self.kafka_file).expanduser().read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError("replication.kafka_file", f"cannot be read: {error}") from None
        for number, line in enumerate(lines, 1):
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            name, sign, value = (part.strip() for part in text.partition("="))
            if not sign or not name:
                raise ConfigError("replication.kafka_file", f"line {number} is no NAME=VALUE")
            if name in OURS:
                raise ConfigError("replication.kafka_file", f"line {number}: {name} is set by us")
            settings[name] = value
        return settings
