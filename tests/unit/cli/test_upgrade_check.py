"""`latermq upgrade-check`: a start that writes nothing, the settings, and who is connected."""

import errno
import hashlib
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from latermq_broker.clock import SystemClock
from latermq_broker.config.config import Config, StoreConfig
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import Outgoing
from latermq_broker.errors import StoreUnusableError
from latermq_broker.offline.trial_files import BLOCK_BYTES, TrialFiles
from latermq_broker.store.files import OpenMode, RealFiles
from latermq_broker.store.records.record import RecordType
from latermq_broker.store.store import Store
from support.cli_rig import CliRig

GOLDEN = sorted((Path(__file__).parents[2] / "golden").glob("*.tar.xz"))


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Iterator[CliRig]:
    rig = CliRig(monkeypatch)
    yield rig
    rig.close()


def made(directory: Path) -> Engine:
    """A broker's directory, that broker still running, with a message."""
    now_ms = SystemClock().now_ms()
    config = Config(store=StoreConfig(segment_bytes=1 << 20, message_body_bytes_max=64 << 10))
    engine = Engine.open(Store.open(directory, config.store, RealFiles(), now_ms), config, now_ms)
    engine.send([Outgoing("orders", b"r", b"s", "m-1")], now_ms)
    engine.write()
    return engine


def digests(directory: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("archive", GOLDEN, ids=lambda path: path.name.partition(".")[0])
def test_every_version_s_directory_opens_and_stays_as_it_was(
    cli: CliRig, tmp_path: Path, archive: Path
) -> None:
    with tarfile.open(archive) as files:
        files.extractall(tmp_path, filter="data")
    [data] = {path.parent.parent for path in tmp_path.rglob("log/*.seg")}
    before = digests(tmp_path)
    answer = cli.json("upgrade-check", str(data))
    assert answer["ok"]
    assert digests(tmp_path) == before


def test_beside_a_broker_that_runs(cli: CliRig, tmp_path: Path) -> None:
    engine = made(tmp_path / "data")
    before = digests(tmp_path)
    said = cli.ok("upgrade-check", str(tmp_path / "data"))
    assert "a broker runs on it" in said
    assert "this version starts on it: " in said
    assert "1 topics" in said
    assert "0 clients connected" in said
    assert digests(tmp_path) == before
    engine.close(SystemClock().now_ms())


def test_a_file_that_goes_while_it_is_read_is_in_nobodys_way(
    cli: CliRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker deletes old segments and checkpoints, which a first look may still have listed."""
    engine = made(tmp_path / "data")
    opened, looks = Store.open, iter(range(9))

    def gone(*words: Any) -> Store:
        if not next(looks):
            raise StoreUnusableError(f"{tmp_path} cannot be used: No such file or directory")
        return opened(*words)

    monkeypatch.setattr(Store, "open", gone)
    assert cli.json("upgrade-check", str(tmp_path / "data"))["ok"]
    engine.close(SystemClock().now_ms())


def test_a_record_of_a_later_version_is_in_the_way(cli: CliRig, tmp_path: Path) -> None:
    engine = made(tmp_path / "data")
    number: RecordType = 250  # type: ignore[assignment]
    engine.store.log.append(number, [b"later"], SystemClock().now_ms())
    engine.write()
    engine.abandon()
    result = cli.run("upgrade-check", str(tmp_path / "data"))
    assert result.exit_code == 1
    assert "problem  data      this version does not start on it" in result.stdout
    assert "newer version" in result.stdout
    assert "do not upgrade yet" in result.stderr


def test_a_setting_that_is_gone_is_in_the_way(cli: CliRig, tmp_path: Path) -> None:
    (tmp_path / "latermq.toml").write_text("[store]\nretention_hours = 3\n")
    result = cli.run(
        "upgrade-check", str(tmp_path / "data"), "--config", str(tmp_path / "latermq.toml")
    )
    assert result.exit_code == 1
    assert "retention_hours" in result.stdout
    assert "begins a new log" in result.stdout
    assert not (tmp_path / "data").exists()


def test_damage_is_in_the_way(cli: CliRig, tmp_path: Path) -> None:
    made(tmp_path / "data").close(SystemClock().now_ms())
    for path in (tmp_path / "data" / "ckpt").iterdir():
        path.unlink()
    [segment] = (tmp_path / "data" / "log").glob("*.seg")
    data = bytearray(segment.read_bytes())
    data[200] ^= 1
    segment.write_bytes(data)
    result = cli.run("upgrade-check", str(tmp_path / "data"))
    assert result.exit_code == 1
    assert "damaged" in result.stdout


@pytest.mark.parametrize("refused", ["data", "log"])
def test_what_is_not_ours_to_read_is_said_in_words(
    cli: CliRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    made(tmp_path / "data").close(SystemClock().now_ms())
    allowed = os.listdir, os.scandir

    def deny(path: Any = ".") -> None:
        if Path(path).name == refused:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    def listdir(path: Any = ".") -> list[str]:
        deny(path)
        return allowed[0](path)

    def scandir(path: Any = ".") -> Any:
        deny(path)
        return allowed[1](path)

    with monkeypatch.context() as patch:  # `tmp_path` is deleted while those of the test still hold
        patch.setattr(os, "listdir", listdir)
        patch.setattr(os, "scandir", scandir)
        result = cli.run("upgrade-check", str(tmp_path / "data"))
    assert result.exit_code == 1
    assert "problem  data" in result.stdout
    assert "Permission denied" in result.stdout
    assert "unexpected" not in result.stderr


def test_what_a_trial_writes_it_reads_again(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 1_024)
    files = TrialFiles()
    fd = files.open(path, OpenMode.WRITE)
    at = BLOCK_BYTES - 3
    assert files.pwrite(fd, b"across", at) == 6
    assert files.pread(fd, 10, at - 2) == bytes([251, 252]) + b"across" + bytes([3, 4])
    assert files.map(fd, files.size(fd))[at : at + 6] == b"across"
    files.pwrite(fd, b"end", 300_000)
    assert files.size(fd) == 300_003
    assert files.pread(fd, 99, 299_999) == b"\0end"
    files.rename(path, tmp_path / "other")
    assert files.list_directory(tmp_path) == ["other"]
    with pytest.raises(FileNotFoundError):
        files.open(path, OpenMode.READ)
    made_fd = files.open(path, OpenMode.CREATE)
    files.allocate(made_fd, 5)
    assert files.pread(made_fd, 9, 0) == bytes(5)
    with pytest.raises(FileExistsError):
        files.open(path, OpenMode.CREATE)
    files.unlink(path)
    assert files.list_directory(tmp_path) == ["other"]
    with pytest.raises(FileNotFoundError):
        files.list_directory(tmp_path / "new")
    files.make_directory(tmp_path / "new")
    assert files.list_directory(tmp_path / "new") == []
    files.close_all()
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == bytes(range(256)) * 1_024
