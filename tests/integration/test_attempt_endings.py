"""How each attempt ended, as its dead letter tells: failed, given back, client gone, no answer."""

import asyncio
import subprocess
import sys
from datetime import timedelta

import pytest

import latermq
from latermq_proto.latermq.v1 import dead_letter_pb2
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wire_client import WireClient

HOLDER = """
import asyncio, sys, latermq
from datetime import timedelta
async def hold(endpoint, name):
    async with latermq.connect(endpoint) as mq:
        consumer = mq.simple_consumer(name, group=name)
        async with consumer:
            await consumer.receive(invisible=timedelta(seconds=2))
            print("held", flush=True)
            await asyncio.sleep(600)
asyncio.run(hold(*sys.argv[1:]))
"""


def outcomes(operator: WireClient, group: str) -> list[str]:
    """Return how the attempts of the group's only dead letter ended."""
    request = dead_letter_pb2.ListDeadLettersRequest(group=group)
    (letter,) = operator.call(operator.dead_letters.ListDeadLetters, request).letters
    return [attempt.outcome for attempt in letter.attempts]


async def test_each_ending_is_told_by_itself(
    sdk_broker: BrokerProcess, operator: WireClient, name: str
) -> None:
    operator.create_group(name, 4, [5])
    async with latermq.connect(sdk_broker.endpoint) as mq, asyncio.timeout(patient(60)):
        await mq.send(name, b"one")
        command = [sys.executable, "-c", HOLDER, sdk_broker.endpoint, name]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            assert await asyncio.to_thread(holder.stdout.readline) == b"held\n"
            holder.kill()
        async with mq.simple_consumer(name, group=name) as consumer:

            async def take(invisible: timedelta = timedelta(seconds=30)) -> latermq.Delivery:
                while not (taken := await consumer.receive(invisible=invisible)):
                    pass
                return taken[0]

            delivery = await take()
            with pytest.raises(asyncio.CancelledError):
                async with delivery:
                    raise asyncio.CancelledError  # as a shutdown does
            await (await take()).nack()
            await take(timedelta(milliseconds=50))
            await (await take()).nack()
    assert outcomes(operator, name) == ["client_gone", "suspended", "nack", "expired", "nack"]
