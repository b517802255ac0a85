"""What the README says is run: its lines of Python, its tour of the command line, users and TLS."""

import ast
import asyncio
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

import latermq
from latermq.errors import ForbiddenError
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


async def run_in(names: dict[str, Any], begins: str) -> None:
    """Run a block that stands in the middle of a coroutine, with what stands before it."""
    [block] = [block for block in blocks("python") if block.startswith(begins)]
    code = compile(block, str(README), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    await eval(code, names)


async def test_a_transaction_is_a_block(broker: BrokerProcess) -> None:
    asked: asyncio.Queue[bytes] = asyncio.Queue()

    async def charge(order: int) -> None:
        if order < 0:
            raise LookupError("no such order")

    async def look_up(half: latermq.Received) -> latermq.Resolution:
        asked.put_nowait(half.body)
        return latermq.Resolution.ROLLBACK

    async with latermq.connect(broker.endpoint) as mq, asyncio.timeout(patient(60)):
        names = {"mq": mq, "charge": charge, "look_up": look_up}
        with pytest.raises(LookupError):
            await run_in({**names, "order": -1}, "async with mq.transaction")
        await run_in({**names, "order": 2}, "async with mq.transaction")
        half = mq.transaction("orders", b"order 3", check_after=timedelta(seconds=1))
        await half.__aenter__()  # as by a process that died in the block
        assert await asked.get() == b"order 3"
        async with mq.simple_consumer("orders", group="billing") as consumer:
            [delivery] = await consumer.receive(10)
            assert delivery.body == b"order 2"
            await delivery.ack()
            assert not await consumer.receive(10, wait=timedelta(seconds=1))


async def test_a_lite_consumer_reads_what_it_chose(broker: BrokerProcess) -> None:
    create = ("topic", "create", "chat", "--type", "lite", "--endpoint", broker.endpoint)
    assert run(sys.executable, "-m", "latermq_broker", *create).returncode == 0
    async with latermq.connect(broker.endpoint) as mq, asyncio.timeout(patient(60)):
        names: dict[str, Any] = {"mq": mq}
        await run_in(names, "bots = ")
        heard = []
        for room in ("room-8", "room-7", "room-9"):
            await mq.send("chat", room.encode(), lite_topic=room)
        async for delivery in names["bots"]:
            async with delivery:
                heard.append(delivery.lite_topic)
            if len(heard) == 2:
                break
        assert sorted(heard) == ["room-7", "room-9"]


async def test_users_come_in_as_it_says(tmp_path: Path) -> None:
    [block] = [block for block in blocks("sh") if block.startswith("printf")]
    before, serve, after = re.split(r"^(latermq serve .*)\n", block, flags=re.MULTILINE)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def shell(lines: str, **variables: str) -> str:
        ended = subprocess.run(
            ["bash", "-euc", lines], cwd=tmp_path, env={**os.environ, "PATH": path, **variables},
            capture_output=True, text=True, timeout=patient(60), check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    shell(before)
    words = shlex.split(serve, comments=True)[1:]
    assert words == ["serve", "--config", "latermq.toml", "--data-dir", "data"]
    config = (tmp_path / "latermq.toml").read_text(encoding="utf-8")
    with BrokerProcess(tmp_path / "data", config=config) as broker:
        broker.start()
        said = shell(after, LATERMQ_ENDPOINT=broker.endpoint)
        made = dict(re.findall(r"^LATERMQ_(\w+)=(\S+)$", said, re.MULTILINE))
        tls = latermq.Tls(ca=str(tmp_path / "data" / "tls" / "certificate.pem"))
        key, secret = made["ACCESS_KEY"], made["SECRET_KEY"]
        assert key == "shop"
        async with latermq.connect(broker.endpoint, access_key=key, secret=secret, tls=tls) as mq:
            await mq.send("orders-1", b"one")
            with pytest.raises(ForbiddenError):
                await mq.send("invoices", b"two")


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
