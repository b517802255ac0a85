"""A worker's process that stands still until its leases are over, and goes on."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import latermq
from latermq_proto.latermq.v1 import pending_pb2
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wire_client import WireClient

# Longer than heartbeats are apart: what a client takes for a standstill is no shorter.
CONFIG: Final = "[server]\nclient_silent_ms_max = 25000\n"
KINDS: Final = ("plain", "thread", "several", "ordered", "paced", "gathered")
COUNT: Final = 6  # of each kind: the first calls are begun, the others wait
AFTER: Final = 99
SHOP: Final = """
import asyncio, os, time
from pathlib import Path
import latermq

app = latermq.App()
app.group("ordered", fifo=True)

def begin(kind, numbers):
    for number in numbers:
        os.write(1, f"{kind} {number}\\n".encode())
    return Path("go").exists()

async def work(kind, numbers):
    go = begin(kind, numbers)
    while not go:
        await asyncio.sleep(0.02)
        go = Path("go").exists()

@app.listener("plain", group="plain", concurrency=1)
async def plain(number: int) -> None:
    await work("plain", [number])

@app.listener("thread", group="thread", concurrency=1)
def thread(number: int) -> None:
    go = begin("thread", [number])
    while not go:
        time.sleep(0.02)
        go = Path("go").exists()

@app.listener("several", group="several", concurrency=1, batch=2)
async def several(numbers: list[int]) -> None:
    await work("several", numbers)

@app.listener("ordered", group="ordered", concurrency=1)
async def ordered(number: int) -> None:
    await work("ordered", [number])

# Here no call is under way when the process goes on, and the next one is due at once.
@app.listener("paced", group="paced", concurrency=1, rate="1/15s")
async def paced(number: int) -> None:
    begin("paced", [number])

@app.listener("gathered", group="gathered", concurrency=1, batch=100, batch_wait="20s")
async def gathered(numbers: list[int]) -> None:
    begin("gathered", numbers)
"""


async def until(condition: Callable[[], Any], what: Callable[[], Any]) -> None:
    try:
        async with asyncio.timeout(patient(120)):
            while not condition():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(what()) from None


def in_hand(operator: WireClient) -> int:
    """Count what is leased."""
    wanted = pending_pb2.PendingFilter(kind=pending_pb2.IN_FLIGHT)
    request = pending_pb2.ListPendingRequest(filter=wanted)
    return len(operator.call(operator.pending.ListPending, request).messages)


async def take(mq: latermq.Client, kind: str, numbers: set[int]) -> None:
    """Be the other worker: acknowledge what the standing one had."""
    async with mq.push_consumer(kind, group=kind) as consumer:
        while numbers:
            async with await anext(consumer) as delivery:
                numbers.discard(int(delivery.body))


async def send(mq: latermq.Client, kind: str, number: int) -> None:
    await mq.send(kind, b"%d" % number, message_group="a" if kind == "ordered" else None)


async def test_what_waited_past_the_end_of_its_lease_is_not_begun(tmp_path: Path) -> None:
    """Another worker did it meanwhile: of what was begun before, nothing can be taken back."""
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    out, log = tmp_path / "out", tmp_path / "log"

    def begun(kind: str) -> list[int]:
        lines = [line.split() for line in out.read_text().splitlines()]
        return [int(number) for of, number in lines if of == kind]

    with BrokerProcess(tmp_path / "data", config=CONFIG) as broker:
        broker.start()
        with WireClient(broker.endpoint) as operator, out.open("wb") as o, log.open("wb") as err:
            operator.create_group("ordered", 3, fifo=True)
            async with latermq.connect(broker.endpoint) as mq, asyncio.timeout(patient(180)):
                for kind in KINDS:
                    for number in range(COUNT):
                        await send(mq, kind, number)
                worker = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "latermq_cli", "worker", "shop:app",
                    cwd=tmp_path, stdout=o, stderr=err,
                    env={**os.environ, "LATERMQ_ENDPOINT": broker.endpoint},
                )  # fmt: skip
                try:
                    held = COUNT * len(KINDS) - 2  # of those with a pace, some are done
                    await until(
                        lambda: all(map(begun, KINDS[:5])) and in_hand(operator) >= held,
                        lambda: (out.read_text(), in_hand(operator), log.read_text()),
                    )
                    worker.send_signal(signal.SIGSTOP)
                    before = {kind: begun(kind) for kind in KINDS}
                    done = {"paced": before["paced"], "gathered": before["gathered"]}
                    await asyncio.gather(
                        *(take(mq, kind, {*range(COUNT)} - {*done.get(kind, ())}) for kind in KINDS)
                    )
                    (tmp_path / "go").touch()
                    worker.send_signal(signal.SIGCONT)
                    for kind in KINDS:
                        await send(mq, kind, AFTER)
                    await until(lambda: all(AFTER in begun(kind) for kind in KINDS), log.read_text)
                    worker.terminate()
                    assert await worker.wait() == 0, log.read_text()
                finally:
                    if worker.returncode is None:
                        worker.kill()
                        await worker.wait()
    assert {kind: begun(kind) for kind in KINDS} == {
        kind: [*before[kind], AFTER] for kind in KINDS
    }, log.read_text()
