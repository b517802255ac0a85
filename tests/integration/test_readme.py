"""What the README says is run: its ten lines, and its tour of the command line."""

import asyncio
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import latermq
from support.broker_process import BrokerProcess
from support.machine import patient

README: Final = Path(__file__).resolve().parents[2] / "README.md"
ENDPOINT: Final = "127.0.0.1:8081"


def blocks(language: str) -> list[str]:
    text = README.read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as broker:
        yield broker.start()


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=patient(60), check=False)


def ten_lines(endpoint: str) -> subprocess.CompletedProcess[str]:
    [block] = [block for block in blocks("python") if "latermq.connect" in block]
    assert block.count(ENDPOINT) == 1
    return run(sys.executable, "-c", block.replace(ENDPOINT, endpoint))


def test_the_ten_lines_work(broker: BrokerProcess) -> None:
    started = time.monotonic()
    result = ten_lines(broker.endpoint)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "1 b'order 1'\n"
    assert time.monotonic() - started >= 2, "it is delayed by two seconds"


def tour() -> list[list[str]]:
    """The words of each `latermq …` line, as a shell would split them."""
    [block] = [block for block in blocks("sh") if block.startswith("latermq serve --data-dir")]
    return [shlex.split(line, comments=True)[1:] for line in block.splitlines()]


async def bury(endpoint: str) -> None:
    """Make a message of group billing that died of a TimeoutError."""
    async with latermq.connect(endpoint) as mq:
        receipt = await mq.send("orders", b"order 2")
        async with mq.simple_consumer("orders", group="billing") as consumer:
            [delivery] = await consumer.receive()
            assert delivery.message_id == receipt.message_id
            await delivery.dead_letter("the bank is gone", TimeoutError("no answer"))


async def leave_open(endpoint: str) -> str:
    """Begin a transaction and never end it; its id."""
    async with latermq.connect(endpoint) as mq:
        transaction = mq.transaction("invoices", b"invoice 3")
        await transaction.__aenter__()
        return transaction.transaction_id


def test_the_tour_of_the_command_line_works(broker: BrokerProcess, tmp_path: Path) -> None:
    assert ten_lines(broker.endpoint).returncode == 0, "a reader takes them first"
    said: dict[str, str] = {}
    for words in tour():
        if words[0] == "serve":
            continue  # it runs
        if words[:2] == ["message", "show"]:
            words = [*words[:-1], *re.findall(r"\b01[0-9A-F]{32}\b", said["message find"])[:1]]
        if words[:2] == ["pending", "commit"]:
            words = [*words[:-1], asyncio.run(leave_open(broker.endpoint)), "--yes"]
        if words[:2] == ["dead", "list"]:
            asyncio.run(bury(broker.endpoint))
        if words[0] in ("backup", "restore"):
            words = [word.replace("/mnt", str(tmp_path)) for word in words]
        if words[0] == "log":
            broker.terminate()
            words = [*words[:-1], str(broker.data_dir)]
        elif words[0] == "restore":
            words = [*words[:-1], str(tmp_path / words[-1])]
        else:
            words = [*words, "--endpoint", broker.endpoint]
        result = run(sys.executable, "-m", "latermq_broker", *words)
        assert result.returncode == 0, f"latermq {shlex.join(words)}\n{result.stderr}"
        said[" ".join(words[:2])] = result.stdout
    assert "delayed" in said["pending list"]
    assert "TimeoutError" in said["dead list"]
    assert "TimeoutError: no answer" in said["dead show"]
    assert "1 dead letter redriven" in said["dead redrive"]
