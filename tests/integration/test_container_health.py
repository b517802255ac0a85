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
from support.wire_client import WireClient
from support.wire_requests import message

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


def test_the_command_tells_of_checkpoints_that_fail_and_the_container_serves_on(
    tmp_path: Path,
) -> None:
    settings = "[store]\nsegment_bytes = 20971520\ncheckpoint_interval_ms = 1000\n"
    with BrokerProcess(tmp_path / "data", config=settings) as broker:
        broker.start()
        # As a file system that refuses: each checkpoint is written under a name of its own first.
        checkpoints = broker.data_dir / "ckpt"
        for path in checkpoints.iterdir():
            path.unlink()
        checkpoints.rmdir()
        checkpoints.symlink_to("ckpt")  # too many levels
        with WireClient(broker.endpoint) as client:
            client.route("t")
            client.send(message("t", b"x"))
            environment = {**os.environ, "LATERMQ_ENDPOINT": broker.endpoint}
            command = [sys.executable, "-m", "latermq_cli", "health"]
            while True:
                ended = subprocess.run(
                    command,
                    env=environment,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=patient(30),
                )
                if ended.returncode:
                    break
            assert ended.returncode == 1
            assert "serves; not in order: checkpoints" in ended.stderr
            container = [sys.executable, "-m", "latermq_cli.health"]
            subprocess.run(container, env=environment, check=True, timeout=patient(30))
        broker.kill()
