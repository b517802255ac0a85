"""`latermq backup` and `latermq restore` of a broker in this process, to directory and bucket."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from latermq_broker.config.config import Config
from latermq_broker.engine.engine import Engine
from latermq_broker.offline.backup_commands import RESTORING
from latermq_broker.store.directory import LOST_NAME
from latermq_broker.store.files import OpenMode, RealFiles
from latermq_broker.store.store import Store
from latermq_cli.backup import manifest
from latermq_cli.backup.repository import PART, PIECES, Repository
from latermq_cli.backup.shelf import DirectoryShelf
from support.cli_rig import CliRig

BODY = b"x" * 30_000
PIECE_BYTES = 64 << 10


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Iterator[CliRig]:
    monkeypatch.setattr(manifest, "PIECE_BYTES", PIECE_BYTES)
    rig = CliRig(monkeypatch)
    yield rig
    rig.close()


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    return tmp_path / "backups"


def fill(cli: CliRig, *names: str) -> None:
    for name in names:
        cli.send_message(name, body=BODY + name.encode())


def count_in(cli: CliRig, data: Path) -> int:
    """How many messages a broker has that starts on the directory."""
    store = Store.open(data, cli.config.store, RealFiles(), cli.now_ms)
    engine = Engine.open(store, Config(store=cli.config.store), cli.now_ms)
    try:
        ends = engine.queues.ends("orders", 0)
        return ends.next_offset - ends.earliest_offset
    finally:
        engine.abandon()


def numbers(count: int, begin: int = 0) -> list[str]:
    return [f"m{number}" for number in range(begin, begin + count)]


def test_what_was_sent_before_is_there_after_a_restore(
    cli: CliRig, shelf: Path, tmp_path: Path
) -> None:
    fill(cli, *numbers(60))  # of two segments
    said = cli.ok("backup", str(shelf))
    assert "of log" in said
    assert "read again and whole" in said
    position = cli.engine.store.log.durable
    fill(cli, "later")
    data = tmp_path / "data"
    answer = cli.json("restore", str(shelf), str(data))
    assert (answer["position"], answer["records"]["message"]) == (position, 60)
    assert count_in(cli, data) == 60
    assert "sound" in cli.ok("log", "verify", str(data))


def test_the_next_backup_copies_only_what_is_new(cli: CliRig, shelf: Path) -> None:
    fill(cli, *numbers(30))
    first = cli.json("backup", str(shelf))
    assert first["copied_bytes"] == first["position"]
    fill(cli, "one more")
    second = cli.json("backup", str(shelf))
    assert second["copied_bytes"] < PIECE_BYTES + len(BODY)
    assert first["name"] != second["name"]
    again = cli.json("backup", str(shelf))  # nothing happened since
    assert again["copied_bytes"] == 0
    listed = cli.json("backup", "list", str(shelf))["backups"]
    assert [each["name"] for each in listed] == [
        first["name"], second["name"], again["name"]
    ]  # fmt: skip
    assert len(cli.ok("backup", "verify", str(shelf), "--all").splitlines()) == 3


def test_an_earlier_backup_is_restored_by_the_beginning_of_its_name(
    cli: CliRig, shelf: Path, tmp_path: Path
) -> None:
    fill(cli, "first")
    name = cli.json("backup", str(shelf))["name"]
    cli.now_ms += 1_000
    fill(cli, "second")
    cli.ok("backup", "take", str(shelf))
    said = cli.ok("restore", str(shelf), str(tmp_path / "old"), "--at", name)
    assert f"restored backup {name}" in said
    assert "1 message" in said
    assert count_in(cli, tmp_path / "old") == 1
    assert "several backups begin" in cli.refused(
        "restore", str(shelf), str(tmp_path / "new"), "--at", name[:6]
    )
    assert "there is no backup nope" in cli.missing(
        "restore", str(shelf), str(tmp_path / "new"), "--at", "nope"
    )


def test_old_backups_go_with_what_only_they_needed(cli: CliRig, shelf: Path) -> None:
    for name in numbers(4):
        fill(cli, name)
        cli.ok("backup", str(shelf))
        cli.now_ms += 1_000
    fill(cli, "last")
    answer = cli.json("backup", str(shelf), "--keep", "2")
    assert answer["pieces_deleted"] > 0
    kept = Repository(DirectoryShelf(shelf))
    assert len(kept.names()) == 2
    named = {piece.name for name in kept.names() for piece in kept.manifest(name).pieces}
    assert set(kept.shelf.names(PIECES)) == named
    cli.ok("backup", "verify", str(shelf), "--all")


def test_a_clock_that_was_put_back_does_not_cost_the_new_backup(cli: CliRig, shelf: Path) -> None:
    fill(cli, "first")
    names = [cli.json("backup", str(shelf), "--keep", "2")["name"]]
    for _ in range(2):
        cli.now_ms -= 3_600_000
        names.append(cli.json("backup", str(shelf), "--keep", "2")["name"])
    assert Repository(DirectoryShelf(shelf)).names() == [names[2], names[0]]


def test_files_of_another_copy_of_the_log_are_not_taken_for_the_brokers(
    cli: CliRig, shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(cli, *numbers(10))
    cli.ok("backup", str(shelf))
    copy = tmp_path / "copy"
    cli.ok("restore", str(shelf), str(copy))
    assert count_in(cli, copy) == 10  # a broker was started on it: its files are as long
    fill(cli, "later")
    begin = cli.engine.log_copy.cut
    monkeypatch.setattr(
        cli.engine.log_copy, "cut", lambda moment: begin(moment)._replace(directory=str(copy))
    )
    assert cli.json("backup", str(shelf))["through"] == "broker"
    cli.ok("backup", "verify", str(shelf))
    data = tmp_path / "data"
    cli.ok("restore", str(shelf), str(data))
    assert count_in(cli, data) == 11


def test_a_backup_that_was_cut_off_goes_on(
    cli: CliRig, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(cli, "first")
    cli.ok("backup", str(shelf))
    fill(cli, *numbers(40))
    written = 0
    write = DirectoryShelf.write

    def full(self: DirectoryShelf, folder: str, name: str, *data: Any) -> None:
        nonlocal written
        written += folder == PIECES
        if written > 5 and folder == PIECES:
            monkeypatch.setattr(os, "fsync", refuse)
        try:
            write(self, folder, name, *data)
        finally:
            monkeypatch.setattr(os, "fsync", sync)

    sync = os.fsync

    def refuse(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(DirectoryShelf, "write", full)
    said = cli.refused("backup", str(shelf), code=1)
    assert "no backup was made" in said
    assert "is full" in said
    monkeypatch.setattr(DirectoryShelf, "write", write)
    cli.ok("backup", "verify", str(shelf))  # the one before is as it was
    assert len(Repository(DirectoryShelf(shelf)).names(PART)) == 1
    assert not list(shelf.rglob("*-new"))
    answer = cli.json("backup", str(shelf))
    assert answer["copied_bytes"] <= answer["position"] - 4 * PIECE_BYTES
    assert not Repository(DirectoryShelf(shelf)).names(PART)
    cli.ok("backup", "verify", str(shelf), "--all")


def test_what_nobody_names_is_swept(cli: CliRig, shelf: Path) -> None:
    fill(cli, "first")
    cli.ok("backup", str(shelf))
    left = shelf / PIECES / f"{0:020d}-9-{'ab' * 16}"
    left.write_bytes(b"left over")
    (shelf / PIECES / "half.latermq-new").write_bytes(b"cut off")
    cli.ok("backup", str(shelf))
    assert not left.exists()
    assert not list(shelf.rglob("*-new"))


def test_what_is_somebody_elses_stays(cli: CliRig, shelf: Path) -> None:
    """A wrong directory, or a bucket that others use: `log/` is what many call a folder."""
    fill(cli, "first")
    names = ("log/syslog", "log/photo.new", "backups/film.part", "backups/settings.json", "x/y.new")
    for name in names:
        (shelf / name).parent.mkdir(parents=True, exist_ok=True)
        (shelf / name).write_text("dear to somebody")
    for _ in range(2):
        cli.ok("backup", str(shelf), "--keep", "1")
        cli.now_ms += 1_000
    assert [name for name in names if not (shelf / name).exists()] == []
    assert len(cli.json("backup", "list", str(shelf))["backups"]) == 1
    cli.ok("backup", "verify", str(shelf), "--all")


def test_a_backup_that_was_renamed_keeps_what_it_needs(
    cli: CliRig, shelf: Path, tmp_path: Path
) -> None:
    fill(cli, "first")
    name = cli.json("backup", str(shelf))["name"]
    whole = shelf / "backups" / f"{name}.json"
    kept = whole.rename(shelf / "backups" / "before-upgrade.json")
    fill(cli, "second")
    for _ in range(2):
        cli.now_ms += 1_000
        cli.ok("backup", str(shelf), "--keep", "1")
    kept.rename(whole)
    cli.ok("restore", str(shelf), str(tmp_path / "data"), "--at", name)
    assert count_in(cli, tmp_path / "data") == 1


def test_a_renamed_backup_of_a_newer_version_keeps_all(cli: CliRig, shelf: Path) -> None:
    fill(cli, "first")
    cli.ok("backup", str(shelf))
    (shelf / "backups" / "newer.json").write_text('{"backup": {"format": 99}}')
    left = shelf / PIECES / f"{0:020d}-9-{'ab' * 16}"
    left.write_bytes(b"it may need this")
    cli.ok("backup", str(shelf))
    assert left.exists()


def test_a_data_directory_is_no_place_for_backups(cli: CliRig, shelf: Path, tmp_path: Path) -> None:
    """Its log would have been swept as pieces that no backup needs."""
    fill(cli, "first")
    cli.ok("backup", str(shelf))
    data = tmp_path / "data"
    cli.ok("restore", str(shelf), str(data))
    there = sorted(data.rglob("*"))
    assert "is the data directory of a broker" in cli.refused("backup", str(data))
    assert sorted(data.rglob("*")) == there
    assert count_in(cli, data) == 1


def test_damage_is_told(cli: CliRig, shelf: Path, tmp_path: Path) -> None:
    fill(cli, *numbers(10))
    cli.ok("backup", str(shelf))
    piece = sorted((shelf / PIECES).iterdir())[2]
    whole = piece.read_bytes()
    piece.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    said = cli.refused("backup", "verify", str(shelf), code=1)
    assert f"{piece.name} does not match its checksum" in said
    assert piece.name in cli.refused("restore", str(shelf), str(tmp_path / "data"), code=1)
    assert "did not come to its end" in cli.refused("restore", str(shelf), str(tmp_path / "data"))
    piece.unlink()
    assert "is missing" in cli.refused("backup", "verify", str(shelf), code=1)
    assert cli.json("backup", str(shelf))["copied_bytes"] >= PIECE_BYTES  # what is missing, anew
    cli.ok("backup", "verify", str(shelf))
    (manifest,) = (shelf / "backups").glob("*Z.json")
    manifest.write_bytes(manifest.read_bytes().replace(b'"position": ', b'"position": 1'))
    assert "is damaged" in cli.refused("backup", "verify", str(shelf), "--all", code=1)
    assert cli.json("backup", str(shelf))["pieces_deleted"] == 0  # it may need them


def test_a_damaged_backup_hides_no_other(cli: CliRig, shelf: Path) -> None:
    fill(cli, "first")
    names = []
    for _ in range(3):
        names.append(cli.json("backup", str(shelf))["name"])
        cli.now_ms += 1_000
    (shelf / "backups" / f"{names[1]}.json").write_text("{}")
    for words in (("list",), ("verify", "--all")):
        result = cli.run("backup", words[0], str(shelf), *words[1:])
        assert result.exit_code == 1
        assert [name in result.stdout for name in names] == [True, False, True]
        assert f"the manifest of backup {names[1]} is damaged" in result.stderr


def test_nothing_is_taken_over_from_another_log(
    cli: CliRig, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(cli, *numbers(10))
    cli.ok("backup", str(shelf))
    log_copy = cli.engine.log_copy
    monkeypatch.setattr(log_copy, "has", lambda position, checksum: False)  # an older copy of it
    answer = cli.json("backup", str(shelf))
    assert answer["copied_bytes"] == answer["position"]


def test_after_a_repair_everything_is_copied_again(cli: CliRig, shelf: Path) -> None:
    fill(cli, *numbers(10))
    cli.ok("backup", str(shelf))
    lost = cli.DIRECTORY / LOST_NAME
    cli.files.make_directory(lost)
    cli.files.close(cli.files.open(lost / "00000000000000000064.json", OpenMode.CREATE))
    answer = cli.json("backup", str(shelf))
    assert answer["copied_bytes"] == answer["position"]


def test_the_log_knows_its_own_records_only(cli: CliRig) -> None:
    fill(cli, "first")
    copy = cli.engine.log_copy
    cli.committer.synced()
    cut = copy.cut(copy.begin(cli.now_ms))
    assert copy.has(*cut.newest)
    assert not copy.has(cut.newest[0], cut.newest[1] ^ 1)
    assert not copy.has(cut.newest[0] + 8, cut.newest[1])
    assert not copy.has(cut.position, 0)
    assert not copy.has(0, 0)


def test_to_a_bucket(cli: CliRig, tmp_path: Path) -> None:
    url = f"memory://backups-{tmp_path.name}/mq"
    assert "there is no backup in" in cli.missing("backup", "list", url)
    fill(cli, *numbers(10))
    first = cli.json("backup", url)
    fill(cli, "one more")
    assert cli.json("backup", url, "--keep", "1")["copied_bytes"] < first["copied_bytes"]
    assert len(cli.json("backup", "list", url)["backups"]) == 1
    cli.ok("backup", "verify", url)
    cli.ok("restore", url, str(tmp_path / "data"))
    assert count_in(cli, tmp_path / "data") == 11
    assert fsspec.filesystem("memory").exists(f"/backups-{tmp_path.name}/mq/log")


def test_places_that_will_not_do(cli: CliRig, shelf: Path, tmp_path: Path) -> None:
    assert "cannot be used" in cli.refused("backup", "nowhere://bucket")
    assert "the name of the directory is empty" in cli.refused("backup", "")
    (tmp_path / "file").write_text("")
    assert "cannot be used" in cli.refused("backup", str(tmp_path / "file"), code=1)
    assert "there is no backup in" in cli.missing("backup", "verify", str(shelf))
    fill(cli, "first")
    with DirectoryShelf(shelf).locked():
        assert "another backup to" in cli.refused("backup", str(shelf))
    cli.ok("backup", f"file://{shelf}")
    assert "is not empty" in cli.refused("restore", str(shelf), str(tmp_path))
    assert "is a file" in cli.refused("restore", str(shelf), str(tmp_path / "file"))


def test_no_broker_opens_half_a_restore(cli: CliRig, tmp_path: Path) -> None:
    (tmp_path / RESTORING).write_text("")
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / f"{0:020d}.seg.part").write_text("")
    said = cli.refused("serve", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")
    assert "is not a LaterMQ data directory: it holds 'RESTORING'" in said


def test_a_log_of_which_the_front_went_is_whole(cli: CliRig, shelf: Path, tmp_path: Path) -> None:
    object.__setattr__(cli.config.store, "retention_bytes", 1 << 20)
    fill(cli, *numbers(100))
    cli.retain()
    assert cli.engine.store.log.segments[0].base > 0
    answer = cli.json("backup", str(shelf))
    assert answer["start"] == cli.engine.store.log.segments[0].base
    cli.ok("backup", "verify", str(shelf))
    cli.ok("restore", str(shelf), str(tmp_path / "data"))
    left = cli.engine.queues.ends("orders", 0)
    assert count_in(cli, tmp_path / "data") == left.next_offset - left.earliest_offset
