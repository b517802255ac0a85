"""What a broker refuses: one clear line, an exit code, and nothing lost by it.

0 stopped in order · 2 refused to start: flags, port, data directory · 3 the store is damaged
"""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from latermq_broker.store.files import RealFiles
from latermq_broker.store.offline.inspect import scan_directory
from latermq_broker.store.records.record import Record, RecordType
from support import wire_requests
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wire_client import WireClient, require_ok

REFUSED = 2
STORE_FAILED = 3
SMALL_SEGMENTS = "[store]\nsegment_bytes = 1048576\nmessage_body_bytes_max = 131072\n"
TOPIC = "orders"
BODIES = [f"body {index} ".encode() * 40 for index in range(20)]


class Said(NamedTuple):
    code: int
    line: str  # the one that begins with "latermq:"
    stderr: str


def serve(data_dir: Path, *arguments: str, prefix: Sequence[str] = ()) -> Said:
    """Run a broker that will not serve."""
    command = [*prefix, sys.executable, "-m", "latermq_broker", "serve", "--listen", "127.0.0.1:0"]
    command += ["--data-dir", str(data_dir), *arguments]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=patient(30), check=False
    )
    assert "ready" not in ended.stdout
    assert "Traceback" not in ended.stderr
    [line] = [line for line in ended.stderr.splitlines() if line.startswith("latermq:")]
    return Said(ended.returncode, line, ended.stderr)


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A running broker that has acknowledged BODIES."""
    with BrokerProcess(tmp_path / "data") as broker:
        broker.start()
        with WireClient(broker.endpoint) as wire:
            for body in BODIES:
                require_ok(wire.send(wire_requests.message(TOPIC, body)))
        yield broker


def bodies_of(broker: BrokerProcess) -> list[bytes]:
    with WireClient(broker.endpoint) as wire:
        messages = wire.take(TOPIC, "reader", len(BODIES), timeout_s=20)
    return sorted(message.body for message in messages)


def fingerprint(data_dir: Path) -> dict[str, str]:
    """Every file with its content's hash; the lock apart, which a start touches."""
    return {
        str(path.relative_to(data_dir)): hashlib.md5(path.read_bytes()).hexdigest()
        for path in sorted(data_dir.rglob("*"))
        if path.is_file() and path.name != "LOCK"
    }


def test_a_second_broker_on_the_same_directory(filled: BrokerProcess) -> None:
    said = serve(filled.data_dir)
    assert said.code == REFUSED
    assert str(filled.data_dir) in said.line
    assert "in use by another broker" in said.line
    assert bodies_of(filled) == sorted(BODIES)
    assert filled.terminate().code == 0


def test_a_port_in_use(filled: BrokerProcess, tmp_path: Path) -> None:
    said = serve(tmp_path / "other", "--listen", filled.endpoint)
    assert said.code == REFUSED
    assert filled.endpoint in said.line
    assert "in use" in said.line
    assert not (tmp_path / "other").exists()
    assert bodies_of(filled) == sorted(BODIES)


def test_a_port_in_use_harms_no_directory(filled: BrokerProcess) -> None:
    """A broker that finds its port taken leaves the messages in its directory as they were."""
    assert filled.terminate().code == 0
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert serve(filled.data_dir, "--listen", f"127.0.0.1:{port}").code == REFUSED
    filled.start()
    assert bodies_of(filled) == sorted(BODIES)


@pytest.mark.parametrize("inner", [False, True], ids=["it", "its parent"])
def test_a_data_directory_that_is_a_file(tmp_path: Path, inner: bool) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    said = serve(file / "data" if inner else file)
    assert said.code == REFUSED
    assert str(file) in said.line
    assert file.read_text() == "mine"


def test_a_data_directory_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear diary")
    said = serve(tmp_path)
    assert said.code == REFUSED
    assert str(tmp_path) in said.line
    assert "letter.txt" in said.line
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("name", ["", "new"])
def test_a_data_directory_without_permission(tmp_path: Path, name: str) -> None:
    """Not to be written to, and not to be made; for root only once it has lost its privileges."""
    prefix: list[str] = []
    if os.geteuid() == 0:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            pytest.skip("root may write everywhere, and there is no setpriv to prevent it")
        prefix = [setpriv, "--bounding-set=-all", "--inh-caps=-all"]
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    said = serve(locked / name, prefix=prefix)
    assert said.code == REFUSED
    assert f"{locked / name} cannot be used: Permission denied" in said.line
    assert list(locked.iterdir()) == []


