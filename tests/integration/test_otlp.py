"""A broker that sends its figures to an OpenTelemetry collector, and what it says if it cannot."""

import gzip
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from support import wire_requests
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wire_client import WireClient, require_ok

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

CONFIG: Final = """
[store]
segment_bytes = 20971520
[metrics]
otlp = "http://127.0.0.1:{port}"
otlp_interval_ms = 100
"""


class Collector:
    """Takes what is posted to it: (path, resource's attributes, metrics by name)."""

    def __init__(self) -> None:
        self.taken: queue.Queue[tuple[str, dict[str, str], dict[str, Any]]] = queue.Queue()
        self.status = 200
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if collector.status == 200:
                    collector.take(self.path, body)
                self.send_response(collector.status)
                answer = ExportMetricsServiceResponse().SerializeToString()
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def take(self, path: str, body: bytes) -> None:
        [group] = ExportMetricsServiceRequest.FromString(body).resource_metrics
        attributes = {each.key: each.value.string_value for each in group.resource.attributes}
        metrics = {each.name: each for scope in group.scope_metrics for each in scope.metrics}
        self.taken.put((path, attributes, metrics))

    def until(self, name: str, labels: dict[str, str], wanted: float) -> Any:
        """Return the first metric whose point with these labels has this value or count."""
        while True:
            _, _, metrics = self.taken.get(timeout=patient(60))
            if name not in metrics:
                continue
            kind = metrics[name].WhichOneof("data")
            for point in getattr(metrics[name], kind).data_points:
                found = {each.key: each.value.string_value for each in point.attributes}
                value = point.count if kind == "histogram" else point.as_int or point.as_double
                if found == labels and value == wanted:
                    return metrics[name]

    def close(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


def wait_log(broker: BrokerProcess, text: str) -> None:
    until_s = time.monotonic() + patient(60)
    while text not in broker.log_path.read_text(encoding="utf-8"):
        assert time.monotonic() < until_s, broker.log_path.read_text(encoding="utf-8")
        time.sleep(0.02)


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    yield found
    found.close()


def test_a_collector_gets_what_a_prometheus_would(tmp_path: Path, collector: Collector) -> None:
    config = CONFIG.format(port=collector.port)
    with BrokerProcess(tmp_path / "data", config=config) as broker:
        broker.start()
        path, attributes, metrics = collector.taken.get(timeout=patient(60))
        assert path == "/v1/metrics"
        assert attributes["service.name"] == "latermq"
        assert attributes["service.instance.id"] == "latermq-0"
        assert metrics["latermq_disk_free_bytes"].unit == "By"
        with WireClient(broker.endpoint) as wire:
            wire.create_topic("orders")
            for body in (b"one", b'"two"'):
                require_ok(wire.send(wire_requests.message("orders", body)))
            got: list[str] = []
            while len(got) < 2:
                received = wire.receive("orders", "billing")
                got += [each.system_properties.receipt_handle for each in received.messages]
            require_ok(wire.ack("orders", "billing", *got))
        sent = collector.until("latermq_messages_sent_total", {}, 2)
        assert sent.sum.is_monotonic
        assert sent.description == "Messages stored for their producers, delayed ones included."
        assert sent.sum.data_points[0].start_time_unix_nano > 0
        of = {"group": "billing", "topic": "orders"}
        tried = collector.until("latermq_group_attempt_seconds", of, 2).histogram
        (point,) = tried.data_points
        assert sum(point.bucket_counts) == 2
        assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
        assert not point.HasField("min")
        collector.until("latermq_group_ready_messages", of, 0)
        assert broker.terminate().code == 0


def test_a_collector_that_is_away_is_said_once_and_found_again(
    tmp_path: Path, collector: Collector
) -> None:
    collector.status = 400
    config = CONFIG.format(port=collector.port)
    with BrokerProcess(tmp_path / "data", config=config) as broker:
        broker.start()
        wait_log(broker, "metrics not exported")
        collector.status = 200
        collector.taken.get(timeout=patient(60))
        wait_log(broker, "metrics exported again")
        said = broker.terminate()
    assert said.code == 0
    assert said.stderr.count("metrics not exported") == 1
    assert "Traceback" not in said.stderr


def test_without_the_packages_it_says_what_to_install(tmp_path: Path) -> None:
    """The interpreter of another environment is one in which the import finds nothing."""
    blocked = tmp_path / "sitecustomize.py"
    blocked.write_text(
        "import sys\n"
        "class Nothing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'opentelemetry': raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Nothing())\n",
        encoding="ascii",
    )
    config = tmp_path / "latermq.toml"
    config.write_text('[metrics]\notlp = "http://127.0.0.1:4318"\n', encoding="ascii")
    ended = subprocess.run(
        [
            sys.executable, "-m", "latermq_broker", "serve", "--listen", "127.0.0.1:0",
            "--data-dir", str(tmp_path / "data"), "--config", str(config),
        ],
        env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=patient(60),
        check=False,
    )  # fmt: skip
    assert ended.returncode == 2, ended.stderr
    assert "metrics.otlp: needs OpenTelemetry: pip install 'latermq[otlp]'" in ended.stderr
    assert "Traceback" not in ended.stderr
