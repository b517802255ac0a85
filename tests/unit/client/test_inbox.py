"""Flow control by window, order by message group."""

import asyncio
import logging
from typing import Any, cast

import pytest

from latermq._consuming.inbox import Inbox, Window
from latermq._values.endpoints import Endpoints
from latermq._wire.messages import Arrival
from latermq.delivery import Delivery, Settler
from latermq.message import Received
from latermq_proto.google.protobuf import timestamp_pb2
from support.virtual_loop import virtually

ENDPOINTS = Endpoints.parse("broker:1")
BORN_AT = timestamp_pb2.Timestamp().ToDatetime()


def delivery(name: str, group: str | None = None) -> Delivery:
    received = Received(
        topic="orders",
        body=b"x",
        message_id=name,
        attempt=1,
        born_at=BORN_AT,
        message_group=group,
    )
    return Delivery(Arrival(received, name, ""), ENDPOINTS, cast(Settler, None))


def names(deliveries: list[Delivery]) -> list[str]:
    return [d.message_id for d in deliveries]


async def taken(inbox: Inbox, count: int) -> list[Delivery]:
    found = [await inbox.take() for _ in range(count)]
    return [d for d in found if d is not None]


def test_a_window_counts_messages() -> None:
    window = Window(count_max=2, bytes_max=100)
    window.enter(1)
    assert window.room() == 1
    window.enter(1)
    assert window.room() == 0
    window.leave(1)
    assert window.room() == 1


def test_a_window_counts_bytes() -> None:
    window = Window(count_max=1000, bytes_max=100)
    window.enter(99)
    assert window.room() == 999
    window.enter(500)  # how large a message is, is known when it is here
    assert window.room() == 0
    window.leave(500)
    assert window.room() == 999


def full_window() -> Window:
    """Make a window that holds a hundred messages and takes no more."""
    window = Window(count_max=100, bytes_max=1_000)
    for _ in range(100):
        window.enter(1)
    return window


@virtually
async def test_a_window_that_stays_full_is_told_once_though_some_are_settled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    window = full_window()

    async def receive() -> None:
        while True:
            for _ in range(await window.wait_for_room()):
                window.enter(1)

    receiving = asyncio.create_task(receive())
    for _ in range(200):
        await asyncio.sleep(1)
        window.leave(1)
    told = "a queue's window was full for 60 s, though 61 were settled: 99 of 100 messages"
    assert [told in each.getMessage() for each in caplog.records] == [True]
    for _ in range(11):
        window.leave(1)
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)
    assert "has room again" in caplog.records[-1].getMessage()


@virtually
async def test_a_window_whose_listeners_hang_is_told_though_some_were_settled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    window = full_window()
    waiting = asyncio.create_task(window.wait_for_room())
    await asyncio.sleep(50)
    window.leave(1)
    assert await waiting == 1
    window.enter(1)
    waiting = asyncio.create_task(window.wait_for_room())
    await asyncio.sleep(130)
    waiting.cancel()
    (told,) = [each.getMessage() for each in caplog.records]
    assert told.startswith("nothing is received: 100 of 100 messages")


@virtually
async def test_a_window_that_keeps_nobody_waiting_is_not_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    window = full_window()
    waiting = asyncio.create_task(window.wait_for_room())
    await asyncio.sleep(1)
    window.leave(1)
    await waiting
    for _ in range(5):  # there is room, and nothing comes
        await asyncio.sleep(20)
        window.leave(1)
    assert caplog.records == []


@virtually
async def test_a_window_that_is_emptied_at_times_is_not_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    window = Window(count_max=100, bytes_max=1_000)
    for _ in range(10):
        for _ in range(100):
            window.enter(1)
        waiting = asyncio.create_task(window.wait_for_room())
        await asyncio.sleep(30)
        for _ in range(100):
            window.leave(1)
        assert await waiting == 100
    assert caplog.records == []


@pytest.mark.parametrize("bounds", [(0, 1), (1, 0)])
def test_a_window_without_room_is_refused(bounds: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="room"):
        Window(*bounds)


@pytest.fixture
def ordered() -> tuple[Inbox, dict[str, Delivery]]:
    """Two messages of group a, one of b, one of none, in an ordered group's inbox."""
    inbox = Inbox()
    ready = {
        name: delivery(name, group)
        for name, group in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("n1", None)]
    }
    for one in ready.values():
        inbox.put(one, in_order=True)
    return inbox, ready


async def test_without_order_it_is_a_queue() -> None:
    inbox = Inbox()
    for name in ("a1", "a2"):
        inbox.put(delivery(name, "a"), in_order=False)
    assert names(await taken(inbox, 2)) == ["a1", "a2"]


async def test_one_at_a_time_of_a_message_group(ordered: Any) -> None:
    inbox, ready = ordered
    assert names(await taken(inbox, 3)) == ["a1", "b1", "n1"]
    assert len(inbox) == 1
    assert inbox.finished(ready["a1"], failed=False) == []
    assert names(await taken(inbox, 1)) == ["a2"]


async def test_what_waits_behind_a_failed_one_goes_back(ordered: Any) -> None:
    inbox, ready = ordered
    await taken(inbox, 3)
    assert names(inbox.finished(ready["b1"], failed=True)) == []
    assert names(inbox.finished(ready["a1"], failed=True)) == ["a2"]
    assert len(inbox) == 0


async def test_a_returned_one_does_not_unblock_its_group(ordered: Any) -> None:
    inbox, ready = ordered
    await taken(inbox, 3)
    inbox.finished(ready["a1"], failed=True)
    again = delivery("a1 again", "a")
    inbox.put(again, in_order=True)
    await taken(inbox, 1)
    inbox.put(delivery("a2 again", "a"), in_order=True)
    inbox.finished(ready["a2"], failed=True)  # its return is confirmed late
    assert len(inbox) == 1
    assert inbox.finished(again, failed=False) == []
    assert names(await taken(inbox, 1)) == ["a2 again"]


async def test_closing_hands_back_what_waits(ordered: Any) -> None:
    inbox, _ = ordered
    assert names(inbox.close()) == ["a1", "a2", "b1", "n1"]
    assert await inbox.take() is None
