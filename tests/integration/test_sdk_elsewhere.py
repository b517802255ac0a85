"""What the SDK does where the system has less, as Windows has."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import latermq.sync
from support.broker_process import BrokerProcess
from support.machine import patient

ON_WINDOWS: Final = "from support import as_on_windows\n"
EVERYTHING: Final = """
import latermq, latermq.sync, latermq.admin, latermq.testing.plugin, latermq.kafka, latermq.otel

print(all(getattr(latermq, name) for name in latermq.__all__), latermq.testing.BrokerProcess)
"""
WORKER: Final = """
import sys

from latermq_cli.__main__ import main

sys.argv = ["latermq", "worker", *sys.argv[1:]]
main()
"""
SHOP: Final = """
import latermq

app = latermq.App()

@app.listener("TOPIC", group="TOPIC", retry="1s")
async def bill(order: str) -> None:
    print("billed", order, flush=True)

@app.listener("TOPIC", group="TOPIC-too")
def ship(order: str) -> None:
    print("shipped", order, flush=True)
"""

WITHOUT_POLL = """
import select

for name in ("poll", "POLLHUP", "POLLERR", "POLLRDHUP"):
    delattr(select, name)

import asyncio
import sys

import latermq


async def send(endpoint, topic):
    async with latermq.connect(endpoint) as mq:
        await mq.send(topic, b"one")
        await asyncio.sleep(0.1)  # after which the connection would be looked at
        receipt = await mq.send(topic, b"two")
        print(bool(receipt.message_id))


asyncio.run(send(*sys.argv[1:]))
"""

WITH_SIGBREAK = """
import asyncio
import os
import signal

signal.SIGBREAK = signal.SIGUSR1

from latermq._consuming.signals import asked_to_end


async def work():
    end, loop = asyncio.Event(), asyncio.get_running_loop()
    with asked_to_end(lambda: loop.call_soon_threadsafe(end.set)):
        os.kill(os.getpid(), signal.SIGBREAK)
        await end.wait()
    print(signal.getsignal(signal.SIGBREAK) is signal.SIG_DFL)


asyncio.run(work())
"""


TESTS: Final = Path(__file__).resolve().parents[1]


def ran(program: str, *given: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *given], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_it_sends_where_there_is_no_poll(sdk_broker: BrokerProcess, name: str) -> None:
    assert ran(WITHOUT_POLL, sdk_broker.endpoint, name) == "True"


def test_control_break_asks_a_worker_to_end() -> None:
    """SIGUSR1 stands for it: a signal that ends the process unless it is heard."""
    assert ran(WITH_SIGBREAK) == "True"


def test_every_part_of_the_sdk_is_imported_as_on_windows() -> None:
    assert ran("import pytest\n" + ON_WINDOWS + EVERYTHING).startswith("True <class")


def test_a_worker_works_and_ends_as_on_windows(
    sdk_broker: BrokerProcess, name: str, tmp_path: Path
) -> None:
    """Ctrl+C is SIGINT there, too; an event loop has no handlers of signals of its own."""
    (tmp_path / "shop.py").write_text(SHOP.replace("TOPIC", name), encoding="utf-8")
    options = ("--health", "127.0.0.1:0", "--health-file", "healthy")
    with subprocess.Popen(
        [sys.executable, "-c", ON_WINDOWS + WORKER, "shop:app", *options],
        cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(TESTS), "LATERMQ_ENDPOINT": sdk_broker.endpoint},
    ) as worker:  # fmt: skip
        try:
            with latermq.sync.connect(sdk_broker.endpoint) as mq:
                mq.send(name, b"17")
            assert worker.stdout is not None
            said = {worker.stdout.readline().strip() for _ in range(2)}
            assert said == {"billed 17", "shipped 17"}
            worker.send_signal(signal.SIGINT)
            _, log = worker.communicate(timeout=patient(60))
        finally:
            worker.kill()
    assert worker.returncode == 0, log
    assert "SIGINT: ending" in log
    assert "all that was in hand is finished" in log
