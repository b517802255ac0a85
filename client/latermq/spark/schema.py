"""The columns of a message as a table row: names, Spark types, and what each needs of the broker.

One schema for every topic; the dead-letter columns are null elsewhere. The schema that a reader is
given is its projection: any of these columns in any order, and only what it needs travels.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final, NamedTuple

from latermq.spark.errors import SchemaError

_ATTEMPTS: Final = (
    "array<struct<attempt:int,started:timestamp,ended:timestamp,client_id:string,outcome:string,"
    "failure_class:string,failure_text:string,stack_hash:string>>"
)

POSITION: Final = {
    "topic": "string",
    "queue_id": "int",
    "queue_offset": "bigint",
    "shard": "int",
}
MESSAGE: Final = {
    "message_id": "string",
    "message_type": "string",
    "tag": "string",
    "keys": "array<string>",
    "message_group": "string",
    "body": "binary",
    "body_encoding": "string",
    "properties": "map<string,string>",
    "born_timestamp": "timestamp",
    "born_host": "string",
    "store_timestamp": "timestamp",
    "delivery_timestamp": "timestamp",
    "delivery_attempt": "int",
}
DEAD_LETTER: Final = {
    "consumer_group": "string",
    "origin_topic": "string",
    "origin_queue_id": "int",
    "origin_offset": "bigint",
    "origin_message_id": "string",
    "reason": "string",
    "attempt_count": "int",
    "max_attempts": "int",
    "first_failure_at": "timestamp",
    "last_failure_at": "timestamp",
    "dead_at": "timestamp",
    "failure_class": "string",
    "failure_text": "string",
    "signature": "string",
    "attempts": _ATTEMPTS,
    "redriven_at": "timestamp",
    "redrive_count": "int",
}
COLUMNS: Final = POSITION | MESSAGE | DEAD_LETTER
"""Name to Spark type, spelled as `DataType.simpleString()` spells it."""


def ddl(names: Sequence[str]) -> str:
    """Write these columns as Spark DDL."""
    return ", ".join(f"{name} {COLUMNS[name]}" for name in names)


SCHEMA: Final = ddl(tuple(COLUMNS))
"""All columns, as DDL."""
DEAD_FACTS: Final = ddl(
    (
        "queue_offset",
        "consumer_group",
        "origin_topic",
        "message_id",
        "reason",
        "attempt_count",
        "born_timestamp",
        "dead_at",
        "failure_class",
        "failure_text",
        "signature",
    )
)
"""The columns that say what died and why, without bodies and stacks."""
"""What most questions about dead letters need: no body, no properties, a third of the time."""


class Column(NamedTuple):
    """One column of the schema a reader was given."""

    name: str
    type: str
    nullable: bool


def check(columns: Sequence[Column]) -> tuple[str, ...]:
    """Check that the source can fill a schema, and return its names.

    Raises:
        SchemaError: an unknown column, one named twice, another type, or NOT NULL.
    """
    names = [column.name for column in columns]
    for column in columns:
        if names.count(column.name) > 1:
            raise SchemaError(f"column {column.name} is named {names.count(column.name)} times")
        expected = COLUMNS.get(column.name)
        if expected is None:
            near = get_close_matches(column.name.lower(), COLUMNS, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(COLUMNS)}"
            raise SchemaError(f"there is no column {column.name}{hint}")
        if column.type != expected:
            raise SchemaError(f"column {column.name} is {expected}, not {column.type}")
        if not column.nullable:
            raise SchemaError(f"column {column.name} cannot be NOT NULL")
    return tuple(names)


def wanted_of_broker(names: Sequence[str]) -> list[str]:
    """List the fields of a QueueRow to ask for, never empty: that would mean all.

    The encoding comes with a body, to decode it; the time of death with any dead-letter column,
    because it tells a 0 from a null.
    """
    wanted = ["queue_offset"]
    wanted += [name for name in names if name in MESSAGE or name in DEAD_LETTER]
    if "body" in wanted:
        wanted.append("body_encoding")
    if not DEAD_LETTER.keys().isdisjoint(wanted):
        wanted.append("dead_at")
    return list(dict.fromkeys(wanted))
