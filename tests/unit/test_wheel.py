"""What `pip install latermq` brings: the SDK, protobuf and a command that says what it lacks.

A wheel is made and unpacked beside protobuf alone; `make published` has pip install it.
"""

import os
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path
from typing import Final

import click
import google.protobuf
import pytest
import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
GOOGLE: Final = Path(google.protobuf.__file__).parents[1]
ALL_NAMES: Final = """
import sys, latermq
for name in latermq.__all__:
    getattr(latermq, name)
import latermq.admin, latermq.app, latermq.errors, latermq.sync
assert latermq.__version__ == "0.1.0", latermq.__version__
latermq.connect("127.0.0.1:1")
latermq.sync.connect("127.0.0.1:1").close()
try:
    latermq.connect(transport="grpcio")
except ImportError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder],
        cwd=ROOT, env={**os.environ, "LATERMQ_NATIVE": "0"}, check=True, capture_output=True,
    )  # fmt: skip
    [made] = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def site(wheel: Path) -> Path:
    """A directory to import from: the wheel's files, and protobuf's."""
    site = wheel.parent / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "google").mkdir()
    for name in ("protobuf", "_upb"):
        (site / "google" / name).symlink_to(GOOGLE / name)
    return site


def python(site: Path, *words: str, also: Path | None = None) -> tuple[int, str, str]:
    """Run Python where nothing else is installed: (exit code, stdout, stderr)."""
    path = os.pathsep.join(str(each) for each in (site, also) if each)
    ended = subprocess.run(
        [sys.executable, "-S", *words], cwd=site.parent, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path}, check=False,
    )  # fmt: skip
    return ended.returncode, ended.stdout, ended.stderr


def test_the_sdk_needs_protobuf_alone(site: Path) -> None:
    code, said, wrong = python(site, "-c", ALL_NAMES)
    assert (code, wrong) == (0, "")
    assert said == "this transport needs grpcio: pip install 'latermq[grpcio]'\n"


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ([], "broker"),
        (["serve"], "broker"),
        (["worker", "a:b"], "worker"),
        (["console"], "console"),
    ],
)
def test_the_command_says_in_a_line_which_extra_it_needs(
    site: Path, words: list[str], extra: str
) -> None:
    code, said, wrong = python(site, "-m", "latermq_cli", *words)
    assert (code, said) == (2, "")
    assert wrong == f"latermq: this needs click: pip install 'latermq[{extra}]'\n"


def test_the_sdk_alone_says_its_version(site: Path) -> None:
    code, said, wrong = python(site, "-m", "latermq_cli", "--version")
    assert (code, said, wrong) == (0, "latermq 0.1.0\n", "")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["serve"], 2, "pip install 'latermq[broker]'"),
        (["health"], 2, "pip install 'latermq[broker]'"),
        (["console"], 2, "pip install 'latermq[console]'"),
        (["worker", "nowhere:app"], 2, "no module nowhere"),
        (["topic", "list", "--endpoint", "127.0.0.1:1"], 1, "127.0.0.1:1"),
    ],
)
def test_with_click_alone_it_asks_brokers_and_says_what_else_there_is(
    site: Path, words: list[str], code: int, says: str, tmp_path: Path
) -> None:
    (tmp_path / "click").symlink_to(Path(click.__file__).parent)
    ended, said, wrong = python(site, "-m", "latermq_cli", *words, also=tmp_path)
    assert (ended, said) == (code, "")
    assert says in wrong
    assert wrong.count("\n") == 1


def test_what_a_wheel_holds(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [about] = [name for name in names if name.endswith("/METADATA")]
        fields = message_from_bytes(archive.read(about))
    packages = {name.partition("/")[0] for name in names if ".dist-info" not in name}
    assert packages == {
        "latermq", "latermq_broker", "latermq_cli", "latermq_console", "latermq_h2",
        "latermq_proto", "latermq_text", "pyspark_latermq",
    }  # fmt: skip
    typed = {name.partition("/")[0] for name in names if name.endswith("/py.typed")}
    assert packages - typed == {"pyspark_latermq"}
    assert "latermq_broker/config/latermq.toml" in names
    shipped = {name for name in names if name.startswith("latermq_broker/config/operating/")}
    assert {Path(name).name for name in shipped} == {
        "latermq.service", "latermq.socket", "latermq.rules.yml", "latermq.dashboard.json",
    }  # fmt: skip
    assert any(name.startswith("latermq_console/static/") for name in names)
    assert fields["Description-Content-Type"] == "text/markdown"
    assert "# LaterMQ" in fields.get_payload()
    needed = [each for each in fields.get_all("Requires-Dist", []) if "extra ==" not in each]
    assert [each.partition(">")[0] for each in needed] == ["protobuf"]
    extras = set(fields.get_all("Provides-Extra", []))
    assert extras >= {"broker", "console", "grpcio", "spark", "test", "tls", "worker"}
    page = (ROOT / "docs" / "operating" / "install.md").read_text(encoding="utf-8")
    assert {extra for extra in extras if f"| `{extra}` |" not in page} == set()


def test_only_what_publishes_a_release_may_have_a_token() -> None:
    flow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
    assert flow[True] == {"release": {"types": ["published"]}}  # YAML's `on`
    assert flow["permissions"] == {"contents": "read"}
    trusted = {name: job.get("permissions") for name, job in flow["jobs"].items()}
    assert trusted == {"pure": None, "compiled": None, "publish": {"id-token": "write"}}
    publish = flow["jobs"]["publish"]
    assert set(publish["needs"]) == {"pure", "compiled"}
    assert publish["environment"] == "pypi"
    assert not [step for step in publish["steps"] if "run" in step]
