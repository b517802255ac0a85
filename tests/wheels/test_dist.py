"""What is published, installed by pip in clean environments, and used as its users would.

make published           sdist and pure wheel: a step of `make test`
make dist dist-test      the compiled wheel, too
"""

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

import pytest

from support.machine import patient
from support.published import DIST, PUBLISHED, ROOT, WHEELS, Environment, kind

TEN_LINES: Final = re.compile(r"^## Ten lines$.*?```python\n(.*?)```", re.DOTALL | re.MULTILINE)
TYPED: Final = """
import latermq
async def place(mq: latermq.Client) -> str:
    receipt = await mq.send("orders", b"order 1", tag=17)
    return receipt.message_id
"""


@pytest.fixture(scope="module")
def alone(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("sdk"), wheel)


@pytest.fixture(scope="module")
def whole(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("broker"), wheel, "[broker]")


def test_it_was_built() -> None:
    kinds = {"pure"} if PUBLISHED else {"pure", "compiled"}
    assert {kind(wheel) for wheel in WHEELS} == kinds, "make published, or make dist"
    [archive] = DIST.glob("*.tar.gz")
    with tarfile.open(archive) as sources:
        names = {name.partition("/")[2] for name in sources.getnames()}
    assert {"LICENSE", "Makefile", "broker/native_build.py", "tests/wheels/test_dist.py"} <= names
    assert not {name for name in names if name.startswith((".venv", ".native", ".cache", "dist/"))}


def test_the_sdk_alone_brings_protobuf_alone(alone: Environment) -> None:
    assert alone.installed() == {"latermq", "protobuf"}
    alone.run("python", "-c", "import latermq, latermq.sync, latermq.admin; latermq.connect()")
    assert alone.run("latermq", "--version").startswith("latermq 0.1.0")
    said = alone.run("latermq", "worker", "shop:app", code=2)
    assert said == "latermq: this needs click: pip install 'latermq[worker]'\n"
    said = alone.run("latermq", "serve", code=2)
    assert said == "latermq: this needs click: pip install 'latermq[broker]'\n"


def test_its_types_are_seen(alone: Environment) -> None:
    (alone.folder / "place.py").write_text(TYPED, encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", "--strict", "--cache-dir", os.devnull,
         "--python-executable", alone.folder / "bin" / "python", "place.py"],
        cwd=alone.folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    [fault, _] = ended.stdout.splitlines()
    assert 'Argument "tag" to "send" of "Client" has incompatible type "int"' in fault


def test_the_broker_is_what_the_wheel_says(whole: Environment, wheel: Path) -> None:
    assert ("compiled" in whole.run("latermq", "--version")) is (kind(wheel) == "compiled")


def test_the_broker_shows_its_story(whole: Environment) -> None:
    said = whole.run("latermq", "demo")
    assert "pip install 'latermq[spark]'" in said


def test_the_readme_runs_over_tls(whole: Environment) -> None:
    [lines] = TEN_LINES.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    (whole.folder / "latermq.toml").write_text("[tls]\nenabled = true\n", encoding="utf-8")
    broker = subprocess.Popen(
        [whole.folder / "bin" / "latermq", "serve", "--config", "latermq.toml", "--data-dir",
         "data", "--listen", "127.0.0.1:0"], cwd=whole.folder, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert broker.stdout is not None
        ready = next(line for line in broker.stdout if line.startswith("latermq ready on "))
        endpoint = ready.split()[3]
        certificate = whole.folder / "data" / "tls" / "certificate.pem"
        code = lines.replace("127.0.0.1:8081", endpoint)
        said = whole.run("python", "-c", code, LATERMQ_CA=str(certificate))
        assert said == "1 b'order 1'\n"
    finally:
        broker.terminate()
        broker.wait(patient(30))
        broker.stdout.close() if broker.stdout else None
