"""latermq.spark.schema: columns and projections."""

import pytest

from latermq.spark.errors import SchemaError
from latermq.spark.schema import COLUMNS, DEAD_FACTS, Column, check, wanted_of_broker


def test_a_column_that_is_named_twice_is_refused() -> None:
    columns = [Column("tag", "string", True), Column("topic", "string", True)]
    with pytest.raises(SchemaError, match="column tag is named 2 times"):
        check([*columns, columns[0]])


def test_any_subset_in_any_order() -> None:
    columns = [Column(name, COLUMNS[name], True) for name in ("reason", "keys", "topic")]
    assert check(columns) == ("reason", "keys", "topic")
    everything = [Column(name, kind, True) for name, kind in COLUMNS.items()]
    assert check(everything) == tuple(COLUMNS)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (Column("consumer_grup", "string", True), "did you mean consumer_group"),
        (Column("zzz", "string", True), "there are topic, queue_id"),
        (Column("queue_offset", "int", True), "queue_offset is bigint, not int"),
        (Column("topic", "string", False), "cannot be NOT NULL"),
    ],
)
def test_what_the_source_cannot_fill_is_refused(column: Column, text: str) -> None:
    with pytest.raises(SchemaError, match=rf"^LATERMQ_SCHEMA: .*{text}"):
        check([column])


def test_only_what_a_projection_needs_is_asked_for() -> None:
    assert wanted_of_broker(["topic", "queue_id"]) == ["queue_offset"]
    assert wanted_of_broker(["body"]) == ["queue_offset", "body", "body_encoding"]
    assert wanted_of_broker(["max_attempts"]) == ["queue_offset", "max_attempts", "dead_at"]
    everything = wanted_of_broker(list(COLUMNS))
    assert len(everything) == len(set(everything)) == len(COLUMNS) - 3


def test_dead_facts_leave_bodies_and_properties_at_the_broker() -> None:
    names = [column.split()[0] for column in DEAD_FACTS.split(", ")]
    assert not {"body", "properties", "attempts"} & set(wanted_of_broker(names))
