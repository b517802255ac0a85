"""kill -9 of driver, JVM and workers in the middle of a batch: nothing lost, nothing twice."""

import random
import time
from pathlib import Path
from typing import Any

import pytest

from support import spark_driver, wire_requests
from support.broker_process import BrokerProcess
from support.machine import patient
from support.spark_queries import stream
from support.wire_client import WireClient, require_ok

pytestmark = pytest.mark.spark

MESSAGE_COUNT = 1_500
DRIVER_TIMEOUT_S = patient(60)


@pytest.mark.parametrize("seed", [20_261])
def test_kill_9_in_the_middle_of_a_batch(
    spark: Any, broker: BrokerProcess, wire: WireClient, name: str, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    name = f"kill_{seed}"
    wire.create_topic(name, queue_count=2)
    for start in range(0, MESSAGE_COUNT, 100):
        bodies = [str(number).encode() for number in range(start, start + 100)]
        require_ok(wire.send(*(wire_requests.message(name, body) for body in bodies)))

    at_batch = chance.randrange(1, 5)
    driver = spark_driver.start(broker.endpoint, name, tmp_path)
    try:
        until_s = time.monotonic() + DRIVER_TIMEOUT_S
        planned = committed = 0
        while not planned > committed >= at_batch:
            assert driver.poll() is None, (tmp_path / "driver.log").read_text()
            assert time.monotonic() < until_s, f"seed {seed}: batch {at_batch} never came"
            time.sleep(0.002)
            planned, committed = spark_driver.batches(tmp_path)
        time.sleep(chance.uniform(0, 0.3))  # anywhere in a batch or between two
    finally:
        spark_driver.kill(driver)
    _, committed = spark_driver.batches(tmp_path)
    assert committed < MESSAGE_COUNT / int(spark_driver.ROWS_PER_BATCH), f"seed {seed}: too late"

    rows = stream(spark, endpoint=broker.endpoint, topics=name)
    query = spark_driver.written(rows, tmp_path).trigger(availableNow=True).start()
    assert query.awaitTermination(DRIVER_TIMEOUT_S)
    bodies = [bytes(row.body) for row in spark.read.parquet(str(tmp_path / "out")).collect()]
    assert len(bodies) == MESSAGE_COUNT, f"seed {seed}"
    assert {int(body) for body in bodies} == set(range(MESSAGE_COUNT)), f"seed {seed}"
