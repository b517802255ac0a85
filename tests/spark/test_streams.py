"""Streams from a broker: limits, lag, AvailableNow, restarts, topics and queues that appear."""

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from latermq_proto.latermq.v1 import topic_pb2
from support import wire_requests
from support.broker_process import BrokerProcess
from support.spark_queries import Collector, stream
from support.wire_client import WireClient, require_ok

pytestmark = pytest.mark.spark

COLUMNS = "topic string, queue_id int, queue_offset bigint, body binary"


class Producer:
    """Sends bodies that are numbers, each once."""

    def __init__(self, wire: WireClient) -> None:
        self.wire = wire
        self.numbers = count()
        self.sent: list[int] = []

    def send(self, topic: str, message_count: int) -> None:
        numbers = [next(self.numbers) for _ in range(message_count)]
        for start in range(0, message_count, 10):  # one call goes to one queue
            messages = [
                wire_requests.message(topic, str(number).encode())
                for number in numbers[start : start + 10]
            ]
            require_ok(self.wire.send(*messages))
        self.sent += numbers


def numbers_of(sink: Collector) -> list[int]:
    return sorted(int(bytes(row.body)) for row in sink.rows)


@pytest.fixture
def producer(wire: WireClient) -> Producer:
    return Producer(wire)


def test_micro_batches_obey_the_limit_and_tell_the_lag(
    spark: Any, broker: BrokerProcess, producer: Producer, name: str, tmp_path: Path
) -> None:
    producer.wire.create_topic(name, queue_count=2)
    producer.send(name, 250)
    rows = stream(
        spark,
        COLUMNS,
        endpoint=broker.endpoint,
        topics=name,
        maxOffsetsPerTrigger="100",
        offsetPollMs="0",  # else processAllAvailable may miss what came a moment ago
    )
    sink = Collector()
    query = sink.begin(rows, tmp_path / "checkpoint")
    try:
        query.processAllAvailable()
        assert sink.sizes == [100, 100, 50]
        first = query.recentProgress[0].sources[0]
        assert first.endOffset != first.latestOffset  # the lag, in the query's progress
        producer.send(name, 5)
        query.processAllAvailable()
    finally:
        query.stop()
    assert numbers_of(sink) == producer.sent


def test_available_now_restarts_where_it_ended(
    spark: Any, broker: BrokerProcess, producer: Producer, name: str, tmp_path: Path
) -> None:
    producer.wire.create_topic(name, queue_count=2)
    producer.send(name, 120)
    rows = stream(
        spark,
        COLUMNS,
        endpoint=broker.endpoint,
        topicPattern=f"{name}.*",
        maxOffsetsPerTrigger="50",
    )
    sink = Collector()
    sink.run(rows, tmp_path / "checkpoint")
    assert sink.sizes == [50, 50, 20]
    assert numbers_of(sink) == producer.sent

    # While it is down: more rows, a queue that was not there, a topic that was not there.
    producer.wire.call(
        producer.wire.topics.AlterTopic, topic_pb2.AlterTopicRequest(name=name, queue_count=3)
    )
    producer.wire.create_topic(f"{name}_2", queue_count=1)
    producer.send(name, 60)
    producer.send(f"{name}_2", 10)
    sink.run(rows, tmp_path / "checkpoint")
    assert sink.sizes[3:] == [50, 20]
    assert numbers_of(sink) == producer.sent
    assert {(row.topic, row.queue_id) for row in sink.rows} == {
        (name, 0),
        (name, 1),
        (name, 2),
        (f"{name}_2", 0),
    }


def test_latest_writes_its_position_down_before_it_reads(
    spark: Any, broker: BrokerProcess, producer: Producer, name: str, tmp_path: Path
) -> None:
    producer.wire.create_topic(name, queue_count=1)
    producer.send(name, 30)
    producer.sent.clear()
    rows = stream(spark, COLUMNS, endpoint=broker.endpoint, topics=name, startingOffsets="latest")
    sink = Collector()
    sink.run(rows, tmp_path / "checkpoint")
    assert sink.rows == []
    producer.send(name, 7)
    sink.run(rows, tmp_path / "checkpoint")
    assert numbers_of(sink) == producer.sent


def test_a_broker_that_restarts_is_waited_for(
    spark: Any, room: Path, name: str, tmp_path: Path
) -> None:
    with BrokerProcess(room / name) as broker, WireClient(broker.start().endpoint) as wire:
        producer = Producer(wire)
        wire.create_topic(name, queue_count=1)
        producer.send(name, 20)
        rows = stream(spark, COLUMNS, endpoint=broker.endpoint, topics=name, offsetPollMs="0")
        sink = Collector()
        query = sink.begin(rows, tmp_path / "checkpoint")
        try:
            query.processAllAvailable()
            broker.kill()
            broker.start()
            producer.send(name, 20)
            query.processAllAvailable()
        finally:
            query.stop()
        assert numbers_of(sink) == producer.sent
