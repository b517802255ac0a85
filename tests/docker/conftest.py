"""A Docker engine, and the images that the compose files name.

Where no engine answers, one is started, with its images in `.cache/docker`; where no registry of
images can be reached, the base images are made of packages. What cannot be had is a skip.
"""

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from docker.engine import CALL_S, DOCKER, ROOT, Docker
from support.kafka import cluster as kafka
from support.machine import patient

HERE: Final = ROOT / "tests" / "docker"
STARTED_S: Final = patient(60)
BUILT_S: Final = patient(1_800)
PYTHON: Final = "latermq-stand-in:python"
KAFKA: Final = "apache/kafka:4.1.0"


@pytest.fixture(scope="session")
def docker() -> Iterator[Docker]:
    if shutil.which("docker") is None:
        pytest.skip("no docker on this machine")
    docker = Docker()
    if docker.answers:
        yield docker
        return
    if os.geteuid() or shutil.which("dockerd") is None:
        pytest.skip("no Docker engine answers, and none can be started here")
    with tempfile.TemporaryDirectory(prefix="docker-") as folder:
        own = Docker(DOCKER_HOST=f"unix://{folder}/socket")
        words = ["dockerd", "--host", own.environment["DOCKER_HOST"], "--exec-root", f"{folder}/x"]
        words += ["--data-root", str(ROOT / ".cache" / "docker"), "--pidfile", f"{folder}/pid"]
        log = Path(folder, "log")
        with log.open("wb") as said:
            engine = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        try:
            until_s = time.monotonic() + STARTED_S
            while not own.answers:
                if engine.poll() is not None or time.monotonic() > until_s:
                    last = log.read_text(errors="replace").splitlines()[-1:]
                    pytest.skip(f"no Docker engine starts here: {last}")
                time.sleep(0.2)
            yield own
        finally:
            engine.terminate()
            engine.wait(CALL_S)
            for left in Path(folder, "x", "netns").glob("*"):  # mounted, and so in the way
                subprocess.run(["umount", left], check=True)


@pytest.fixture(scope="session")
def images(docker: Docker) -> None:
    """Build what the Dockerfile describes, and have what it and the compose files begin with."""
    options: list[str] = ["--network", "host"]
    base = re.findall(
        r"^ARG BASE=(\S+)", (ROOT / "docker" / "Dockerfile").read_text(), re.MULTILINE
    )
    if docker.run("docker", "pull", "--quiet", base[0], check=False).returncode:
        stand_in_for_python(docker)
        options += ["--build-arg", f"BASE={PYTHON}"]
    if docker.run("docker", "pull", "--quiet", KAFKA, check=False).returncode:
        stand_in_for_python(docker)
        stand_in_for_kafka(docker)
    ignore = (DOCKER / "Dockerfile.dockerignore").read_text(encoding="utf-8")
    sources = re.findall(r"^!(\S+)", ignore, re.MULTILINE)
    context = tar(ROOT, *sources, "docker/Dockerfile")
    for target, image in (("spark", "latermq-spark:latest"), ("broker", "latermq:latest")):
        words = ["--file", "docker/Dockerfile", "--target", target, "--tag", image, "-"]
        docker.run("docker", "build", *options, *words, timeout_s=BUILT_S, given=context)


def stand_in_for_python(docker: Docker) -> None:
    if docker.run("docker", "image", "inspect", PYTHON, check=False).returncode == 0:
        return
    if shutil.which("debootstrap") is None:
        pytest.skip("no registry of images answers, and there is no debootstrap for a stand-in")
    docker.run(str(HERE / "stand_in_python.sh"), PYTHON, timeout_s=BUILT_S)


def stand_in_for_kafka(docker: Docker) -> None:
    try:
        kafka.fetch()
    except kafka.UnavailableError as reason:
        pytest.skip(str(reason))
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder, "context")
        shutil.copytree(HERE / "kafka", context)
        shutil.copytree(kafka.JARS / "lib", context / "lib")
        options = ("--network", "host", "--build-arg", f"BASE={PYTHON}", "--tag", KAFKA)
        docker.run("docker", "build", *options, str(context), timeout_s=BUILT_S)


def tar(root: Path, *names: str) -> bytes:
    """Pack files and folders; of names that lie in others, each file once."""
    outer = [name for name in names if not any(name.startswith(f"{other}/") for other in names)]
    words = ["tar", "-C", str(root), "--exclude=__pycache__", "-c", *outer]
    return subprocess.run(words, capture_output=True, check=True).stdout
