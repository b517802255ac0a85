"""The guide's page for who deploys a worker, and the one that compares: what they say is so."""

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from latermq_cli.worker import worker

GUIDE: Final = Path(__file__).resolve().parents[2] / "docs" / "guide"
BLOCK: Final = re.compile(r"```\w+\n# (\S+)\n(.*?)```", re.DOTALL)
BLOCKS: Final = dict(BLOCK.findall((GUIDE / "deploying.md").read_text(encoding="utf-8")))
ANALYZE: Final = shutil.which("systemd-analyze")
COMPARED: Final = (GUIDE / "coming-from.md").read_text(encoding="utf-8")


def options(words: list[str]) -> dict[str, Any]:
    """What the command line means. Raises click's errors."""
    return worker.make_context("worker", words).params


def unit() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(BLOCKS["/etc/systemd/system/shop-worker.service"])
    return parser["Service"]


def dockerfile(word: str) -> str:
    text = BLOCKS["Dockerfile"].replace("\\\n", " ")
    [line] = [line for line in text.splitlines() if line.startswith(f"{word} ")]
    return str(line).removeprefix(f"{word} ").strip()


def pod() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(BLOCKS["worker.yaml"])["spec"]["template"]["spec"]
    return found


def test_systemd_waits_longer_than_the_worker() -> None:
    service = unit()
    program, command, *words = shlex.split(service["ExecStart"])
    assert program.startswith(f"{service['WorkingDirectory']}/.venv/bin/latermq")
    asked = options(words)
    assert command == "worker"
    assert asked["grace"] < 1_000 * int(service["TimeoutStopSec"])
    assert str(asked["health_file"].parent) == f"/run/{service['RuntimeDirectory']}"
    assert service["RestartPreventExitStatus"] == "2"


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """With a program that is there: that of the page is where the reader installs it."""
    name = "shop-worker.service"
    text = BLOCKS[f"/etc/systemd/system/{name}"]
    program = shlex.split(unit()["ExecStart"])[0]
    assert text.count(program) == 1
    (tmp_path / name).write_text(text.replace(program, "/bin/true"), encoding="utf-8")

    def complaints() -> str:
        command = [str(ANALYZE), "verify", "--man=no", str(tmp_path / name)]
        verified = subprocess.run(command, capture_output=True, text=True, check=False)
        assert verified.returncode == 0, verified.stderr
        return "".join(line for line in verified.stderr.splitlines(True) if name in line)

    assert complaints() == ""
    (tmp_path / name).write_text(text.replace(program, "/bin/true") + "[Service]\nEnd=now\n")
    assert re.search("Unknown key (name )?'End'", complaints()), "it looks"


def test_the_image_runs_the_worker_itself() -> None:
    program, command, *words = json.loads(dockerfile("ENTRYPOINT")) + json.loads(dockerfile("CMD"))
    assert (program, command) == ("latermq", "worker")
    asked = options(words)
    assert asked["application"] == "shop:app"
    assert str(asked["health_file"]) in dockerfile("HEALTHCHECK")
    assert asked["grace"] < 60_000  # what the page has `docker stop` wait


def test_kubernetes_waits_longer_than_the_worker() -> None:
    [container] = pod()["containers"]
    asked = options(["shop:app", *container["args"]])
    assert asked["grace"] < 1_000 * pod()["terminationGracePeriodSeconds"]
    [port] = container["ports"]
    assert asked["health"] == f"0.0.0.0:{port['containerPort']}"
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("readiness", "liveness")}
    assert {each["port"] for each in probes.values()} == {port["name"]}
    assert probes["liveness"]["path"] == "/healthz", "a worker is not restarted for its broker"
    assert probes["readiness"]["path"] == "/readyz"


def test_the_image_s_probe_tells_a_worker_that_is_well(tmp_path: Path) -> None:
    file = tmp_path / "healthy"
    probe = dockerfile("HEALTHCHECK").partition("CMD ")[2]
    here = ["sh", "-c", probe.replace("/run/worker/healthy", str(file))]

    def well() -> bool:
        return subprocess.run(here, capture_output=True, check=False).returncode == 0

    assert not well()
    file.touch()
    assert well()
    old_s = file.stat().st_mtime - 60
    os.utime(file, (old_s, old_s))
    assert not well()


def test_the_lines_that_are_compared_are_counted() -> None:
    files = dict(BLOCK.findall(COMPARED))
    counts = {
        name: sum(1 for line in text.splitlines() if line.strip()) for name, text in files.items()
    }
    told = re.search(r"lines, without blank ones \| (\d+) \| (\d+),", COMPARED)
    assert told is not None
    assert told.groups() == (str(counts["shop.py"]), str(counts["celery_shop.py"]))
    concepts = re.search(r"what to know \| (\d+): ([^|]*) \| (\d+): ([^|]*) \|", COMPARED)
    assert concepts is not None
    for count, names in (concepts.groups()[:2], concepts.groups()[2:]):
        assert len(names.split(", ")) == int(count)
