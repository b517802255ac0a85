"""What `latermq serve` says to directories that are not in order, and the way back.

2 refused · 3 damaged; one line each, nothing changed. What is derived is rebuilt, and that is said.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from xxhash import xxh3_64_intdigest

from support import wire_requests
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wire_client import WireClient, require_ok

REFUSED: Final = 2
DAMAGED: Final = 3
CONFIG: Final = "[store]\nsegment_bytes = 20971520\n"  # it is read whole, again and again
BODIES: Final = [f"body {number}".encode() * 30 for number in range(40)]


class Said(NamedTuple):
    code: int
    line: str
    stdout: str


def latermq(*words: str, prefix: Sequence[str] = ()) -> Said:
    command = [*prefix, sys.executable, "-m", "latermq_broker", *words]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=patient(60), check=False
    )
    assert "Traceback" not in ended.stderr
    lines = [line for line in ended.stderr.splitlines() if line.startswith("latermq: ")]
    return Said(ended.returncode, "".join(lines), ended.stdout)


def serve(data: Path, *, prefix: Sequence[str] = ()) -> Said:
    said = latermq("serve", "--listen", "127.0.0.1:0", "--data-dir", str(data), prefix=prefix)
    assert said.line.count("latermq: ") == 1
    assert "latermq ready" not in said.stdout
    return said


def contents(data: Path) -> dict[str, bytes]:
    files = (path for path in data.rglob("*") if path.is_file())
    return {str(path.relative_to(data)): path.read_bytes() for path in files}


def bodies(broker: BrokerProcess, group: str) -> list[bytes]:
    with WireClient(broker.endpoint) as client:
        found: list[bytes] = []
        for _ in range(100):
            got = client.receive("orders", group, wait_ms=100, count_max=32).messages
            found += [one.body for one in got]
            if not got:
                break
    return sorted(found)


@pytest.fixture(scope="module")
def in_order(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with forty messages and two checkpoints, whose broker was stopped in order."""
    with BrokerProcess(tmp_path_factory.mktemp("in-order") / "data", config=CONFIG) as broker:
        for half, found in ((BODIES[:20], "store made "), (BODIES[20:], "store open ")):
            broker.start()
            with WireClient(broker.endpoint) as client:
                for body in half:
                    require_ok(client.send(wire_requests.message("orders", body)))
            ended = broker.terminate()
            assert ended.code == 0
            assert found in ended.stderr
        return broker.data_dir


@pytest.fixture
def broker(in_order: Path, tmp_path: Path) -> Iterator[BrokerProcess]:
    """One that is stopped, with a directory to damage."""
    shutil.copytree(in_order, tmp_path / "data")
    with BrokerProcess(tmp_path / "data", config=CONFIG) as broker:
        yield broker


def segment(broker: BrokerProcess) -> Path:
    [found] = (broker.data_dir / "log").glob("*.seg")
    return found


def overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def test_a_newer_format(broker: BrokerProcess) -> None:
    header = bytearray(segment(broker).read_bytes()[:64])
    header[8] = 9
    header[56:] = xxh3_64_intdigest(bytes(header[:56])).to_bytes(8, "little")
    overwrite(segment(broker), 0, bytes(header))
    before = contents(broker.data_dir)
    said = serve(broker.data_dir)
    assert said.code == REFUSED
    assert "has format 9, this version reads up to 1" in said.line
    assert contents(broker.data_dir) == before
    repair = latermq("log", "repair", "--skip", "--yes", str(broker.data_dir))
    assert (repair.code, contents(broker.data_dir)) == (REFUSED, before)


def test_a_damaged_segment_header(broker: BrokerProcess) -> None:
    overwrite(segment(broker), 30, b"\xff")
    before = contents(broker.data_dir)
    said = serve(broker.data_dir)
    assert said.code == DAMAGED
    assert "does not match its checksum" in said.line
    assert "see `latermq log repair --help`" in said.line
    assert contents(broker.data_dir) == before


