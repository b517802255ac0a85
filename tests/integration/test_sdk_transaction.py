"""Our client's transactions and recall against a real broker, that is killed in between."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import latermq
from latermq import Received, Resolution
from latermq.errors import InvalidTransactionError, NotFoundError
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wall_clock import WallClock

LONG, HOUR = timedelta(seconds=10), timedelta(hours=1)
CONFIG = "[transaction]\nfirst_check_ms = 1000\ncheck_interval_ms = 3000\n"


@pytest.fixture(params=["grpcio", "lean"], scope="module")
def config(request: pytest.FixtureRequest) -> str:
    return f'[server]\ntransport = "{request.param}"\n{CONFIG}'


@pytest.fixture(scope="module")
def broker(config: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("transactions") / "data", config=config) as broker:
        yield broker.start()


@pytest.fixture
def set_broker(wall: WallClock, config: str, tmp_path: Path) -> Iterator[BrokerProcess]:
    """One whose wall clock is the test's to set."""
    with BrokerProcess(tmp_path / "data", config=config) as broker:
        yield broker.start()


def latermq_json(broker: BrokerProcess, *words: str) -> Any:
    command = [sys.executable, "-m", "latermq_broker", *words, "--json"]
    done = subprocess.run(
        [*command, "--endpoint", broker.endpoint],
        capture_output=True,
        check=True,
        timeout=patient(30),
    )
    return json.loads(done.stdout)


async def bodies(
    mq: latermq.Client, topic: str, count: int, wait: timedelta = timedelta(0)
) -> list[str]:
    """What is received and acknowledged: `count` of them, or what there is after `wait`."""
    found: list[str] = []
    async with mq.simple_consumer(topic, group="billing") as consumer:
        while len(found) < count:
            deliveries = await consumer.receive(32, wait=wait)
            for delivery in deliveries:
                await delivery.ack()
                found.append(delivery.body.decode())
            if not deliveries:
                break
    return sorted(found)


async def test_commit_rollback_and_the_broker_killed_in_between(
    broker: BrokerProcess, name: str
) -> None:
    async with latermq.connect(broker.endpoint) as mq:
        async with mq.transaction(name, b"before"):
            assert await bodies(mq, name, 1) == []
        with pytest.raises(ZeroDivisionError):
            async with mq.transaction(name, b"broke"):
                raise ZeroDivisionError
        async with mq.transaction(name, b"over a kill") as transaction:
            broker.kill()
            broker.start()
        assert await bodies(mq, name, 2, LONG) == ["before", "over a kill"]
        broker.kill()
        broker.start()
        await transaction.commit()  # the broker knows its end, also after a restart
        with pytest.raises(InvalidTransactionError, match="is committed already"):
            await transaction.rollback()
        assert await bodies(mq, name, 1) == []


async def test_a_process_that_died_is_answered_for_by_another(
    broker: BrokerProcess, name: str
) -> None:
    script = (
        "import asyncio, os, latermq\n"
        "async def main():\n"
        f"    mq = latermq.connect({broker.endpoint!r})\n"
        "    for body in (b'paid', b'broke', b'odd'):\n"
        f"        await mq.transaction({name!r}, body).__aenter__()\n"
        "    os._exit(7)\n"
        "asyncio.run(main())\n"
    )
    died = subprocess.run([sys.executable, "-c", script], timeout=patient(30), check=False)
    assert died.returncode == 7
    waiting = latermq_json(broker, "pending", "list", "--kind", "half")["messages"]
    assert [one["topic"] for one in waiting] == [name] * 3
    asked: list[str] = []

    async def look_up(half: Received) -> Resolution:
        body = half.body.decode()
        asked.append(body)
        return {"paid": Resolution.COMMIT, "broke": Resolution.ROLLBACK}.get(
            body, Resolution.UNKNOWN
        )

    async with latermq.connect(broker.endpoint) as mq:
        await mq.check_transactions(name, look_up)
        assert await bodies(mq, name, 1, LONG) == ["paid"]
        async with asyncio.timeout(patient(20)):
            while not {"broke", "odd"} <= set(asked):
                await asyncio.sleep(0.02)
            while len(waiting) > 1:
                listed = ("pending", "list", "--kind", "half")
                waiting = (await asyncio.to_thread(latermq_json, broker, *listed))["messages"]
        (odd,) = waiting
        assert (asked.count("paid"), asked.count("broke")) == (1, 1)
        assert 1 <= odd["checks"] < odd["checks_max"] == 15
        changed = latermq_json(broker, "pending", "commit", odd["pending_id"], "--yes")
        assert changed["changed"] == 1
        assert await bodies(mq, name, 1, LONG) == ["odd"]


async def test_recall(wall: WallClock, set_broker: BrokerProcess, name: str) -> None:
    async with latermq.connect(set_broker.endpoint) as mq:
        receipt = await mq.send(name, b"one", delay=HOUR)
        kept = await mq.send(name, b"two", delay=HOUR)
        set_broker.kill()
        set_broker.start()
        assert await mq.recall(receipt.topic, receipt.recall_handle) == receipt.message_id
        with pytest.raises(NotFoundError, match="delivered or recalled"):
            await mq.recall(receipt.topic, receipt.recall_handle)
        wall.set_ahead(HOUR.seconds)
        assert await bodies(mq, name, 1, LONG) == ["two"]
        assert await bodies(mq, name, 1) == []
        with pytest.raises(NotFoundError):
            await mq.recall(kept.topic, kept.recall_handle)


def test_for_threads(broker: BrokerProcess, name: str) -> None:
    def look_up(half: Received) -> Resolution:
        return Resolution.COMMIT

    with latermq.sync.connect(broker.endpoint) as mq:
        mq.check_transactions(name, look_up)
        with mq.transaction(name, b"one"):
            pass
        left = mq.transaction(name, b"two")
        left.__enter__()
        found: list[bytes] = []
        with mq.simple_consumer(name, group="billing") as consumer:
            while len(found) < 2:
                for delivery in consumer.receive(32, wait=LONG):
                    delivery.ack()
                    found.append(delivery.body)
        assert sorted(found) == [b"one", b"two"]
