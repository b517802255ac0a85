"""The one Spark session of a test run: two cores, no network, quick to start."""

import os
import sys
from pathlib import Path
from typing import Any, Final

# C1 only and one collector thread: these JVMs live for a minute.
JAVA_OPTIONS: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Duser.timezone=UTC"
SETTINGS: Final = {
    "spark.driver.memory": "768m",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def start(directory: Path, name: str = "latermq tests") -> Any:
    """A pyspark.sql.SparkSession that keeps its files under `directory`."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable  # else `python3` of PATH, which has no latermq
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName(name)
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.local.dir", str(directory / "local"))
    session = builder.config("spark.sql.warehouse.dir", str(directory / "warehouse")).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session
