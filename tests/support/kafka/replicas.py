"""An owner and a standby whose log a Kafka keeps that asks for a login."""

from pathlib import Path

from support.broker_process import BrokerProcess
from support.kafka.cluster import KafkaCluster
from support.steady_senders import SteadySenders, drained


def config_of(directory: Path, kafka: KafkaCluster, cluster: str, login: str) -> str:
    """Return a broker's configuration; `login`: what its file of Kafka's settings says."""
    file = directory / "kafka.properties"
    file.write_text(login, encoding="utf-8")
    file.chmod(0o600)
    return f"""
[replication]
kafka = "{kafka.bootstrap}"
kafka_file = "{file}"
cluster = "{cluster}"
replicas = 1
replicas_min = 1
[store]
segment_bytes = 17825792
"""


def take_over(a: BrokerProcess, b: BrokerProcess) -> list[str]:
    """Start both, kill the owner `a` under load; what was acknowledged comes from `b`.

    Returns:
        The ids of all messages that came.
    """
    a.start()
    b.spawn()
    b.wait_log("follows with an engine")
    with SteadySenders(a, b) as load:
        load.wait_more(20, a.endpoint)
        a.kill()
        b.wait_ready()
        load.wait_more(20, b.endpoint)
    received = drained(b.endpoint)
    assert {sent.message_id for sent in load.acknowledged} <= set(received)
    return received