def test_a_data_directory_that_cannot_exist() -> None:
    said = serve(Path("/proc/latermq"))
    assert said.code == REFUSED
    assert "/proc/latermq cannot be used" in said.line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--listen", "127.0.0.1:70000"), "server.listen"),
        (("--config", "/nonexistent.toml"), "/nonexistent.toml"),
    ],
)
def test_a_setting_that_makes_no_sense(
    tmp_path: Path, arguments: tuple[str, str], words: str
) -> None:
    said = serve(tmp_path / "data", *arguments)
    assert said.code == REFUSED
    assert words in said.line
    assert not (tmp_path / "data").exists()


# --- the log itself ----------------------------------------------------------------------------


def records_of(data_dir: Path) -> list[Record]:
    return list(scan_directory(data_dir, RealFiles()))


def overwrite(data_dir: Path, position: int, data: bytes) -> None:
    [segment] = (data_dir / "log").glob("*.seg")
    with segment.open("r+b") as file:
        file.seek(position)
        file.write(data)


GARBAGE = {"seven": b"\xff" * 7, "random": os.urandom(3_000), "magic": b"\xa9\x01" * 40}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_a_torn_tail_is_cut_and_said(filled: BrokerProcess, garbage: bytes) -> None:
    filled.kill()
    overwrite(filled.data_dir, records_of(filled.data_dir)[-1].next_position, garbage)
    filled.start()
    assert bodies_of(filled) == sorted(BODIES)
    ended = filled.terminate()
    assert ended.code == 0
    [opened] = [line for line in ended.stderr.splitlines() if "store open" in line]
    torn = int(opened.split("torn_bytes=")[1].split()[0])
    assert len(garbage) - 8 <= torn <= len(garbage)


def test_a_torn_last_record_is_cut_as_a_whole(filled: BrokerProcess) -> None:
    """Half a record at the end, as a crash in the middle of a write leaves it."""
    filled.kill()
    last = records_of(filled.data_dir)[-1]
    source = (filled.data_dir / "log" / "00000000000000000000.seg").read_bytes()
    copy = source[last.position : last.next_position - 8]
    overwrite(filled.data_dir, last.next_position, copy)  # written for another position
    filled.start()
    assert bodies_of(filled) == sorted(BODIES)


def test_damage_in_the_middle_is_refused_with_its_position(filled: BrokerProcess) -> None:
    """Bytes that were safely on disk: exit code 3, the position, and not one file changed."""
    assert filled.terminate().code == 0
    messages = [one for one in records_of(filled.data_dir) if one.type is RecordType.MESSAGE]
    hit = messages[len(messages) // 2]
    flipped = bytes([bytes(hit.payload)[-5] ^ 1])
    overwrite(filled.data_dir, hit.position + hit.length - 5, flipped)
    for checkpoint in (filled.data_dir / "ckpt").iterdir():
        checkpoint.unlink()  # with it, a start would not even look there
    before = fingerprint(filled.data_dir)
    said = serve(filled.data_dir)
    assert said.code == STORE_FAILED
    assert f"position {hit.position}" in said.line
    assert fingerprint(filled.data_dir) == before
    verify = [sys.executable, "-m", "latermq_broker", "log", "verify", "--json"]
    ended = subprocess.run(
        [*verify, str(filled.data_dir)],
        capture_output=True,
        text=True,
        timeout=patient(30),
        check=False,
    )
    assert ended.returncode == 1
    assert [one["position"] for one in json.loads(ended.stdout)["damages"]] == [hit.position]
    overwrite(filled.data_dir, hit.position + hit.length - 5, bytes([flipped[0] ^ 1]))
    filled.start()
    assert bodies_of(filled) == sorted(BODIES)


def test_a_missing_segment_is_refused(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", config=SMALL_SEGMENTS) as broker:
        broker.start()
        with WireClient(broker.endpoint) as wire:
            for _ in range(30):
                require_ok(wire.send(wire_requests.message(TOPIC, bytes(100_000))))
        assert broker.terminate().code == 0
        segments = sorted((broker.data_dir / "log").glob("*.seg"))
        assert len(segments) > 2
        segments[1].rename(tmp_path / "away")
        before = fingerprint(broker.data_dir)
        said = serve(broker.data_dir, "--config", str(tmp_path / "data.toml"))
        assert said.code == STORE_FAILED
        assert segments[1].name in said.line
        assert fingerprint(broker.data_dir) == before
        (tmp_path / "away").rename(segments[1])
        broker.start()
        with WireClient(broker.endpoint) as wire:
            assert len(wire.take(TOPIC, "reader", 30, timeout_s=20)) == 30
