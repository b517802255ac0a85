"""Extensions and lost answers against a real broker: a lease stays with its holder."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial

import pytest

import latermq
import latermq.sync
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wire_client import WireClient

LONG = timedelta(minutes=10)
ONCE = 1


@pytest.mark.parametrize("fifo", [False, True], ids=["plain", "fifo"])
@pytest.mark.parametrize("batch", [False, True], ids=["single", "batch"])
async def test_a_listener_that_extends_keeps_its_message(
    sdk_broker: BrokerProcess, operator: WireClient, name: str, batch: bool, fifo: bool
) -> None:
    operator.create_group(name, ONCE, [5])
    begun, done = [], asyncio.Event()
    async with latermq.connect(sdk_broker.endpoint) as mq:
        consumer = mq.push_consumer(name, group=name)

        async def work(delivery: latermq.Delivery) -> None:
            begun.append(delivery.attempt)
            await delivery.extend(LONG)
            await asyncio.sleep(0.3)  # in which a nack would have it die
            done.set()

        if batch:

            @consumer.batch_listener(2)
            async def several(deliveries: list[latermq.Delivery]) -> None:
                for each in deliveries:
                    await work(each)
        else:
            consumer.listener(work)
        async with consumer, asyncio.timeout(patient(30)):
            await mq.send(name, b"x", message_group="a" if fifo else None)
            await done.wait()
        (row,) = consumer.stats
    assert (begun, row.ok, row.lost) == ([1], 1, 0)


def test_a_thread_extends(sdk_broker: BrokerProcess, operator: WireClient, name: str) -> None:
    operator.create_group(name, ONCE, [5])
    with latermq.sync.connect(sdk_broker.endpoint) as mq:
        mq.send(name, b"x")
        with mq.push_consumer(name, group=name) as consumer:
            delivery = next(iter(consumer))
            with delivery:
                delivery.extend(LONG)
            assert delivery.outcome is latermq.delivery.Outcome.ACKNOWLEDGED


@asynccontextmanager
async def deaf(endpoint: str) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """A relay that, while the event is set, cuts a connection instead of handing an answer on."""
    host, port = endpoint.rsplit(":", 1)
    cuts = asyncio.Event()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, back: bool) -> None:
        try:
            while data := await reader.read(65_536):
                if back and cuts.is_set() and len(data) > 60:
                    cuts.clear()
                    writer.transport.abort()
                    return
                writer.write(data)
        except OSError:
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(pump(reader, there_writer, False), pump(there_reader, writer, True))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", cuts
    finally:
        server.close()


@pytest.mark.parametrize("verb", ["ack", "retry_in", "nack", "give_back", "dead_letter", "extend"])
@pytest.mark.parametrize("push", [True, False], ids=["push", "simple"])
async def test_a_verb_whose_answer_was_lost_is_said_again(
    sdk_broker: BrokerProcess, operator: WireClient, name: str, push: bool, verb: str
) -> None:
    operator.create_group(name, 3, [5])
    async with (
        deaf(sdk_broker.endpoint) as (near, cuts),
        latermq.connect(near) as mq,
        asyncio.timeout(patient(60)),
    ):
        await mq.send(name, b"x")
        if push:
            delivery = await anext(mq.push_consumer(name, group=name))
        else:
            (delivery,) = await mq.simple_consumer(name, group=name).receive()
        said: dict[str, Callable[[], Awaitable[None]]] = {
            "ack": delivery.ack,
            "retry_in": partial(delivery.retry_in, timedelta(milliseconds=1)),
            "nack": delivery.nack,
            "give_back": partial(delivery._settler.return_it, delivery),
            "dead_letter": partial(delivery.dead_letter, "no"),
            "extend": partial(delivery.extend, LONG),
        }
        cuts.set()
        await said[verb]()
        assert delivery.outcome is not latermq.delivery.Outcome.LOST
        if verb == "extend":
            await delivery.ack()
