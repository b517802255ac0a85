"""A real Prometheus that scrapes brokers and evaluates the hurried rules (Debian: prometheus)."""

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote

from gameday.rules import SPEED, write_hurried
from support.cluster_process import free_ports
from support.machine import patient

SCRAPE_MS: Final = round(10_000 / SPEED)
LOOK_S: Final = 0.1
CONFIG: Final = """
global: {{scrape_interval: {ms}ms, scrape_timeout: {ms}ms, evaluation_interval: {ms}ms}}
rule_files: [rules.yml]
scrape_configs:
  - job_name: latermq
    static_configs: [{{targets: {targets}}}]
"""


class Alert(NamedTuple):
    """One that fires."""

    name: str
    labels: dict[str, str]
    summary: str
    runbook: str


class Prometheus:
    """Use it as a context manager."""

    def __init__(self, directory: Path, *targets: str) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._targets = targets
        write_hurried(directory / "rules.yml")
        config = CONFIG.format(ms=SCRAPE_MS, targets=json.dumps(targets))
        (directory / "prometheus.yml").write_text(config, encoding="utf-8")
        self.url = f"http://127.0.0.1:{free_ports(1)[0]}"

    def __enter__(self) -> Self:
        command = shutil.which("prometheus")
        assert command is not None
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    command, "--config.file=prometheus.yml", "--storage.tsdb.path=data",
                    f"--web.listen-address={self.url.removeprefix('http://')}",
                    f"--query.lookback-delta={300_000 / SPEED:.0f}ms",
                ],
                cwd=self._directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self.wait_until(lambda: bool(self.query("up")), patient(30))
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def firing(self, state: str = "firing") -> list[Alert]:
        return [
            Alert(
                each["labels"]["alertname"], each["labels"],
                each["annotations"]["summary"], each["annotations"]["runbook"],
            )
            for each in self._ask("alerts")["alerts"]
            if each["state"] == state
        ]  # fmt: skip

    def query(self, expr: str) -> list[dict[str, Any]]:
        """Return the series of an instant vector as they are now: `metric` and `value` of each."""
        return list(self._ask(f"query?query={quote(expr)}")["result"])

    def wait_scraped(self) -> None:
        """Wait until it has seen every broker as it is now."""
        asked_s = time.time()

        def seen() -> bool:
            up = self.query("timestamp(up) and (up == 1)")
            return len(up) == len(self._targets) and all(
                float(each["value"][1]) > asked_s for each in up
            )

        self.wait_until(seen, patient(30))

    def wait_until(self, happened: Callable[[], bool], limit_s: float) -> float:
        """Wait for it; return after how many seconds it was so. Raises AssertionError: too long."""
        began_s = time.monotonic()
        while True:
            try:
                if happened():
                    return time.monotonic() - began_s
            except urllib.error.URLError:  # it starts
                assert self._process.poll() is None, (self._directory / "log").read_text()
            assert time.monotonic() < began_s + limit_s, self.firing()
            time.sleep(LOOK_S)

    def _ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=patient(10)) as answer:
            return json.load(answer)["data"]