def test_a_read_only_file_system(broker: BrokerProcess, tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root can mount one")
    script = tmp_path / "read-only.sh"
    script.write_text(
        f'mount --bind "{broker.data_dir}" "{broker.data_dir}" || exit 77\n'
        f'mount -o remount,ro,bind "{broker.data_dir}" || exit 77\nexec "$@"\n'
    )
    prefix = ("unshare", "--mount", "sh", str(script))
    if subprocess.run([*prefix, "true"], check=False, capture_output=True).returncode:
        pytest.skip("mounts are not allowed here")
    before = contents(broker.data_dir)
    said = serve(broker.data_dir, prefix=prefix)
    assert said.code == REFUSED
    assert said.line.endswith(f"{broker.data_dir} cannot be used: Read-only file system")
    assert contents(broker.data_dir) == before


def test_a_damaged_checkpoint_is_passed_over_and_that_is_said(broker: BrokerProcess) -> None:
    newest, older = sorted((broker.data_dir / "ckpt").iterdir(), reverse=True)
    overwrite(newest, 90, b"\xff\xff")
    broker.start()
    assert bodies(broker, "first") == sorted(BODIES)
    said = broker.terminate().stderr
    assert "checkpoint not usable" in said
    assert newest.name in said
    assert older.name not in said
    assert "rebuilt=False" in said


def test_a_damaged_queue_file_is_rebuilt(broker: BrokerProcess) -> None:
    for queue in broker.data_dir.rglob("*.cq"):
        overwrite(queue, 5, b"\xff\xff")
    broker.start()
    assert bodies(broker, "first") == sorted(BODIES)
    said = broker.terminate().stderr
    assert "does not match its checkpoint" in said
    assert "rebuilt=True" in said
    assert latermq("log", "verify", str(broker.data_dir)).code == 0


def test_the_way_back_from_damage(broker: BrokerProcess) -> None:
    """Exit code 3, a look at what would be given up, the repair, and everything else is there."""
    path, data = segment(broker), broker.data_dir
    dump = latermq("log", "dump", str(data), "--type", "message", "--json").stdout.splitlines()
    record = json.loads(dump[25])
    overwrite(path, record["position"] + 60, b"\xff" * 8)
    for checkpoint in (data / "ckpt").iterdir():
        checkpoint.unlink()
    before = contents(data)
    said = serve(data)
    assert said.code == DAMAGED
    assert f"position {record['position']}" in said.line
    assert "latermq log repair" in said.line
    verify = latermq("log", "verify", str(data))
    assert verify.code == 1
    assert f"at position {record['position']}: its checksum does not match" in verify.stdout
    shown = latermq("log", "repair", "--skip", str(data))
    assert shown.code == 0
    assert "topic=orders" in shown.stdout
    assert contents(data) == before
    done = latermq("log", "repair", "--skip", "--yes", str(data))
    assert done.code == 0, done.line
    broker.start()
    left = sorted(body for body in BODIES if body != BODIES[25])
    assert bodies(broker, "first") == left
    with WireClient(broker.endpoint) as client:
        require_ok(client.send(wire_requests.message("orders", b"after")))
    broker.kill()
    broker.start()
    assert bodies(broker, "second") == sorted([*left, b"after"])
    assert broker.terminate().code == 0
    assert latermq("log", "verify", str(data)).code == 0


def test_a_broker_that_is_to_stop_at_damage(broker: BrokerProcess, tmp_path: Path) -> None:
    dump = latermq("log", "dump", str(broker.data_dir), "--type", "message", "--json")
    record = json.loads(dump.stdout.splitlines()[0])
    overwrite(segment(broker), record["position"] + 60, b"\xff" * 8)
    config = tmp_path / "stop.toml"
    config.write_text(f'{CONFIG}on_corrupt = "stop"\n')
    broker.start("--config", str(config))
    with WireClient(broker.endpoint) as client:
        for _ in range(4):
            if client.receive("orders", "g", wait_ms=100).status.code != 20_000:
                break
    ended = broker.wait_end()
    assert ended.code == DAMAGED
    assert "message damaged, given up" in ended.stderr
    broker.start()
    assert len(bodies(broker, "g")) == len(BODIES) - 1
