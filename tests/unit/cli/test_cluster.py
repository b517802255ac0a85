"""`latermq cluster`: a broker that is alone; directories with nothing to compare."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from latermq_broker.replication.note import Note, write_note
from latermq_broker.store.files import RealFiles
from support.cli_rig import CliRig


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[CliRig]:
    rig = CliRig(monkeypatch)
    yield rig
    rig.close()


def test_a_broker_that_is_alone(rig: CliRig) -> None:
    rig.send_message("m-1")
    head, row = rig.ok("cluster", "show").splitlines()
    assert head.split()[:4] == ["SHARD", "ROLE", "OWNER", "EPOCH"]
    assert row.split()[:2] == ["0", "alone"]
    assert row.split()[-2:] == ["-", "-"]
    (shard,) = rig.json("cluster", "show")["shards"]
    assert (shard["role"], shard["position"] > 0, "epoch" in shard) == ("alone", True, False)


def test_there_must_be_a_copy_and_its_engine(rig: CliRig, tmp_path: Path) -> None:
    words = ("cluster", "verify", str(tmp_path))
    assert "is no copy of a replicated log" in rig.run(*words).stderr
    write_note(RealFiles(), tmp_path, Note("shop", 0))
    assert "no engine is named" in rig.run(*words).stderr
    file = tmp_path / "latermq.toml"
    file.write_text('[replication]\nkafka = "127.0.0.1:1"\ncluster = "other"\n')
    refused = rig.run(*words, "--config", str(file))
    assert (refused.exit_code, "is of the cluster 'shop', not of 'other'" in refused.stderr) == (
        2, True,
    )  # fmt: skip
