"""What a listener sends: through its app, and with a client for threads."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

import latermq
import latermq.sync
from latermq._connection.loop_thread import LoopThread
from latermq._values.endpoints import Endpoints
from latermq.client import Client
from support.scripted_broker import ScriptedBroker


@dataclass
class Order:
    id: int


def billing(app: latermq.App) -> Any:
    @app.listener("orders", group="billing")
    async def bill(order: Order) -> None: ...

    return bill


async def test_a_send_has_its_number_of_tries_and_its_time(
    broker: ScriptedBroker, connect: Callable[..., Client]
) -> None:
    app = latermq.App()
    app._open = connect
    bill = billing(app)
    receipt = await bill.send(Order(17), tries=2, timeout=timedelta(seconds=5), keys=["17"])
    assert isinstance(receipt, latermq.SendReceipt)
    with pytest.raises(ValueError, match="tries must be at least 1"):
        await bill.send(Order(17), tries=0)
    with pytest.raises(ValueError, match="timeout must be positive"):
        await bill.send(Order(17), timeout=timedelta(0))
    await app.close()


def test_a_program_that_does_not_await_sends_typed_payloads(broker: ScriptedBroker) -> None:
    bill = billing(latermq.App())
    inner = Client(Endpoints.parse("127.0.0.1:8081"), transport=broker.connect)
    with latermq.sync.Client(LoopThread(), inner) as mq:
        receipt = bill.send_with(mq, Order(17), keys=["17"], tries=1, timeout=timedelta(seconds=9))
        with pytest.raises(ValueError, match="tries must be at least 1"):
            bill.send_with(mq, Order(17), tries=0)
    assert isinstance(receipt, latermq.SendReceipt)
    (request,) = broker.requests("SendMessage")
    (message,) = request.messages
    assert (message.topic.name, message.body) == ("orders", b'{"id":17}')
    assert list(message.system_properties.keys) == ["17"]
    assert message.user_properties["content-type"] == "application/json"
