"""Backups in a bucket, by S3's protocol: s3fs, and a server that speaks it (moto's)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from latermq_cli.backup import manifest, mark
from latermq_cli.backup.mark import RUNNING
from latermq_cli.backup.repository import PIECES, Repository
from latermq_cli.backup.shelf import BucketShelf
from support.cli_rig import CliRig

BODY = b"x" * 30_000
URL = "s3://backups/shop"


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Iterator[CliRig]:
    from moto.server import ThreadedMotoServer  # two seconds, which no other test should wait for

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(manifest, "PIECE_BYTES", 64 << 10)
    rig = CliRig(monkeypatch)
    try:
        yield rig
    finally:
        rig.close()
        server.stop()


def test_a_backup_in_s3(cli: CliRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = BucketShelf(URL)
    assert "there is no backup in" in cli.missing("backup", "list", URL)
    for number in range(10):
        cli.send_message(f"m{number}", body=BODY)
    first = cli.json("backup", URL)
    cli.now_ms += 1_000
    cli.send_message("one more", body=BODY)
    with shelf.locked():
        assert "is running" in cli.refused("backup", URL)
    mark.Mark(shelf).wait()  # and it is never removed
    assert "is running" in cli.refused("backup", URL)
    monkeypatch.setattr(mark, "STALE_S", -1)  # as if it had been silent for so long
    second = cli.json("backup", URL, "--keep", "1")
    assert second["copied_bytes"] < first["copied_bytes"]
    assert second["pieces_deleted"] > 0
    kept = Repository(shelf)
    assert kept.names() == [second["name"]]
    assert set(shelf.names(PIECES)) == {
        piece.name for piece in kept.manifest(kept.names()[0]).pieces
    }
    assert not shelf.names(RUNNING)
    cli.ok("backup", "verify", URL)
    answer = cli.json("restore", URL, str(tmp_path / "data"))
    assert answer["records"]["message"] == 11
    assert "sound" in cli.ok("log", "verify", str(tmp_path / "data"))
