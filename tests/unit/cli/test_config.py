"""`latermq config`: the commented file, and whether one is right."""

from pathlib import Path

import pytest

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
