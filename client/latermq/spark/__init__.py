"""LaterMQ as a Spark data source: `format("latermq")`. Needs the extra `latermq[spark]`.

    from latermq.spark import DEAD_FACTS
    spark.read.format("latermq").schema(DEAD_FACTS).options(endpoint=…, group="billing").load()

Importing this module does not import Spark; naming `LaterMQDataSource` does.
"""

from typing import TYPE_CHECKING, Any

from latermq.spark.schema import DEAD_FACTS, SCHEMA

if TYPE_CHECKING:
    from latermq.spark.source import LaterMQDataSource

__all__ = ["DEAD_FACTS", "SCHEMA", "LaterMQDataSource"]


def __getattr__(name: str) -> Any:
    if name == "LaterMQDataSource":
        from latermq.spark.source import LaterMQDataSource

        return LaterMQDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
