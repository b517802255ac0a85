"""Broadcasts over an outage, at a broker process."""

import asyncio
from pathlib import Path

import latermq
from support.broker_process import BrokerProcess
from support.machine import patient


async def test_a_broker_that_was_away_loses_nothing_of_a_broadcast(tmp_path: Path) -> None:
    """Nor does anybody get anything twice."""
    with BrokerProcess(tmp_path / "data") as broker:
        broker.start()
        got: list[list[bytes]] = [[], []]
        async with latermq.connect(broker.endpoint) as one, latermq.connect(broker.endpoint) as two:
            await one.send("prices", b"before")
            for mq, mine in ((one, got[0]), (two, got[1])):
                consumer = mq.push_consumer("prices", group="cache", broadcast=True)

                @consumer.listener
                async def learn(delivery: latermq.Delivery, mine: list[bytes] = mine) -> None:
                    mine.append(delivery.body)

                await consumer.start()
            sent = [b"%d" % number for number in range(60)]
            async with asyncio.timeout(patient(60)):
                for number, body in enumerate(sent):
                    if number == 30:
                        broker.kill()
                        broker.start()
                    await one.send("prices", body)
                while min(map(len, got)) < len(sent):
                    await asyncio.sleep(0.02)
        assert [sorted(mine) for mine in got] == [sorted(sent)] * 2
