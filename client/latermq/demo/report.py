"""Spark reads what died in billing as a table: once, or again and again as letters come in.

    python -m latermq.demo.report
    python -m latermq.demo.report --follow DIR      (the stream's checkpoint goes into DIR)

Needs Java 17 or 21 and `pip install 'latermq[spark]'`.
"""

import argparse
import os
import signal
import sys
from pathlib import Path
from threading import Event
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from latermq.demo.shop import BILLING_GROUP
from latermq.demo.voice import Voice

COLUMNS: Final = (
    "keys array<string>, origin_topic string, reason string, attempt_count int, "
    "failure_class string, failure_text string, redriven_at timestamp"
)
TABLE_ROWS_MAX: Final = 50


def session() -> SparkSession:
    """Start a small local Spark: no web page, no progress bars, this very Python for workers."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("latermq dead letters")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "768m")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def table(letters: DataFrame) -> DataFrame:
    """Select the columns that a person wants to see."""
    return letters.select(
        fn.col("keys")[0].alias("order"),
        "origin_topic",
        "reason",
        fn.col("attempt_count").alias("attempts"),
        fn.concat_ws(": ", "failure_class", "failure_text").alias("last_failure"),
        fn.col("redriven_at").isNotNull().alias("redriven"),
    ).orderBy("order")


def report(letters: DataFrame, voice: Voice) -> None:
    """Print the table and say how many rows it has."""
    rows = table(letters).cache()
    rows.show(TABLE_ROWS_MAX, truncate=False)
    count, redriven = rows.agg(fn.count("*"), fn.count_if("redriven")).first() or (0, 0)
    letters_read = f"{count} dead letter" + ("" if count == 1 else "s")
    voice.say(
        "read", f"Spark read {letters_read}, {redriven} redriven", rows=count, redriven=redriven
    )
    rows.unpersist()


def once(spark: SparkSession, options: argparse.Namespace, voice: Voice) -> None:
    reader = spark.read.format("latermq").schema(COLUMNS)
    report(reader.option("endpoint", options.endpoint).option("group", options.group).load(), voice)


def follow(spark: SparkSession, options: argparse.Namespace, voice: Voice) -> None:
    """Report every batch of new letters until the process is told to end."""

    def batch(letters: DataFrame, _batch_id: int) -> None:
        if not letters.isEmpty():
            report(letters, voice)

    reader = spark.readStream.format("latermq").schema(COLUMNS)
    letters = reader.option("endpoint", options.endpoint).option("group", options.group).load()
    query = (
        letters.writeStream.foreachBatch(batch)
        .option("checkpointLocation", str(options.follow / "checkpoint"))
        .trigger(processingTime=f"{options.every} seconds")
        .start()
    )
    stopped = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        # No exception out of a handler: it would leave a call to the JVM half done.
        signal.signal(number, lambda *_: stopped.set())
    voice.say("following", f"waiting for dead letters of {options.group}")
    while not stopped.is_set() and not query.awaitTermination(1):
        pass
    query.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="latermq.demo.report", description="Report the dead.")
    parser.add_argument(
        "--endpoint", default=os.environ.get("LATERMQ_ENDPOINT", "127.0.0.1:8081"), metavar="H:P"
    )
    parser.add_argument("--group", default=BILLING_GROUP, help="whose dead letters [billing]")
    parser.add_argument("--follow", type=Path, metavar="DIR", help="as a stream; its checkpoint")
    parser.add_argument("--every", type=int, default=10, metavar="S", help="seconds a batch [10]")
    parser.add_argument("--events", action="store_true", help="say it in JSON")
    options = parser.parse_args()
    voice = Voice(as_events=options.events)
    spark = session()
    try:
        follow(spark, options, voice) if options.follow else once(spark, options, voice)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
