"""Data loss both ways, in a query: it stops before it reads, or goes on with what is left."""

from pathlib import Path
from typing import Any

import pytest

from support.queue_server import QueueServer
from support.spark_queries import Collector, stream

pytestmark = pytest.mark.spark

COLUMNS = "queue_offset bigint, body binary"


class Reading:
    """One checkpoint, one query after another."""

    def __init__(self, spark: Any, server: QueueServer, checkpoint: Path) -> None:
        self.spark = spark
        self.server = server
        self.checkpoint = checkpoint
        self.sink = Collector()

    def run(self, **options: str) -> list[str]:
        """AvailableNow to its end; what it has read."""
        before = len(self.sink.rows)
        rows = stream(self.spark, COLUMNS, endpoint=self.server.endpoint, topics="t", **options)
        self.sink.run(rows, self.checkpoint)
        return [bytes(row.body).decode() for row in self.sink.rows[before:]]


def numbered(start: int, end: int) -> list[str]:
    return [f"row {number}" for number in range(start, end)]


def test_retention_passed_the_checkpoint(spark: Any, server: QueueServer, tmp_path: Path) -> None:
    server.shelf.create("t")
    server.shelf.append("t", 0, 40)
    reading = Reading(spark, server, tmp_path / "checkpoint")
    assert reading.run() == numbered(0, 40)
    server.shelf.append("t", 0, 60)
    server.shelf.retain("t", 0, 70)
    with pytest.raises(
        Exception,
        match="LATERMQ_DATA_LOSS: topic t queue 0: offset 40 was to be read, the oldest retained "
        "is 70: 30 messages are gone; failOnDataLoss=false goes on with what is left",
    ):
        reading.run()
    assert reading.run(failOnDataLoss="false") == numbered(70, 100)


def test_retention_passed_a_batch_that_was_under_way(
    spark: Any, server: QueueServer, tmp_path: Path
) -> None:
    """The batch is written down, then rows go: it is finished with what is left."""
    server.shelf.create("t")
    server.shelf.append("t", 0, 40)
    reading = Reading(spark, server, tmp_path / "checkpoint")
    server.before_page = lambda _: server.shelf.retain("t", 0, 10)
    with pytest.raises(Exception, match=r"LATERMQ_DATA_LOSS: .* offset 0 .* 10 messages are gone"):
        reading.run()
    assert reading.run(failOnDataLoss="false") == numbered(10, 40)


def test_a_topic_made_anew(spark: Any, server: QueueServer, tmp_path: Path) -> None:
    server.shelf.create("t")
    server.shelf.append("t", 0, 40)
    reading = Reading(spark, server, tmp_path / "checkpoint")
    assert reading.run() == numbered(0, 40)
    server.shelf.create("t")
    server.shelf.append("t", 0, 50)  # already beyond the old end
    with pytest.raises(Exception, match="LATERMQ_DATA_LOSS: topic t was deleted and made anew"):
        reading.run()
    assert reading.run(failOnDataLoss="false") == numbered(40, 90)
