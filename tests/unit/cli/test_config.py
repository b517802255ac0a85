"""`latermq config`: the commented file, and whether one is right."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from latermq_broker import config
from latermq_broker.config.config import Config
from latermq_broker.config.toml_file import load
from support.cli_rig import CliRig


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliRig:
    monkeypatch.chdir(tmp_path)
    return CliRig(monkeypatch)


def test_the_commented_file_changes_nothing(rig: CliRig) -> None:
    said = rig.ok("config", "init")
    assert said == "latermq.toml written; `latermq serve --config latermq.toml` reads it\n"
    assert load(Path("latermq.toml"), {}, {}) == Config()
    assert rig.ok("config", "check") == "latermq.toml is fine\n"
    assert rig.ok("config", "init", "-") == Path("latermq.toml").read_text(encoding="utf-8")
    rig.close()


def test_what_is_there_is_not_replaced(rig: CliRig) -> None:
    Path("mine.toml").write_text("[store]\nflush = 'sync'\n", encoding="utf-8")
    assert "mine.toml is there already" in rig.refused("config", "init", "mine.toml")
    assert rig.json("config", "check", "mine.toml") == {"file": "mine.toml", "ok": True}
    assert rig.json("config", "init", "mine.toml", "--force") == {"file": "mine.toml"}
    assert "#flush" in Path("mine.toml").read_text(encoding="utf-8")
    line = rig.refused("config", "init", "no/such/place.toml", code=1)
    assert "cannot write no/such/place.toml" in line
    rig.close()


def test_what_is_wrong_is_named(rig: CliRig) -> None:
    Path("bad.toml").write_text("[store]\nretention = 5\n", encoding="utf-8")
    assert "store.retention: no such setting" in rig.refused("config", "check", "bad.toml")
    assert "cannot read" in rig.refused("config", "check", "absent.toml")
    rig.close()


def test_what_operates_a_broker_is_written(rig: CliRig) -> None:
    names = ["latermq.service", "latermq.socket", "latermq.rules.yml", "latermq.dashboard.json"]
    assert rig.ok("config", "files", "made/here").split() == [f"made/here/{name}" for name in names]
    shipped = Path(config.__file__).parent / "operating"
    for name in names:
        assert Path("made/here", name).read_bytes() == (shipped / name).read_bytes()
    assert "made/here/latermq.service is there already" in rig.refused(
        "config", "files", "made/here"
    )
    Path("made/here/latermq.service").write_text("mine", encoding="utf-8")
    assert len(rig.json("config", "files", "made/here", "--force")["files"]) == len(names)
    assert Path("made/here/latermq.service").read_text("utf-8") != "mine"
    Path("a-file").touch()
    assert "cannot write a-file/latermq.service" in rig.refused("config", "files", "a-file", code=1)
    rig.close()


def test_runbooks_are_addresses_where_the_docs_are(rig: CliRig) -> None:
    base = "https://git.example/latermq/blob/main/docs"
    rig.ok("config", "files", ".", "--runbooks", f"{base}/")
    text = Path("latermq.rules.yml").read_text(encoding="utf-8")
    rules = [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]
    assert len(rules) > 20
    for rule in rules:
        assert "runbook" not in rule["annotations"]
        url = rule["annotations"]["runbook_url"]
        assert re.fullmatch(re.escape(base) + r"/[a-z/-]+\.md#[a-z-]+", url), url
    for wrong in ("docs", "ftp://git.example", "https://git.example/a b", "https://x/{{y}}", ""):
        refused = rig.refused("config", "files", "elsewhere", "--runbooks", wrong)
        assert "is no address" in refused
    assert not Path("elsewhere").exists()
    if shutil.which("promtool"):
        subprocess.run(["promtool", "check", "rules", "latermq.rules.yml"], check=True)
    rig.close()
