"""The image's health check, as the Dockerfile spells it: a broker that serves, and one gone."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from support.broker_process import BrokerProcess
from support.machine import patient

DOCKERFILE: Final = Path(__file__).resolve().parents[2] / "docker" / "Dockerfile"


def check(endpoint: str) -> subprocess.CompletedProcess[str]:
    text = DOCKERFILE.read_text(encoding="utf-8")
    [spelled] = re.findall(r"^HEALTHCHECK .*\\\n +CMD (\[.*\])$", text, re.MULTILINE)
    program, *words = json.loads(spelled)
    assert program == "python"
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=patient(30),
        check=False,
        env={**os.environ, "LATERMQ_ENDPOINT": endpoint},
    )


def test_healthy_while_it_serves_and_not_after(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.start()
        assert check(broker.endpoint).returncode == 0
        command = [sys.executable, "-m", "latermq_cli", "health", "--endpoint", broker.endpoint]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (told.returncode, told.stdout) == (0, f"{broker.endpoint} serves\n"), told.stderr
        broker.terminate()
        gone = check(broker.endpoint)
    assert gone.returncode == 1
    assert gone.stderr == f"latermq: {broker.endpoint} does not answer: UNAVAILABLE\n"
