"""Batch and streaming reads of `format("latermq")`, as tests make them."""

from pathlib import Path
from typing import Any

from support.machine import patient

QUERY_TIMEOUT_S = patient(60)


def table(spark: Any, schema: str = "", **options: str) -> Any:
    reader = spark.read.format("latermq").options(**options)
    return (reader.schema(schema) if schema else reader).load()


def stream(spark: Any, schema: str = "", **options: str) -> Any:
    reader = spark.readStream.format("latermq").options(**options)
    return (reader.schema(schema) if schema else reader).load()


class Collector:
    """A sink that keeps what each batch held. A batch that runs again replaces what it held."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}

    def __call__(self, rows: Any, batch_id: int) -> None:
        self.batches[batch_id] = rows.collect()

    @property
    def rows(self) -> list[Any]:
        return [row for batch_id in sorted(self.batches) for row in self.batches[batch_id]]

    @property
    def sizes(self) -> list[int]:
        """Rows of each batch, in order."""
        return [len(self.batches[batch_id]) for batch_id in sorted(self.batches)]

    def run(self, rows: Any, checkpoint: Path, output_mode: str = "append") -> Any:
        """AvailableNow to its end; the ended query. Raises what the query failed with."""
        query = self.begin(rows, checkpoint, output_mode, availableNow=True)
        if not query.awaitTermination(QUERY_TIMEOUT_S):
            query.stop()
            raise TimeoutError("the query did not end")
        return query

    def begin(
        self, rows: Any, checkpoint: Path, output_mode: str = "append", **trigger: Any
    ) -> Any:
        writer = rows.writeStream.foreachBatch(self).outputMode(output_mode)
        if trigger:
            writer = writer.trigger(**trigger)
        return writer.option("checkpointLocation", str(checkpoint)).start()
