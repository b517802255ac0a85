"""`latermq log repair --skip`, on a directory that a broker refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from latermq_broker.config.config import Config
from latermq_broker.engine.engine import Engine
from latermq_broker.errors import CorruptRecordError, GivenUpError
from latermq_broker.store.files import RealFiles
from latermq_broker.store.offline.repair import repair_directory
from latermq_broker.store.store import Store
from latermq_cli.root import latermq
from support.engine_rig import SMALL_STORE
from unit.cli.test_log import DiskRig


def run(*words: str) -> Result:
    return CliRunner().invoke(latermq, ["log", *words])


def everything(path: Path) -> dict[str, bytes]:
    files = (file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def dumped(path: Path, *words: str) -> list[dict[str, Any]]:
    lines = run("dump", str(path), "--json", *words).stdout.splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A directory with three messages, without a checkpoint, the second spoiled; its record."""
    path = tmp_path / "data"
    rig = DiskRig(path)
    for name in ("m-1", "m-2", "m-3"):
        rig.send_message(name)
    rig.receive(count=1)
    rig.engine.close(rig.now_ms)
    rig.close()
    for checkpoint in (path / "ckpt").iterdir():
        checkpoint.unlink()
    record = dumped(path, "--type", "message")[1]
    (segment,) = (path / "log").glob("*.seg")
    with segment.open("r+b") as file:
        file.seek(record["position"] + 2)
        file.write(b"\xff\xff")
    store = Store.open(path, SMALL_STORE, RealFiles(), 1)
    with pytest.raises(CorruptRecordError):
        Engine.open(store, Config(store=SMALL_STORE), 1)
    store.abandon()
    return path, record


def test_it_says_what_it_would_do_and_does_nothing(damaged: tuple[Path, dict[str, Any]]) -> None:
    path, record = damaged
    before = everything(path)
    result = run("repair", "--skip", str(path))
    assert result.exit_code == 0, result.output
    end = record["position"] + (record["bytes"] + 7) // 8 * 8
    lines = result.stdout.splitlines()
    assert lines[1] == (
        f"  position {record['position']} to {end}, {end - record['position']} bytes: "
        "its checksum does not match"
    )
    assert f"seems to have held MESSAGE at {record['position']} topic=orders" in lines[2]
    assert "message_id=m-2" in lines[2]
    assert lines[-1].startswith("nothing was changed: `latermq log repair --skip ")
    assert everything(path) == before


def test_it_gives_up_what_is_damaged_and_keeps_it(damaged: tuple[Path, dict[str, Any]]) -> None:
    path, record = damaged
    before = everything(path)
    result = run("repair", "--skip", str(path), "--yes", "--json")
    assert result.exit_code == 0, result.output
    done = json.loads(result.stdout)
    assert done["repaired"]
    [loss] = done["losses"]
    assert (loss["position"], loss["reason"]) == (
        record["position"], "its checksum does not match",
    )  # fmt: skip
    assert [one["message_id"] for one in loss["records"]] == ["m-2"]
    [report] = done["reports"]
    told = json.loads(Path(report).read_text())
    assert told["records"] == loss["records"]
    [copy] = done["copies"]
    (segment,) = (name for name in before if name.endswith(".seg"))
    assert Path(copy).read_bytes() == before[segment][loss["position"] : loss["end"]]
    assert run("verify", str(path)).exit_code == 0
    [lost] = dumped(path, "--type", "lost")
    assert (lost["position"], lost["lost_bytes"]) == (loss["position"], loss["bytes"])
    assert lost["given_up_at_ms"] == told["given_up_ms"]
    rig = DiskRig(path)
    rig.advance(2_000)
    found = {one.sys for one in rig.receive("somebody-else")}
    assert len(found) == 2
    assert {one.sys for one in rig.receive()} == found
    rig.engine.close(rig.now_ms)
    rig.close()
    again = run("repair", "--skip", str(path), "--yes")
    assert "there is nothing to repair" in again.stdout


