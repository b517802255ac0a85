"""A driver of its own: a stream from a broker into Parquet, until somebody kills it.

    python -m support.spark_driver ENDPOINT TOPIC DIRECTORY

`start` makes it a process group of its own: Python, the JVM and all its workers die together.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from support import spark_session
from support.spark_queries import stream

TESTS: Final = Path(__file__).resolve().parents[1]
ROWS_PER_BATCH: Final = "150"


def written(rows: Any, directory: Path) -> Any:
    """A writer of `rows` into Parquet under `directory`, exactly once through Spark."""
    writer = rows.writeStream.format("parquet").option("path", str(directory / "out"))
    return writer.option("checkpointLocation", str(directory / "checkpoint"))


def start(endpoint: str, topic: str, directory: Path) -> "subprocess.Popen[bytes]":
    log = (directory / "driver.log").open("wb")
    with log:
        return subprocess.Popen(
            [sys.executable, "-m", "support.spark_driver", endpoint, topic, str(directory)],
            cwd=TESTS,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def kill(driver: "subprocess.Popen[bytes]") -> None:
    """kill -9 to all of it, at once."""
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


def batches(directory: Path) -> tuple[int, int]:
    """(batches written down, batches committed) in the checkpoint."""
    counts = []
    for log in ("offsets", "commits"):
        path = directory / "checkpoint" / log
        names = path.iterdir() if path.is_dir() else ()
        counts.append(sum(name.name.isdigit() for name in names))
    return counts[0], counts[1]


def main(endpoint: str, topic: str, directory: Path) -> None:
    spark = spark_session.start(directory / "spark")
    rows = stream(spark, endpoint=endpoint, topics=topic, maxOffsetsPerTrigger=ROWS_PER_BATCH)
    written(rows, directory).start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
