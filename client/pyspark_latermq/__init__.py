"""How Spark finds `format("latermq")` by itself.

Spark imports every top-level module whose name starts with `pyspark_` and registers the
`DefaultSource` in it, for Python and for `CREATE TEMPORARY VIEW … USING latermq`.
"""

from latermq.spark.source import LaterMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
