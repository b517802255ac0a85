"""`format("latermq")`: what Spark calls.

    spark.read.format("latermq").options(endpoint="broker:8081", group="billing").load()

Dull on purpose: options, offsets and schema are turned into ours; StreamPlan, plan_batch and
reader.read do the work. Spark pickles these classes to its workers: they hold nothing but options
and column names, and the driver's plan stays behind. One class serves Spark 4.0 to 4.3: before 4.2
`latestOffset` is called without arguments, and AvailableNow is one single batch.
"""
# ruff: noqa: N802  the names are Spark's

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from latermq.spark.errors import OptionError
from latermq.spark.offsets import Offsets
from latermq.spark.options import Edge, Options, parse
from latermq.spark.queue_client import QueueClient
from latermq.spark.reader import read
from latermq.spark.retry import monotonic_ms
from latermq.spark.schema import SCHEMA, Column, check
from latermq.spark.stream_plan import StreamPlan, plan_batch

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # Spark 4.0 and 4.1: no admission control
    SupportsTriggerAvailableNow = object

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

FORMAT: Final = "latermq"

log: Final = logging.getLogger("latermq.spark")


class LaterMQDataSource(DataSource):
    """Topics of a LaterMQ broker as rows, in batch and in streams."""

    @classmethod
    def name(cls) -> str:
        """Return what `format` takes."""
        return FORMAT

    def schema(self) -> str:
        """Return all columns, as DDL; who gives a schema has only what is in it read."""
        parse(self.options)  # so that a wrong option is refused by load(), not by the first action
        return SCHEMA

    def reader(self, schema: "StructType") -> "LaterMQReader":
        """Return what plans and reads a batch."""
        return LaterMQReader(parse(self.options), _names(schema))

    def streamReader(self, schema: "StructType") -> "LaterMQStreamReader":
        """Return what plans and reads a stream. Raises OptionError: an end was given."""
        options = parse(self.options)
        if options.ending.edge is not Edge.LATEST:
            raise OptionError("endingOffsets and endingTimestamp are for batch reads only")
        return LaterMQStreamReader(options, _names(schema))


class LaterMQReader(DataSourceReader):
    """One batch read."""

    def __init__(self, options: Options, names: tuple[str, ...]) -> None:
        self._options: Final = options
        self._names: Final = names

    def partitions(self) -> list[InputPartition]:
        planned = plan_batch(self._options, QueueClient(self._options).describe)
        return [InputPartition(ranges) for ranges in planned]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        return _read(self._options, self._names, partition)


class LaterMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One streaming query. Its position is in Spark's checkpoint and nowhere else."""

    def __init__(self, options: Options, names: tuple[str, ...]) -> None:
        self._options: Final = options
        self._names: Final = names
        self._plan: StreamPlan | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_names": self._names, "_plan": None}

    def initialOffset(self) -> dict[str, Any]:
        return self._planned().initial().encode()

    def getDefaultReadLimit(self) -> "ReadLimit":
        rows_max = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:
        self._planned().freeze()

    def latestOffset(
        self, start: Mapping[str, Any] | None = None, limit: "ReadLimit | None" = None
    ) -> dict[str, Any]:
        """Obey the limit it is given, not the option: AvailableNow's and Once's differ."""
        if start is None or limit is None:
            return self._latest_before_admission_control().encode()
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._planned().latest(Offsets.decode(start), rows_max).encode()

    def _latest_before_admission_control(self) -> Offsets:
        rows_max = self._options.offsets_per_trigger_max
        if rows_max is not None and self._plan is None:
            log.warning(
                "This Spark has no admission control (4.2 has): Trigger.AvailableNow ends after "
                "maxOffsetsPerTrigger=%d rows",
                rows_max,
            )
        return self._planned().latest(None, rows_max)

    def reportLatestOffset(self) -> dict[str, Any]:
        return self._planned().report().encode()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        planned = self._planned().partitions(Offsets.decode(start), Offsets.decode(end))
        return [InputPartition(ranges) for ranges in planned]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        return _read(self._options, self._names, partition)

    def _planned(self) -> StreamPlan:
        if self._plan is None:
            client = QueueClient(self._options)
            self._plan = StreamPlan(self._options, client.describe, monotonic_ms)
        return self._plan


def _names(schema: "StructType") -> tuple[str, ...]:
    return check(
        [Column(field.name, field.dataType.simpleString(), field.nullable) for field in schema]
    )


def _read(
    options: Options, names: tuple[str, ...], partition: InputPartition | None
) -> Iterator["pa.RecordBatch"]:
    # Spark makes one out of none: InputPartition(None), before 4.1 None itself.
    ranges = partition.value if partition is not None else None
    return read(QueueClient(options), names, ranges or ())
