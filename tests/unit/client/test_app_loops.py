"""Event loops of threads and of calls: an app has a client for each, and any other client refuses
to be used in a second one, before anything is sent."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import latermq
from latermq.admin import AsyncAdmin
from latermq.client import Client
from latermq.delivery import Delivery
from latermq.push_consumer import PushConsumer
from latermq.simple_consumer import SimpleConsumer
from latermq.transaction import Transaction
from latermq_proto.latermq.v1 import topic_pb2
from support.scripted_broker import ScriptedBroker

THREADS, SENDS = 4, 10


def billing(connect: Callable[..., Client]) -> tuple[latermq.App, Any]:
    app = latermq.App()
    app._open = connect

    @app.listener("orders", group="billing")
    async def bill(order: str) -> None: ...

    return app, bill


def in_threads(work: Callable[[int], None]) -> None:
    """Do it in several threads that begin together."""
    gate, failures = threading.Barrier(THREADS), list[BaseException]()

    def run(number: int) -> None:
        gate.wait()
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001  told to the test
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failures


def test_threads_with_a_loop_for_each_call_share_an_app(
    broker: ScriptedBroker, connect: Callable[..., Client]
) -> None:
    _, bill = billing(connect)

    def views(number: int) -> None:
        for turn in range(SENDS):
            asyncio.run(bill.send(f"{number}-{turn}"))

    in_threads(views)
    sent = {bytes(each.messages[0].body) for each in broker.requests("SendMessage")}
    assert len(sent) == THREADS * SENDS


def test_the_identity_of_a_closed_loop_goes_on(
    broker: ScriptedBroker, connect: Callable[..., Client]
) -> None:
    app, bill = billing(connect)
    for turn in range(SENDS):
        asyncio.run(bill.send(str(turn)))
    assert len({call.headers["x-mq-client-id"] for call in broker.named("SendMessage")}) == 1
    assert len(app._clients.all) == 1


def test_a_forked_process_has_identities_of_its_own(
    broker: ScriptedBroker, connect: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, bill = billing(connect)
    asyncio.run(bill.send("parent"))
    monkeypatch.setattr("latermq._worker.clients.os.getpid", lambda: os.getppid())
    asyncio.run(bill.send("child"))
    asyncio.run(bill.send("child again"))
    ids = [call.headers["x-mq-client-id"] for call in broker.named("SendMessage")]
    assert ids[0] != ids[1] == ids[2]


def test_loops_that_run_at_the_same_time_have_identities_of_their_own(
    broker: ScriptedBroker, connect: Callable[..., Client]
) -> None:
    _, bill = billing(connect)
    gate = threading.Barrier(THREADS)

    def view(number: int) -> None:
        async def send() -> None:
            await bill.send(str(number))
            gate.wait()

        asyncio.run(send())

    in_threads(view)
    senders = [call.headers["x-mq-client-id"] for call in broker.named("SendMessage")]
    assert len(set(senders)) == THREADS


def test_closing_closes_the_client_of_its_loop_alone(
    broker: ScriptedBroker, connect: Callable[..., Client]
) -> None:
    app, bill = billing(connect)
    sent, closed = threading.Event(), threading.Event()

    def stays() -> None:
        async def send_twice() -> None:
            await bill.send("1")
            sent.set()
            await asyncio.to_thread(closed.wait)
            await bill.send("2")
            await app.close()

        asyncio.run(send_twice())

    thread = threading.Thread(target=stays)
    thread.start()
    sent.wait()

    async def close() -> None:
        await bill.send("3")
        await app.close()

    asyncio.run(close())
    closed.set()
    thread.join()
    assert [each.messages[0].body for each in broker.requests("SendMessage")] == [b"1", b"3", b"2"]
    assert len(broker.named("NotifyClientTermination")) == 2


class Used:
    """A client, and all that is made with it, that is used in one loop and stays open."""

    mq: Client
    asking: SimpleConsumer
    pushed: PushConsumer
    delivery: Delivery
    of_push: Delivery
    transaction: Transaction
    admin: AsyncAdmin


CALLS: dict[str, Callable[[Used], Awaitable[object]]] = {
    "send": lambda used: used.mq.send("orders", b"1"),
    "send_batch": lambda used: used.mq.send_batch("orders", [latermq.Message(b"1")]),
    "recall": lambda used: used.mq.recall("orders", "handle"),
    "check_transactions": lambda used: used.mq.check_transactions(
        "orders", lambda _: latermq.Resolution.COMMIT
    ),
    "begin a transaction": lambda used: used.mq.transaction("orders", b"1").__aenter__(),
    "commit": lambda used: used.transaction.commit(),
    "rollback": lambda used: used.transaction.rollback(),
    "close": lambda used: used.mq.close(),
    "receive": lambda used: used.asking.receive(),
    "subscribe": lambda used: used.asking.subscribe("orders"),
    "unsubscribe": lambda used: used.asking.unsubscribe("orders"),
    "leave": lambda used: used.asking.close(),
    "start": lambda used: used.pushed.start(),
    "pause": lambda used: used.pushed.pause(),
    "next": lambda used: used.pushed.__anext__(),
    "end": lambda used: used.pushed.close(),
    "ack": lambda used: used.delivery.ack(),
    "nack": lambda used: used.of_push.nack(),
    "extend": lambda used: used.delivery.extend(latermq.push_consumer.GRACE),
    "dead_letter": lambda used: used.of_push.dead_letter("bad"),
    "admin": lambda used: used.admin.call(
        used.admin.topics.ListTopics, topic_pb2.ListTopicsRequest()
    ),
}


@pytest.fixture
def used(broker: ScriptedBroker, connect: Callable[..., Client]) -> Used:
    used = Used()

    async def use() -> None:
        used.mq = connect()
        used.admin = used.mq.admin
        used.asking = used.mq.simple_consumer("orders", group="g")
        used.pushed = used.mq.push_consumer("orders", group="h")
        broker.deliver(b"1")
        (used.delivery,) = await used.asking.receive()
        broker.deliver(b"2")
        await used.pushed.start()
        used.of_push = await anext(used.pushed)
        used.transaction = await used.mq.transaction("orders", b"half").__aenter__()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(use())
    used.loop = loop  # type: ignore[attr-defined]
    return used


@pytest.mark.parametrize("name", CALLS)
def test_each_call_refuses_another_loop_before_anything_is_sent(
    broker: ScriptedBroker, used: Used, name: str
) -> None:
    before = len(broker.calls)

    async def call() -> None:
        with pytest.raises(RuntimeError, match="belongs to the event loop that it was first used"):
            await CALLS[name](used)

    asyncio.run(asyncio.wait_for(call(), 10))
    assert len(broker.calls) == before
    loop = used.loop  # type: ignore[attr-defined]
    loop.run_until_complete(used.mq.close())
    loop.close()
