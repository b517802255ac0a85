"""A reader that remembers its offsets goes on at a restored log: what stands there is another's."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from latermq.spark.errors import DataLossError
from latermq.spark.offsets import Offsets
from latermq.spark.options import parse
from latermq.spark.queue_client import QueueClient
from latermq.spark.stream_plan import StreamPlan
from support import wire_requests
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wire_client import WireClient, require_ok


def send(broker: BrokerProcess, count: int) -> None:
    time.sleep(0.01)  # of the millisecond in which a life began it is not known whose it is
    with WireClient(broker.endpoint) as wire:
        for _ in range(count):
            require_ok(wire.send(wire_requests.message("orders", b"row")))


def plan(broker: BrokerProcess, **more: str) -> StreamPlan:
    options = parse({"endpoint": broker.endpoint, "topics": "orders", **more})
    return StreamPlan(options, QueueClient(options).describe, lambda: 0)


def read_all(broker: BrokerProcess, start: Offsets, **more: str) -> tuple[Offsets, int]:
    """Plan a batch as a query does that was started again; return its end, and its rows."""
    planned = plan(broker, **more)
    end = Offsets.decode(planned.latest(start, None).encode())
    return end, sum(each.row_count for task in planned.partitions(start, end) for each in task)


def cli(*words: str) -> None:
    command = [sys.executable, "-m", "latermq_cli", *words]
    subprocess.run(command, check=True, capture_output=True, timeout=patient(60))


@pytest.mark.parametrize("restarted", [False, True])
def test_a_checkpoint_beyond_the_backup_stops_the_query(restarted: bool, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.start()
        send(broker, 40)
        before, rows = read_all(broker, plan(broker).initial())
        assert rows == 40
        cli("backup", str(tmp_path / "backups"), "--endpoint", broker.endpoint)
        if restarted:
            broker.terminate()
            broker.start()
            assert read_all(broker, before) == (before, 0)
        send(broker, 40)
        beyond, rows = read_all(broker, before)
        assert rows == 40
        broker.kill()
    cli("restore", str(tmp_path / "backups"), str(tmp_path / "restored"))
    with BrokerProcess(tmp_path / "restored") as broker:
        broker.start()
        send(broker, 80)  # it has grown past the checkpoint
        assert read_all(broker, before)[1] == 80
        with pytest.raises(DataLossError, match="LATERMQ_DATA_LOSS: topic orders queue"):
            read_all(broker, beyond)
        again, rows = read_all(broker, beyond, failOnDataLoss="false")
        assert rows == 120
        assert read_all(broker, again) == (again, 0)
