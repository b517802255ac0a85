"""Programs that run an event loop for each request, and what they leave at a broker: room."""

import asyncio
import gc
from pathlib import Path

import pytest

import latermq
from support.broker_process import BrokerProcess

# A loop that is closed closes no connection; Python does when it collects the client.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

ROOM = 8
CONFIG = f"[server]\nclients_max = {ROOM}\n"


def test_an_app_of_many_loops_is_one_client(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", config=CONFIG) as broker:
        broker.start()
        app = latermq.App(broker.endpoint)

        @app.listener("orders", group="billing")
        async def bill(order: str) -> None: ...

        for number in range(3 * ROOM):
            asyncio.run(bill.send(str(number), tries=1))
    del app, bill
    gc.collect()  # here, where their warnings are expected


def test_clients_that_leave_without_a_farewell_make_room(tmp_path: Path) -> None:
    """Their connections are closed, and they hold nothing: a producer and a consumer each."""

    async def leave(endpoint: str, number: int) -> None:
        mq = latermq.connect(endpoint)
        await mq.send("orders", b"%d" % number, tries=1)
        (delivery,) = await mq.simple_consumer("orders", group="billing").receive()
        await delivery.ack()
        for transport in mq._connections._open.values():
            await transport.close()  # as the end of the process would

    with BrokerProcess(tmp_path / "data", config=CONFIG) as broker:
        broker.start()
        for number in range(3 * ROOM):
            asyncio.run(leave(broker.endpoint, number))
    gc.collect()
