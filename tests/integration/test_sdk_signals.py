"""A consumer's `run` without an app, told to end by a signal while it has a message in hand."""

import signal
import subprocess
import sys

import pytest

import latermq
from support.broker_process import BrokerProcess
from support.machine import patient

ASYNC = """
import asyncio, sys, latermq

async def main(endpoint, topic):
    async with latermq.connect(endpoint) as mq:
        async def listen(delivery):
            print("began", flush=True)
            await asyncio.sleep(1)
            print("done", delivery.attempt, flush=True)

        consumer, other = (mq.push_consumer(topic, group=topic + each) for each in ("", "-other"))
        consumer.listener(listen)
        other.listener(listen)
        await asyncio.gather(consumer.run(), other.run())
    print("ended", flush=True)

asyncio.run(main(*sys.argv[1:]))
"""
SYNC = """
import sys, time, latermq.sync

endpoint, topic = sys.argv[1:]
with latermq.sync.connect(endpoint) as mq:
    consumer = mq.push_consumer(topic, group=topic)

    @consumer.listener
    def listen(delivery):
        print("began", flush=True)
        time.sleep(1)
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
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        began = [process.stdout.readline() for _ in range(groups)]
        assert began == ["began\n"] * groups
        process.send_signal(number)
        said, wrong = process.communicate(timeout=patient(30))
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, wrong) == (0, "")
    assert said.splitlines() == ["done 1"] * groups + ["ended"]
