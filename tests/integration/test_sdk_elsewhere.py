"""What the SDK does where the system has less, as Windows has."""

import subprocess
import sys

from support.broker_process import BrokerProcess

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


def ran(program: str, *given: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *given], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_it_sends_where_there_is_no_poll(sdk_broker: BrokerProcess, name: str) -> None:
    assert ran(WITHOUT_POLL, sdk_broker.endpoint, name) == "True"


def test_control_break_asks_a_worker_to_end() -> None:
    """SIGUSR1 stands for it: a signal that ends the process unless it is heard."""
    assert ran(WITH_SIGBREAK) == "True"
