"""What listeners of Kafka do while Kafka and LaterMQ are as they should not be."""

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest

from latermq import Message
from latermq._consuming.calling import HandlerCancelledError
from latermq._worker.verdicts import Rules
from latermq.errors import DiskFullError
from latermq.kafka import KafkaApp, Record
from latermq.kafka._bridge import Bridge, Place
from latermq.kafka._handler import Handler
from latermq.kafka._lanes import KafkaLanes


async def bill(record: Record) -> None:
    raise ValueError("no card")


class FullOnce:
    """A client and its sender, at a broker whose disk is full when it is asked first."""

    def __init__(self) -> None:
        self.sends = 0

    def _sender(self) -> "FullOnce":
        return self

    async def send_one(self, topic: str, message: Message) -> None:
        self.sends += 1
        if self.sends == 1:
            raise DiskFullError(50001, "disk full: no room")


async def test_a_record_waits_until_the_disk_of_latermq_has_room() -> None:
    """The worker would end of an error, and be started again, and again."""
    client: Any = FullOnce()
    place = Place("orders", "billing", "orders-billing", ordered=False)
    bridge = Bridge(place, Handler(bill, None), Rules(), lambda: client, None)
    await bridge.treat(Record(topic="orders", partition=0, offset=1), lambda: False)
    assert client.sends == 2


async def test_a_handler_s_own_coroutine_is_awaited_and_a_generator_fails() -> None:
    async def forgetful(record: Record) -> Any:
        return bill(record)

    async def yields(record: Record) -> Any:
        return (each for each in (record,))

    class Yielding:
        def __call__(self, record: Record) -> Any:
            yield record

    record = Record(topic="orders", partition=0, offset=1)
    with pytest.raises(ValueError, match="no card"):
        await Handler(forgetful, None)(record)
    for function in (yields, Yielding()):
        handler = Handler(function, None)
        with pytest.raises(TypeError, match="yields, and nobody"):
            await handler(record)
        handler.close()


async def test_a_handler_that_raises_cancelled_error_has_failed() -> None:
    """Its partition would stand still, and nobody be told."""

    async def cancelled(record: Record) -> None:
        raise asyncio.CancelledError

    client: Any = FullOnce()
    place = Place("orders", "billing", "orders-billing", ordered=False)
    bridge = Bridge(place, Handler(cancelled, None), Rules(), lambda: client, None)
    record = Record(topic="orders", partition=0, offset=1)
    await bridge.treat(record, lambda: False)
    assert client.sends == 2, "LaterMQ has it"
    with pytest.raises(HandlerCancelledError):  # and what LaterMQ brings has failed, counted
        await bridge.handler(record)


async def test_the_end_of_the_bridge_is_no_failure_of_a_record() -> None:
    begun = asyncio.Event()

    async def slow(record: Record) -> None:
        begun.set()
        await asyncio.sleep(3_600)

    client: Any = FullOnce()
    place = Place("orders", "billing", "orders-billing", ordered=False)
    bridge = Bridge(place, Handler(slow, timedelta(hours=2)), Rules(), lambda: client, None)
    record = Record(topic="orders", partition=0, offset=1)
    treating = asyncio.create_task(bridge.treat(record, lambda: False))
    await begun.wait()
    treating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await treating
    assert client.sends == 0


async def test_a_cancelled_piece_of_work_ends_the_listener() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    async def nothing(*_: object) -> None: ...

    lanes = KafkaLanes("billing", nothing, lambda: None, cancelled)
    await lanes.assigned([0])
    raw: Any = Raw()
    lanes.arrived([raw])
    with pytest.raises(RuntimeError, match="was cancelled"):
        await asyncio.wait_for(lanes.failure, 5)


class Raw:
    """A record as librdkafka gives it, as far as a lane asks."""

    def partition(self) -> int:
        return 0


def test_two_listeners_do_not_share_what_waits_at_latermq() -> None:
    """What one failed at would come to the other."""
    app = KafkaApp({"bootstrap.servers": "127.0.0.1:1"})
    made = [
        app.kafka_listener(topic, group=group)(bill)
        for topic, group in (
            ("orders", "billing"), ("new.orders", "billing"), ("new_orders", "billing"),
            ("orders", "eu-billing"), ("orders-eu", "billing"), ("orders", "eu%2Dbilling"),
        )
    ]  # fmt: skip
    names = [each.retry_topic for each in made]
    assert names[:2] == ["orders-billing", "new%2Eorders-billing"]
    assert len(set(names)) == len(names)
    with pytest.raises(ValueError, match="retry_topic orders-billing has the records of topic ord"):
        app.kafka_listener("cups", group="tea", retry_topic="orders-billing")(bill)


async def test_partitions_with_nothing_in_hand_go_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def nothing(*_: object) -> None: ...

    lanes = KafkaLanes("billing", nothing, lambda: None, nothing)
    await lanes.assigned([0, 1])
    await asyncio.sleep(0)
    await lanes.revoked([0, 1], 0.0)
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_a_function_may_listen_to_two_topics_and_is_still_itself() -> None:
    app = KafkaApp({"bootstrap.servers": "127.0.0.1:1"})
    twice = app.kafka_listener("b", group="billing")(app.kafka_listener("a", group="billing")(bill))
    assert (twice.function, twice.__name__, twice.topic, twice.retry_topic) == (
        bill, "bill", "b", "b-billing",
    )  # fmt: skip
    with pytest.raises(ValueError, match="no worker serves bill in this process, now"):
        _ = twice.consumer


async def test_a_paused_listener_finishes_what_it_has_and_begins_nothing() -> None:
    began, go_on = list[Record](), asyncio.Event()

    async def treat(record: Record, _: object) -> None:
        began.append(record)
        await go_on.wait()

    async def nothing() -> None: ...

    def figures() -> tuple[int, int]:
        now = lanes.now()
        return now["in_hand"], now["waiting"]

    lanes = KafkaLanes("billing", treat, lambda: None, nothing)
    await lanes.assigned([0])
    records: list[Any] = [WholeRaw(1), WholeRaw(2)]
    lanes.arrived(records)
    await turns()
    assert (len(began), figures()) == (1, (1, 1))
    lanes.pause()
    go_on.set()
    await turns()
    assert (len(began), figures()) == (1, (0, 1))
    lanes.resume()
    await turns()
    assert (len(began), figures()) == (2, (0, 0))
    lanes.pause()
    lanes.arrived([WholeRaw(3)])
    assert await lanes.drain(5)
    assert len(began) == 2


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class WholeRaw(Raw):
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def topic(self) -> str:
        return "orders"

    def offset(self) -> int:
        return self._offset

    def key(self) -> None: ...
    def value(self) -> None: ...
    def headers(self) -> None: ...

    def timestamp(self) -> tuple[int, int]:
        return (1, 0)
