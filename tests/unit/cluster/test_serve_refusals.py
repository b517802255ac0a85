"""What `latermq serve` refuses before it asks Kafka anything: settings that do not go together."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from latermq_cli.root import latermq

KAFKA = {"LATERMQ_REPLICATION_KAFKA": "k:9092"}
MACHINES = {"LATERMQ_CLUSTER_MACHINES": "10.0.0.1:8081,10.0.0.2:8081"}
TWO = {"LATERMQ_CLUSTER_SHARDS": "10.0.0.1:8081,10.0.0.1:8082"}


@pytest.mark.parametrize(
    ("words", "settings", "why"),
    [
        (["--shards", "2"], KAFKA, "--shards needs both or none"),
        (["--shards", "2"], MACHINES, "--shards needs both or none"),
        (["--shards", "2"], TWO, "is what --shards makes"),
        ([], KAFKA | MACHINES, "cluster.machines is for --shards"),
    ],
)
def test_refused(tmp_path: Path, words: list[str], settings: dict[str, str], why: str) -> None:
    line = ["serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"), *words]
    result = CliRunner(env=settings).invoke(latermq, line)
    assert result.exit_code == 2
    assert why in result.output
    assert not (tmp_path / "data").exists()
