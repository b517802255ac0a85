"""The pytest plugin as its users have it: a project of their own, and pytest in a process."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from latermq.testing import BrokerProcess
from support.machine import patient

# For an environment whose entry points are older than it.
PLUGIN: Final = {"conftest.py": 'pytest_plugins = ["latermq.testing.plugin"]\n'}
ASYNCIO: Final = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function")
WITH_ANYIO: Final = """
import latermq, pytest
pytestmark = pytest.mark.anyio

@pytest.fixture
def anyio_backend():
    return "asyncio"

app = latermq.App()
attempts = []

@app.listener("orders", group="billing", retry="1s")
async def bill(order: bytes) -> None:
    attempts.append(order)
    raise ValueError("no")

async def test_a_retry(latermq_time):
    import anyio
    async with latermq_time.working(app):
        await bill.send(b"17")
        with anyio.move_on_after(60):
            await latermq_time.advance("1s")
        assert attempts == [b"17"] * 2
        assert latermq_time.pending()[0].attempt == 2

async def test_another_loop(latermq_time):
    async with latermq_time.working(app):
        assert latermq_time.dead("billing") == latermq_time.pending() == []
"""
THREE_WAITS: Final = """
import latermq, pytest

app = latermq.App()

@app.listener("orders", group="billing", retry="1s 5s 30s", max_attempts=4)
async def bill(order: str) -> None:
    raise ValueError("no card")

@pytest.mark.parametrize("again", range(8))
async def test_three_waits_then_dead(latermq_time, again):
    async with latermq_time.working(app):
        await bill.send("17")
        await latermq_time.advance("36s")
        (letter,) = latermq_time.dead("billing")
        assert [each.backoff.total_seconds() for each in letter.failures] == [1, 5, 30, 0]
"""
TIMED: Final = """
import time, pytest

pytest_plugins = ["latermq.testing.plugin"]
took_ms = []

@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    began = time.perf_counter()
    try:
        return (yield)
    finally:
        took_ms.append((time.perf_counter() - began) * 1_000)

def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line("took: " + " ".join(f"{each:.1f}" for each in took_ms))
"""
LIVE: Final = """
import asyncio, latermq, os

def test_apart(latermq_broker):
    assert os.environ["LATERMQ_ENDPOINT"] == latermq_broker.endpoint
    assert latermq_broker.pending() == latermq_broker.dead("billing") == []

async def test_a_worker(latermq_broker):
    app, got = latermq.App("127.0.0.1:1"), []

    @app.listener("orders", group="billing")
    async def bill(order: str) -> None:
        got.append(order)

    async with latermq_broker.working(app):
        await bill.send("17")
        while not got:
            await asyncio.sleep(0.01)
"""


def run(directory: Path, files: dict[str, str], *arguments: str) -> str:
    """Run pytest on files of a project of their own; return what it said."""
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
    (directory / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    ended = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=patient(100), check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_half_a_minute_of_retries_takes_less_than_a_tenth_of_a_second(tmp_path: Path) -> None:
    """With what the fixture sets up; the first test loads the broker, and is not counted."""
    files = {"test_waits.py": THREE_WAITS, "conftest.py": TIMED}
    said = run(tmp_path, files, *ASYNCIO)
    _, *took_ms = [float(each) for each in said.partition("took: ")[2].splitlines()[0].split()]
    assert len(took_ms) == 7
    assert min(took_ms) < patient(100), took_ms


def test_with_anyio(tmp_path: Path) -> None:
    files = {"test_anyio.py": WITH_ANYIO} | PLUGIN
    assert "2 passed" in run(tmp_path, files, "-p", "no:asyncio")


def test_with_xdist_each_has_its_own(tmp_path: Path) -> None:
    files = {"test_live.py": LIVE} | PLUGIN
    assert "2 passed" in run(tmp_path, files, *ASYNCIO, "-n", "2")


def test_who_asks_for_no_fixture_loads_no_broker(tmp_path: Path) -> None:
    source = "import sys\ndef test_it():\n    assert 'latermq_broker' not in sys.modules\n"
    source += "    assert 'latermq.client' not in sys.modules\n"
    assert "1 passed" in run(tmp_path, {"test_it.py": source} | PLUGIN, "-p", "no:asyncio")


def test_a_broker_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no-such-option"):
        BrokerProcess(tmp_path / "a", "--no-such-option").start()
