"""A cluster of two shards, read in batch and in a stream: each row once, with its shard."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import wire_requests
from support.cluster_process import ClusterProcess
from support.spark_queries import Collector, stream, table
from support.wire_client import WireClient, require_ok

pytestmark = pytest.mark.spark

SHARDS = 2
TOPIC = "sharded_orders"


@pytest.fixture(scope="module")
def cluster(room: Path) -> Iterator[ClusterProcess]:
    with ClusterProcess(room / "cluster", SHARDS) as cluster:
        yield cluster.start()


def fill(cluster: ClusterProcess, count: int) -> set[str]:
    """Send so many to each shard; what was sent."""
    bodies = set()
    for shard, endpoint in enumerate(cluster.endpoints):
        with WireClient(endpoint) as client:
            for number in range(count):
                body = f"of {shard} {number}"
                require_ok(client.send(wire_requests.message(TOPIC, body.encode())))
                bodies.add(body)
    return bodies


def texts(rows: list[Any]) -> list[str]:
    return [bytes(row.body).decode() for row in rows]


def test_a_batch_and_a_stream_over_all_shards(
    spark: Any, cluster: ClusterProcess, tmp_path: Path
) -> None:
    options = {"endpoint": cluster.endpoints[1], "topics": TOPIC}
    first = fill(cluster, 30)
    rows = table(spark, **options).collect()
    assert Counter(texts(rows)) == Counter(first)
    assert Counter(row.shard for row in rows) == {0: 30, 1: 30}
    assert all(f" {row.shard} " in text for row, text in zip(rows, texts(rows), strict=True))
    assert len({(row.shard, row.queue_id, row.queue_offset) for row in rows}) == 60

    sink = Collector()
    sink.run(stream(spark, "body binary, shard int", **options), tmp_path / "checkpoint")
    assert Counter(texts(sink.rows)) == Counter(first), "each once"
