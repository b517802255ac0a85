"""Batch reads of an ordinary topic, from a broker."""

from datetime import UTC, datetime
from typing import Any

import pytest

from support import wire_requests
from support.broker_process import BrokerProcess
from support.spark_queries import table
from support.wire_client import WireClient, now_ms

pytestmark = pytest.mark.spark

MESSAGE_COUNT = 300
TOPIC = "batch_orders"


@pytest.fixture(scope="module")
def sent_at_ms(broker: BrokerProcess) -> int:
    """The topic is filled: this is a time at which half of it was stored."""
    with WireClient(broker.endpoint) as wire:
        wire.create_topic(TOPIC, queue_count=3)
        messages = [
            wire_requests.message(
                TOPIC,
                f"body {number}".encode(),
                tag="even" if number % 2 == 0 else "",
                keys=[f"key {number}", "all"],
                properties={"b": "2", "a": "1"} if number == 0 else None,
            )
            for number in range(MESSAGE_COUNT)
        ]
        for start in range(0, MESSAGE_COUNT // 2, 50):
            wire.send(*messages[start : start + 50])
        between_ms = now_ms() + 1
        while now_ms() <= between_ms:
            pass
        for start in range(MESSAGE_COUNT // 2, MESSAGE_COUNT, 50):
            wire.send(*messages[start : start + 50])
    return between_ms


def test_every_column(spark: Any, broker: BrokerProcess, sent_at_ms: int) -> None:
    orders = table(spark, endpoint=broker.endpoint, topics=TOPIC)
    rows = orders.collect()
    assert sorted(bytes(row.body).decode() for row in rows) == sorted(
        f"body {number}" for number in range(MESSAGE_COUNT)
    )
    assert len({(row.topic, row.queue_id, row.queue_offset) for row in rows}) == MESSAGE_COUNT
    first = next(row for row in rows if bytes(row.body) == b"body 0").asDict()
    for name in ("born_timestamp", "store_timestamp"):
        assert abs(first.pop(name).timestamp() * 1_000 - sent_at_ms) < 60_000
    for name in ("queue_id", "queue_offset", "message_id"):
        assert first.pop(name) is not None
    assert {name: value for name, value in first.items() if value is not None} == {
        "topic": TOPIC,
        "shard": 0,
        "message_type": "normal",
        "tag": "even",
        "keys": ["key 0", "all"],
        "body": b"body 0",
        "body_encoding": "identity",
        "properties": {"a": "1", "b": "2"},
        "born_host": "test",
    }


def test_a_narrow_schema_a_filter_and_sql(
    spark: Any, broker: BrokerProcess, sent_at_ms: int
) -> None:
    options = {"endpoint": broker.endpoint, "topics": TOPIC}
    narrow = table(spark, "tag string, queue_offset bigint, queue_id int", **options)
    assert narrow.columns == ["tag", "queue_offset", "queue_id"]
    assert narrow.where("tag = 'even'").count() == MESSAGE_COUNT // 2
    assert narrow.where("queue_id = 1 and queue_offset < 10").count() == 10
    spark.sql(
        "CREATE TEMPORARY VIEW batch_view (tag string, keys array<string>) USING latermq "
        f"OPTIONS (endpoint '{broker.endpoint}', topicPattern '{TOPIC[:-1]}.')"
    )
    counted = spark.sql("SELECT tag, count(*) AS n FROM batch_view GROUP BY tag ORDER BY tag")
    assert [tuple(row) for row in counted.collect()] == [(None, 150), ("even", 150)]


def test_from_here_to_there(spark: Any, broker: BrokerProcess, sent_at_ms: int) -> None:
    options = {"endpoint": broker.endpoint, "topics": TOPIC, "rowsPerPartition": "20"}

    def positions(**more: str) -> list[tuple[int, int]]:
        rows = table(spark, "queue_id int, queue_offset bigint", **options, **more)
        return [tuple(row) for row in rows.collect()]

    some = positions(
        startingOffsets=f'{{"{TOPIC}": {{"0": 7, "1": -1, "2": -1}}}}',
        endingOffsets=f'{{"{TOPIC}": {{"0": 50}}}}',
    )
    assert some == [(0, offset) for offset in range(7, 50)]
    iso = datetime.fromtimestamp(sent_at_ms / 1_000, UTC).isoformat()
    before = positions(endingTimestamp=iso)
    after = positions(startingTimestamp=str(sent_at_ms))
    assert len(before) == len(after) == MESSAGE_COUNT // 2
    assert len(set(before + after)) == MESSAGE_COUNT
    assert positions(startingOffsets="latest") == []


@pytest.mark.parametrize(
    ("options", "schema", "text"),
    [
        ({"topics": TOPIC, "startingOfsets": "latest"}, "", "LATERMQ_OPTION: there is no option"),
        ({"topics": "nowhere"}, "", "LATERMQ_TOPIC_NOT_FOUND: the broker has no topic nowhere"),
        ({"topics": TOPIC}, "bdy binary", "LATERMQ_SCHEMA: there is no column bdy; did you mean"),
    ],
)
def test_a_mistake_is_named_in_one_line(
    spark: Any, broker: BrokerProcess, options: dict[str, str], schema: str, text: str
) -> None:
    with pytest.raises(Exception, match=text):
        table(spark, schema, endpoint=broker.endpoint, **options).collect()
