"""Two relays of one outbox, killed in turn: nothing is lost, doubled or out of order."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import MetaData, create_engine, func, select
from sqlalchemy.pool import NullPool

import latermq
from latermq.outbox import Outbox
from latermq.testing import BrokerProcess
from support.sql_servers import Databases

GROUPS: Final = 4
MESSAGES: Final = 60  # of each group
KILLS: Final = 3
RELAY: Final = """
import asyncio, sys
from datetime import timedelta
from sqlalchemy import MetaData, create_engine
from sqlalchemy.ext.asyncio import create_async_engine
import latermq, latermq.sync
from latermq.outbox import Outbox
url, endpoint = sys.argv[1:]
outbox = Outbox(MetaData(), lease=timedelta(seconds=1))
pause = timedelta(milliseconds=10)
async def main():
    async with latermq.connect(endpoint) as mq:
        await outbox.run_async(mq, create_async_engine(url), pause=pause)
if "pymysql" in url:
    with latermq.sync.connect(endpoint) as mq:
        outbox.run(mq, create_engine(url), pause=pause)
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def databases() -> Iterator[Databases]:
    with ExitStack() as stack:
        yield Databases(stack)


@pytest.mark.parametrize("kind", ["mariadb", "postgresql"])
async def test_two_relays_that_are_killed(
    kind: str, databases: Databases, latermq_broker: BrokerProcess, tmp_path: Path
) -> None:
    url = databases.url(kind, tmp_path)
    engine = create_engine(url, poolclass=NullPool)
    metadata = MetaData()
    outbox = Outbox(metadata, lease=timedelta(seconds=1))
    metadata.create_all(engine)
    topic = f"orders-{kind}"

    def start() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", RELAY, url, latermq_broker.endpoint]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def left() -> int:
        with engine.connect() as connection:
            return connection.scalar(select(func.count()).select_from(outbox.table)) or 0

    relays = [start(), start()]
    try:
        for part in range(KILLS):
            with engine.begin() as connection:
                for number in range(part * MESSAGES // KILLS, (part + 1) * MESSAGES // KILLS):
                    for group in range(GROUPS):
                        message = latermq.Message(b"%d" % number, message_group=f"g{group}")
                        outbox.add(connection, topic, message)
            while left() > MESSAGES * GROUPS // KILLS // 2:
                pass
            relays[part % 2].kill()
            relays[part % 2].wait()
            relays[part % 2] = start()
        while left():
            pass
    finally:
        for each in relays:
            each.kill()
            each.wait()
        engine.dispose()

    came: dict[str | None, list[tuple[int, int]]] = {}
    async with (
        latermq.connect(latermq_broker.endpoint) as mq,
        mq.simple_consumer(topic, group="looks") as consumer,
    ):
        while received := await consumer.receive(32, wait=timedelta(seconds=1)):
            for delivery in received:
                place = (delivery.queue_offset, int(delivery.body))
                came.setdefault(delivery.message_group, []).append(place)
                await delivery.ack()
    stored = {group: [number for _, number in sorted(places)] for group, places in came.items()}
    assert stored == {f"g{group}": list(range(MESSAGES)) for group in range(GROUPS)}
