"""One Kafka node for the whole run; topics of their own for each test."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.kafka.cluster import KafkaCluster, UnavailableError


@pytest.fixture(scope="session")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kafka")


@pytest.fixture(scope="session")
def kafka(room: Path) -> Iterator[KafkaCluster]:
    try:
        cluster = KafkaCluster(room / "nodes")
    except UnavailableError as reason:
        pytest.skip(str(reason))
    with cluster:
        yield cluster.start()


@pytest.fixture
def config(kafka: KafkaCluster, name: str) -> str:
    """Of a replica whose log one node keeps, in small segments."""
    return f"""
[replication]
kafka = "{kafka.bootstrap}"
cluster = "{name}"
replicas = 1
replicas_min = 1
[store]
segment_bytes = 17825792
"""


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses, for topics and groups."""
    return re.sub(r"\W", "_", request.node.name)[:60]
