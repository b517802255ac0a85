"""Consumers of one group that filter differently, on a broker that restarts: nobody's is lost."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

import latermq
from support.broker_process import BrokerProcess
from support.machine import patient

NOW = timedelta(0)
SOON = timedelta(seconds=2)


async def take_all(consumer: latermq.SimpleConsumer, count: int, at_once: int = 32) -> list[bytes]:
    """Receive and acknowledge so many."""
    bodies: list[bytes] = []
    async with asyncio.timeout(patient(60)):
        while len(bodies) < count:
            for delivery in await consumer.receive(at_once, wait=SOON):
                bodies.append(delivery.body)
                await delivery.ack()
    return bodies


@pytest.mark.parametrize("end", ["terminate", "kill"])
async def test_each_gets_what_it_wants_also_after_a_restart(tmp_path: Path, end: str) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.start()
        async with (
            latermq.connect(broker.endpoint) as one,
            latermq.connect(broker.endpoint) as two,
            one.simple_consumer("orders", group="billing", tags="a") as first,
            two.simple_consumer("orders", group="billing", tags="b") as second,
        ):
            for number in range(20):
                await one.send("orders", b"%d" % number, tag="ab"[number % 2])
            odd = sorted(b"%d" % number for number in range(1, 20, 2))
            even = sorted(b"%d" % number for number in range(0, 20, 2))
            odd.remove((await take_all(second, 1, at_once=1))[0])  # both are known now
            assert sorted(await take_all(first, 10)) == even
            broker.wait_log("filter differently")
            getattr(broker, end)()
            broker.start()
            await one.send("orders", b"more", tag="a")
            assert await take_all(first, 1) == [b"more"]  # it comes back before the other one
            assert await first.receive(32, wait=NOW) == []
        async with (
            latermq.connect(broker.endpoint) as mq,
            mq.simple_consumer("orders", group="billing", tags="b") as late,
        ):
            assert sorted(await take_all(late, len(odd))) == odd


async def test_a_filter_that_changes_while_a_receive_waits(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.start()
        async with latermq.connect(broker.endpoint) as mq:
            async with mq.simple_consumer("orders", group="billing", tags="a") as former:
                waiting = asyncio.create_task(former.receive(1, wait=timedelta(seconds=20)))
                await mq.send("orders", b"other", tag="b")
                await mq.send("orders", b"mine", tag="a")
                [delivery] = await waiting
                assert delivery.body == b"mine"
                await delivery.ack()
            async with mq.simple_consumer("orders", group="billing", tags="b") as newer:
                assert await take_all(newer, 1) == [b"other"]
