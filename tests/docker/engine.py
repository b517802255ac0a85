"""The command lines of a Docker engine and of `docker compose`."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import pytest

from support.machine import patient

ROOT: Final = Path(__file__).resolve().parents[2]
DOCKER: Final = ROOT / "docker"
CALL_S: Final = patient(300)


class Docker:
    """The engine's command line."""

    def __init__(self, **environment: str) -> None:
        # Of a build's context only the classic builder reads a tar.
        self.environment = {**os.environ, "DOCKER_BUILDKIT": "0", **environment}

    @property
    def answers(self) -> bool:
        return self.run("docker", "info", check=False).returncode == 0

    def run(
        self, *words: str, check: bool = True, timeout_s: float = CALL_S, given: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command. Raises AssertionError with what it said, unless `check` is false."""
        ended = subprocess.run(
            words,
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.environment,
            timeout=timeout_s,
            check=False,
        )
        said = ended.stdout.decode(errors="replace")
        assert not (check and ended.returncode), f"{' '.join(words)}:\n{said[-4_000:]}"
        return ended


class Project:
    """What one compose file describes, as a context manager: nothing of it is left.

    It goes by a name of its own, and a free port stands where one is published.
    """

    def __init__(self, docker: Docker, directory: Path, file: str) -> None:
        self.docker = docker
        text = (DOCKER / file).read_text(encoding="utf-8")
        text = re.sub(r"^name: .*\n", "", text, flags=re.MULTILINE)  # old ones do not know it
        text = re.sub(r"@sha256:[0-9a-f]{64}", "", text)  # a stand-in has the tag alone
        path = directory / file
        path.write_text(text.replace('"127.0.0.1:8081:', '"127.0.0.1::'), encoding="utf-8")
        name = f"latermq-{file.split('.')[-2]}-{os.getpid()}"
        self._words = [*command(docker), "-f", str(path), "-p", name]

    def run(self, *words: str, check: bool = True) -> str:
        """Run `docker compose` on it; return what it said."""
        ended = self.docker.run(*self._words, *words, check=check)
        return ended.stdout.decode(errors="replace")

    def wait_logs(self, service: str, text: str, count: int = 1) -> None:
        """Wait until a service has said something so often."""
        until_s = time.monotonic() + CALL_S
        while (said := self.run("logs", "--no-color", service)).count(text) < count:
            assert time.monotonic() < until_s, f"{service} never said {text!r}:\n{said[-4_000:]}"
            time.sleep(0.5)

    def __enter__(self) -> Self:
        self.run("up", "--detach", "--no-build")
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if error is not None:
            print(self.run("ps", check=False), self.run("logs", "--no-color", check=False)[-8_000:])
        self.run("down", "--volumes", "--remove-orphans")


def command(docker: Docker) -> Sequence[str]:
    """Find `docker compose`, or the older `docker-compose`."""
    if docker.run("docker", "compose", "version", check=False).returncode == 0:
        return ("docker", "compose")
    if shutil.which("docker-compose") is not None:
        return ("docker-compose",)
    pytest.skip("no docker compose on this machine")
