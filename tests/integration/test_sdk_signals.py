"""A consumer's `run` without an app, told to end by a signal while it has a message in hand."""

import signal
import subprocess
import sys

import pytest

import latermq
from support.broker_process import BrokerProcess
from support.machine import patient

ASYNC = """
import asyncio, logging, sys, latermq

logging.basicConfig(level=logging.INFO, format="%(message)s")
told = asyncio.Event()  # to go on

async def main(endpoint, topic):
    async with latermq.connect(endpoint) as mq:
        async def listen(delivery):
            print("began", flush=True)
            await told.wait()
            print("done", delivery.attempt, flush=True)

        consumer, other = (mq.push_consumer(topic, group=topic + each) for each in ("", "-other"))
        consumer.listener(listen)
        other.listener(listen)
        tell = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
        tell.add_done_callback(lambda _: told.set())
        await asyncio.gather(consumer.run(), other.run())
    print("ended", flush=True)

asyncio.run(main(*sys.argv[1:]))
"""
SYNC = """
import logging, sys, latermq.sync

logging.basicConfig(level=logging.INFO, format="%(message)s")

endpoint, topic = sys.argv[1:]
with latermq.sync.connect(endpoint) as mq:
    consumer = mq.push_consumer(topic, group=topic)

    @consumer.listener
    def listen(delivery):
        print("began", flush=True)
        sys.stdin.readline()
        print("done", delivery.attempt, flush=True)

    consumer.run()
print("ended", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("program", [ASYNC, SYNC], ids=["async", "sync"])
async def test_it_finishes_what_is_in_hand(
    sdk_broker: BrokerProcess, name: str, program: str, number: signal.Signals
) -> None:
    groups = 2 if program is ASYNC else 1
    async with latermq.connect(sdk_broker.endpoint) as mq:
        await mq.send(name, b"one")
    command = [sys.executable, "-c", program, sdk_broker.endpoint, name]
    process = subprocess.Popen(
        command, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        began = [process.stdout.readline() for _ in range(groups)]
        assert began == ["began\n"] * groups
        process.send_signal(number)
        heard = [process.stderr.readline() for _ in range(groups)]
        assert heard == [f"{number.name}: ending\n"] * groups
        said, wrong = process.communicate("go on\n", timeout=patient(30))
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, wrong) == (0, "")
    assert said.splitlines() == ["done 1"] * groups + ["ended"]
