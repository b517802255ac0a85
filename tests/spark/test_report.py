"""What README and compose.yaml promise of Spark: the snippet, and the report that follows."""

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

import pytest

import latermq
from support.broker_process import BrokerProcess
from support.machine import patient

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

README: Final = Path(__file__).resolve().parents[2] / "README.md"
ENDPOINT: Final = "127.0.0.1:8081"


async def bury(endpoint: str, topic: str, group: str, *orders: str) -> None:
    """Let these orders die of a TimeoutError in the group."""
    async with latermq.connect(endpoint) as mq:
        for order in orders:
            await mq.send(topic, b"{}", keys=[order])
        async with mq.simple_consumer(topic, group=group) as consumer:
            buried = 0
            while buried < len(orders):
                for delivery in await consumer.receive():
                    await delivery.dead_letter("no bank", TimeoutError("no answer"))
                    buried += 1


def test_the_readme_snippet(
    spark: Any, broker: BrokerProcess, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    [block] = [block for block in blocks if "DEAD_FACTS" in block]
    block = block.replace(ENDPOINT, broker.endpoint).replace('"billing"', repr(name))
    asyncio.run(bury(broker.endpoint, name, name, "A-1", "A-2"))
    exec(compile(block, str(README), "exec"), {"spark": spark})
    assert re.search(r"\| *TimeoutError\| *2\|", capsys.readouterr().out)


def lines_until(stream: IO[str], text: str) -> Iterator[str]:
    for line in stream:
        yield line
        if text in line:
            return
    pytest.fail(f"it ended before it said {text!r}")


def test_the_report_follows_until_it_is_told_to_end(
    broker: BrokerProcess, name: str, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark")
    create = ["group", "create", name, "--endpoint", broker.endpoint]
    subprocess.run(
        [sys.executable, "-m", "latermq_broker", *create], check=True, timeout=patient(30)
    )
    words = ["--endpoint", broker.endpoint, "--group", name, "--follow", str(tmp_path)]
    report = subprocess.Popen(
        [sys.executable, "-m", "latermq.demo.report", *words, "--every", "1"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
    )
    with report:
        assert report.stdout is not None
        try:
            list(lines_until(report.stdout, "waiting for dead letters"))
            asyncio.run(bury(broker.endpoint, name, name, "A-1", "A-2"))
            first = "".join(lines_until(report.stdout, "Spark read"))
            assert "A-1" in first
            assert "TimeoutError: no bank" in first
            assert "Spark read 2 dead letters, 0 redriven" in first
            asyncio.run(bury(broker.endpoint, name, name, "A-3"))
            second = "".join(lines_until(report.stdout, "Spark read"))
            assert "Spark read 1 dead letter, 0 redriven" in second
        finally:
            report.send_signal(signal.SIGTERM)
    assert report.returncode == 0