def test_of_a_body_that_makes_no_sense_the_place_is_told(
    damaged: tuple[Path, dict[str, Any]],
) -> None:
    path, record = damaged
    (segment,) = (path / "log").glob("*.seg")
    with segment.open("r+b") as file:
        file.seek(record["position"] + record["bytes"] - 40)
        file.write(b"\xff" * 40)
    lines = run("repair", "--skip", str(path)).stdout.splitlines()
    assert lines[2].endswith(f"MESSAGE at {record['position']} topic=orders queue=1 offset=0")


def test_a_second_damage_keeps_the_first_report(damaged: tuple[Path, dict[str, Any]]) -> None:
    path, record = damaged
    assert run("repair", "--skip", str(path), "--yes").exit_code == 0
    (segment,) = (path / "log").glob("*.seg")
    with segment.open("r+b") as file:
        file.seek(record["position"] + 50)
        file.write(b"\xff")
    done = json.loads(run("repair", "--skip", str(path), "--yes", "--json").stdout)
    assert [Path(name).name for name in done["reports"]] == [f"{record['position']:020d}-1.json"]
    assert len(list((path / "lost").iterdir())) == 4


def test_a_repair_that_did_not_come_to_its_end(damaged: tuple[Path, dict[str, Any]]) -> None:
    """A broker is refused, verify tells, and a further repair ends it."""
    path, record = damaged
    repair_directory(path, RealFiles(), 5, lambda one: {})
    config = Config(store=SMALL_STORE)
    store = Store.open(path, config.store, RealFiles(), 1)
    with pytest.raises(GivenUpError) as refusal:
        Engine.open(store, config, 1)
    store.abandon()
    assert refusal.value.position == record["position"]
    verified = run("verify", str(path))
    assert verified.exit_code == 1
    assert f"run `latermq log repair --skip {path} --yes`" in verified.stderr
    before = everything(path)
    assert f"run `latermq log repair --skip {path} --yes`" in run(
        "repair", "--skip", str(path)
    ).stdout  # fmt: skip
    assert everything(path) == before
    done = json.loads(run("repair", "--skip", str(path), "--yes", "--json").stdout)
    assert (done["repaired"], done["losses"]) == (True, [])
    assert run("verify", str(path)).exit_code == 0
    rig = DiskRig(path)
    rig.advance(2_000)
    assert len(rig.receive("somebody-else")) == 2
    rig.engine.abandon()
    rig.close()
    assert "there is nothing to repair" in run("repair", "--skip", str(path), "--yes").stdout


def test_a_setting_of_the_environment_that_is_none(
    damaged: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = damaged
    before = everything(path)
    monkeypatch.setenv("LATERMQ_STORE_SEGMENT_BYTES", "7")
    result = run("repair", "--skip", "--yes", str(path))
    assert result.exit_code == 2
    assert "store.segment_bytes" in result.stderr
    assert everything(path) == before


def test_bad_requests(damaged: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    path, _ = damaged
    before = everything(path)
    for words, told in (
        ([str(path)], "say --skip"),
        (["--skip", str(tmp_path / "nothing")], "does not exist"),
        (["--skip", "--yes", str(tmp_path)], "not a LaterMQ data directory"),
    ):
        result = run("repair", *words)
        assert (result.exit_code, result.stdout) == (2, "")
        [line] = result.stderr.splitlines()
        assert told in line
    assert everything(path) == before


def test_a_directory_in_use_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "data"
    rig = DiskRig(path)
    rig.send_message("m-1")
    rig.engine.write()
    (segment,) = (path / "log").glob("*.seg")
    with segment.open("r+b") as file:
        file.write(b"\0" * 8)
    result = run("repair", "--skip", "--yes", str(path))
    assert result.exit_code == 2, result.output
    assert "in use by another broker" in result.stderr
    rig.engine.abandon()
    rig.close()
