"""Two `latermq backup` to one place, each a process of its own: one works, the other is refused.

A bucket is fsspec's `local://` here, which is used as an object store is: without locks.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from latermq_cli.backup.mark import RUNNING, STALE_S
from support import wire_requests
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wire_client import WireClient, require_ok

BODY = b"x" * (1 << 20)
BODIES = 6  # at the slowest pace they take as many seconds
WAIT_S = patient(60)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("backed-up") / "data") as broker:
        broker.start()
        with WireClient(broker.endpoint) as wire:
            for _ in range(BODIES):
                require_ok(wire.send(wire_requests.message("orders", BODY)))
        yield broker


@pytest.fixture(params=["", "local://"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}{tmp_path}/backups"


def start(broker: BrokerProcess, place: str, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "latermq_cli", "backup", place, *words]
    return subprocess.Popen(
        [*command, "--endpoint", broker.endpoint], stdout=-1, stderr=-1, text=True
    )


def said(command: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code and the last line it wrote."""
    out, err = command.communicate(timeout=WAIT_S)
    return command.returncode, (out + err).splitlines()[-1]


def verified(place: str, backups: int) -> None:
    command = [sys.executable, "-m", "latermq_cli", "backup", "verify", place, "--all"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == backups


def until(true: Callable[[], object]) -> None:
    ends = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.005)


def marks(place: str) -> list[Path]:
    return sorted((Path(place.removeprefix("local://")) / RUNNING).glob("*"))


def test_the_second_is_refused_and_a_killed_one_blocks_nobody_for_ever(
    broker: BrokerProcess, place: str
) -> None:
    directory = Path(place.removeprefix("local://"))
    first = start(broker, place, "--rate", "1")
    until(lambda: marks(place) or (directory / "LOCK").exists())
    first.send_signal(signal.SIGSTOP)
    assert first.poll() is None
    code, line = said(start(broker, place))
    assert code == 2
    assert f"another backup to {place} is running" in line
    first.kill()
    first.communicate()
    if marks(place):
        assert f"process {first.pid} on " in line
        code, line = said(start(broker, place))
        assert (code, "is running" in line) == (2, True)
        [mark] = marks(place)
        long_ago = time.time() - STALE_S - 60
        os.utime(mark, (long_ago, long_ago))
    assert said(start(broker, place))[0] == 0
    assert not marks(place)
    verified(place, 1)


def test_of_those_that_begin_at_one_moment_one_works(broker: BrokerProcess, tmp_path: Path) -> None:
    place = f"local://{tmp_path}/backups"
    ended = [said(each) for each in [start(broker, place, "--keep", "1") for _ in range(3)]]
    whole = [line for code, line in ended if code == 0]
    assert whole, ended
    assert all("read again and whole" in line for line in whole), ended
    refused = [line for code, line in ended if code == 2]
    assert all("is running" in line for line in refused), ended
    assert len(whole) + len(refused) == len(ended), ended
    assert not marks(place)
    verified(place, 1)


def test_one_that_is_told_to_end_is_in_nobodys_way(broker: BrokerProcess, tmp_path: Path) -> None:
    place = f"local://{tmp_path}/backups"
    first = start(broker, place, "--rate", "1")
    until(lambda: marks(place))
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=WAIT_S)
    assert first.returncode == 128 + signal.SIGTERM
    assert not marks(place)
    assert said(start(broker, place))[0] == 0
    verified(place, 1)
