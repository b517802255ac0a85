"""`latermq demo` ends well, and however it ends it leaves no process and no file behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from support.machine import patient

DEMO: Final = (sys.executable, "-m", "latermq_broker", "demo", "--no-spark")
DEMO_TIMEOUT_S: Final = patient(90.0)


def start(directory: Path) -> subprocess.Popen[str]:
    """The demo with its temporary files under `directory`, by which its processes are known."""
    return subprocess.Popen(
        DEMO,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(directory)},
    )


def processes_in(directory: Path) -> dict[int, str]:
    """Process id → command line of what works in `directory` or has it among its arguments."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            where = str((entry / "cwd").readlink())
        except OSError:
            continue  # it ended meanwhile
        if command and (str(directory) in command or where.startswith(str(directory))):
            found[int(entry.name)] = command
    return found


def wait_for_line(demo: subprocess.Popen[str], text: str) -> None:
    assert demo.stdout is not None
    for line in demo.stdout:
        if text in line:
            return
    pytest.fail(f"the demo ended before it said {text!r}: {demo.communicate()[1]}")


def assert_nothing_left(directory: Path) -> None:
    deadline = time.monotonic() + patient(5)
    while processes_in(directory) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_in(directory) == {}
    assert list(directory.iterdir()) == []


def test_the_story_is_told_and_everything_is_gone(tmp_path: Path) -> None:
    started = time.monotonic()
    with start(tmp_path) as demo:
        told, complaint = demo.communicate(timeout=DEMO_TIMEOUT_S)
    assert (demo.returncode, complaint) == (0, "")
    assert "6 orders were placed" in told
    assert "5 orders are billed, one of them after a redrive." in told
    assert "ValueError: not enough values to unpack" in told
    assert time.monotonic() - started < patient(60)
    assert_nothing_left(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with start(tmp_path) as demo:
        wait_for_line(demo, "attempt 2: ValueError")
        assert len(processes_in(tmp_path)) >= 2, "the broker and billing work there"
        demo.send_signal(number)
        demo.communicate(timeout=patient(30))
    assert demo.returncode == 128 + number
    assert_nothing_left(tmp_path)


def test_a_broker_that_dies_ends_the_demo_with_a_reason(tmp_path: Path) -> None:
    with start(tmp_path) as demo:
        wait_for_line(demo, "attempt 1: ValueError")
        [broker] = [pid for pid, command in processes_in(tmp_path).items() if " serve " in command]
        os.kill(broker, signal.SIGKILL)
        _, complaint = demo.communicate(timeout=patient(60))
    assert demo.returncode == 1
    assert "this did not go as told" in complaint
    assert_nothing_left(tmp_path)
