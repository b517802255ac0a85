"""What an operator sees of a replicated log: the owner's figures, a standby's, who owns it now."""

import json
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from latermq_cli.root import latermq
from support import wire_requests
from support.machine import patient
from support.replica_process import CONFIG, LogServerProcess, ReplicaProcess
from support.wire_client import WireClient, require_ok

METRICS = CONFIG + '[metrics]\nlisten = "127.0.0.1:0"\n'


@pytest.fixture
def log_server() -> Iterator[LogServerProcess]:
    with LogServerProcess() as log_server:
        yield log_server


def figures(broker: ReplicaProcess) -> dict[str, float]:
    """The series of replication on the page that it serves now."""
    broker.wait_log("metrics served")
    address = re.findall(r"metrics served.*address=(\S+)", broker.log_path.read_text("utf-8"))[-1]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=patient(10)) as answer:
        page = answer.read().decode()
    return {
        name.partition("{")[0].removeprefix("latermq_replication_"): float(value)
        for name, value in re.findall(r"^(latermq_replication_\S+) (\S+)$", page, re.MULTILINE)
    }


def said(broker: ReplicaProcess, *words: str) -> str:
    result = CliRunner().invoke(latermq, [*words, "--endpoint", broker.endpoint])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_owner_and_standby_say_how_they_are(tmp_path: Path, log_server: LogServerProcess) -> None:
    with ReplicaProcess(tmp_path / "a", log_server, METRICS) as a:
        a.start()
        with (
            ReplicaProcess(tmp_path / "b", log_server, METRICS) as b,
            WireClient(a.endpoint) as wire,
        ):
            b.spawn()
            b.wait_log("following")
            require_ok(wire.send(wire_requests.message("orders", b"body")))
            owner = figures(a)
            assert (owner["owner"], owner["epoch"], owner["take_overs_total"]) == (1, 1, 1)
            assert owner["append_seconds_count"] >= 1
            until_s = time.monotonic() + patient(30)
            while (standby := figures(b))["position"] < owner["position"]:
                assert time.monotonic() < until_s, standby
                time.sleep(0.02)
            assert (standby["owner"], standby["epoch"]) == (0, 1)
            told: Any = json.loads(said(a, "broker", "show", "--json"))
            assert told["replication"]["role"] == "owner"
            assert told["replication"]["position"] >= owner["position"]
            assert "owner of the log of test, epoch 1, position" in said(a, "broker", "show")
            (row,) = json.loads(said(a, "cluster", "show", "--json"))["shards"]
            assert (row["shard"], row["role"], row["epoch"]) == (0, "owner", 1)
            assert row["owner"] == a.endpoint
            assert row["engine_answered_ms_ago"] < patient(60_000)
            assert said(a, "cluster", "show").split()[-1] == "ago"
            a.kill()
            b.wait_ready()
            after = figures(b)
            assert (after["owner"], after["epoch"]) == (1, 2)
