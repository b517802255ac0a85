"""%DLQ% topics: facts, attempts, and a window over deaths."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from latermq.spark import DEAD_FACTS
from latermq_proto.latermq.v1.failure_pb2 import Failure
from support import wire_requests
from support.broker_process import BrokerProcess
from support.spark_queries import Collector, stream, table
from support.wire_client import WireClient, require_ok

pytestmark = pytest.mark.spark

GROUP = "dead_billing"
TOPIC = "dead_orders"
LETTER_COUNT = 12
ATTEMPTS_MAX = 2


@pytest.fixture(scope="module")
def letters(broker: BrokerProcess) -> None:
    """Orders die in pairs: after two failures, or because they were refused at once."""
    with WireClient(broker.endpoint) as wire:
        wire.create_topic(TOPIC, queue_count=1)
        wire.create_group(GROUP, max_attempts=ATTEMPTS_MAX, ladder_ms=[1])
        for number in range(LETTER_COUNT):
            body = f"order {number}".encode()
            require_ok(wire.send(wire_requests.message(TOPIC, body, keys=[f"order-{number}"])))
        left = LETTER_COUNT + LETTER_COUNT // 2  # the even ones fail twice
        while left:
            for message in wire.receive(TOPIC, GROUP).messages:
                fail(wire, message)
                left -= 1


def fail(wire: WireClient, message: Any) -> None:
    number = int(message.body.split()[1])
    handle = message.system_properties.receipt_handle
    if number % 2:
        failure = Failure(class_name="UnknownCardError", text=f"card {number}", rejected=True)
        call: Any = wire.messaging.ForwardMessageToDeadLetterQueue
        request: Any = wire_requests.forward(TOPIC, GROUP, handle)
    else:
        failure = Failure(class_name="TimeoutError", text=f"try {number}", stack_hash="0" * 16)
        call = wire.messaging.ChangeInvisibleDuration
        request = wire_requests.change_invisible(TOPIC, GROUP, handle, 1)
    require_ok(wire.call(call, request, ("latermq-failure-bin", failure.SerializeToString())))


def wait_until_dead(spark: Any, endpoint: str) -> Any:
    """The last lease still has to end: the broker's work, with nobody connected."""
    while (letters := table(spark, endpoint=endpoint, group=GROUP).cache()).count() < LETTER_COUNT:
        letters.unpersist()
    return letters


def test_a_letter_has_its_whole_life(spark: Any, broker: BrokerProcess, letters: None) -> None:
    rows = {row.keys[0]: row for row in wait_until_dead(spark, broker.endpoint).collect()}
    assert len(rows) == LETTER_COUNT
    for row in rows.values():
        assert row.topic == f"%DLQ%{GROUP}"
        assert (row.consumer_group, row.origin_topic, row.origin_queue_id) == (GROUP, TOPIC, 0)
        assert row.origin_message_id
        assert row.max_attempts == ATTEMPTS_MAX
        assert row.redrive_count == 0
        assert row.first_failure_at <= row.last_failure_at <= row.dead_at
        assert [attempt.attempt for attempt in row.attempts] == [
            number + 1 for number in range(row.attempt_count)
        ]
    assert sorted(row.origin_offset for row in rows.values()) == list(range(LETTER_COUNT))

    slow = rows["order-4"]
    assert bytes(slow.body) == b"order 4"
    assert (slow.reason, slow.attempt_count) == ("attempts_exhausted", 2)
    assert (slow.failure_class, slow.failure_text) == ("TimeoutError", "try 4")
    assert [attempt.failure_class for attempt in slow.attempts] == ["TimeoutError"] * 2
    assert slow.attempts[0].started <= slow.attempts[0].ended <= slow.attempts[1].started
    assert slow.attempts[1].stack_hash == "0" * 16
    assert slow.signature == rows["order-2"].signature != rows["order-3"].signature

    refused = rows["order-3"]
    assert (refused.reason, refused.attempt_count) == ("rejected", 1)
    assert refused.attempts[0].outcome == "rejected"


def test_a_window_over_deaths(
    spark: Any, broker: BrokerProcess, letters: None, tmp_path: Path
) -> None:
    wait_until_dead(spark, broker.endpoint)
    facts = stream(
        spark, DEAD_FACTS, endpoint=broker.endpoint, group=GROUP, maxOffsetsPerTrigger="5"
    )
    deaths = (
        facts.withWatermark("dead_at", "1 minute")
        .groupBy(spark_window("dead_at", "1 day"), "consumer_group", "failure_class")
        .count()
    )
    sink = Collector()
    sink.run(deaths, tmp_path / "checkpoint", output_mode="update")
    final = {(row.window.start, row.failure_class): row["count"] for row in sink.rows}
    counts: dict[str, int] = {}
    for (day, failure_class), number in final.items():
        assert isinstance(day, datetime)
        counts[failure_class] = counts.get(failure_class, 0) + number
    assert counts == {"TimeoutError": LETTER_COUNT // 2, "UnknownCardError": LETTER_COUNT // 2}
    assert len(sink.batches) >= LETTER_COUNT // 5


def test_nothing_has_died_yet(
    spark: Any, broker: BrokerProcess, wire: WireClient, name: str, tmp_path: Path
) -> None:
    """A group without a dead letter has an empty topic, and its first letter is not a loss."""
    wire.create_topic(name, queue_count=1)
    wire.create_group(name, max_attempts=1)
    rows = stream(spark, DEAD_FACTS, endpoint=broker.endpoint, group=name)
    sink = Collector()
    sink.run(rows, tmp_path / "checkpoint")
    assert sink.rows == []
    require_ok(wire.send(wire_requests.message(name, b"x")))
    (message,) = wire.receive(name, name).messages
    assert wire.forward(name, name, message.system_properties.receipt_handle).code == 20_000
    sink.run(rows, tmp_path / "checkpoint")
    assert [(row.origin_topic, row.reason) for row in sink.rows] == [(name, "forwarded")]


def spark_window(column: str, duration: str) -> Any:
    from pyspark.sql.functions import window

    return window(column, duration)
