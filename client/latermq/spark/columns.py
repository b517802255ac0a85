"""Turns rows of a bulk read into Arrow columns of exactly the types that Spark expects.

Only the columns asked for are built: pulling a value out of a message costs more than its transfer.
Proto3 cannot say null, so the rules are here: an empty string is null, a time of 0 is null, keys
and properties are empty and never null, a dead letter's numbers and attempts are null unless the
row has a time of death.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import accumulate
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa

from latermq.spark.schema import COLUMNS, DEAD_LETTER
from latermq_text.bodies import GZIP, DamagedBodyError, unpacked

Rows = Sequence[Any]
"""latermq.v1.QueueRow messages of one page."""

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_IDENTITY: Final = "identity"
_US_PER_MS: Final = 1_000

_ATTEMPT: Final = pa.struct(
    [
        pa.field("attempt", pa.int32()),
        pa.field("started", TIMESTAMP),
        pa.field("ended", TIMESTAMP),
        pa.field("client_id", pa.string()),
        pa.field("outcome", pa.string()),
        pa.field("failure_class", pa.string()),
        pa.field("failure_text", pa.string()),
        pa.field("stack_hash", pa.string()),
    ]
)
_KEYS: Final = pa.list_(pa.field("element", pa.string()))
_PROPERTIES: Final = pa.map_(
    pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())
)
_ATTEMPTS: Final = pa.list_(pa.field("element", _ATTEMPT))
_ARROW_TYPES: Final = {
    "string": pa.string(),
    "binary": pa.binary(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": TIMESTAMP,
    COLUMNS["keys"]: _KEYS,
    COLUMNS["properties"]: _PROPERTIES,
    COLUMNS["attempts"]: _ATTEMPTS,
}


class BatchBuilder:
    """Builds record batches with the columns `names`, in that order."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names: Final = tuple(names)
        self._builders: Final = {name: _builder(name) for name in names}
        self.schema: Final = pa.schema([pa.field(name, arrow_type(name)) for name in names])

    def build(self, topic: str, queue_id: int, rows: Rows, shard: int = 0) -> pa.RecordBatch:
        """Build a batch with one row for each of `rows`, all of one queue."""
        constant = {"topic": topic, "queue_id": queue_id, "shard": shard}
        decoded = _decoded(rows) if "body" in self._builders else {}
        arrays = []
        for name in self._names:
            if name in constant:
                array = pa.repeat(pa.scalar(constant[name], arrow_type(name)), len(rows))
            elif name in decoded:
                array = pa.array(decoded[name], arrow_type(name))
            else:
                array = self._builders[name](rows)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def arrow_type(name: str) -> pa.DataType:
    return _ARROW_TYPES[COLUMNS[name]]


def _decoded(rows: Rows) -> dict[str, list[Any]]:
    """Decode bodies, where that can be done, and name the encodings they are then in."""
    bodies, encodings = [], []
    for row in rows:
        body, encoding = row.body, row.body_encoding
        if encoding == _IDENTITY or not encoding:
            encoding = _IDENTITY
        elif encoding == GZIP:
            with suppress(DamagedBodyError):  # it stays encoded, and its encoding says so
                body, encoding = unpacked(body, GZIP), _IDENTITY
        bodies.append(body)
        encodings.append(encoding)
    return {"body": bodies, "body_encoding": encodings}


def _strings(name: str) -> Callable[[Rows], pa.Array]:
    get = attrgetter(name)
    return lambda rows: pa.array([value or None for value in map(get, rows)], pa.string())


def _times(name: str) -> Callable[[Rows], pa.Array]:
    get = attrgetter(name)
    return lambda rows: _time_array(map(get, rows))


def _time_array(times_ms: Iterable[int]) -> pa.Array:
    return pa.array([ms * _US_PER_MS if ms else None for ms in times_ms], TIMESTAMP)


def _numbers(name: str) -> Callable[[Rows], pa.Array]:
    get, number = attrgetter(name), arrow_type(name)
    return lambda rows: pa.array(list(map(get, rows)), number)


def _counts(name: str) -> Callable[[Rows], pa.Array]:
    """Make a builder of numbers from 1: 0 is null."""
    get, number = attrgetter(name), arrow_type(name)
    return lambda rows: pa.array([value or None for value in map(get, rows)], number)


def _dead_numbers(name: str) -> Callable[[Rows], pa.Array]:
    get, number = attrgetter("dead_at", name), arrow_type(name)
    return lambda rows: pa.array(
        [value if dead_at else None for dead_at, value in map(get, rows)], number
    )


def _keys(rows: Rows) -> pa.Array:
    lists = [row.keys for row in rows]
    flat = [key for keys in lists for key in keys]
    return pa.ListArray.from_arrays(_ends(map(len, lists)), pa.array(flat, pa.string()), _KEYS)


def _properties(rows: Rows) -> pa.Array:
    """Build the properties, sorted by name: a row must be the same whenever it is read."""
    maps = [sorted(row.properties.items()) for row in rows]
    flat = [pair for pairs in maps for pair in pairs]
    return pa.MapArray.from_arrays(
        _ends(map(len, maps)),
        pa.array([key for key, _ in flat], pa.string()),
        pa.array([value for _, value in flat], pa.string()),
        _PROPERTIES,
    )


def _attempts(rows: Rows) -> pa.Array:
    dead = [bool(row.dead_at) for row in rows]
    flat = [attempt for row in rows if row.dead_at for attempt in row.attempts]
    structs = pa.StructArray.from_arrays(
        [
            pa.array([each.attempt for each in flat], pa.int32()),
            _time_array(each.started_at_ms for each in flat),
            _time_array(each.ended_at_ms for each in flat),
            *(
                pa.array([getattr(each, name) or None for each in flat], pa.string())
                for name in _ATTEMPT.names[3:]
            ),
        ],
        fields=list(_ATTEMPT),
    )
    lengths = (len(row.attempts) if is_dead else 0 for row, is_dead in zip(rows, dead, strict=True))
    absent = pa.array([not is_dead for is_dead in dead])
    return pa.ListArray.from_arrays(_ends(lengths), structs, _ATTEMPTS, mask=absent)


def _ends(lengths: Iterable[int]) -> pa.Array:
    return pa.array(list(accumulate(lengths, initial=0)), pa.int32())


def _builder(name: str) -> Callable[[Rows], pa.Array]:
    """Pick what makes a column out of the rows of one page."""
    if name in _NESTED:
        return _NESTED[name]
    kind = COLUMNS[name]
    if kind in ("int", "bigint"):
        if name in DEAD_LETTER:
            return _dead_numbers(name)
        return _counts(name) if name == "delivery_attempt" else _numbers(name)
    return _times(name) if kind == "timestamp" else _strings(name)


_NESTED: Final = {"keys": _keys, "properties": _properties, "attempts": _attempts}
