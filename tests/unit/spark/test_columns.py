"""latermq.spark.columns: exact Arrow types, and what null means."""

import gzip
import zlib
from datetime import UTC, datetime
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from latermq.spark.columns import BatchBuilder, arrow_type  # noqa: E402
from latermq.spark.schema import COLUMNS  # noqa: E402
from latermq_proto.latermq.v1.dead_letter_pb2 import Attempt  # noqa: E402
from latermq_proto.latermq.v1.queue_pb2 import QueueRow  # noqa: E402

AT_MS = 1_714_564_800_123
AT = datetime(2024, 5, 1, 12, 0, 0, 123_000, UTC)

PLAIN = QueueRow(
    queue_offset=5,
    message_id="id-5",
    message_type="normal",
    keys=["k1", "k2"],
    body=b"body",
    properties={"b": "2", "a": "1"},
    born_timestamp=AT_MS,
    store_timestamp=AT_MS + 1,
)
DEAD = QueueRow(
    queue_offset=6,
    message_id="id-6",
    tag="tag",
    message_group="g",
    delivery_timestamp=AT_MS,
    delivery_attempt=3,
    consumer_group="billing",
    origin_topic="orders",
    origin_queue_id=0,
    origin_offset=0,
    origin_message_id="id-1",
    reason="attempts_exhausted",
    attempt_count=3,
    max_attempts=3,
    dead_at=AT_MS,
    failure_class="ValueError",
    signature="0123456789abcdef",
    attempts=[
        Attempt(attempt=1, started_at_ms=AT_MS, client_id="c", outcome="nack", stack="long"),
        Attempt(attempt=2, outcome="expired", failure_text="no"),
    ],
)


def built(*rows: QueueRow, names: tuple[str, ...] = tuple(COLUMNS)) -> list[dict[str, Any]]:
    batch = BatchBuilder(names).build("topic", 7, rows)
    batch.validate(full=True)
    assert batch.schema.names == list(names)
    assert batch.schema.types == [arrow_type(name) for name in names]
    rows_built: list[dict[str, Any]] = batch.to_pylist(maps_as_pydicts="strict")
    return rows_built


def test_a_plain_message_has_no_dead_letter() -> None:
    (row,) = built(PLAIN)
    assert {name: value for name, value in row.items() if value is not None} == {
        "topic": "topic",
        "queue_id": 7,
        "queue_offset": 5,
        "shard": 0,
        "message_id": "id-5",
        "message_type": "normal",
        "keys": ["k1", "k2"],
        "body": b"body",
        "body_encoding": "identity",
        "properties": {"a": "1", "b": "2"},
        "born_timestamp": AT,
        "store_timestamp": AT.replace(microsecond=124_000),
    }


def test_a_dead_letter_has_its_whole_life() -> None:
    _, row = built(PLAIN, DEAD)
    assert row["keys"] == []
    assert row["properties"] == {}
    assert row["body"] == b""
    assert (row["delivery_timestamp"], row["delivery_attempt"]) == (AT, 3)
    assert (row["origin_queue_id"], row["origin_offset"], row["redrive_count"]) == (0, 0, 0)
    assert (row["dead_at"], row["first_failure_at"], row["redriven_at"]) == (AT, None, None)
    blank = dict.fromkeys(("failure_class", "failure_text", "stack_hash", "client_id"))
    assert row["attempts"] == [
        {
            **blank,
            "attempt": 1,
            "started": AT,
            "ended": None,
            "client_id": "c",
            "outcome": "nack",
        },
        {
            **blank,
            "attempt": 2,
            "started": None,
            "ended": None,
            "outcome": "expired",
            "failure_text": "no",
        },
    ]


def test_what_a_producer_sent_to_a_dead_letter_topic_has_no_history() -> None:
    (row,) = built(QueueRow(consumer_group="billing"), names=("consumer_group", "attempt_count"))
    assert row == {"consumer_group": "billing", "attempt_count": None}


def test_a_projection_in_its_own_order() -> None:
    names = ("reason", "queue_offset", "topic")
    assert built(PLAIN, DEAD, names=names) == [
        {"reason": None, "queue_offset": 5, "topic": "topic"},
        {"reason": "attempts_exhausted", "queue_offset": 6, "topic": "topic"},
    ]


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_a_body_is_decoded(compress: Any) -> None:
    row = QueueRow(body=compress(b"plain"), body_encoding="gzip")
    (out,) = built(row, names=("body", "body_encoding"))
    assert out == {"body": b"plain", "body_encoding": "identity"}


@pytest.mark.parametrize(
    "body",
    [b"not gzip", gzip.compress(b"cut off")[:-4], gzip.compress(bytes((128 << 20) + 1), 1)],
    ids=["none", "cut", "bomb"],
)
def test_a_body_that_cannot_be_decoded_stays_as_it_is(body: bytes) -> None:
    row = QueueRow(body=body, body_encoding="gzip")
    (out,) = built(row, names=("body_encoding", "body"))
    assert out == {"body": body, "body_encoding": "gzip"}


def test_types_are_what_spark_makes_of_the_schema() -> None:
    """Equal to pyspark's to_arrow_schema(…, timezone="UTC"), spelled out once."""
    fields = {name: str(arrow_type(name)) for name in COLUMNS}
    assert {fields[name] for name, kind in COLUMNS.items() if kind == "timestamp"} == {
        "timestamp[us, tz=UTC]"
    }
    assert fields["keys"] == "list<element: string>"
    assert fields["properties"] == "map<string, string>"
    assert fields["attempts"] == (
        "list<element: struct<attempt: int32, started: timestamp[us, tz=UTC], "
        "ended: timestamp[us, tz=UTC], client_id: string, outcome: string, "
        "failure_class: string, failure_text: string, stack_hash: string>>"
    )
