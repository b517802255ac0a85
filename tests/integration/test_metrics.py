"""The figures of a broker process: over HTTP where it is told to, and by the command line."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

from support import wire_requests
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wire_client import WireClient, require_ok

CONFIG = '[store]\nsegment_bytes = 20971520\n[metrics]\nlisten = "127.0.0.1:0"\n'


def test_a_broker_serves_its_figures(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", config=CONFIG) as broker:
        broker.start()
        said = broker.log_path.read_text(encoding="utf-8")
        address = re.search(r"metrics served.*address=(\S+)", said)
        assert address, said
        with WireClient(broker.endpoint) as wire:
            wire.create_topic("orders")
            require_ok(wire.send(wire_requests.message("orders", b"body")))
        with urllib.request.urlopen(f"http://{address[1]}/metrics", timeout=patient(10)) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            page = answer.read().decode()
        assert "\nlatermq_messages_sent_total 1\n" in page
        assert '\nlatermq_topic_messages_total{topic="orders"} 1\n' in page
        wanted = urllib.request.Request(
            f"http://{address[1]}/metrics", headers={"Accept": "application/openmetrics-text"}
        )
        with urllib.request.urlopen(wanted, timeout=patient(10)) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text; ")
            assert answer.read().endswith(b"# EOF\n")
        with urllib.request.urlopen(f"http://{address[1]}/readyz", timeout=patient(10)) as answer:
            assert answer.read() == b"ready\n"
        command = [sys.executable, "-m", "latermq_broker", "broker", "show", "--json"]
        ended = subprocess.run(
            [*command, "--endpoint", broker.endpoint],
            capture_output=True,
            text=True,
            timeout=patient(60),
        )
        assert ended.returncode == 0, ended.stderr
        told = json.loads(ended.stdout)
        assert told["totals"]["messages_sent"] == 1
        if os.environ.get("LATERMQ_SERVER_TRANSPORT", "lean") == "lean":
            assert "\nlatermq_connections_total 1\n" in page
            assert told["transport"]["calls_open"] == 1  # GetBroker itself
            assert told["transport"]["connections"] == 2
            shown = subprocess.run(
                [*command[:-1], "--endpoint", broker.endpoint], capture_output=True, text=True
            )
            assert "3 since start" in shown.stdout, shown.stdout
        assert broker.terminate().code == 0


def test_an_address_in_use_is_refused(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "one") as first:
        first.start()
        command = [sys.executable, "-m", "latermq_broker", "serve", "--listen", "127.0.0.1:0"]
        config = tmp_path / "two.toml"
        config.write_text(f'[metrics]\nlisten = "{first.endpoint}"\n', encoding="utf-8")
        ended = subprocess.run(
            [*command, "--data-dir", str(tmp_path / "two"), "--config", str(config)],
            capture_output=True, text=True, timeout=patient(60),
        )  # fmt: skip
    assert ended.returncode == 2
    assert f"metrics.listen: cannot bind {first.endpoint}" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
